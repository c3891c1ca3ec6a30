#include <tensafe/random/samplers.hpp>

#include "../backends.hpp"
#include "../test.hpp"
#include "stream_reference.hpp"

namespace {

using namespace tensafe::random;
using namespace tensafe::testing;

// Seeds are fixed, so that the statistical tests give the same figures on every run. Their thresholds are
// five standard deviations of the statistic for truly random input.

std::vector<std::uint64_t> uniform(const seed& key, stream_domain domain, std::uint32_t lane, std::uint64_t q,
                                   std::size_t count) {
    std::vector<std::uint64_t> out(count);
    sample_uniform(key, domain, lane, q, out);
    return out;
}

std::vector<std::int8_t> errors(const seed& key, std::uint32_t lane, std::size_t count) {
    std::vector<std::int8_t> out(count);
    sample_error(key, stream_domain::error, lane, out);
    return out;
}

std::vector<std::int8_t> ternary(const seed& key, std::uint32_t lane, std::size_t count) {
    std::vector<std::int8_t> out(count);
    sample_ternary(key, stream_domain::secret_key, lane, out);
    return out;
}

/// Pearson's statistic as a distance from its mean in standard deviations: 0 +- 1 for a right distribution.
double chi_square_deviations(const std::vector<double>& counts, const std::vector<double>& expected) {
    double statistic = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        statistic += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
    }
    const double freedom = static_cast<double>(counts.size()) - 1;
    return (statistic - freedom) / std::sqrt(2 * freedom);
}

/// Of each error from -11 on: how many of the 2^12 values of twelve bits give it.
std::array<double, 23> error_probabilities() {
    std::array<double, 23> result{};
    for (unsigned bits = 0; bits < 4096; ++bits) {
        const int twice = std::popcount(bits & 0x1fU) - std::popcount(bits >> 5 & 0x1fU);
        const int once = static_cast<int>(bits >> 10 & 1U) - static_cast<int>(bits >> 11);
        result[static_cast<std::size_t>(11 + 2 * twice + once)] += 0x1p-12;
    }
    return result;
}

/// Of the square of an error: a fourth moment is 3 variance^2, less w^4 / 8 for each bit of weight w.
constexpr double variance_of_square = 2 * 10.5 * 10.5 - (10 * 16 + 2 * 1) / 8.0;

double mean_of(const std::vector<std::int8_t>& values) {
    double sum = 0;
    for (const std::int8_t value : values) {
        sum += value;
    }
    return sum / static_cast<double>(values.size());
}

/// The mean of the products of values that are `distance` apart.
double correlation(const std::vector<std::int8_t>& values, std::size_t distance) {
    double sum = 0;
    for (std::size_t i = distance; i < values.size(); ++i) {
        sum += static_cast<double>(values[i]) * values[i - distance];
    }
    return sum / static_cast<double>(values.size() - distance);
}

// One modulus for each number of bytes, near a power of two from both sides, and the ends of the range.
constexpr std::uint64_t two_to(int exponent) {
    return std::uint64_t{1} << exponent;
}
constexpr std::uint64_t moduli[] = {1,
                                    2,
                                    3,
                                    128,
                                    251,
                                    255,
                                    257,
                                    12289,
                                    65537,
                                    two_to(20) + 7,
                                    two_to(32) - 5,
                                    two_to(32) + 15,
                                    two_to(39) + 23,
                                    two_to(40) - 1572863,
                                    two_to(47) + 5,
                                    two_to(50) - 27,
                                    two_to(55) + 3,
                                    two_to(60) - 98303,
                                    two_to(63) - 25,
                                    two_to(63) + 29,
                                    ~std::uint64_t{0}};

/// uniform_draws of Width bytes, of which the upper bit is cut off: zeros but for one draw, all ones.
template <std::size_t Width>
void check_draws() {
    const std::uint64_t mask = (std::uint64_t{1} << (8 * Width - 1)) - 1;
    for (std::size_t count = 0; count <= 25; ++count) {
        for (std::size_t place = 0; place <= count; ++place) {
            // One byte off every alignment. The draw after the last is all ones too: it must not count.
            std::vector<std::uint8_t> bytes(1 + count * Width + detail::uniform_slack);
            std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(1 + place * Width), Width, 0xff);
            std::vector<std::uint64_t> expected(count);
            if (place < count) {
                expected[place] = mask;
            }
            for (const std::uint64_t q : {mask, mask + 1}) {
                std::vector<std::uint64_t> out(count + 2, 77);
                CHECK(detail::uniform_draws<Width>(bytes.data() + 1, mask, q,
                                                   std::span(out).subspan(1, count)) ==
                      (place < count && q == mask));
                CHECK(std::equal(expected.begin(), expected.end(), out.begin() + 1));
                CHECK(out.front() == 77);
                CHECK(out.back() == 77);
            }
        }
    }
}

}  // namespace

BACKEND_TEST_CASE("sample_uniform agrees with the definition for every width, round and length") {
    for (const std::uint64_t q : moduli) {
        CAPTURE(q);
        for (const std::size_t count : {0U, 1U, 3U, 13U, 1030U}) {
            const auto drawn = uniform(counting_seed(), stream_domain::uplink, 4, q, count);
            CHECK(different(drawn, [&](std::size_t k) {
                      return reference_uniform(counting_seed(), stream_domain::uplink, 4, q, k);
                  }) == 0);
        }
    }
}

BACKEND_TEST_CASE("a uniform coefficient does not depend on how many are drawn") {
    const std::uint64_t q = two_to(39) + 23;
    const auto all = uniform(counting_seed(), stream_domain::public_key, 0, q, 3000);
    for (const std::size_t count : {1U, 511U, 1023U, 1024U, 1025U, 2049U, 2999U}) {
        const auto fewer = uniform(counting_seed(), stream_domain::public_key, 0, q, count);
        CHECK(std::equal(fewer.begin(), fewer.end(), all.begin()));
    }
}

TEST_CASE("values that are rejected far apart are drawn again from their own places") {
    // One in 512 is rejected.
    const std::uint64_t q = two_to(45) - two_to(36);
    constexpr std::size_t count = 5000;
    std::vector<std::uint64_t> expected(count);
    std::size_t rejected = 0;
    for (std::size_t k = 0; k < count; ++k) {
        expected[k] = reference_uniform(counting_seed(), stream_domain::uplink, 1, q, k);
        const std::uint64_t first = stream_word(counting_seed(), stream_domain::uplink, 1, 0, 6 * k, 6);
        rejected += first % two_to(45) != expected[k];
    }
    CHECK(rejected > 0);
    CHECK(rejected < 30);
    tests::for_each_backend(
        [&](auto) { CHECK(uniform(counting_seed(), stream_domain::uplink, 1, q, count) == expected); });
}

BACKEND_TEST_CASE("sample_uniform writes nothing beside its output") {
    std::vector<std::uint64_t> out(1001, 77);
    sample_uniform(counting_seed(), stream_domain::uplink, 0, 12289, std::span(out).subspan(1, 999));
    CHECK(out.front() == 77);
    CHECK(out.back() == 77);
}

TEST_CASE("uniform values fill [0, q) evenly") {
    constexpr std::size_t count = std::size_t{1} << 20;
    constexpr std::size_t cells = 1021;
    for (const std::uint64_t q : {std::uint64_t{12289}, two_to(39) + 23, two_to(60) - 98303}) {
        std::vector<double> counts(cells);
        std::vector<double> expected(cells);
        const long double width = static_cast<long double>(q) / cells;
        for (const std::uint64_t value : uniform(counting_seed(3), stream_domain::uplink, 1, q, count)) {
            counts[std::min(cells - 1, static_cast<std::size_t>(static_cast<long double>(value) / width))] +=
                1;
        }
        for (std::size_t i = 0; i < cells; ++i) {
            // Values of cell i: those with value / width in [i, i + 1).
            const long double first = std::ceil(static_cast<long double>(i) * width);
            const long double last = std::ceil(static_cast<long double>(i + 1) * width);
            expected[i] = static_cast<double>((last - first) / static_cast<long double>(q)) *
                          static_cast<double>(count);
        }
        CAPTURE(q);
        CHECK(std::abs(chi_square_deviations(counts, expected)) < 5);
    }
}

BACKEND_TEST_CASE("the largest draw alone decides whether a bound rejects, wherever it stands") {
    check_draws<1>();
    check_draws<2>();
    check_draws<3>();
    check_draws<4>();
    check_draws<5>();
    check_draws<6>();
    check_draws<7>();
    check_draws<8>();
}

BACKEND_TEST_CASE("sample_error agrees with the definition for every length") {
    for (const std::size_t count :
         {0U, 64U, 128U, 192U, 256U, 320U, 448U, 512U, 576U, 960U, 1024U, 2048U, 2112U, 2432U}) {
        const auto drawn = errors(counting_seed(), 2, count);
        CHECK(different(drawn, [&](std::size_t k) {
                  return reference_error(counting_seed(), stream_domain::error, 2, k);
              }) == 0);
    }
}

BACKEND_TEST_CASE("errors are right for all values of twelve bits") {
    constexpr std::size_t groups = 13;
    for (unsigned bits = 0; bits < 4096; ++bits) {
        std::uint64_t words[groups][12] = {};
        int expected = 0;
        for (unsigned i = 0; i < 12; ++i) {
            const bool is_set = (bits >> i & 1U) != 0;
            for (auto& group : words) {
                group[i] = is_set ? ~std::uint64_t{0} : 0;
            }
            expected += is_set ? (i < 10 ? 2 : 1) * (i < 5 || i == 10 ? 1 : -1) : 0;
        }
        std::vector<std::int8_t> out(groups * 64, 99);
        detail::error_groups(words[0], groups, out.data());
        REQUIRE(std::ranges::count(out, static_cast<std::int8_t>(expected)) == groups * 64);
    }
}

TEST_CASE("errors have mean 0, variance 10.5 and their distribution in [-11, 11]") {
    constexpr std::size_t count = std::size_t{1} << 22;
    const auto values = errors(counting_seed(5), 0, count);
    const double n = count;

    const auto [least, largest] = std::minmax_element(values.begin(), values.end());
    CHECK(*least == -largest_error);
    CHECK(*largest == largest_error);
    CHECK(std::abs(mean_of(values)) < 5 * std::sqrt(10.5 / n));
    CHECK(error_variance == 10.5);
    CHECK(std::abs(correlation(values, 0) - 10.5) < 5 * std::sqrt(variance_of_square / n));
    for (const std::size_t distance : {1U, 2U, 8U, 63U, 64U, 256U}) {
        CAPTURE(distance);
        CHECK(std::abs(correlation(values, distance)) < 5 * 10.5 / std::sqrt(n));
    }

    std::vector<double> counts(23);
    std::vector<double> expected;
    for (const int value : values) {
        counts[static_cast<std::size_t>(value + 11)] += 1;
    }
    for (const double probability : error_probabilities()) {
        expected.push_back(n * probability);  // 1024 or more
    }
    CHECK(std::abs(chi_square_deviations(counts, expected)) < 5);
}

TEST_CASE("every one of the 64 bit positions of a group has the errors' variance") {
    constexpr std::size_t groups = 1 << 14;
    const auto values = errors(counting_seed(6), 0, 64 * groups);
    for (std::size_t position = 0; position < 64; ++position) {
        double squares = 0;
        for (std::size_t group = 0; group < groups; ++group) {
            squares += static_cast<double>(values[64 * group + position]) * values[64 * group + position];
        }
        CAPTURE(position);
        CHECK(std::abs(squares / groups - 10.5) < 5 * std::sqrt(variance_of_square / groups));
    }
}

BACKEND_TEST_CASE("sample_ternary agrees with the definition for every length") {
    for (const std::size_t count :
         {0U, 4U, 8U, 28U, 124U, 128U, 132U, 252U, 256U, 260U, 2048U, 2052U, 5000U}) {
        const auto drawn = ternary(counting_seed(), 2, count);
        CHECK(different(drawn, [&](std::size_t k) {
                  return reference_ternary(counting_seed(), stream_domain::secret_key, 2, k);
              }) == 0);
    }
}

TEST_CASE("ternary values are right on both sides of every step of the four digits") {
    // The words floor(2^64 v / 81) and their neighbours, and the ends of the range.
    std::vector<std::uint64_t> words;
    for (std::uint64_t v = 0; v < 81; ++v) {
        const std::uint64_t step = ~std::uint64_t{0} / 81 * v + (~std::uint64_t{0} % 81 + 1) * v / 81;
        words.insert(words.end(), {step - 2, step - 1, step, step + 1, step + 2});
    }
    // Carries out of the lower half of a word.
    for (const std::uint64_t high : {0U, 1U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
        words.insert(words.end(), {high << 32, (high << 32) + 0xffffffffU, (high << 32) + 0x80000000U});
    }
    tests::for_each_backend([&](auto) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{31}, std::size_t{97}, words.size()}) {
            // One byte off every alignment.
            std::vector<std::uint8_t> bytes(1 + 8 * count);
            std::vector<std::int8_t> out(4 * count + 2, 99);
            for (std::size_t i = 0; i < 8 * count; ++i) {
                bytes[1 + i] = static_cast<std::uint8_t>(words[i / 8] >> (8 * (i % 8)));
            }
            detail::ternary_words(bytes.data() + 1, count, out.data() + 1);
            CHECK(different(std::span(out).subspan(1, 4 * count),
                            [&](std::size_t i) { return reference_trit(words[i / 4], i % 4); }) == 0);
            CHECK(out.front() == 99);
            CHECK(out.back() == 99);
        }
    });
}

BACKEND_TEST_CASE("the samplers of small values write anywhere, and nothing beside their output") {
    for (const std::size_t groups : {1U, 3U, 8U, 11U}) {
        std::vector<std::int8_t> out(64 * groups + 2, 99);
        const std::span<std::int8_t> inner = std::span(out).subspan(1, 64 * groups);
        sample_error(counting_seed(), stream_domain::error, 2, inner);
        CHECK(std::ranges::equal(inner, errors(counting_seed(), 2, 64 * groups)));
        CHECK(out.front() == 99);
        CHECK(out.back() == 99);
        sample_ternary(counting_seed(), stream_domain::secret_key, 2, inner);
        CHECK(std::ranges::equal(inner, ternary(counting_seed(), 2, 64 * groups)));
        CHECK(out.front() == 99);
        CHECK(out.back() == 99);
    }
}

TEST_CASE("the 81 quadruples of ternary values are equally frequent") {
    constexpr std::size_t words = std::size_t{1} << 20;
    const auto values = ternary(counting_seed(8), 0, 4 * words);
    std::vector<double> single(3);
    std::vector<double> quadruple(81);
    std::size_t outside = 0;
    for (std::size_t i = 0; i < words; ++i) {
        std::size_t index = 0;
        for (std::size_t trit = 0; trit < 4; ++trit) {
            const int value = values[4 * i + trit];
            const auto trit_index = static_cast<std::size_t>(std::clamp(value, -1, 1) + 1);
            outside += std::abs(value) > 1;
            single[trit_index] += 1;
            index = 3 * index + trit_index;
        }
        quadruple[index] += 1;
    }
    CHECK(outside == 0);
    CHECK(chi_square_deviations(single, std::vector<double>(3, 4.0 * words / 3)) < 5);
    CHECK(std::abs(chi_square_deviations(quadruple, std::vector<double>(81, words / 81.0))) < 5);
    CHECK(std::abs(correlation(values, 4)) < 5 * (2.0 / 3) / std::sqrt(4.0 * words));
}

TEST_CASE("another seed, domain or lane gives other coefficients") {
    const auto base = uniform(counting_seed(), stream_domain::uplink, 0, 12289, 64);
    CHECK(uniform(counting_seed(1), stream_domain::uplink, 0, 12289, 64) != base);
    CHECK(uniform(counting_seed(), stream_domain::public_key, 0, 12289, 64) != base);
    CHECK(uniform(counting_seed(), stream_domain::uplink, 1, 12289, 64) != base);

    CHECK(errors(counting_seed(), 0, 64) != errors(counting_seed(), 1, 64));
    CHECK(errors(counting_seed(), 0, 64) != errors(counting_seed(1), 0, 64));
    CHECK(ternary(counting_seed(), 0, 64) != ternary(counting_seed(), 1, 64));
    CHECK(ternary(counting_seed(), 0, 64) != ternary(counting_seed(1), 0, 64));

    std::vector<std::int8_t> flood(64);
    sample_error(counting_seed(), stream_domain::flood, 0, flood);
    CHECK(flood != errors(counting_seed(), 0, 64));
    std::vector<std::int8_t> zero(64);
    sample_ternary(counting_seed(), stream_domain::zero, 0, zero);
    CHECK(zero != ternary(counting_seed(), 0, 64));
}
