#include <tensafe/lora/adapter/entropy.hpp>

#include "../../../studies/few_bits.hpp"
#include "../../random_values.hpp"
#include "../../test.hpp"

using namespace tests;
using namespace tensafe::lora;

namespace {

double bits_an_entry(const matrix& m) {
    return entropy_bits(m) / static_cast<double>(m.values.size());
}

/// Of the values, whatever rows and scales.
double order_0_of(const matrix& m) {
    std::map<float, double> counts;
    for (const float x : m.values) {
        ++counts[x];
    }
    double bits = 0;
    for (const auto& [x, count] : counts) {
        bits += count * std::log2(static_cast<double>(m.values.size()) / count);
    }
    return bits / static_cast<double>(m.values.size());
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

TEST_CASE("zeros of both signs, and what is not finite, are one value") {
    matrix m(1, 4);
    m.values = {0.0F, -0.0F, NAN, -INFINITY};
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
    CHECK(bits_an_entry(with_significand(a, 8)) == doctest::Approx(10.1).epsilon(0.03));
    CHECK(bits_an_entry(with_significand(a, 8)) ==
          doctest::Approx(order_0_of(with_significand(a, 8))).epsilon(1e-12));
    CHECK(bits_an_entry(a) > 15.9);
    CHECK(bits_an_entry(a) <= 16);
    CHECK(bits_an_entry(random_matrix(2, 16, 3)) <= 5);
}

TEST_CASE("scales of rows, of 64 and of 32 entries cost 16 bits each, in F32 and in BF16") {
    for (const bool is_bf16 : {false, true}) {
        for (const int largest : {1, 7, 127}) {
            for (const std::size_t piece : {2048u, 64u, 32u}) {
                if (is_bf16 && largest > 7) {
                    continue;  // BF16 has no room for such a value and the scale
                }
                CAPTURE(is_bf16);
                CAPTURE(largest);
                CAPTURE(piece);
                const studies::few_bit_matrix few(32, 2048, largest, 4, piece);
                const double bits = std::log2(few.levels()) + 16.0 / static_cast<double>(piece);
                const matrix a = is_bf16 ? with_significand(few.a, 8) : few.a;
                CHECK(bits_an_entry(a) > bits - 0.05);
                CHECK(bits_an_entry(a) < bits + 0.05);
                CHECK(bits < order_0_of(a) - 1);  // what counts the scales into the values
            }
        }
    }
}

TEST_CASE("tables of a piece, codebooks with a scale, and multiples from 0 up count what they have") {
    random_numbers dice(5);
    const auto values_of = [&](std::size_t piece, auto value) {
        matrix m(32, 2048);
        for (std::size_t k = 0; k < m.values.size(); ++k) {
            m.values[k] = value(k / piece, dice() % 16);
        }
        return bits_an_entry(m);
    };
    const auto any = [](std::size_t a, std::uint64_t b) {
        return random_numbers(17 * a + b).normals<float>(1, 0.05F)[0];
    };
    CHECK(values_of(2048, any) == doctest::Approx(4 + 16 * 16 / 2048.0).epsilon(0.01));
    CHECK(values_of(64, any) < 4 + 16 * 16 / 64.0);
    const auto scale = [&](std::size_t piece) { return 1 + std::fabs(any(piece, 3)); };
    CHECK(values_of(64, [&](std::size_t piece, std::uint64_t q) {
              const float place = static_cast<float>(q) / 7.5F - 1;
              return scale(piece) * place * std::fabs(place);
          }) == doctest::Approx(4.25).epsilon(0.02));
    CHECK(values_of(64, [&](std::size_t piece, std::uint64_t q) {
              return scale(piece) * static_cast<float>(q);
          }) == doctest::Approx(4.25).epsilon(0.02));
}

TEST_CASE(
    "what tables take at least is no more than what they take, and most of it where all values differ") {
    random_numbers dice(6);
    for (const std::size_t columns : {1u, 31u, 64u, 100u, 2048u}) {
        for (const std::size_t values : {1u, 2u, 40u, 700u, 1u << 20}) {
            matrix m(9, columns);
            for (float& x : m.values) {
                x = std::sqrt(static_cast<float>(1 + dice() % values));  // no multiples of a step
            }
            const std::size_t distinct = std::set<float>(m.values.begin(), m.values.end()).size();
            for (const std::size_t size : {columns, std::size_t{64}, std::size_t{32}}) {
                const double least = tensafe::lora::detail::least_bits_of_tables(m, size, distinct);
                double bits = 0;
                for (std::size_t begin = 0; begin < m.values.size();) {
                    const std::size_t count = std::min(size, columns - begin % columns);
                    matrix piece(1, count);
                    std::copy_n(m.values.data() + begin, count, piece.values.data());
                    bits += order_0_of(piece) * static_cast<double>(count) +
                            16.0 * static_cast<double>(
                                       std::set<float>(piece.values.begin(), piece.values.end()).size());
                    begin += count;
                }
                CAPTURE(columns);
                CAPTURE(values);
                CAPTURE(size);
                CHECK(least <= bits);
                if (columns >= 64 && values > 1000000) {
                    CHECK(least > 0.9 * bits);
                }
            }
        }
    }
}

TEST_CASE("a matrix whose shape and values differ is refused") {
    matrix m(2, 3);
    m.values.pop_back();
    CHECK_THROWS_WITH_AS(entropy_bits(m), "entropy_bits: got 5 values for a 2 x 3 matrix, expected 6",
                         tensafe::shape_error);
}

TEST_CASE("values are sorted as by std::sort, however many they are") {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{511}, std::size_t{512}, std::size_t{5000}}) {
        std::vector<float> values = random_state(count, count);
        for (std::size_t i = 0; i < count; ++i) {
            values[i] *= std::ldexp(1.0F, static_cast<int>(i % 250) - 140);
            values[i] = i % 7 == 0 ? 0.0F : i % 11 == 0 ? -0.0F : values[i];
        }
        std::vector<float> expected = values;
        std::sort(expected.begin(), expected.end());
        tensafe::lora::detail::sort_values(values);
        CHECK(values == expected);
    }
}
