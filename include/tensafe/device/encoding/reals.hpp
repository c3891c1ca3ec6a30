#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/ntt/plan.hpp>
#include <tensafe/encoding/norm.hpp>
#include <tensafe/rns/basis.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tensafe::device {

namespace detail {

template <class Real>
struct squared_norms_kernel {
    static constexpr int threads = encoding::detail::norm_partial_sums;
    struct shared_type {
        double sums[encoding::detail::norm_partial_sums];
    };

    const Real* values;
    std::size_t count;
    double* norms;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::size_t row = ctx.block().x;
        ctx.each([&](int t) {
            ctx.shared().sums[t] = encoding::detail::partial_sum_of_squares(values + row * count, count,
                                                                            static_cast<std::size_t>(t));
        });
        for (int half = encoding::detail::norm_partial_sums / 2; half >= 1; half /= 2) {
            ctx.each([&](int t) {
                if (t < half) {
                    ctx.shared().sums[t] += ctx.shared().sums[t + half];
                }
            });
        }
        ctx.last([&](int t) {
            if (t == 0) {
                norms[row] = ctx.shared().sums[0];
            }
        });
    }
};

}  // namespace detail

/// Sets norms[r] = sum_of_squares of row r, for `count` rows of d values each, with the same bits. One
/// launch.
/// @param values [count][d], norms [count]: in the memory of `where`
template <class Where, class Real>
void squared_norms(const Where& where, const Real* values, std::size_t d, std::size_t count, double* norms) {
    if (count != 0) {
        where.launch(detail::squared_norms_kernel<Real>{values, d, norms},
                     {static_cast<std::uint32_t>(count)});
    }
}

/// The width of magnitudes that are rounded in fixed time: below 2^112, as in rns::limb::round_reals.
inline constexpr int fixed_time_bits = 112;

/// The width of magnitudes for which residue_of_real needs one short product modulo a prime of this width.
TENSAFE_HOST_DEVICE constexpr int short_product_bits(int width) noexcept {
    return width + 49 < fixed_time_bits ? width + 49 : fixed_time_bits;
}

namespace detail {

/// Rounds |x| < 2^(Unit + 51) to a multiple of 2^Unit, by adding a number so large that this is its last
/// place. x = multiple * 2^Unit + rest, exactly, |rest| <= 2^(Unit - 1).
template <int Unit>
struct rounding {
    static constexpr double constant = [] {
        double power = 1.5;
        for (int i = 0; i < Unit + 52; ++i) {
            power *= 2;
        }
        return power;
    }();
    static constexpr word constant_bits = std::bit_cast<word>(constant);

    TENSAFE_HD_INLINE static word multiple(double x) noexcept {
        constexpr double c = constant;
        return __builtin_bit_cast(word, x + c) - constant_bits;
    }
    TENSAFE_HD_INLINE static word split(double x, double& rest) noexcept {
        constexpr double c = constant;
        const double sum = x + c;
        rest = x - (sum - c);
        return __builtin_bit_cast(word, sum) - constant_bits;
    }
};

/// The integer next to x, ties away from zero as seen from the whole number, whose last part x is.
/// @pre |x| < 2^51; `sign` is the sign bit of the whole number
TENSAFE_HD_INLINE word round_part(double x, word sign) noexcept {
    double rest = 0;
    const word nearest = rounding<0>::split(x, rest);
    constexpr word half_bits = 0x3FE0000000000000U;  // of 0.5
    const auto tie = static_cast<word>(rest == __builtin_bit_cast(double, half_bits | sign));
    const word outwards = (word{0} - (sign >> 63)) | 1;
    return nearest + ((word{0} - tie) & outwards);
}

TENSAFE_HOST_DEVICE constexpr word multiple_above(word q, int bits) noexcept {
    return ((word{1} << bits) + q - 1) / q * q;
}

template <word Q>
TENSAFE_HD_INLINE word residue_or_zero(word r) noexcept {
    return r & (word{0} - static_cast<word>(r < Q));
}

}  // namespace detail

/// Returns round(scaled) modulo Q, ties away from zero: the word that rns::limb::round_reals gives.
///
/// Sums with large powers of two cut the number into signed integers: conversions run at a quarter of the
/// rate of additions on GPUs. Up to short_product_bits the quotient by Q is below 2^50, its double less than
/// 0.25 off, and one multiple of Q less leaves a number between -Q and Q. Above, the upper integer times its
/// unit is reduced by Barrett's method. No branch, no index depends on the value.
///
/// Every double gives a residue: a word beyond Q would drown the error that encryption adds to it, and with
/// it the secret key. For NaN, infinity and |scaled| >= 2^Bits it is some residue, not the number's.
/// @tparam Bits  fewer bits take fewer steps: the number is one integer up to 51, two up to 102, else three
template <word Q, int Bits = fixed_time_bits>
TENSAFE_HD_INLINE word residue_of_real(double scaled) noexcept {
    static_assert(Bits >= 1 && Bits <= fixed_time_bits, "residue_of_real: magnitudes are below 2^112");
    constexpr int width = arith::fixed_modulus<Q>::bits;
    constexpr int unit_bits = Bits <= 51 ? 0 : (Bits <= 102 ? 51 : 61);
    // The sign bit, not a comparison: compilers make branches of those.
    const word sign = __builtin_bit_cast(word, scaled) & (word{1} << 63);
    word high = 0;
    word low = 0;
    if constexpr (unit_bits == 0) {
        low = detail::round_part(scaled, sign);
    } else {
        double rest = 0;
        high = detail::rounding<unit_bits>::split(scaled, rest);
        if constexpr (unit_bits == 61) {
            double last = 0;
            const word middle = detail::rounding<30>::split(rest, last);
            low = (middle << 30) + detail::round_part(last, sign);
        } else {
            low = detail::round_part(rest, sign);
        }
    }
    if constexpr (Bits <= short_product_bits(width)) {
        word r = low;
        if constexpr (unit_bits > 0) {
            r += high << unit_bits;
        }
        if constexpr (Bits >= width) {
            constexpr double inverse = 1 / static_cast<double>(Q);
            r -= detail::rounding<0>::multiple(arith::rounded_product(scaled, inverse)) * Q;
        }
        return detail::residue_or_zero<Q>(r + (Q & (word{0} - (r >> 63))));
    } else {
        // What is added makes both parts positive, and is a multiple of Q in all.
        constexpr arith::barrett<arith::fixed_modulus<Q>> p{};
        constexpr word unit = (word{1} << unit_bits) % Q;
        constexpr auto shift = static_cast<word>((arith::uint128{unit} << 51) % Q);
        constexpr word offset = detail::multiple_above(Q, 61) + (Q - shift);
        return detail::residue_or_zero<Q>(
            p.reduce_fully(arith::mul_wide(high + (word{1} << 51), unit) + (low + offset)));
    }
}

/// The width of magnitudes that load_rounded takes unless it is told otherwise: those that can be encoded at
/// all, as long as one short product is enough (below 2^89 if the narrowest prime has 40 bits).
template <class Basis>
inline constexpr int magnitude_bits = [] {
    int bits = rns::modulus_bits<Basis>;
    for (const word q : Basis::primes) {
        bits = std::min(bits, short_product_bits(static_cast<int>(std::bit_width(q))));
    }
    return bits;
}();

/// Loads reals for a transform in blocks: rounded to residues like encode_coefficients, an error added, so
/// that encoding, error and transform are one launch. A plain value; pointers into the launch's memory.
///
/// A row of `count` values becomes `inputs` polynomials of `block` coefficients: coefficient k of polynomial
/// p is value (p % inputs) * block + k of row p / inputs, and 0 beyond the block or the row.
/// @tparam Bits  every |value| * scale must be below 2^Bits, which is the caller's to check: others get wrong
///         residues. Up to 51, and up to 102, take fewer steps; see residue_of_real
template <class Basis, class Real = double, int Bits = magnitude_bits<Basis>>
struct load_rounded {
    const Real* values;         ///< [row][stride]
    std::size_t stride;         ///< from one row to the next
    std::size_t count;          ///< values of a row
    const double* scales;       ///< one for each row, or null: 1
    const std::int8_t* errors;  ///< [polynomial][N], or null: none
    std::uint32_t inputs = 1;
    std::size_t block = Basis::degree;  ///< at most N

    /// Coefficients k and k + 1 of limb I.
    template <int I>
    TENSAFE_HD_INLINE word_pair pair(std::size_t polynomial, std::size_t k) const noexcept {
        std::size_t row = polynomial;
        std::size_t first = 0;
        if (inputs != 1) {
            const auto p = static_cast<std::uint32_t>(polynomial);
            row = p / inputs;
            first = std::size_t{p % inputs} * block;
        }
        const double scale = scales == nullptr ? 1.0 : scales[row];
        const Real* const of_row = values + row * stride;
        return {residue<I>(of_row, first, k, scale, polynomial),
                residue<I>(of_row, first, k + 1, scale, polynomial)};
    }

  private:
    template <int I>
    TENSAFE_HD_INLINE word residue(const Real* of_row, std::size_t first, std::size_t k, double scale,
                                   std::size_t polynomial) const noexcept {
        constexpr word q = Basis::template prime<I>;
        const double value = k < block && first + k < count ? static_cast<double>(of_row[first + k]) : 0.0;
        const word rounded = residue_of_real<q, Bits>(arith::rounded_product(value, scale));
        if (errors == nullptr) {
            return rounded;
        }
        return arith::plus_small<q>(rounded, errors[polynomial * Basis::degree + k]);
    }
};

}  // namespace tensafe::device
