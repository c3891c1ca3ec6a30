#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/precondition.hpp>

#include <array>
#include <bit>
#include <string>

namespace tensafe::arith {

/// Returns a * b mod q for any words with q > 0. A 128-bit division: for tables, not for inner loops.
constexpr word multiply_mod(word a, word b, word q) noexcept {
    return static_cast<word>(mul_wide(a, b) % q);
}

/// Returns base^exponent mod q, by squaring. Not constant time in the exponent, which is public everywhere.
constexpr word power_mod(word base, word exponent, word q) noexcept {
    word result = 1 % q;
    word square = base % q;
    for (; exponent != 0; exponent >>= 1) {
        if ((exponent & 1) != 0) {
            result = multiply_mod(result, square, q);
        }
        square = multiply_mod(square, square, q);
    }
    return result;
}

/// The inverse of a modulo the prime q, by Fermat's little theorem.  @pre a mod q != 0
constexpr word inverse_mod(word a, word q) noexcept {
    TENSAFE_PRECONDITION(a % q != 0);
    return power_mod(a, q - 2, q);
}

/// Whether n is prime, for every 64-bit n: Miller-Rabin with the first twelve primes as bases, which has no
/// counterexample below 3.3e24 (Sorenson and Webster, "Strong pseudoprimes to twelve prime bases", 2015).
constexpr bool is_prime(word n) noexcept {
    constexpr std::array<word, 12> bases{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
    if (n < 2) {
        return false;
    }
    for (const word p : bases) {
        if (n % p == 0) {
            return n == p;
        }
    }
    const int twos = std::countr_zero(n - 1);
    for (const word base : bases) {
        word x = power_mod(base, (n - 1) >> twos, n);
        bool composite = x != 1 && x != n - 1;
        for (int i = 1; i < twos && composite; ++i) {
            x = multiply_mod(x, x, n);
            composite = x != n - 1;
        }
        if (composite) {
            return false;
        }
    }
    return true;
}

/// The largest prime p < bound with p = 1 mod 2^(log_n + 1), so that degree 2^log_n has a negacyclic NTT
/// modulo p; 0 if there is none.
constexpr word ntt_prime_below(word bound, int log_n) noexcept {
    const word step = word{2} << log_n;
    if (bound < step + 2) {
        return 0;
    }
    for (word p = (bound - 2) / step * step + 1; p > 1; p -= step) {
        if (is_prime(p)) {
            return p;
        }
    }
    return 0;
}

/// Whether modulo q there is a negacyclic NTT of degree 2^log_n.
constexpr bool is_ntt_prime(word q, int log_n) noexcept {
    return q % (word{2} << log_n) == 1 && is_prime(q);
}

/// The smallest primitive 2N-th root of unity modulo the prime q, N = 2^log_n. Costs N modular products;
/// being the smallest, it is the same number in every library that follows this convention.
/// @throws parameter_error unless q is a prime with q = 1 mod 2N
constexpr word smallest_primitive_root(word q, int log_n) {
    if (!is_ntt_prime(q, log_n)) {
        throw parameter_error("smallest_primitive_root: modulus " + std::to_string(q) +
                              " is not a prime that is 1 modulo 2N = " + std::to_string(word{2} << log_n));
    }
    const word degree = word{1} << log_n;
    word root = 0;
    // A candidate's power has order dividing 2N; it is primitive exactly when its N-th power is -1.
    for (word candidate = 2; root == 0; ++candidate) {
        const word power = power_mod(candidate, (q - 1) / (2 * degree), q);
        if (power_mod(power, degree, q) == q - 1) {
            root = power;
        }
    }
    // The primitive roots are the odd powers of any one of them.
    const word square = multiply_mod(root, root, q);
    word smallest = root;
    for (word i = 1; i < degree; ++i) {
        root = multiply_mod(root, square, q);
        smallest = root < smallest ? root : smallest;
    }
    return smallest;
}

}  // namespace tensafe::arith
