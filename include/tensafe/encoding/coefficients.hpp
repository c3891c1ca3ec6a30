#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/rns/crt.hpp>
#include <tensafe/rns/limb.hpp>
#include <tensafe/rns/poly.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

namespace tensafe::encoding {

namespace detail {

/// Reals below this bound are reduced without looking at their size.
inline constexpr double fixed_time_limit = 0x1p112;

/// round(x) modulo q for any finite x, by its mantissa and exponent. Takes time that depends on x.
inline arith::word residue_of_large_real(arith::word q, double x) noexcept {
    int exponent = 0;
    const double fraction = std::frexp(std::round(std::fabs(x)), &exponent);
    const int shift = std::max(exponent - 53, 0);
    const auto mantissa = static_cast<arith::word>(std::ldexp(fraction, exponent - shift));
    const arith::word power = arith::power_mod(2, static_cast<arith::word>(shift), q);
    const arith::word r = arith::multiply_mod(mantissa % q, power, q);
    return std::signbit(x) && r != 0 ? q - r : r;
}

/// "2^9.5": the exponent to a tenth, whatever the locale.
inline std::string power_of_two(double exponent) {
    const long tenths = std::lround(10 * exponent);
    return "2^" + std::string(tenths < 0 ? "-" : "") + std::to_string(std::labs(tenths) / 10) + "." +
           std::to_string(std::labs(tenths) % 10);
}

/// Just below Q/2, by a relative 2^-44: room for the rounding of this product, of scaled magnitudes and of
/// the slot transform, so that what passes never wraps around.
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

/// Throws encoding_error, naming the entry, unless measure(i) < bound for all i < count. The two are scaled
/// magnitude and encoding_limit, or the same increasing function of both; the measure of a NaN is a NaN.
/// Where nothing is refused, time does not depend on the values if that of `measure` does not.
template <class Basis, class Measure>
void check_encodable(std::size_t count, double scale, double bound, Measure measure) {
    if (!(scale > 0) || !std::isfinite(scale)) {
        throw parameter_error("encode: the scale is " + std::to_string(scale) +
                              ", wanted a positive finite number");
    }
    bool all_fit = true;
    for (std::size_t i = 0; i < count; ++i) {
        all_fit &= measure(i) < bound;  // false for NaN
    }
    if (all_fit) {
        return;
    }
    const double limit = encoding_limit<Basis>();
    for (std::size_t i = 0; i < count; ++i) {
        if (!(measure(i) < bound)) {
            throw encoding_error("encode: entry " + std::to_string(i) +
                                 (std::isnan(measure(i)) ? " is not a number" : " is too large") +
                                 ": its magnitude must be below " +
                                 power_of_two(std::log2(limit) - std::log2(scale)) +
                                 " to stay within half the modulus, " + power_of_two(std::log2(limit)) +
                                 ", at scale " + power_of_two(std::log2(scale)));
        }
    }
}

/// Rounds real coefficients (already scaled and checked) into residues.
template <class Basis, class Space, class R>
void round_coefficients(std::span<const double> scaled, double largest,
                        rns::poly<Basis, rns::coefficient_form, Space, R>& out) noexcept {
    rns::for_each_limb<Basis>([&]<int I>() {
        constexpr arith::word q = Basis::template prime<I>;
        const auto limb = out.template limb<I>();
        if (largest < fixed_time_limit) {
            rns::limb::round_reals(rns::fixed_arithmetic<q>, limb, scaled);
        } else {
            for (std::size_t k = 0; k < Basis::degree; ++k) {
                limb[k] = residue_of_large_real(q, scaled[k]);
            }
        }
    });
}

}  // namespace detail

/// Coefficient encoding: coefficient k becomes round(values[k] * scale); missing ones become zero.
/// Time does not depend on the values unless some |value| * scale reaches 2^112.
/// @throws shape_error if values.size() > N; parameter_error for a bad scale; encoding_error, naming the
///         entry, for NaN, infinity, or |value| * scale not below Q/2 (less a relative 2^-44). `out` is
///         unchanged then.
template <class Basis, class Space, class R>
void encode_coefficients(exec::host, std::span<const double> values, double scale,
                         rns::poly<Basis, rns::coefficient_form, Space, R>& out) {
    if (values.size() > Basis::degree) {
        throw shape_error("encode_coefficients: got " + std::to_string(values.size()) +
                          " values, wanted at most N = " + std::to_string(Basis::degree));
    }
    detail::check_encodable<Basis>(values.size(), scale, detail::encoding_limit<Basis>(),
                                   [&](std::size_t i) { return std::fabs(values[i]) * scale; });
    memory::secret_buffer<double> scaled(Basis::degree);
    double largest = 0;
    for (std::size_t k = 0; k < values.size(); ++k) {
        scaled[k] = values[k] * scale;
        largest = std::fmax(largest, std::fabs(scaled[k]));
    }
    detail::round_coefficients(scaled.span(), largest, out);
}

/// values[k] = coefficient k, centred in (-Q/2, Q/2), divided by scale, for k < values.size().
/// @throws shape_error if values.size() > N
template <class Basis, class Space, class R>
void decode_coefficients(exec::host, const rns::poly<Basis, rns::coefficient_form, Space, R>& p, double scale,
                         std::span<double> values) {
    if (values.size() > Basis::degree) {
        throw shape_error("decode_coefficients: got room for " + std::to_string(values.size()) +
                          " values, wanted at most N = " + std::to_string(Basis::degree));
    }
    std::array<arith::word, static_cast<std::size_t>(Basis::limbs)> residues{};
    memory::wipe_guard guard(residues);
    for (std::size_t k = 0; k < values.size(); ++k) {
        rns::for_each_limb<Basis>([&]<int I>() { residues[I] = p.template limb<I>()[k]; });
        values[k] = rns::to_double<Basis>(residues) / scale;
    }
}

}  // namespace tensafe::encoding
