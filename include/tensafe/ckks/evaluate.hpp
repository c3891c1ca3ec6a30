#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/rns/pointwise.hpp>
#include <tensafe/rns/rescale.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <ranges>
#include <span>
#include <string>

namespace tensafe::ckks {

// What a server computes without keys; multiply.hpp and rotate.hpp have what takes evaluation keys. Functions
// without a result work in place, do not allocate, and leave their first argument unchanged when they throw.

namespace detail {
inline void check_scales(const char* operation, double a, double b) {
    // Scales that went through different primes of one width differ by less than 2^-20 of their size, and
    // sums would be wrong by as much: only rounding differences pass.
    if (!(std::fabs(a - b) <= 1e-12 * a)) {
        // Logarithms of neighbouring primes agree in the first seven decimals.
        std::array<char, 64> scales{};
        std::snprintf(scales.data(), scales.size(), "2^%.12f and 2^%.12f", std::log2(a), std::log2(b));
        throw parameter_error(std::string(operation) + ": the scales differ, got " + scales.data() +
                              "; encode the plaintext at the ciphertext's scale, or bring both to one level, "
                              "by adjust_level where keys are switched");
    }
}

inline void check_rescaled(const char* operation, double scale, double prime, double least_scale,
                           const char* way_out) {
    if (!(scale / prime >= least_scale)) {
        std::array<char, 128> numbers{};
        std::snprintf(
            numbers.data(), numbers.size(),
            "got a scale of 2^%.1f and a prime of 2^%.1f, which leaves 2^%.1f, expected at least 2^%.1f",
            std::log2(scale), std::log2(prime), std::log2(scale / prime), std::log2(least_scale));
        throw parameter_error(std::string(operation) + ": " + numbers.data() + ": " + way_out);
    }
}

/// Half the modulus of a level, which may be wider than a double.
struct wide_real {
    double mantissa = 0.5;
    int exponent = 0;
};
template <parameter_set P, int Level>
inline constexpr wide_real half_modulus = [] {
    wide_real half;
    for (const arith::word q : P::template basis_at<Level>::primes) {
        const int bits = static_cast<int>(std::bit_width(q));
        half.mantissa *= static_cast<double>(q) / static_cast<double>(arith::word{1} << bits);
        half.exponent += bits;
    }
    return half;
}();

/// Refuses a scale that has reached Q: no number would be left of what it scales.
template <parameter_set P, int Level>
void check_room(const char* operation, double scale) {
    constexpr wide_real half = half_modulus<P, Level>;
    if (std::ldexp(scale, -half.exponent) >= 2 * half.mantissa) {
        std::array<char, 96> numbers{};
        std::snprintf(numbers.data(), numbers.size(), "got a scale of 2^%.1f, expected less than Q = 2^%.1f",
                      std::log2(scale), std::log2(2 * half.mantissa) + half.exponent);
        throw parameter_error(std::string(operation) + ": " + numbers.data() +
                              ": rescale first, or take a longer modulus chain");
    }
}

/// Refuses a bound with which coefficients, at most as large times the scale, could wrap modulo Q.
template <parameter_set P, int Level>
void check_range(const char* operation, double largest, double scale) {
    constexpr wide_real half = half_modulus<P, Level>;
    if (std::ldexp(largest, -half.exponent) * scale >= half.mantissa) {
        std::array<char, 128> numbers{};
        std::snprintf(numbers.data(), numbers.size(),
                      "could reach %.3g, expected less than %.3g at a scale of 2^%.1f", largest,
                      std::ldexp(half.mantissa / scale, half.exponent), std::log2(scale));
        throw encoding_error(
            std::string(operation) + ": values " + numbers.data() +
            ", or they wrap modulo Q; take smaller values, a longer modulus chain or a tighter `largest`");
    }
}

/// The scale after a rescale from `Level`: exactly that of the next level, where rounding alone keeps it from
/// that and keys are switched.
template <parameter_set P, int Level>
double scale_after(double scale) noexcept {
    const double result = scale / P::template rescale_factor<Level>;
    constexpr double exact = P::template scale_at<Level - 1>;
    return P::switches_keys && std::fabs(result - exact) <= 1e-12 * exact ? exact : result;
}

/// The bound of a result, checked, where both operands have one, and NaN where none has.
template <parameter_set P, int Level, class Combine>
double combined_bound(const char* operation, double a, double b, double scale, Combine combine) {
    const bool has_one = !std::isnan(a);
    if (has_one == std::isnan(b)) {
        throw parameter_error(
            std::string(operation) + ": the " + (has_one ? "first" : "second") +
            " operand has a bound on its values and the other has none; set `largest` before "
            "encode_like or encode_factor, or of both ciphertexts");
    }
    if (!has_one) {
        return a;
    }
    if (!(a >= 0 && b >= 0 && std::isfinite(a + b))) {
        throw parameter_error({operation, ": got a `largest` of ", a, " and one of ", b,
                               ", expected finite numbers that are not negative"});
    }
    const double largest = combine(a, b);
    check_range<P, Level>(operation, largest, scale);
    return largest;
}

template <class Values>
double largest_magnitude(const Values& slots) {
    double largest = 0;
    for (const auto& slot : slots) {
        largest = std::max(largest, std::abs(slot));
    }
    return largest;
}

/// Encodes slots for `c`, in evaluation form. Looks for the largest only where `c` has a bound; rounding adds
/// at most half a unit to each of N coefficients.
template <parameter_set P, int Level, class Values>
plaintext<P, rns::evaluation_form, Level> encode_operand(const ciphertext<P, Level>& c, const Values& slots,
                                                         double scale) {
    auto result = forward(encode_slots<P, Level>(std::span(slots), scale));
    if (!std::isnan(c.largest)) {
        result.largest = largest_magnitude(std::span(slots)) + static_cast<double>(P::degree) / 2 / scale;
    }
    return result;
}

/// Encodes a number for `c`, with a bound where `c` has one: of what it is after rounding.
template <parameter_set P, int Level>
plaintext<P, rns::evaluation_form, Level> constant_operand(const ciphertext<P, Level>& c, double value,
                                                           double scale) {
    auto result = encode_constant<P, Level>(value, scale);
    if (!std::isnan(c.largest)) {
        result.largest = std::fabs(std::nearbyint(value * scale)) / scale;
    }
    return result;
}
}  // namespace detail

/// Adds two ciphertexts: a += b.  @throws parameter_error if the scales differ; encoding_error
/// if a bound is set and values could wrap
template <parameter_set P, int Level>
void add(ciphertext<P, Level>& a, const ciphertext<P, Level>& b) {
    detail::check_scales("add", a.scale, b.scale);
    a.largest = detail::combined_bound<P, Level>("add", a.largest, b.largest, a.scale, std::plus());
    rns::add(a.c0, b.c0);
    rns::add(a.c1, b.c1);
}

/// Subtracts ciphertexts: a -= b.  @throws parameter_error if the scales differ; encoding_error
/// if a bound is set and values could wrap
template <parameter_set P, int Level>
void subtract(ciphertext<P, Level>& a, const ciphertext<P, Level>& b) {
    detail::check_scales("subtract", a.scale, b.scale);
    a.largest = detail::combined_bound<P, Level>("subtract", a.largest, b.largest, a.scale, std::plus());
    rns::subtract(a.c0, b.c0);
    rns::subtract(a.c1, b.c1);
}
// Compilers show the line of the overload that they refuse, so the way out stands on it.
template <parameter_set P, int A, int B>
void add(ciphertext<P, A>&, const ciphertext<P, B>&) = delete;  // adjust_level() one first
template <parameter_set P, int A, int B>
void subtract(ciphertext<P, A>&, const ciphertext<P, B>&) = delete;  // adjust_level() one first

/// Adds a plaintext: a += p.  @throws parameter_error if the scales differ; encoding_error
/// if a bound is set and values could wrap
template <parameter_set P, int Level>
void add_plain(ciphertext<P, Level>& a, const plaintext<P, rns::evaluation_form, Level>& p) {
    detail::check_scales("add_plain", a.scale, p.scale);
    a.largest = detail::combined_bound<P, Level>("add_plain", a.largest, p.largest, a.scale, std::plus());
    rns::add(a.c0, p.value);
}

/// Subtracts a plaintext: a -= p.  @throws parameter_error if the scales differ; encoding_error
/// if a bound is set and values could wrap
template <parameter_set P, int Level>
void subtract_plain(ciphertext<P, Level>& a, const plaintext<P, rns::evaluation_form, Level>& p) {
    detail::check_scales("subtract_plain", a.scale, p.scale);
    a.largest =
        detail::combined_bound<P, Level>("subtract_plain", a.largest, p.largest, a.scale, std::plus());
    rns::subtract(a.c0, p.value);
}

/// Multiplies by a plaintext, entry by entry in the slots: a *= p. The scales multiply. No NTT.
/// @throws parameter_error if the scale would reach Q; encoding_error if a bound is set and values could wrap
template <parameter_set P, int Level>
void multiply_plain(ciphertext<P, Level>& a, const plaintext<P, rns::evaluation_form, Level>& p) {
    detail::check_room<P, Level>("multiply_plain", a.scale * p.scale);
    a.largest = detail::combined_bound<P, Level>("multiply_plain", a.largest, p.largest, a.scale * p.scale,
                                                 std::multiplies());
    rns::multiply(a.c0, a.c0, p.value);
    rns::multiply(a.c1, a.c1, p.value);
    a.scale *= p.scale;
}
template <parameter_set P, class F, int L>
void add_plain(ciphertext<P, L>&, const plaintext<P, F, L>&) = delete;  // forward() it first
template <parameter_set P, class F, int L>
void subtract_plain(ciphertext<P, L>&, const plaintext<P, F, L>&) = delete;  // forward() it first
template <parameter_set P, class F, int L>
void multiply_plain(ciphertext<P, L>&, const plaintext<P, F, L>&) = delete;  // encode_factor(c, slots)
template <parameter_set P, class F, int A, int B>
void add_plain(ciphertext<P, A>&, const plaintext<P, F, B>&) = delete;  // encode_like(c, slots)
template <parameter_set P, class F, int A, int B>
void subtract_plain(ciphertext<P, A>&, const plaintext<P, F, B>&) = delete;  // encode_like(c, slots)
template <parameter_set P, class F, int A, int B>
void multiply_plain(ciphertext<P, A>&, const plaintext<P, F, B>&) = delete;  // encode_factor(c, slots)
template <parameter_set P, int L, std::ranges::range Values>
void add_plain(ciphertext<P, L>&, const Values&) = delete;  // encode_like(c, slots) first
template <parameter_set P, int L, std::ranges::range Values>
void subtract_plain(ciphertext<P, L>&, const Values&) = delete;  // encode_like(c, slots) first
template <parameter_set P, int L, std::ranges::range Values>
void multiply_plain(ciphertext<P, L>&, const Values&) = delete;  // encode_factor(c, slots) first

/// Negates a ciphertext in place: a = -a.
template <parameter_set P, int Level>
void negate(ciphertext<P, Level>& a) noexcept {
    rns::for_each_limb<typename P::template basis_at<Level>>([&]<int I>() {
        constexpr arith::word q = P::basis::template prime<I>;
        constexpr auto policy = rns::fixed_arithmetic<q>;
        for (const auto limb : {a.c0.template limb<I>(), a.c1.template limb<I>()}) {
            rns::limb::scale(policy, limb, limb, policy.prepare(q - 1));
        }
    });
}

/// Adds one real number to every slot, encoded at the ciphertext's scale.
/// @throws as encode_constant
template <parameter_set P, int Level>
void add_scalar(ciphertext<P, Level>& a, double x) {
    add_plain(a, detail::constant_operand(a, x, a.scale));
}

/// Multiplies every slot by an integer, exactly; the scale stays. The noise grows by the same factor.
template <parameter_set P, int Level>
void multiply_integer(ciphertext<P, Level>& a, std::int32_t x) {
    multiply_plain(a, detail::constant_operand(a, x, 1));
}

/// Multiplies every slot by one real number, encoded as by encode_factor.  @throws as encode_constant
template <parameter_set P, int Level>
requires(Level >= 1) void multiply_scalar(ciphertext<P, Level>& a, double x) {
    multiply_plain(a, detail::constant_operand(a, x, P::template factor_scale<Level>));
}
template <parameter_set P>
void multiply_scalar(ciphertext<P, 0>&, double) = delete;  // no level left: use a longer modulus chain

/// Encodes slots so that they can be added to `c` or subtracted from it: at its level and scale.
/// @param slots  up to N/2 values, double or std::complex<double>
/// @throws as encode_slots
template <parameter_set P, int Level, class Values>
plaintext<P, rns::evaluation_form, Level> encode_like(const ciphertext<P, Level>& c, const Values& slots) {
    return detail::encode_operand(c, slots, c.scale);
}

/// Encodes slots as factors of a ciphertext of this level: at about the scale of the prime that the next
/// rescale drops, so that the product is then at the scale of the next level; without key switching that is
/// the ciphertext's own.
/// @param slots  up to N/2 values, double or std::complex<double>
template <parameter_set P, int Level, class Values>
requires(Level >= 1) plaintext<P, rns::evaluation_form, Level> encode_factor(const ciphertext<P, Level>& c,
                                                                             const Values& slots) {
    return detail::encode_operand(c, slots, P::template factor_scale<Level>);
}
template <parameter_set P, class Values>
void encode_factor(const ciphertext<P, 0>&, const Values&) = delete;  // no level left: use a longer chain

/// Drops the last prime and divides by it, rounding exactly; the scale is divided too.
/// @param least_scale  the least scale of the result: below it, precision is lost without notice
/// @throws parameter_error if the scale would fall below it
template <parameter_set P, int Level>
requires(Level >= 1) [[nodiscard]] ciphertext<P, Level - 1> rescale(const ciphertext<P, Level>& c,
                                                                    double least_scale = P::scale / 2) {
    detail::check_rescaled("rescale", c.scale, P::template rescale_factor<Level>, least_scale,
                           "encode the factor by encode_factor(), at the prime that this rescale drops, or "
                           "name a smaller least_scale");
    return {rns::rescale(c.c0), rns::rescale(c.c1), detail::scale_after<P, Level>(c.scale), c.largest};
}
template <parameter_set P>
void rescale(const ciphertext<P, 0>&, double = 0) = delete;  // no level left: use a longer modulus chain

/// Drops primes until `Target` rescales are left; value and scale stay.
/// @throws parameter_error if the scale is not below what is left of Q; encoding_error if a bound is set and
///         values could wrap
template <int Target, parameter_set P, int Level>
[[nodiscard]] ciphertext<P, Target> level_reduce(const ciphertext<P, Level>& c) {
    static_assert(Target >= 0 && Target <= Level, "ckks::level_reduce: a ciphertext can only lose levels");
    detail::check_room<P, Target>("level_reduce", c.scale);
    detail::check_range<P, Target>("level_reduce", c.largest, c.scale);
    return {rns::level_reduce<Target + 1>(c.c0), rns::level_reduce<Target + 1>(c.c1), c.scale, c.largest};
}

}  // namespace tensafe::ckks
