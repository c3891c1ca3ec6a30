#include <tensafe/arith/barrett.hpp>

#include "policy_checks.hpp"

namespace {

using namespace tensafe::arith;
using namespace policy_checks;

/// The first wrong reduction; empty if all are right.
template <class Modulus>
std::string wrong_reduction(word q) {
    const barrett<Modulus> policy{Modulus(q)};
    const uint128 end = uint128{1} << (63 + Modulus::least_bits);
    for (const uint128 x : {end - 1, end - q, end - q - 1, end / 2, mul_wide(q, q) - 1, uint128{q},
                            uint128{q - 1}, uint128{0}}) {
        const word lazy = policy.reduce_wide(x).value;
        if (lazy >= 3 * q || lazy % q != static_cast<word>(x % q) ||
            policy.reduce_fully(x) != static_cast<word>(x % q)) {
            return std::to_string(high_word(x)) + " * 2^64 + " + std::to_string(low_word(x)) + " modulo " +
                   std::to_string(q);
        }
    }
    return "";
}

TEST_CASE("Barrett's reduction is right up to 2^(63 + least bits) - 1") {
    for_each_width<61>([]<int Bits>() {
        for (const word q : {least<Bits>, greatest<Bits>}) {
            expect_none(wrong_reduction<runtime_modulus<Bits>>(q));
            expect_none(wrong_reduction<modulus_class<Bits>>(q));
        }
    });
}

std::vector<uint128> extreme_numbers(word q) {
    tests::random_numbers random(q);
    std::vector<uint128> numbers{
        0, 1, ~uint128{0}, ~uint128{0} - 1, uint128{1} << 127, uint128{1} << 64, ~word{0}};
    numbers.insert(numbers.end(), {~uint128{0} / q * q, ~uint128{0} / q * q - 1});
    for (int i = 0; i < 50; ++i) {
        numbers.push_back(static_cast<uint128>(random()) << 64 | random());
    }
    return numbers;
}

template <class Modulus>
bool reduces_any(word q) {
    const barrett<Modulus> policy{Modulus(q)};
    const std::vector<uint128> numbers = extreme_numbers(q);
    return std::all_of(numbers.begin(), numbers.end(),
                       [&](uint128 x) { return policy.reduce_any(x) == static_cast<word>(x % q); });
}

TEST_CASE("Barrett's reduce_any is right for every kind of 128-bit number") {
    CHECK(reduces_any<runtime_modulus<2>>(3));
    CHECK(reduces_any<modulus_class<2>>(3));
    for_each_width<61>([]<int Bits>() {
        const bool right = reduces_any<runtime_modulus<Bits>>(least<Bits>) &&
                           reduces_any<runtime_modulus<Bits>>(greatest<Bits>) &&
                           reduces_any<modulus_class<Bits>>(least<Bits>) &&
                           reduces_any<modulus_class<Bits>>(greatest<Bits>);
        expect_none(right ? "" : std::to_string(Bits) + " bits");
    });
}

}  // namespace
