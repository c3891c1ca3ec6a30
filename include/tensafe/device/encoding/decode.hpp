#pragma once

#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/device/encoding/slot_passes.hpp>
#include <tensafe/device/encoding/slot_transform.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/rns/trace.hpp>
#include <tensafe/rns/basis.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tensafe::device {

namespace detail {

/// A signed word, rounded once to double: two exact sums and a rounded one, since conversions of words run
/// at a quarter of the rate of additions on GPUs.
TENSAFE_HD_INLINE double double_of_signed(word x) noexcept {
    // Halves in the mantissas of 2^84 (units of 2^32, made positive by 2^31 of them) and of 2^52.
    const word upper = (x >> 32) ^ 0x80000000U ^ 0x4530000000000000U;
    const word lower = (x & 0xFFFFFFFFU) | 0x4330000000000000U;
    constexpr double offset = 0x1p84 + 0x1p63 + 0x1p52;
    return (__builtin_bit_cast(double, upper) - offset) + __builtin_bit_cast(double, lower);
}

/// Does one step of Garner's algorithm for digit I, after digit J is known.
template <class Basis, int I, int J>
TENSAFE_HD_INLINE word garner_step(word digit, word of_j) noexcept {
    constexpr word q = Basis::template prime<I>;
    constexpr arith::shoup<arith::fixed_modulus<q>> p{};
    constexpr auto inverse = p.prepare(rns::detail::garner_inverse<Basis, I, J>);
    constexpr word offset = rns::detail::garner_offset<Basis, I, J>;
    return arith::reduce<1>(p.modulus(), p.multiply_word(digit + offset - of_j, inverse)).value;
}

/// Digit I, from x modulo prime I and the digits before it.
template <class Basis, int I, int... J>
TENSAFE_HD_INLINE word garner_digit(word residue, const word* digits,
                                    std::integer_sequence<int, J...>) noexcept {
    constexpr word q = Basis::template prime<I>;
    word digit = arith::subtract_if_not_below(residue + (q - 1) / 2, q);
    ((digit = garner_step<Basis, I, J>(digit, digits[J])), ...);
    return digit;
}

/// Returns value * q + the centred digit: one step of the sum, from the last prime to the first.
template <word Q>
TENSAFE_HD_INLINE double add_digit(double value, word digit) noexcept {
    constexpr auto q = static_cast<double>(Q);
    return arith::rounded_product(value, q) + double_of_signed(digit - (Q - 1) / 2);
}

template <class Basis, int... I>
TENSAFE_HD_INLINE double garner_to_double(const word* residues, std::integer_sequence<int, I...>) noexcept {
    word digits[sizeof...(I)];
    ((digits[I] = garner_digit<Basis, I>(residues[I], digits, std::make_integer_sequence<int, I>{})), ...);
    double value = 0;
    ((value = add_digit<Basis::template prime<Basis::limbs - 1 - I>>(value, digits[Basis::limbs - 1 - I])),
     ...);
    return value;
}

}  // namespace detail

/// Does what rns::to_double does, in kernels: the same integer in (-Q/2, Q/2), rounded by the same steps to
/// the same bits. No branch, no index depends on a residue.  @pre residues[i] in [0, q_i)
template <class Basis>
TENSAFE_HD_INLINE double to_double_of(const word (&residues)[Basis::limbs]) noexcept {
    static_assert(
        rns::modulus_bits<Basis> <= 1023,
        "device::to_double_of: the modulus must be below 2^1023, the range of double; use fewer limbs");
    return detail::garner_to_double<Basis>(residues, std::make_integer_sequence<int, Basis::limbs>{});
}

namespace detail {

/// Returns x / scale for an integer x. GPUs divide 0 and tiny numbers on another path: that a secret is 0
/// should not show in the time.
TENSAFE_HD_INLINE double divided_by_scale(double x, double scale) noexcept {
    const double quotient = (x == 0 ? 1.0 : x) / scale;
    return x == 0 ? x : quotient;
}

template <class Basis>
struct decode_coefficients_kernel {
    static constexpr int threads = Basis::degree < 256 ? 32 : 256;
    static constexpr auto blocks = static_cast<std::uint32_t>((Basis::degree + threads - 1) / threads);
    using shared_type = no_shared;

    const word* words;
    double scale;
    double* coefficients;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t polynomial = ctx.block().x / blocks;
        const std::uint32_t first = ctx.block().x % blocks * threads;
        ctx.last([&](int t) {
            const std::size_t k = first + static_cast<std::uint32_t>(t);
            if (k < Basis::degree) {
                word residues[Basis::limbs];
                for (int i = 0; i < Basis::limbs; ++i) {
                    residues[i] =
                        words[(polynomial * Basis::limbs + static_cast<std::size_t>(i)) * Basis::degree + k];
                }
                coefficients[polynomial * Basis::degree + k] =
                    divided_by_scale(to_double_of<Basis>(residues), scale);
            }
        });
    }
};

}  // namespace detail

/// Decodes `count` whole polynomials like encoding::decode_coefficients, with the same bits. One launch.
/// @param words [count][limb][N], coefficient form, each in [0, q)
/// @param coefficients [count][N]
template <class Basis, class Where>
void decode_coefficients(const Where& where, const word* words, double scale, double* coefficients,
                         std::size_t count) {
    using kernel = detail::decode_coefficients_kernel<Basis>;
    if (count != 0) {
        where.launch(kernel{words, scale, coefficients},
                     {static_cast<std::uint32_t>(count) * kernel::blocks});
    }
}

/// Decodes `count` polynomials with the bits of encoding::decode_slots: two launches, three if N > 2^14.
/// @param words [count][limb][N], coefficient form, each in [0, q)
/// @param work [count][N]: holds secrets afterwards, which the caller wipes
/// @param slots [count][N/2], real and imaginary part in turn, 16-byte aligned
/// @throws parameter_error unless the tables are for this degree
template <class Basis, class Where>
void decode_slots(const Where& where, const slot_tables<typename Where::space>& tables, const word* words,
                  double scale, double* work, double* slots, std::size_t count) {
    detail::check_tables("device::decode_slots", tables.log_n(), Basis::log_n);
    decode_coefficients<Basis>(where, words, scale, work, count);
    to_slots<Basis::log_n>(where, tables, work, slots, count);
}

namespace detail {

/// Decodes traced messages: one output to a thread block, one limb to a warp.
template <class Basis>
struct decode_folded_kernel {
    static constexpr int threads = 32 * Basis::limbs;
    static constexpr std::uint32_t largest = 1U << most_subring_log_n;
    struct shared_type {
        word words[Basis::limbs][largest];
        double coefficients[largest];
        slot_memory<most_subring_log_n - 1> slots;
    };

    slot_view tables;
    const trace_factor* factors;  ///< [limb][n]: the inverse factors, 1/n at 0
    int log_n;
    const word* sums;
    double scale;
    double* slots;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t output = ctx.block().x;
        const std::uint32_t n = 1U << log_n;
        shared_type& shared = ctx.shared();
        fold_block_sums<Basis>(
            ctx, shared.words, factors, static_cast<std::uint32_t>(log_n),
            [&]<int I>(std::uint32_t k) { return sums[(limb_of<Basis, I>(output) << log_n) + k]; });
        ctx.each([&](int t) {
            for (auto k = static_cast<std::uint32_t>(t); k < n; k += static_cast<std::uint32_t>(threads)) {
                shared.coefficients[k] = divided_by_scale(
                    reconstruct(shared, k, std::make_integer_sequence<int, Basis::limbs>{}), scale);
            }
        });
        double* const to = slots + output * n;
        if (log_n < most_subring_log_n) {
            ctx.last([&](int t) {
                const auto i = static_cast<std::uint32_t>(t);
                if (i < n) {
                    to[i] = evaluate_part(tables.roots, n / 2, shared.coefficients, i);
                }
            });
        } else {
            evaluate_block<most_subring_log_n - 1>(ctx, shared.slots, tables, 0, shared.coefficients, to);
        }
    }

  private:
    template <int... I>
    TENSAFE_HD_INLINE double reconstruct(const shared_type& shared, std::uint32_t k,
                                         std::integer_sequence<int, I...>) const noexcept {
        const word residues[Basis::limbs] = {fold_scale<Basis::template prime<I>>(
            shared.words[I][k], factors + (std::uint32_t{I} << log_n))...};
        return device::to_double_of<Basis>(residues);
    }
};

}  // namespace detail

/// The tables that device::decode_trace reads, for a subring of degree 2^log_n <= 64: inverse transforms
/// modulo the primes of the basis with the points of rns::shared_subring_plan, and the slot transform. Some
/// KiB. Immutable; shared by any number of launches while it exists.
template <class Basis, class Space>
struct folded_slot_tables {
    /// Builds the tables and waits until they are uploaded.
    /// @throws parameter_error unless log_n is in [1, 6] and at most the ring's
    template <class Where>
    folded_slot_tables(const Where& where, int log_n)
        : slots(where, checked(log_n)), traces(where, log_n, false) {}

    slot_tables<Space> slots;
    trace_tables<Basis, Space> traces;

  private:
    static int checked(int log_n) {
        constexpr int most = Basis::log_n < most_subring_log_n ? Basis::log_n : most_subring_log_n;
        require<parameter_error>(log_n >= 1 && log_n <= most, {"device::folded_slot_tables: log_n: got ",
                                                               log_n, ", expected 1 to ", most});
        return log_n;
    }
};

/// Decodes `outputs` traced messages like ckks::decode_trace, with the same bits: inverse transform of the
/// subring, reconstruction, division by the scale, slots. One launch, one thread block for each output.
/// @tparam Basis the primes that hold the messages: rns::prefix of the chain
/// @param sums [output][limb][n], n = 2^tables.log_n(): evaluation form of the subring, in [0, q)
/// @param slots [output][n/2], real and imaginary part in turn, 16-byte aligned
template <class Basis, class Where>
void decode_trace(const Where& where, const folded_slot_tables<Basis, typename Where::space>& tables,
                  const word* sums, double scale, double* slots, std::size_t outputs) {
    if (outputs != 0) {
        where.launch(detail::decode_folded_kernel<Basis>{tables.slots.view(), tables.traces.factors(),
                                                         tables.traces.log_n(), sums, scale, slots},
                     {static_cast<std::uint32_t>(outputs)});
    }
}

}  // namespace tensafe::device
