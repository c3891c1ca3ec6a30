#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/random/error_groups.hpp>

namespace fixture {

// What is known beforehand about the noise of a ciphertext: one function for each operation, in step with it.
// docs/design/noise.md derives every line. `level_reduce` leaves the noise as it is.

/// Bounds one coefficient of a noise polynomial, in units of the integers modulo Q (not divided by a scale).
struct noise_bound {
    double worst = 0;      ///< no coefficient is larger in magnitude, whatever the randomness
    double deviation = 0;  ///< standard deviation over the randomness, of mean zero
};

/// Norms of a polynomial's coefficients, scaled as they are encoded; upper bounds will do.
struct coefficient_norms {
    double one = 0;  ///< sum of magnitudes
    double two = 0;  ///< Euclidean norm
};

/// Norms of any polynomial whose slots are at most `largest_slot` in magnitude, encoded at `scale`.
template <tensafe::ckks::parameter_set P>
coefficient_norms norms_of_slots(double largest_slot, double scale) noexcept {
    const double two = largest_slot * scale;
    return {std::sqrt(static_cast<double>(P::degree)) * two, two};
}

/// Encryption with the secret key: the error itself.
inline noise_bound secret_key_noise() noexcept {
    return {tensafe::random::largest_error, std::sqrt(tensafe::random::error_variance)};
}

/// Encryption with the public key: e*v + e0 + e1*s with ternary v and s.
template <tensafe::ckks::parameter_set P>
noise_bound public_key_noise() noexcept {
    constexpr auto n = static_cast<double>(P::degree);
    const noise_bound e = secret_key_noise();
    return {(2 * n + 1) * e.worst, std::sqrt(2 * n * (2.0 / 3.0) + 1) * e.deviation};
}

/// Rounding to integer coefficients. The transform's own errors, in double precision, matter once
/// `largest_slot * scale` passes about 2^45.
template <tensafe::ckks::parameter_set P>
noise_bound encoding_noise(double largest_slot, double scale) noexcept {
    const double transform = P::log_n * 0x1p-50 * largest_slot * scale;
    return {0.5 + transform, std::sqrt(1.0 / 12.0 + transform * transform)};
}

/// A sum or a difference; also `add_plain`, whose plaintext brings its encoding noise. The deviation holds
/// for noises that are independent of each other.
inline noise_bound operator+(noise_bound a, noise_bound b) noexcept {
    return {a.worst + b.worst, std::hypot(a.deviation, b.deviation)};
}

/// `multiply_plain`: (m + a)(p + r) - m*p.
/// @param a   noise of the ciphertext;  @param m  norms of its message, times its scale
/// @param r   encoding noise of the plaintext;  @param p  norms of the plaintext, times its scale
template <tensafe::ckks::parameter_set P>
noise_bound multiply_plain(noise_bound a, coefficient_norms m, noise_bound r, coefficient_norms p) noexcept {
    constexpr auto n = static_cast<double>(P::degree);
    return {a.worst * p.one + r.worst * m.one + n * a.worst * r.worst,
            std::hypot(a.deviation * p.two, r.deviation * m.two, std::sqrt(n) * a.deviation * r.deviation)};
}

/// `rescale` from `Level`: the noise is divided by the prime, and both components are rounded once.
template <tensafe::ckks::parameter_set P, int Level>
noise_bound rescale(noise_bound a) noexcept {
    constexpr auto n = static_cast<double>(P::degree);
    constexpr double q = P::template rescale_factor<Level>;
    const noise_bound rounding{(1 + n) / 2, std::sqrt((1 + n * (2.0 / 3.0)) / 12)};
    return noise_bound{a.worst / q, a.deviation / q} + rounding;
}

/// What a key switch at `Level` with a key for ciphertexts up to KeyLevel adds before it is divided: digits
/// of uniform residues times the key's errors, over P.
template <tensafe::ckks::parameter_set P, int Level, int KeyLevel>
noise_bound digits_noise() noexcept {
    constexpr auto n = static_cast<double>(P::degree);
    double special = 1;
    for (std::size_t j = 0; j < static_cast<std::size_t>(P::template special_limbs<KeyLevel>); ++j) {
        special *= static_cast<double>(P::special_primes[j]);
    }
    const noise_bound e = secret_key_noise();
    double worst = 0;
    double variance = 0;
    for (int first = 0; first <= Level; first += P::primes_per_digit) {
        double digit = 1;
        double primes = 0;
        for (int i = first; i < std::min(first + P::primes_per_digit, Level + 1); ++i, ++primes) {
            digit *= static_cast<double>(P::basis::primes[static_cast<std::size_t>(i)]);
        }
        // The integer of a digit is a sum of one centred term for each prime, each up to half the digit.
        worst += n * e.worst * primes * digit / 2 / special;
        variance += n * e.deviation * e.deviation * primes * digit * digit / 12 / special / special;
    }
    return {worst, std::sqrt(variance)};
}

/// The division by P of both polynomials, or of the one that s multiplies.
template <tensafe::ckks::parameter_set P, int KeyLevel>
noise_bound division_noise(bool of_both = true) noexcept {
    constexpr auto n = static_cast<double>(P::degree);
    const auto k = static_cast<double>(P::template special_limbs<KeyLevel>);
    const double constant = of_both ? 1 : 0;
    return {k * (constant + n) / 2, std::sqrt(k * (constant + n * (2.0 / 3.0)) / 12)};
}

template <tensafe::ckks::parameter_set P, int Level, int KeyLevel>
noise_bound key_switch_noise() noexcept {
    return digits_noise<P, Level, KeyLevel>() + division_noise<P, KeyLevel>();
}

/// A linear transform before it is rescaled, of a ciphertext with noise a whose message is 0.
/// @param p        norms of its diagonals;  @param giant  its giant steps
/// @param rotated  how many of the diagonals, the last ones, are of rotated ciphertexts
template <tensafe::ckks::parameter_set P, int Level, int KeyLevel>
noise_bound linear_transform_noise(noise_bound a, const std::vector<coefficient_norms>& p,
                                   std::size_t rotated, std::size_t giant) {
    const noise_bound digits = digits_noise<P, Level, KeyLevel>();
    noise_bound sum = division_noise<P, KeyLevel>();
    for (std::size_t i = 0; i < p.size(); ++i) {
        const noise_bound each = i + rotated < p.size() ? a : a + digits;
        sum = sum + noise_bound{each.worst * p[i].one, each.deviation * p[i].two};
    }
    for (std::size_t g = 1; g < giant; ++g) {
        sum = sum + digits + division_noise<P, KeyLevel>(false);
    }
    return sum;
}

/// What that noise does to a decoded slot: a bound of the error's magnitude, and its root mean square over
/// slots and randomness.
template <tensafe::ckks::parameter_set P>
noise_bound slot_error(noise_bound a, double scale) noexcept {
    constexpr auto n = static_cast<double>(P::degree);
    return {n * a.worst / scale, std::sqrt(n) * a.deviation / scale};
}

}  // namespace fixture
