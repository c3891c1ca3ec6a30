#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/device/core/with_index.hpp>
#include <tensafe/device/encoding/slot_tables.hpp>
#include <tensafe/device/encoding/slots.hpp>
#include <tensafe/device/exec/context.hpp>
#include <tensafe/device/rns/crt.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/ntt/butterfly.hpp>
#include <tensafe/rns/basis.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::encoding {

namespace detail {

/// x / scale for an integer x. GPUs divide zero and tiny numbers on another path: that a secret is zero
/// should not show in the time.
TENSAFE_HOST_DEVICE TENSAFE_INLINE double divided_by_scale(double x, double scale) noexcept {
    const double quotient = (x == 0 ? 1.0 : x) / scale;
    return x == 0 ? x : quotient;
}

/// One coefficient to a thread.
template <class Basis>
struct decode_coefficients_kernel {
    static constexpr int threads = Basis::degree < 256 ? 32 : 256;
    static constexpr auto blocks = static_cast<std::uint32_t>((Basis::degree + threads - 1) / threads);
    using shared_type = exec::no_shared;

    const arith::word* words;
    double scale;
    double* coefficients;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t polynomial = ctx.block().x / blocks;
        const std::uint32_t first = ctx.block().x % blocks * threads;
        ctx.last([&](int t) {
            const std::size_t k = first + static_cast<std::uint32_t>(t);
            if (k < Basis::degree) {
                arith::word residues[Basis::limbs];
                for (int i = 0; i < Basis::limbs; ++i) {
                    residues[i] =
                        words[(polynomial * Basis::limbs + static_cast<std::size_t>(i)) * Basis::degree + k];
                }
                coefficients[polynomial * Basis::degree + k] =
                    divided_by_scale(rns::to_double_of<Basis>(residues), scale);
            }
        });
    }
};

}  // namespace detail

/// decode_coefficients for `count` whole polynomials, with the same bits. One launch.
/// @param words [count][limb][N], coefficient form, each in [0, q)
/// @param coefficients [count][N]
template <class Basis, class Where>
void decode_coefficients_blocks(const Where& where, const arith::word* words, double scale,
                                double* coefficients, std::size_t count) {
    using kernel = detail::decode_coefficients_kernel<Basis>;
    if (count != 0) {
        where.launch(kernel{words, scale, coefficients},
                     {static_cast<std::uint32_t>(count) * kernel::blocks});
    }
}

/// decode_slots for `count` polynomials, with the same bits: two launches, three if N > 2^14.
/// @param words [count][limb][N], coefficient form, each in [0, q)
/// @param work [count][N]: holds secrets afterwards, which the caller wipes
/// @param slots [count][N/2], real and imaginary part in turn, 16-byte aligned
/// @throws parameter_error unless the tables are for this degree
template <class Basis, class Where>
void decode_slots_blocks(const Where& where, const block_slot_tables<typename Where::space>& tables,
                         const arith::word* words, double scale, double* work, double* slots,
                         std::size_t count) {
    detail::check_tables("decode_slots_blocks", tables.log_n(), Basis::log_n);
    decode_coefficients_blocks<Basis>(where, words, scale, work, count);
    to_slots_blocks<Basis::log_n>(where, tables, work, slots, count);
}

namespace detail {

/// The largest subring that one block of threads decodes: 64 coefficients.
inline constexpr int largest_subring_log_n = 6;

/// A factor of arith::shoup.
struct trace_factor {
    arith::word value;
    arith::word quotient;
};

/// One output to a block, one limb to a warp.
template <class Basis>
struct decode_folded_kernel {
    static constexpr int threads = 32 * Basis::limbs;
    static constexpr std::uint32_t largest = 1U << largest_subring_log_n;
    struct shared_type {
        arith::word words[Basis::limbs][largest];
        double coefficients[largest];
        slot_memory<largest_subring_log_n - 1> slots;
    };

    block_slot_view tables;
    const trace_factor* factors;  ///< [limb][n]: the inverse factors, 1/n at 0
    int log_n;
    const arith::word* sums;
    double scale;
    double* slots;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t output = ctx.block().x;
        const std::uint32_t n = 1U << log_n;
        shared_type& shared = ctx.shared();
        ctx.each([&](int t) {
            const auto limb = static_cast<std::uint32_t>(t) / 32;
            for (std::uint32_t k = static_cast<std::uint32_t>(t) % 32; k < n; k += 32) {
                shared.words[limb][k] = sums[(output * Basis::limbs + limb) * n + k];
            }
        });
        for (int log_half = 0; log_half < log_n; ++log_half) {
            ctx.each([&](int t) {
                const std::uint32_t lane = static_cast<std::uint32_t>(t) % 32;
                if (lane < n / 2) {
                    with_index<Basis::limbs>(t / 32, [&]<int I>() { butterfly<I>(shared, lane, log_half); });
                }
            });
        }
        ctx.each([&](int t) {
            for (auto k = static_cast<std::uint32_t>(t); k < n; k += static_cast<std::uint32_t>(threads)) {
                shared.coefficients[k] = divided_by_scale(
                    reconstruct(shared, k, std::make_integer_sequence<int, Basis::limbs>{}), scale);
            }
        });
        double* const to = slots + output * n;
        if (log_n < largest_subring_log_n) {
            ctx.last([&](int t) {
                const auto i = static_cast<std::uint32_t>(t);
                if (i < n) {
                    to[i] = evaluate_part(tables.roots, n / 2, shared.coefficients, i);
                }
            });
        } else {
            evaluate_block<largest_subring_log_n - 1>(ctx, shared.slots, tables, 0, shared.coefficients, to);
        }
    }

  private:
    template <int I>
    using policy = arith::shoup<arith::fixed_modulus<Basis::template prime<I>>>;

    TENSAFE_HOST_DEVICE TENSAFE_INLINE trace_factor factor(int limb, std::uint32_t i) const noexcept {
        return factors[(static_cast<std::uint32_t>(limb) << log_n) + i];
    }

    template <int I>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE void butterfly(shared_type& shared, std::uint32_t lane,
                                                      int log_half) const noexcept {
        constexpr policy<I> p{};
        using value = ntt::residue<policy<I>, 1>;
        const std::uint32_t block = lane >> log_half;
        const std::uint32_t x = (block << (log_half + 1)) | (lane & ((1U << log_half) - 1));
        const std::uint32_t y = x + (1U << log_half);
        const trace_factor w = factor(I, (1U << (log_n - 1 - log_half)) + block);
        const auto pair = ntt::inverse_butterfly(p, value{shared.words[I][x]}, value{shared.words[I][y]},
                                                 typename policy<I>::factor{w.value, w.quotient});
        shared.words[I][x] = arith::reduce<1>(p.modulus(), pair.first).value;
        shared.words[I][y] = arith::reduce<1>(p.modulus(), pair.second).value;
    }

    /// Divides by n and reconstructs.
    template <int... I>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE double reconstruct(const shared_type& shared, std::uint32_t k,
                                                          std::integer_sequence<int, I...>) const noexcept {
        const arith::word residues[Basis::limbs] = {divided<I>(shared.words[I][k])...};
        return rns::to_double_of<Basis>(residues);
    }
    template <int I>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE arith::word divided(arith::word x) const noexcept {
        constexpr policy<I> p{};
        const trace_factor w = factor(I, 0);
        return arith::reduce<1>(p.modulus(),
                                p.multiply_word(x, typename policy<I>::factor{w.value, w.quotient}))
            .value;
    }
};

}  // namespace detail

/// The tables that decode_trace_blocks reads, for a subring of degree 2^log_n <= 64: inverse transforms
/// modulo the primes of the basis with the points of rns::shared_subring_plan, and the slot transform. Some
/// KiB. Immutable; shared by any number of launches while it exists.
template <class Basis, class Space>
class block_trace_tables {
  public:
    static constexpr int max_log_n = std::min(detail::largest_subring_log_n, Basis::log_n);

    /// Builds the tables and waits until they are uploaded.
    /// @throws parameter_error unless 1 <= log_n <= max_log_n
    template <class Where>
    block_trace_tables(const Where& where, int log_n) : slots_(where, checked(log_n)) {
        std::vector<detail::trace_factor> factors;
        rns::for_each_limb<Basis>([&]<int I>() {
            const auto& plan = rns::shared_subring_plan<Basis::log_n, Basis::template prime<I>>(log_n);
            const auto first = plan.degree_inverse();
            factors.push_back({first.value, first.quotient});
            for (std::size_t i = 1; i < plan.degree(); ++i) {
                const auto factor = plan.inverse_factors()[i];
                factors.push_back({factor.value, factor.quotient});
            }
        });
        factors_ = memory::buffer<detail::trace_factor, Space>(factors.size(), memory::uninitialized);
        where.upload(std::span<const detail::trace_factor>(factors), factors_.data());
        where.wait();
    }

    int log_n() const noexcept { return slots_.log_n(); }
    const detail::trace_factor* factors() const noexcept { return factors_.data(); }
    const block_slot_tables<Space>& slots() const noexcept { return slots_; }

  private:
    static int checked(int log_n) {
        if (log_n < 1 || log_n > max_log_n) {
            throw parameter_error("block_trace_tables: log_n: got " + std::to_string(log_n) +
                                  ", expected 1 to " + std::to_string(max_log_n));
        }
        return log_n;
    }

    block_slot_tables<Space> slots_;
    memory::buffer<detail::trace_factor, Space> factors_;
};

/// ckks::decode_trace for `outputs` traced messages, with the same bits: inverse transform of the subring,
/// reconstruction, division by the scale, slots. One launch, one block for each output.
/// @tparam Basis the primes that hold the messages: rns::prefix of the chain
/// @param sums [output][limb][n], n = 2^tables.log_n(): evaluation form of the subring, in [0, q)
/// @param slots [output][n/2], real and imaginary part in turn, 16-byte aligned
template <class Basis, class Where>
void decode_trace_blocks(const Where& where, const block_trace_tables<Basis, typename Where::space>& tables,
                         const arith::word* sums, double scale, double* slots, std::size_t outputs) {
    if (outputs != 0) {
        where.launch(detail::decode_folded_kernel<Basis>{tables.slots().view(), tables.factors(),
                                                         tables.log_n(), sums, scale, slots},
                     {static_cast<std::uint32_t>(outputs)});
    }
}

}  // namespace tensafe::encoding
