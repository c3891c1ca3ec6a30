#include <tensafe/arith/prime.hpp>

#include "../test.hpp"

namespace {

using namespace tensafe::arith;

bool is_prime_by_trial_division(word n) {
    if (n < 2) {
        return false;
    }
    for (word d = 2; d * d <= n; ++d) {
        if (n % d == 0) {
            return false;
        }
    }
    return true;
}

TEST_CASE("Miller-Rabin agrees with trial division for every number below 20000 and near 2^32") {
    for (word n = 0; n < 20000; ++n) {
        CAPTURE(n);
        CHECK(is_prime(n) == is_prime_by_trial_division(n));
    }
    for (word n = 4294967196; n < 4294967396; ++n) {
        CAPTURE(n);
        CHECK(is_prime(n) == is_prime_by_trial_division(n));
    }
}

TEST_CASE("Carmichael numbers and strong pseudoprimes to many bases are composite") {
    for (const word n :
         {561ULL, 1105ULL, 1729ULL, 2465ULL, 2821ULL, 6601ULL, 8911ULL, 825265ULL, 321197185ULL,
          // strong pseudoprimes to the first 1, 2, ... 9 primes
          2047ULL, 1373653ULL, 25326001ULL, 3215031751ULL, 2152302898747ULL, 3474749660383ULL,
          341550071728321ULL, 3825123056546413051ULL}) {
        CAPTURE(n);
        CHECK_FALSE(is_prime(n));
    }
}

TEST_CASE("64-bit primes are prime and products of two 32-bit primes are not") {
    for (const word p : {18446744073709551557ULL, 18446744073709551533ULL, 2305843009213693951ULL,
                         9223372036854775783ULL, 4294967291ULL, 4294967279ULL}) {
        CAPTURE(p);
        CHECK(is_prime(p));
    }
    CHECK_FALSE(is_prime(4294967291ULL * 4294967291ULL));
    CHECK_FALSE(is_prime(4294967291ULL * 4294967279ULL));
    CHECK_FALSE(is_prime(2147483647ULL * 4294967291ULL));
    CHECK_FALSE(is_prime(~word{0}));
}

TEST_CASE("primality is decided in constant expressions") {
    static_assert(is_prime(1152921504606584833));
    static_assert(!is_prime(1152921504606584835));
    constexpr word p = ntt_prime_below(word{1} << 60, 15);
    volatile word bound = word{1} << 60;
    CHECK(ntt_prime_below(bound, 15) == p);
}

TEST_CASE("ntt_prime_below finds the largest fitting prime, or zero when there is none") {
    for (int log_n = 0; log_n <= 6; ++log_n) {
        const word order = word{2} << log_n;
        word expected = 0;
        for (word bound = 0; bound < 3000; ++bound) {
            INFO("log_n := ", log_n, ", bound := ", bound);
            CHECK(ntt_prime_below(bound, log_n) == expected);
            if (bound % order == 1 && is_prime_by_trial_division(bound)) {
                expected = bound;
            }
        }
    }
}

TEST_CASE("ntt_prime_below reaches the widest bounds") {
    for (const word bound : {word{1} << 61, word{1} << 63, ~word{0}}) {
        const word p = ntt_prime_below(bound, 17);
        CAPTURE(bound);
        CHECK(p < bound);
        CHECK(bound - p < word{1} << 28);
        CHECK(is_ntt_prime(p, 17));
    }
    CHECK(is_ntt_prime(786433, 17));
    CHECK_FALSE(is_ntt_prime(786433, 18));
    CHECK_FALSE(is_ntt_prime(9, 2));
}

TEST_CASE("powers and inverses agree with repeated multiplication") {
    for (const word q : {3ULL, 97ULL, 65537ULL, 2305843009213693951ULL}) {
        for (const word a : {word{1}, word{2}, q - 1, q + 1, ~word{0}}) {
            INFO("q := ", q, ", a := ", a);
            word power = 1;
            for (word e = 0; e < 20; ++e) {
                CHECK(power_mod(a, e, q) == power);
                power = multiply_mod(power, a, q);
            }
            if (a % q != 0) {
                CHECK(multiply_mod(inverse_mod(a, q), a, q) == 1);
            }
        }
    }
    CHECK(power_mod(5, 0, 1) == 0);
    CHECK(multiply_mod(~word{0}, ~word{0}, ~word{0} - 1) == 1);
}

TEST_CASE("the smallest primitive root is the one that a search from 2 upwards meets first") {
    for (word q = 3; q < 2500; q += 2) {
        for (int log_n = 0; (word{2} << log_n) < q; ++log_n) {
            if (!is_ntt_prime(q, log_n)) {
                continue;
            }
            word first = 1;
            while (power_mod(first, word{1} << log_n, q) != q - 1) {
                ++first;
            }
            INFO("q := ", q, ", log_n := ", log_n);
            CHECK(smallest_primitive_root(q, log_n) == first);
        }
    }
}

TEST_CASE("a root modulo a 61-bit prime is primitive and no other primitive root is smaller") {
    const int log_n = 10;
    const word q = ntt_prime_below(word{1} << 61, log_n);
    const word root = smallest_primitive_root(q, log_n);
    CHECK(power_mod(root, word{1} << log_n, q) == q - 1);
    for (word odd = 3; odd < word{2} << log_n; odd += 2) {
        CHECK(power_mod(root, odd, q) > root);
    }
}

TEST_CASE("a modulus without a primitive root is refused by name") {
    const auto refuse = [](word q, int log_n) {
        CAPTURE(q);
        CHECK_THROWS_WITH_AS(smallest_primitive_root(q, log_n), doctest::Contains(std::to_string(q).c_str()),
                             tensafe::parameter_error);
    };
    refuse(0, 3);
    refuse(1, 3);
    refuse(97 * 113, 3);                // 1 modulo 16, but composite
    refuse(97, 5);                      // prime, but 97 = 33 modulo 64
    refuse(3825123056546413051ULL, 0);  // a pseudoprime
    CHECK_NOTHROW(smallest_primitive_root(97, 4));
}

}  // namespace
