#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/rns/pointwise.hpp>
#include <tensafe/rns/rescale.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <string>

namespace tensafe::ckks {

// Everything a server computes: no key of any kind appears here. Functions without a result work in place, do
// not allocate, and leave their first argument unchanged when they throw.

namespace detail {
inline void check_scales(const char* operation, double a, double b) {
    // Scales that went through different primes of one width differ by less than 2^-20 of their size; such
    // sums would be silently wrong by that much, so only rounding differences pass.
    if (!(std::fabs(a - b) <= 1e-12 * a)) {
        // Logarithms of neighbouring primes agree in the first seven decimals.
        std::array<char, 64> scales{};
        std::snprintf(scales.data(), scales.size(), "2^%.12f and 2^%.12f", std::log2(a), std::log2(b));
        throw parameter_error(std::string(operation) + ": the scales differ, got " + scales.data() +
                              "; encode the plaintext at the ciphertext's scale, or bring both to one level");
    }
}
}  // namespace detail

/// a += b.  @throws parameter_error if the scales differ
template <parameter_set P, int Level>
void add(ciphertext<P, Level>& a, const ciphertext<P, Level>& b) {
    detail::check_scales("add", a.scale, b.scale);
    rns::add(a.c0, b.c0);
    rns::add(a.c1, b.c1);
}

/// a -= b.  @throws parameter_error if the scales differ
template <parameter_set P, int Level>
void subtract(ciphertext<P, Level>& a, const ciphertext<P, Level>& b) {
    detail::check_scales("subtract", a.scale, b.scale);
    rns::subtract(a.c0, b.c0);
    rns::subtract(a.c1, b.c1);
}
// Compilers show the line of the overload that they refuse, so the way out stands on it.
template <parameter_set P, int A, int B>
void add(ciphertext<P, A>&, const ciphertext<P, B>&) = delete;  // level_reduce one first
template <parameter_set P, int A, int B>
void subtract(ciphertext<P, A>&, const ciphertext<P, B>&) = delete;  // level_reduce one first

/// a += p.  @throws parameter_error if the scales differ
template <parameter_set P, int Level>
void add_plain(ciphertext<P, Level>& a, const plaintext<P, rns::evaluation_form, Level>& p) {
    detail::check_scales("add_plain", a.scale, p.scale);
    rns::add(a.c0, p.value);
}

/// a *= p, entry by entry in the slots; the scales multiply. No NTT.
template <parameter_set P, int Level>
void multiply_plain(ciphertext<P, Level>& a, const plaintext<P, rns::evaluation_form, Level>& p) noexcept {
    rns::multiply(a.c0, a.c0, p.value);
    rns::multiply(a.c1, a.c1, p.value);
    a.scale *= p.scale;
}
template <parameter_set P, class F, int L>
void add_plain(ciphertext<P, L>&, const plaintext<P, F, L>&) = delete;  // forward() it first
template <parameter_set P, class F, int L>
void multiply_plain(ciphertext<P, L>&, const plaintext<P, F, L>&) = delete;  // forward() it first

/// Drops the last prime and divides by it, rounding exactly. The scale is divided by the prime: a factor
/// encoded at `P::rescale_factor<Level>` leaves the scale where it was.
template <parameter_set P, int Level>
requires(Level >= 1) ciphertext<P, Level - 1> rescale(const ciphertext<P, Level>& c) {
    return {rns::rescale(c.c0), rns::rescale(c.c1), c.scale / P::template rescale_factor<Level>};
}
template <parameter_set P>
void rescale(const ciphertext<P, 0>&) = delete;  // no level left: use a longer modulus chain

/// Drops primes until `Target` rescales are left; value and scale stay.
template <int Target, parameter_set P, int Level>
ciphertext<P, Target> level_reduce(const ciphertext<P, Level>& c) {
    static_assert(Target >= 0 && Target <= Level, "ckks::level_reduce: a ciphertext can only lose levels");
    return {rns::level_reduce<Target + 1>(c.c0), rns::level_reduce<Target + 1>(c.c1), c.scale};
}

}  // namespace tensafe::ckks
