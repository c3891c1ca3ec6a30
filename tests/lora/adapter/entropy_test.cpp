#include <tensafe/lora/adapter/entropy.hpp>

#include "../../random_values.hpp"
#include "../../test.hpp"

using namespace tests;
using namespace tensafe::lora;

namespace {

double bits_an_entry(const matrix& m) {
    return entropy_bits(m) / static_cast<double>(m.values.size());
}

/// Rounds to so many bits of significand: 8 are BF16's.
matrix with_significand(matrix m, int bits) {
    for (float& x : m.values) {
        int exponent = 0;
        const float fraction = std::frexp(x, &exponent);
        x = std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
    }
    return m;
}

}  // namespace

TEST_CASE("values that are all one, all different, and half and half have the entropy worked out by hand") {
    matrix m(4, 8);
    CHECK(entropy_bits(m) == 0);
    for (std::size_t k = 0; k < 16; ++k) {
        m.values[k] = 1;
    }
    CHECK(entropy_bits(m) == 32);
    for (std::size_t k = 0; k < 32; ++k) {
        m.values[k] = static_cast<float>(k);
    }
    CHECK(entropy_bits(m) == 32 * 5);
    CHECK(entropy_bits(matrix()) == 0);
}

TEST_CASE("zeros of both signs are one value") {
    matrix m(1, 2);
    m.values = {0.0F, -0.0F};
    CHECK(entropy_bits(m) == 0);
}

TEST_CASE("sixteen values have 4 bits an entry, BF16 8 to 11, F32 the logarithm of their number") {
    matrix four(32, 2048);
    random_numbers dice(1);
    for (float& x : four.values) {
        x = 0.01F * static_cast<float>(static_cast<int>(dice() % 16) - 8);
    }
    CHECK(std::fabs(bits_an_entry(four) - 4) < 1e-3);
    const matrix a = random_matrix(32, 2048, 2);
    CHECK(bits_an_entry(with_significand(a, 8)) > 8);
    CHECK(bits_an_entry(with_significand(a, 8)) < 11);
    CHECK(bits_an_entry(a) > 15.9);
    CHECK(bits_an_entry(a) <= 16);
    CHECK(bits_an_entry(random_matrix(2, 16, 3)) <= 5);
}

TEST_CASE("a matrix whose shape and values differ is refused") {
    matrix m(2, 3);
    m.values.pop_back();
    CHECK_THROWS_WITH_AS(entropy_bits(m), "entropy_bits: got 5 values for a 2 x 3 matrix, expected 6",
                         tensafe::shape_error);
}
