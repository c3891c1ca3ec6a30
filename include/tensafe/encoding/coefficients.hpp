#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/rns/crt.hpp>
#include <tensafe/rns/poly.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tensafe::encoding {

namespace detail {

/// Reals up to this bound are reduced without looking at their size: two signed words hold their integer
/// part.
inline constexpr int split_bits = 50;
inline constexpr double fixed_time_limit = 0x1p112;

/// |round(x)| modulo q for |x| < 2^112, with the sign applied. No branches on x.
template <arith::word Q>
arith::word residue_of_real(double x) noexcept {
    constexpr auto policy = rns::fixed_arithmetic<Q>;
    constexpr auto one = policy.prepare(1);
    constexpr auto power = policy.prepare((arith::word{1} << split_bits) % Q);
    const double magnitude = std::fabs(x);
    const auto high = static_cast<std::int64_t>(magnitude * 0x1p-50);
    const auto low = static_cast<std::int64_t>(magnitude - static_cast<double>(high) * 0x1p50 + 0.5);
    const auto high_part =
        policy.multiply(arith::below<1, rns::modulus_of<Q>>{static_cast<arith::word>(high)}, power);
    const auto low_part = policy.reduce_word(static_cast<arith::word>(low), one);
    const arith::word r = arith::reduce<1>(policy.modulus(), high_part + low_part).value;
    const arith::word negative = arith::word{0} - static_cast<arith::word>(std::signbit(x));
    return arith::subtract_if_not_below((r ^ negative) - negative + (Q & negative), Q);
}

/// The same for any finite x: mantissa times a power of two. Takes time that depends on x.
template <arith::word Q>
arith::word residue_of_large_real(double x) noexcept {
    int exponent = 0;
    const auto mantissa = static_cast<std::int64_t>(std::ldexp(std::frexp(x, &exponent), 53));
    const arith::word power = arith::power_mod(2, static_cast<arith::word>(exponent - 53), Q);
    return arith::multiply_mod(rns::residue_of<Q>(mantissa), power, Q);
}

inline std::string power_of_two(double x) {
    std::string text = std::to_string(std::log2(x));
    return "2^" + text.substr(0, text.find('.') + 2);
}

/// Throws encoding_error, naming the entry, unless magnitude(i) * scale < Q/2 for all i < count. The common
/// case takes the same time for all values.
template <class Basis, class Magnitude>
void check_encodable(std::size_t count, double scale, Magnitude magnitude) {
    if (!(scale > 0) || !std::isfinite(scale)) {
        throw parameter_error("encode: the scale is " + std::to_string(scale) +
                              ", wanted a positive finite number");
    }
    const double limit = std::exp2(Basis::log2_modulus() - 1);
    bool all_fit = true;
    for (std::size_t i = 0; i < count; ++i) {
        all_fit &= magnitude(i) * scale < limit;  // false for NaN
    }
    if (all_fit) {
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        if (!(magnitude(i) * scale < limit)) {
            throw encoding_error("encode: entry " + std::to_string(i) +
                                 (std::isnan(magnitude(i)) ? " is not a number" : " is too large") +
                                 ": its magnitude must be below " + power_of_two(limit / scale) +
                                 " to stay within half the modulus, " + power_of_two(limit) + ", at scale " +
                                 power_of_two(scale));
        }
    }
}

/// Rounds real coefficients (already scaled and checked) into residues.
template <class Basis, class Space, class R>
void round_coefficients(std::span<const double> scaled, double largest,
                        rns::poly<Basis, rns::coefficient_form, Space, R>& out) noexcept {
    rns::for_each_limb<Basis>([&]<int I>() {
        constexpr arith::word q = Basis::template prime<I>;
        arith::word* limb = out.template limb<I>().data();
        if (largest < fixed_time_limit) {
            for (std::size_t k = 0; k < Basis::degree; ++k) {
                limb[k] = residue_of_real<q>(scaled[k]);
            }
        } else {
            for (std::size_t k = 0; k < Basis::degree; ++k) {
                const double x = scaled[k];
                limb[k] =
                    std::fabs(x) < fixed_time_limit ? residue_of_real<q>(x) : residue_of_large_real<q>(x);
            }
        }
    });
}

}  // namespace detail

/// Coefficient encoding: coefficient k becomes round(values[k] * scale); missing ones become zero.
/// Time does not depend on the values unless some |value| * scale reaches 2^112.
/// @throws shape_error if values.size() > N; parameter_error for a bad scale; encoding_error, naming the
/// entry,
///         for NaN, infinity, or |value| * scale >= Q/2. `out` is unchanged then.
template <class Basis, class Space, class R>
void encode_coefficients(exec::host, std::span<const double> values, double scale,
                         rns::poly<Basis, rns::coefficient_form, Space, R>& out) {
    if (values.size() > Basis::degree) {
        throw shape_error("encode_coefficients: got " + std::to_string(values.size()) +
                          " values, wanted at most N = " + std::to_string(Basis::degree));
    }
    detail::check_encodable<Basis>(values.size(), scale, [&](std::size_t i) { return std::fabs(values[i]); });
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
    for (std::size_t k = 0; k < values.size(); ++k) {
        std::array<arith::word, static_cast<std::size_t>(Basis::limbs)> residues;
        rns::for_each_limb<Basis>([&]<int I>() { residues[I] = p.template limb<I>()[k]; });
        values[k] = rns::to_double<Basis>(residues) / scale;
    }
}

}  // namespace tensafe::encoding
