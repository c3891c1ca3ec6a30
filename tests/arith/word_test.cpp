#include <tensafe/arith/word.hpp>

#include "../test.hpp"

namespace {

using namespace tensafe::arith;

const std::vector<word> edges{0,
                              1,
                              2,
                              0xffffffff,
                              0x100000000,
                              0x100000001,
                              0x7fffffffffffffff,
                              0x8000000000000000,
                              0x8000000000000001,
                              ~word{0} - 1,
                              ~word{0}};

/// The upper word of a product from four products of half words.
word upper_word_by_halves(word a, word b) {
    const word mask = 0xffffffff;
    const word low = (a & mask) * (b & mask);
    const word middle = (a >> 32) * (b & mask) + (low >> 32);
    const word other = (a & mask) * (b >> 32) + (middle & mask);
    return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32);
}

template <class Check>
void for_edges_and_random_pairs(Check check) {
    for (const word a : edges) {
        for (const word b : edges) {
            check(a, b);
        }
    }
    tests::random_numbers random(1);
    for (int i = 0; i < 1000; ++i) {
        const word a = random();
        check(a >> (i % 64), random());
    }
}

TEST_CASE("both words of a product agree with long multiplication of half words") {
    for_edges_and_random_pairs([](word a, word b) {
        INFO("a := ", a, ", b := ", b);
        CHECK(mul_hi(a, b) == upper_word_by_halves(a, b));
        CHECK(high_word(mul_wide(a, b)) == upper_word_by_halves(a, b));
        CHECK(low_word(mul_wide(a, b)) == a * b);
    });
}

TEST_CASE("a conditional subtraction subtracts exactly when the difference does not wrap") {
    for_edges_and_random_pairs([](word x, word c) {
        INFO("x := ", x, ", c := ", c);
        CHECK(subtract_if_not_below(x, c) == (x >= c ? x - c : x));
        CHECK(subtract_if_not_below(c, c) == 0);
    });
}

TEST_CASE("products are the same in constant expressions as at run time") {
    constexpr word a = 0xfedcba9876543210;
    constexpr word b = 0x89abcdef01234567;
    constexpr word upper = mul_hi(a, b);
    volatile word c = a;
    CHECK(mul_hi(c, b) == upper);
}

}  // namespace
