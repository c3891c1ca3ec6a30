#include <tensafe/rns/crt.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

namespace {

using namespace tensafe;
using arith::word;

constexpr int log_n = 3;
constexpr word below(int bits, word bound = ~word{0}) {
    return arith::ntt_prime_below(std::min(bound, word{1} << bits), log_n);
}
constexpr word q61 = below(61);
constexpr word q60 = below(60);
constexpr word q54 = below(54);
constexpr word q50 = below(50);
constexpr word q40a = below(40);
constexpr word q40b = below(40, q40a);
constexpr word q40c = below(40, q40b);

template <class Basis>
using residues_of = std::array<word, static_cast<std::size_t>(Basis::limbs)>;

word negated(word r, word q) {
    return r == 0 ? 0 : q - r;
}

/// The residues of mantissa * 2^exponent.
template <class Basis>
residues_of<Basis> scaled_integer(std::int64_t mantissa, int exponent) {
    residues_of<Basis> residues{};
    for (std::size_t i = 0; i < residues.size(); ++i) {
        const word q = Basis::primes[i];
        const word magnitude = static_cast<word>(mantissa < 0 ? -mantissa : mantissa);
        const word power = arith::power_mod(2, static_cast<word>(exponent), q);
        const word r = arith::multiply_mod(magnitude, power, q);
        residues[i] = mantissa < 0 ? negated(r, q) : r;
    }
    return residues;
}

template <class Basis>
constexpr double bound = 3.0 * Basis::limbs * 0x1p-53;

#define CHAINS                                                                                 \
    rns::basis<log_n, q61>, rns::basis<log_n, q54>, rns::basis<log_n, q40a, q40b>,             \
        rns::basis<log_n, q54, q40a>, rns::basis<log_n, q61, q60>, rns::basis<log_n, 97, q61>, \
        rns::basis<log_n, q60, q40a, q40b>, rns::basis<log_n, q40a, q61, 97, q60>,             \
        rns::basis<log_n, q60, q40a, q40b, q40c, q50>, rns::basis<log_n, 17, 97, 113, 193, q60>

TEST_CASE_TEMPLATE("integers of magnitude up to 2^52 are exact", Basis, CHAINS) {
    std::mt19937_64 random(1);
    const std::int64_t end = std::int64_t{1} << 52;
    const auto check = [](std::int64_t x) {
        CAPTURE(x);
        CHECK(rns::to_double<Basis>(scaled_integer<Basis>(x, 0)) == static_cast<double>(x));
        CHECK(rns::to_double<Basis>(scaled_integer<Basis>(-x, 0)) == -static_cast<double>(x));
    };
    for (const std::int64_t x : {0L, 1L, 2L, end, end - 1, end - 2, end / 2, end / 2 + 1}) {
        check(x);
    }
    for (const word q : Basis::primes) {
        for (const word multiple : {word{1}, word{2}, word{3}, (word{1} << 52) / q}) {
            const auto near = static_cast<std::int64_t>(q * multiple);
            for (const std::int64_t x : {near - 1, near, near + 1, near - static_cast<std::int64_t>(q / 2)}) {
                if (x >= 0 && x <= end) {
                    check(x);
                }
            }
        }
    }
    for (int i = 0; i < 500; ++i) {
        check(static_cast<std::int64_t>(random() >> (12 + i % 50)));
    }
}

TEST_CASE_TEMPLATE("numbers of every size have a small relative error and the right sign", Basis, CHAINS) {
    std::mt19937_64 random(2);
    const int last = std::max(static_cast<int>(Basis::log2_modulus() - 1.001) - 53, 0);
    for (int i = 0; i < 2000; ++i) {
        const auto mantissa = static_cast<std::int64_t>(random() >> 11) | 1;
        const int exponent = static_cast<int>(random() % static_cast<word>(last + 1));
        const double x = std::ldexp(static_cast<double>(mantissa), exponent);
        CAPTURE(x);
        CHECK(std::fabs(rns::to_double<Basis>(scaled_integer<Basis>(mantissa, exponent)) - x) <=
              bound<Basis> * x);
        CHECK(std::fabs(rns::to_double<Basis>(scaled_integer<Basis>(-mantissa, exponent)) + x) <=
              bound<Basis> * x);
    }
}

TEST_CASE_TEMPLATE("both ends of the range, (Q-1)/2 and its negative, keep their sign", Basis, CHAINS) {
    // (Q-1)/2 = (q-1)/2 modulo every prime, and its successor is -(Q-1)/2.
    residues_of<Basis> top{};
    residues_of<Basis> bottom{};
    double half = 0.5;
    for (std::size_t i = 0; i < top.size(); ++i) {
        top[i] = (Basis::primes[i] - 1) / 2;
        bottom[i] = top[i] + 1;
        half *= static_cast<double>(Basis::primes[i]);
    }
    CHECK(rns::to_double<Basis>(top) == doctest::Approx(half).epsilon(1e-14));
    CHECK(rns::to_double<Basis>(bottom) == doctest::Approx(-half).epsilon(1e-14));
    CHECK(rns::to_double<Basis>(top) == -rns::to_double<Basis>(bottom));
}

TEST_CASE("every number of a tiny chain is reconstructed exactly") {
    using chain = rns::basis<log_n, 17, 97, 113>;
    const std::int64_t q = 17 * 97 * 113;
    for (std::int64_t x = -(q - 1) / 2; x <= (q - 1) / 2; ++x) {
        if (rns::to_double<chain>(scaled_integer<chain>(x, 0)) != static_cast<double>(x)) {
            CAPTURE(x);
            FAIL("wrong");
        }
    }
    CHECK(rns::to_double<chain>({0, 0, 0}) == 0.0);
}

}  // namespace
