#pragma once

#include <array>
#include <cstddef>

namespace tensafe::ckks {

/// The widest modulus, in bits of Q, that keeps 128-bit classical security at degree 2^log_n for uniform
/// ternary secrets and errors of standard deviation 3.2; 0 if the degree is not tabulated.
///
/// Bossuat et al., "Security Guidelines for Implementing Homomorphic Encryption" (2024), ternary secrets.
constexpr int max_modulus_bits_128(int log_n) noexcept {
    constexpr std::array<int, 6> bits{26, 53, 106, 214, 430, 868};  // log_n = 10 .. 15
    return log_n < 10 || log_n > 15 ? 0 : bits[static_cast<std::size_t>(log_n - 10)];
}

/// A parameter set of at least 128-bit security: the default, checked when the set is compiled.
struct secure_128 {};
/// Skips that check. For tests with small rings only: such a set protects nothing.
struct insecure_for_tests {};

}  // namespace tensafe::ckks
