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

/// Of the square of an error: a fourth moment is 3 variance^2, less w^4 / 8 for each bit of weight w.
constexpr double variance_of_square = 2 * 10.5 * 10.5 - (10 * 16 + 2 * 1) / 8.0;

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
