#pragma once

#include <tensafe/arith/small.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/device/encoding/rounding.hpp>
#include <tensafe/device/ntt/words.hpp>
#include <tensafe/rns/crt_garner.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tensafe::encoding {

/// Magnitudes that load_rounded takes unless it is told otherwise, in bits: those that can be encoded at all,
/// as long as one short product is enough (below 2^89 if the narrowest prime has 40 bits).
template <class Basis>
inline constexpr int magnitude_bits = [] {
    int bits = rns::modulus_bits<Basis>;
    for (const arith::word q : Basis::primes) {
        bits = std::min(bits, short_product_bits(static_cast<int>(std::bit_width(q))));
    }
    return bits;
}();

/// Reals as what a transform in blocks reads: rounded to residues like encode_coefficients, an error added.
/// So encoding, error and transform are one launch. A plain value; pointers into the launch's memory.
///
/// A row of `count` values becomes `inputs` polynomials of `block` coefficients: coefficient k of polynomial
/// p is value (p % inputs) * block + k of row p / inputs, and zero beyond the block or the row.
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
    TENSAFE_HOST_DEVICE TENSAFE_INLINE ntt::word_pair pair(std::size_t polynomial,
                                                           std::size_t k) const noexcept {
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
    TENSAFE_HOST_DEVICE TENSAFE_INLINE arith::word residue(const Real* of_row, std::size_t first,
                                                           std::size_t k, double scale,
                                                           std::size_t polynomial) const noexcept {
        constexpr arith::word q = Basis::template prime<I>;
        const double value = k < block && first + k < count ? static_cast<double>(of_row[first + k]) : 0.0;
        const arith::word rounded = residue_of_real<q, Bits>(arith::rounded_product(value, scale));
        if (errors == nullptr) {
            return rounded;
        }
        return arith::plus_small<q>(rounded, errors[polynomial * Basis::degree + k]);
    }
};

}  // namespace tensafe::encoding
