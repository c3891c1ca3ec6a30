#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/encoding/scaling.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/rns/crt.hpp>
#include <tensafe/rns/limb.hpp>
#include <tensafe/rns/poly.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>

namespace tensafe::encoding {

namespace detail {

/// Reals below this bound are reduced without looking at their size.
inline constexpr double fixed_time_limit = 0x1p112;

/// Returns round(x) modulo q for any finite x, by its mantissa and exponent. Takes time that depends on x.
inline arith::word residue_of_large_real(arith::word q, double x) noexcept {
    int exponent = 0;
    const double fraction = std::frexp(std::round(std::fabs(x)), &exponent);
    const int shift = std::max(exponent - 53, 0);
    const auto mantissa = static_cast<arith::word>(std::ldexp(fraction, exponent - shift));
    const arith::word power = arith::power_mod(2, static_cast<arith::word>(shift), q);
    const arith::word r = arith::multiply_mod(mantissa % q, power, q);
    return std::signbit(x) && r != 0 ? q - r : r;
}

/// The power of two as text, its exponent to a tenth, whatever the locale: "2^9.5".
TENSAFE_COMPILED_INLINE std::string power_of_two(double exponent) {
    const long tenths = std::lround(10 * exponent);
    return "2^" + std::string(tenths < 0 ? "-" : "") + std::to_string(std::labs(tenths) / 10) + "." +
           std::to_string(std::labs(tenths) % 10);
}

/// The limit of scaled values, below Q/2 by a relative 2^-44: room for the rounding of this product, of
/// scaled magnitudes and of the slot transform, so that what passes never wraps around.
template <class Basis>
double encoding_limit() noexcept {
    static_assert(rns::modulus_bits<Basis> <= 1023,
                  "encoding: the modulus must be below 2^1023, the range of double; use fewer limbs");
    double limit = 0.5 - 0x1p-45;
    for (const arith::word q : Basis::primes) {
        limit *= static_cast<double>(q);
    }
    return limit;
}

/// Checks a scale.  @throws parameter_error unless it is positive and finite
inline void check_scale(double scale) {
    if (!(scale > 0) || !std::isfinite(scale)) {
        throw parameter_error("encode: the scale is " + std::to_string(scale) +
                              ", expected a positive finite number");
    }
}

/// Throws encoding_error for the first of `count` entries for which measure(i) < bound does not hold: there
/// is one. The two are the same increasing function of scaled magnitude and the limit; a NaN's is a NaN.
template <class Measure>
[[noreturn]] void refuse_entry(std::size_t count, double scale, double limit, double bound, Measure measure) {
    std::size_t i = 0;
    while (i + 1 < count && measure(i) < bound) {
        ++i;
    }
    const std::string entry = "encode: entry " + std::to_string(i);
    if (std::isnan(measure(i))) {
        throw encoding_error(entry + " is not a number");
    }
    throw encoding_error(entry + " is too large: its magnitude must be below " +
                         power_of_two(std::log2(limit) - std::log2(scale)) +
                         " to stay within half the modulus, " + power_of_two(std::log2(limit)) +
                         ", at scale " + power_of_two(std::log2(scale)));
}

/// The number of values that go through all steps together: 4 KiB, so that they are read from cache.
inline constexpr std::size_t values_per_chunk = 512;

/// Rounds the coefficients from index `first` on (already scaled and checked) into residues.
/// @pre `in_fixed_time` only if all are below fixed_time_limit
template <class Basis, class Space, class R>
void round_coefficients(std::span<const double> scaled, std::size_t first, bool in_fixed_time,
                        rns::poly<Basis, rns::coefficient_form, Space, R>& out) {
    rns::for_each_limb<Basis>([&]<int I>() {
        constexpr arith::word q = Basis::template prime<I>;
        const std::span<arith::word> limb =
            std::span<arith::word>(out.template limb<I>()).subspan(first, scaled.size());
        if (in_fixed_time) {
            rns::limb::round_reals(rns::fixed_arithmetic<q>, limb, scaled);
        } else {
            for (std::size_t k = 0; k < scaled.size(); ++k) {
                limb[k] = residue_of_large_real(q, scaled[k]);
            }
        }
    });
}

}  // namespace detail

/// Coefficient encoding: coefficient k becomes round(values[k] * scale); missing ones become 0. No
/// allocation. Time does not depend on the values unless some |value| * scale reaches 2^112.
/// @throws shape_error if values.size() > N; parameter_error for a bad scale; encoding_error, naming the
///         entry, for NaN, infinity, or |value| * scale not below Q/2 (less a relative 2^-44). `out` is
///         unchanged then.
template <class Basis, class Space, class R>
void encode_coefficients(std::span<const double> values, double scale,
                         rns::poly<Basis, rns::coefficient_form, Space, R>& out) {
    if (values.size() > Basis::degree) {
        throw shape_error("encode_coefficients: got " + std::to_string(values.size()) +
                          " values, expected at most N = " + std::to_string(Basis::degree));
    }
    detail::check_scale(scale);
    const double limit = detail::encoding_limit<Basis>();
    const double largest = detail::largest_magnitude(values, scale);
    if (!(largest < limit)) {  // also for NaN
        detail::refuse_entry(values.size(), scale, limit, limit,
                             [&](std::size_t i) { return std::fabs(values[i]) * scale; });
    }
    std::array<double, detail::values_per_chunk> chunk;
    const memory::wipe_guard guard(chunk);
    for (std::size_t first = 0; first < values.size(); first += chunk.size()) {
        const std::size_t count = std::min(chunk.size(), values.size() - first);
        const std::span<double> scaled = std::span(chunk).first(count);
        detail::scale_values(values.subspan(first, count), scale, scaled);
        detail::round_coefficients(scaled, first, largest < detail::fixed_time_limit, out);
    }
    rns::for_each_limb<Basis>([&]<int I>() {
        const auto rest = std::span<arith::word>(out.template limb<I>()).subspan(values.size());
        std::fill(rest.begin(), rest.end(), arith::word{0});
    });
}

/// Decodes values[k] = coefficient k, centred in (-Q/2, Q/2), over scale, for k < values.size(). No
/// allocation.
/// @throws shape_error if values.size() > N
template <class Basis, class Space, class R>
void decode_coefficients(const rns::poly<Basis, rns::coefficient_form, Space, R>& p, double scale,
                         std::span<double> values) {
    if (values.size() > Basis::degree) {
        throw shape_error("decode_coefficients: got room for " + std::to_string(values.size()) +
                          " values, expected at most N = " + std::to_string(Basis::degree));
    }
    // In chunks, so that the division finds its operands in cache.
    rns::residue_spans<Basis> residues;
    for (std::size_t first = 0; first < values.size(); first += detail::values_per_chunk) {
        const std::size_t count = std::min(detail::values_per_chunk, values.size() - first);
        rns::for_each_limb<Basis>([&]<int I>() {
            residues[I] = std::span<const arith::word>(p.template limb<I>()).subspan(first, count);
        });
        const std::span<double> chunk = values.subspan(first, count);
        rns::to_doubles<Basis>(residues, chunk);
        detail::divide_values(chunk, scale);
    }
}

}  // namespace tensafe::encoding
