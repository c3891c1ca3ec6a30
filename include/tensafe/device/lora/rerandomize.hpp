#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/ckks/sanitize/flooding.hpp>
#include <tensafe/device/ckks/encrypt.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/lora/messages.hpp>
#include <tensafe/device/ntt/plan.hpp>
#include <tensafe/device/rns/rescale.hpp>
#include <tensafe/device/rns/trace.hpp>
#include <tensafe/rns/basis.hpp>

#include <cstddef>
#include <cstdint>

namespace tensafe::device {

/// Products on their way into replies; product t * outputs + o is output o of token t. Pointers are into the
/// memory of the device. What device::rerandomize_c0 reads is secret until it is hidden: e0, e1 and floods
/// are the caller's to wipe.
struct rerandomization {
    const word* c0_sums = nullptr;  ///< [product][limb][2^subring_log_n][c0_parts], evaluation form
    std::uint32_t c0_parts = 1;     ///< neighbours that add up to one block sum
    /// The block sums of encryptions of zero, as c0_sums, unless c0_sums has them in it already.
    const word* zero_sums = nullptr;
    std::uint32_t zero_parts = 1;
    const std::int8_t* e0 = nullptr;  ///< 2^subring_log_n for each product, the next e0_stride further on
    std::uint32_t e0_stride = 0;
    const arith::uint128* floods = nullptr;  ///< as ckks::flood::sample draws them, not centred
    std::uint32_t flood_stride = 0;

    const word* c1 = nullptr;         ///< [product][limb][N], coefficient form, with the zero's a*v
    const std::int8_t* e1 = nullptr;  ///< the errors of c1, [product][N]

    const output_place* places = nullptr;  ///< the place of each output
    std::uint32_t tokens = 0;
    std::uint32_t outputs = 0;
    std::uint8_t* replies = nullptr;  ///< one for each token, 16-byte aligned
    std::size_t stride = 0;           ///< from one reply to the next, a multiple of 16
};

namespace detail {

/// Adds a flood less its centre to x modulo Q, as ckks::flood::add_to does.
template <word Q>
TENSAFE_HD_INLINE word plus_flood(word x, arith::uint128 flood, word minus_centre) noexcept {
    using modulus = arith::fixed_modulus<Q>;
    constexpr arith::shoup<modulus> fixed{};
    constexpr auto one = fixed.prepare(1);
    constexpr auto power = fixed.prepare(arith::barrett<modulus>{}.reduce_any(arith::uint128{1} << 64));
    const arith::below<4, modulus> sum =
        fixed.multiply_word(arith::high_word(flood), power) + fixed.reduce_word(arith::low_word(flood), one);
    const arith::below<2, modulus> shifted{x + minus_centre};
    return arith::reduce<1>(modulus{}, shifted + sum).value;
}
template <class Basis, int Terms>
void set_minus_centre(ckks::flood<Terms> flood, word (&minus_centre)[Basis::limbs]) {
    rns::for_each_limb<Basis>([&]<int I>() {
        constexpr word q = Basis::template prime<I>;
        minus_centre[I] = q - rns::variable_arithmetic<q>.reduce_any(flood.centre());
    });
}

template <word Q>
TENSAFE_HD_INLINE word sum_of_parts(const word* parts, std::uint32_t count) noexcept {
    word sum = parts[0];
    for (std::uint32_t i = 1; i < count; ++i) {
        sum = arith::subtract_if_not_below(sum + parts[i], Q);
    }
    return sum;
}

TENSAFE_HD_INLINE std::uint8_t packed_byte(const std::uint32_t* values, std::uint32_t count,
                                           std::uint32_t bits, std::uint32_t i) noexcept {
    std::uint32_t k = 8 * i / bits;
    std::uint32_t byte = values[k] >> (8 * i - k * bits);
    for (std::uint32_t filled = (k + 1) * bits - 8 * i; filled < 8 && ++k < count; filled += bits) {
        byte |= values[k] << filled;
    }
    return static_cast<std::uint8_t>(byte);
}

/// Finishes c0 of one product in each thread block: a warp for each limb.
template <class Basis>
struct rerandomize_c0_kernel {
    static constexpr int threads = 32 * Basis::limbs;
    static_assert(threads <= 1024);
    static constexpr std::uint32_t most = std::uint32_t{1} << most_subring_log_n;
    struct shared_type {
        word words[Basis::limbs][most];
        std::uint32_t values[most];
    };

    rerandomization p;
    const trace_factor* factors;
    word minus_centre[Basis::limbs];
    std::uint32_t log_n;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t product = ctx.block().x;
        const std::uint32_t n = std::uint32_t{1} << log_n;
        auto& shared = ctx.shared();
        fold_block_sums<Basis>(ctx, shared.words, factors, log_n,
                               [&]<int I>(std::uint32_t k) { return load<I>(product, k, n); });
        ctx.each([&](int t) {
            each_word<Basis>(t, n, [&]<int I>(std::uint32_t k) {
                shared.words[I][k] =
                    rns::detail::share_of<Basis, I>(noisy<I>(shared.words[I][k], product, k, n));
            });
        });
        const auto o = static_cast<std::uint32_t>(product % p.outputs);
        const std::uint32_t bits = p.places[o].bits;
        ctx.each([&](int t) {
            for (std::uint32_t k = static_cast<std::uint32_t>(t); k < n; k += threads) {
                word sum = 0;
                for (int i = 0; i < Basis::limbs; ++i) {
                    sum += shared.words[i][k];
                }
                shared.values[k] = round_shares(sum, bits);
            }
        });
        ctx.last([&](int t) {
            std::uint8_t* const to = p.replies + product / p.outputs * p.stride + p.places[o].c0_offset;
            const std::uint32_t wanted = p.places[o].wanted;
            const std::uint32_t bytes = (wanted * bits + 7) / 8;
            for (std::uint32_t i = static_cast<std::uint32_t>(t); i < bytes; i += threads) {
                to[i] = packed_byte(shared.values, wanted, bits, i);
            }
        });
    }

  private:
    template <int I>
    TENSAFE_HOST_DEVICE word load(std::size_t product, std::uint32_t k, std::uint32_t n) const {
        const std::size_t place = limb_of<Basis, I>(product) * n + k;
        word sum = sum_of_parts<Basis::template prime<I>>(p.c0_sums + place * p.c0_parts, p.c0_parts);
        if (p.zero_sums != nullptr) {
            sum = arith::subtract_if_not_below(sum + sum_of_parts<Basis::template prime<I>>(
                                                         p.zero_sums + place * p.zero_parts, p.zero_parts),
                                               Basis::template prime<I>);
        }
        return sum;
    }

    template <int I>
    TENSAFE_HOST_DEVICE word noisy(word sum_of_block, std::size_t product, std::uint32_t k,
                                   std::uint32_t n) const {
        constexpr word q = Basis::template prime<I>;
        const word coefficient = fold_scale<q>(sum_of_block, factors + static_cast<std::uint32_t>(I) * n);
        const word with_error = arith::plus_small<q>(coefficient, p.e0[product * p.e0_stride + k]);
        return plus_flood<q>(with_error, p.floods[product * p.flood_stride + k], minus_centre[I]);
    }
};

/// Finishes c1 of all products: 512 coefficients in each thread block.
template <class Basis>
struct rerandomize_c1_kernel {
    static constexpr int threads = 256;
    static constexpr std::uint32_t at_once = 2 * threads;
    static constexpr std::uint32_t blocks = static_cast<std::uint32_t>(Basis::degree / at_once);
    static_assert(Basis::degree % at_once == 0, "lora: blocks pack replies of degree 512 and more");
    struct shared_type {
        std::uint32_t values[at_once];
    };

    rerandomization p;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::uint32_t product = ctx.block().x / blocks;
        const std::uint32_t block = ctx.block().x % blocks;
        const std::uint32_t token = product / p.outputs;
        const std::uint32_t o = product - token * p.outputs;
        const std::uint32_t bits = p.places[o].bits;
        auto& values = ctx.shared().values;
        ctx.each([&](int t) {
            const std::size_t k = block * at_once + 2 * static_cast<std::size_t>(t);
            const std::int8_t* const e1 = p.e1 + std::size_t{product} * Basis::degree + k;
            word first = 0;
            word second = 0;
            add_shares<0>(product, k, e1[0], e1[1], first, second);
            values[2 * t] = round_shares(first, bits);
            values[2 * t + 1] = round_shares(second, bits);
        });
        ctx.last([&](int t) {
            auto* const to =
                reinterpret_cast<std::uint32_t*>(p.replies + token * p.stride + p.places[o].c1_offset) +
                block * (at_once / 32 * bits);
            for (std::uint32_t w = static_cast<std::uint32_t>(t); w < at_once / 32 * bits; w += threads) {
                to[w] = packed_unit(values, bits, w);
            }
        });
    }

  private:
    template <int I>
    TENSAFE_HOST_DEVICE void add_shares(std::size_t product, std::size_t k, std::int8_t e_first,
                                        std::int8_t e_second, word& first, word& second) const {
        constexpr word q = Basis::template prime<I>;
        const word_pair c1 = load_pair(p.c1 + limb_of<Basis, I>(product) * Basis::degree + k);
        first += rns::detail::share_of<Basis, I>(arith::plus_small<q>(c1.first, e_first));
        second += rns::detail::share_of<Basis, I>(arith::plus_small<q>(c1.second, e_second));
        if constexpr (I + 1 < Basis::limbs) {
            add_shares<I + 1>(product, k, e_first, e_second, first, second);
        }
    }
};

inline void check_rerandomization(const char* who, const rerandomization& p) {
    require<shape_error>(p.tokens != 0 && p.outputs != 0, {who, ": got ", p.tokens, " tokens and ", p.outputs,
                                                           " outputs, expected at least one of each"});
    require<shape_error>(p.stride % 16 == 0,
                         {who, ": got replies of ", p.stride, " bytes, expected a multiple of 16"});
}

}  // namespace detail

/// Writes c0 of all products into their replies, in one launch: coefficients of the block sums of products
/// and encryptions of zero, plus e0 and the flood, switched and packed: the bytes of lora::rerandomize and
/// lora::serialize. No branch or index depends on a value.
/// @throws shape_error without products or with small strides; parameter_error unless flood.bits is in [1,
///         120]
template <class Basis, class Where, int Terms>
void rerandomize_c0(const Where& where, const trace_tables<Basis, typename Where::space>& trace,
                    ckks::flood<Terms> flood, const rerandomization& p) {
    detail::check_rerandomization("device::rerandomize_c0", p);
    const std::uint32_t n = std::uint32_t{1} << trace.log_n();
    require<shape_error>(
        p.c0_parts != 0 && p.zero_parts != 0 && p.e0_stride >= n && p.flood_stride >= n,
        {"device::rerandomize_c0: got ", p.c0_parts, " and ", p.zero_parts, " parts, and strides of ",
         p.e0_stride, " and ", p.flood_stride, ", expected at least 1, and ", n});
    require<parameter_error>(flood.bits >= 1 && flood.bits <= ckks::flood<Terms>::max_bits,
                             {"device::rerandomize_c0: bits of the flood: got ", flood.bits,
                              ", expected 1 to ", ckks::flood<Terms>::max_bits});
    detail::rerandomize_c0_kernel<Basis> kernel{};
    kernel.p = p;
    kernel.factors = trace.factors();
    kernel.log_n = static_cast<std::uint32_t>(trace.log_n());
    detail::set_minus_centre<Basis>(flood, kernel.minus_centre);
    where.launch(kernel, grid_shape{p.tokens * p.outputs});
}

/// Writes c1 of all products into their replies, in one launch: adds e1, switches to the output's width and
/// packs, as rns::switch_modulus and memory::pack_bits do. No branch or index depends on a value.
/// @throws shape_error if there are no products, or replies are not aligned
template <class Basis, class Where>
void rerandomize_c1(const Where& where, const rerandomization& p) {
    detail::check_rerandomization("device::rerandomize_c1", p);
    using kernel = detail::rerandomize_c1_kernel<Basis>;
    where.launch(kernel{p}, grid_shape{p.tokens * p.outputs * kernel::blocks});
}

/// Small integers as residues, for transforms on a device.
template <class Basis>
struct load_small {
    const std::int8_t* values;  ///< [polynomial][N]

    template <int I>
    TENSAFE_HOST_DEVICE word_pair pair(std::size_t polynomial, std::size_t k) const {
        return detail::residues_of_small<Basis::template prime<I>, Basis::degree>(values, polynomial, k);
    }
};

}  // namespace tensafe::device
