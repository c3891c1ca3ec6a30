#include <tensafe/dp/sample_discrete_gaussian.hpp>

#include "../backends.hpp"
#include "../random/stream_reference.hpp"
#include "../test.hpp"

namespace {

using namespace tensafe::dp;
using tensafe::random::seed;
using tensafe::random::stream_domain;
using namespace tensafe::testing;

__extension__ using wide = unsigned __int128;

// Seeds are fixed, so that the statistical tests give the same figures on every run. Their thresholds are
// five standard deviations of the statistic: for truly random input one in 1.7 million seeds would fail.

std::vector<std::int64_t> drawn(const seed& key, std::uint32_t lane, std::size_t count) {
    std::vector<std::int64_t> out(count);
    sample_discrete_gaussian(key, stream_domain::privacy_noise, lane, out);
    return out;
}

/// Threshold i, counted from 0, as an integer of 126 bits.
wide threshold(std::size_t i) {
    const wide upper = i < detail::gaussian_wide_thresholds ? detail::gaussian_upper[i] : 0;
    return upper << 63 | detail::gaussian_lower[i];
}

/// A number in [0, 16) with 252 bits after the point, in 32-bit digits, the least first: schoolbook
/// arithmetic that has nothing to do with how the table was made.
struct fixed_point {
    static constexpr std::size_t digits = 8;
    std::array<std::uint32_t, digits> digit{};

    static fixed_point one() {
        fixed_point result;
        result.digit[digits - 1] = 1U << 28;
        return result;
    }
    friend fixed_point operator+(const fixed_point& a, const fixed_point& b) {
        fixed_point result;
        std::uint64_t carry = 0;
        for (std::size_t i = 0; i < digits; ++i) {
            carry += std::uint64_t{a.digit[i]} + b.digit[i];
            result.digit[i] = static_cast<std::uint32_t>(carry);
            carry >>= 32;
        }
        return result;
    }
    friend fixed_point operator-(const fixed_point& a, const fixed_point& b) {
        fixed_point result;
        std::uint64_t borrow = 0;
        for (std::size_t i = 0; i < digits; ++i) {
            const std::uint64_t difference = std::uint64_t{a.digit[i]} - b.digit[i] - borrow;
            result.digit[i] = static_cast<std::uint32_t>(difference);
            borrow = difference >> 63;
        }
        return result;
    }
    friend fixed_point operator*(const fixed_point& a, const fixed_point& b) {
        std::array<std::uint32_t, 2 * digits> product{};
        for (std::size_t i = 0; i < digits; ++i) {
            std::uint64_t carry = 0;
            for (std::size_t j = 0; j < digits; ++j) {
                carry += std::uint64_t{a.digit[i]} * b.digit[j] + product[i + j];
                product[i + j] = static_cast<std::uint32_t>(carry);
                carry >>= 32;
            }
            product[i + digits] = static_cast<std::uint32_t>(carry);
        }
        fixed_point result;
        for (std::size_t i = 0; i < digits; ++i) {
            const std::uint64_t low = product[i + digits - 1];
            const std::uint64_t high = product[i + digits];
            result.digit[i] = static_cast<std::uint32_t>((high << 32 | low) >> 28);
        }
        return result;
    }
    friend bool operator<=(const fixed_point& a, const fixed_point& b) {
        return std::lexicographical_compare(a.digit.rbegin(), a.digit.rend(), b.digit.rbegin(),
                                            b.digit.rend()) ||
               a.digit == b.digit;
    }
    fixed_point half() const {
        fixed_point result;
        for (std::size_t i = 0; i < digits; ++i) {
            const std::uint64_t high = i + 1 < digits ? digit[i + 1] : 0;
            result.digit[i] = static_cast<std::uint32_t>((high << 32 | digit[i]) >> 1);
        }
        return result;
    }
};

/// The square root of a number below 1, bit by bit.
fixed_point root(const fixed_point& x) {
    fixed_point result;
    for (std::size_t bit = 252; bit-- > 0;) {
        fixed_point larger = result;
        larger.digit[bit / 32] |= 1U << (bit % 32);
        if (larger * larger <= x) {
            result = larger;
        }
    }
    return result;
}

/// round(2^126 * numerator / denominator), for numerator < denominator.
wide rounded_quotient(fixed_point numerator, const fixed_point& denominator) {
    wide result = 0;
    for (int bit = 0; bit < 127; ++bit) {
        numerator = numerator + numerator;
        result <<= 1;
        if (denominator <= numerator) {
            numerator = numerator - denominator;
            result |= 1;
        }
    }
    return (result + 1) >> 1;
}

/// P(X = x) of a leaf, for x = -89 .. 89, from the thresholds.
std::vector<double> leaf_probabilities() {
    constexpr std::size_t last = detail::gaussian_thresholds;
    std::vector<double> result(2 * last + 1);
    const wide whole = static_cast<wide>(1) << 126;
    for (std::size_t i = 0; i <= last; ++i) {
        const wide above = i == 0 ? whole : threshold(i - 1);
        const wide below = i == last ? 0 : threshold(i);
        const double probability = std::ldexp(static_cast<double>(above - below), -126);
        result[last + i] = i == 0 ? probability : probability / 2;
        result[last - i] = result[last + i];
    }
    return result;
}

/// Of a x + (a + 1) y, for independent x and y of these probabilities.
std::vector<double> joined(const std::vector<double>& p, std::size_t a) {
    std::vector<double> result((p.size() - 1) * (2 * a + 1) + 1);
    for (std::size_t x = 0; x < p.size(); ++x) {
        for (std::size_t y = 0; y < p.size(); ++y) {
            result[a * x + (a + 1) * y] += p[x] * p[y];
        }
    }
    return result;
}

/// The largest relative distance from the discrete Gaussian of this variance, up to `deviations` of it.
double relative_distance(const std::vector<double>& p, double variance, double deviations) {
    const auto centre = static_cast<double>(p.size() / 2);
    double total = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
        const double x = static_cast<double>(i) - centre;
        total += std::exp(-x * x / (2 * variance));
    }
    double distance = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
        const double x = static_cast<double>(i) - centre;
        if (std::abs(x) <= deviations * std::sqrt(variance)) {
            const double expected = std::exp(-x * x / (2 * variance)) / total;
            distance = std::max(distance, std::abs(p[i] / expected - 1));
        }
    }
    return distance;
}

/// One group whose every leaf is made of these two words.
std::vector<std::int64_t> group_of(std::uint64_t upper, std::uint64_t lower) {
    std::vector<std::uint64_t> words(detail::gaussian_group_words);
    for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = i / detail::gaussian_group % 2 == 0 ? upper : lower;
    }
    std::vector<std::int64_t> out(detail::gaussian_group);
    detail::discrete_gaussian_groups(words.data(), 1, out.data());
    return out;
}

/// The page's definition, coefficient by coefficient.
std::int64_t reference(const seed& key, std::uint32_t lane, std::size_t k) {
    std::int64_t result = 0;
    for (std::size_t leaf = 0; leaf < 16; ++leaf) {
        const std::uint64_t place = 2048 * (k / 8) + 8 * (16 * leaf + k % 8);
        const std::uint64_t upper = stream_word(key, stream_domain::privacy_noise, lane, 0, place);
        const std::uint64_t lower = stream_word(key, stream_domain::privacy_noise, lane, 0, place + 64);
        const wide u =
            static_cast<wide>(upper % (std::uint64_t{1} << 63)) << 63 | lower % (std::uint64_t{1} << 63);
        std::int64_t value = 0;
        while (value < 89 && u < threshold(static_cast<std::size_t>(value))) {
            ++value;
        }
        const std::int64_t factor =
            (leaf & 1 ? 3 : 2) * (leaf & 2 ? 10 : 9) * (leaf & 4 ? 129 : 128) * (leaf & 8 ? 16385 : 16384);
        result += (upper >> 63 ? -value : value) * factor;
    }
    return result;
}

constexpr std::int64_t unit = 5LL * 19 * 257 * 32769;  // the sum of all factors
constexpr std::uint64_t sign = std::uint64_t{1} << 63;

const std::vector<std::int64_t>& a_million() {
    static const std::vector<std::int64_t> values = drawn(counting_seed(7), 3, std::size_t{1} << 20);
    return values;
}

double chi_square_deviations(const std::vector<double>& counts, double expected) {
    double statistic = 0;
    for (const double count : counts) {
        statistic += (count - expected) * (count - expected) / expected;
    }
    const double freedom = static_cast<double>(counts.size()) - 1;
    return (statistic - freedom) / std::sqrt(2 * freedom);
}

}  // namespace

TEST_CASE("the thresholds are the tails of 2^(-x^2 / 64), to the last of their 126 bits") {
    fixed_point ratio = fixed_point::one().half();
    for (int step = 0; step < 6; ++step) {
        ratio = root(ratio);  // at last 2^(-1/64)
    }
    std::vector<fixed_point> weights{fixed_point::one().half().half().half()};  // sums stay below 16
    fixed_point step = ratio;
    while (weights.size() < 128) {  // 2^(-128^2 / 64) is less than the last digit
        weights.push_back(weights.back() * step);
        step = step * ratio * ratio;
    }
    fixed_point total = weights[0];
    for (std::size_t i = 1; i < weights.size(); ++i) {
        total = total + weights[i] + weights[i];
    }
    for (std::size_t i = 0; i <= detail::gaussian_thresholds; ++i) {
        CAPTURE(i);
        fixed_point tail;
        for (std::size_t x = i + 1; x < weights.size(); ++x) {
            tail = tail + weights[x] + weights[x];
        }
        const wide expected = rounded_quotient(tail, total);
        CHECK((expected == (i < detail::gaussian_thresholds ? threshold(i) : 0)));
    }
}

TEST_CASE("the thresholds fall, and their parts fit 63 bits") {
    for (std::size_t i = 0; i < detail::gaussian_thresholds; ++i) {
        CHECK(detail::gaussian_lower[i] <= detail::gaussian_word_mask);
        CHECK((i == 0 || threshold(i) < threshold(i - 1)));
    }
    for (std::size_t i = 0; i < detail::gaussian_wide_thresholds; ++i) {
        CHECK(detail::gaussian_upper[i] <= detail::gaussian_word_mask);
        // The AVX-512 version needs parts that differ, and the tails after them without one.
        CHECK(detail::gaussian_upper[i] > 0);
        CHECK((i == 0 || detail::gaussian_upper[i] < detail::gaussian_upper[i - 1]));
    }
}

BACKEND_TEST_CASE("a leaf counts the thresholds above its 126 bits, ties included, on every back-end") {
    for (std::size_t i = 0; i < detail::gaussian_thresholds; ++i) {
        CAPTURE(i);
        const auto at = [&](wide u, std::uint64_t top) {
            const std::vector<std::int64_t> group =
                group_of(static_cast<std::uint64_t>(u >> 63) | top,
                         (static_cast<std::uint64_t>(u) & detail::gaussian_word_mask) | top);
            CHECK(std::count(group.begin(), group.end(), group[0]) == 8);
            return group[0];
        };
        const auto count = static_cast<std::int64_t>(i);
        CHECK(at(threshold(i), 0) == count * unit);
        CHECK(at(threshold(i) - 1, 0) == (count + 1) * unit);
        CHECK(at(threshold(i), sign) == -count * unit);
        CHECK(at(threshold(i) - 1, sign) == -(count + 1) * unit);
    }
    CHECK(group_of(0, 0)[7] == discrete_gaussian_largest);
    CHECK(group_of(sign, 0)[7] == -discrete_gaussian_largest);
    CHECK(group_of(~std::uint64_t{0}, ~std::uint64_t{0})[0] == 0);
    CHECK(group_of(0, ~std::uint64_t{0})[0] == 62 * unit);
}

BACKEND_TEST_CASE("sample_discrete_gaussian agrees with the definition for every length") {
    for (const std::size_t count : {0U, 1U, 7U, 8U, 9U, 31U, 32U, 33U, 71U}) {
        CAPTURE(count);
        std::vector<std::int64_t> out(count + 2, 77);
        sample_discrete_gaussian(counting_seed(1), stream_domain::privacy_noise, 5,
                                 std::span(out).subspan(1, count));
        CHECK(different(std::span(out).subspan(1, count),
                        [](std::size_t k) { return reference(counting_seed(1), 5, k); }) == 0);
        CHECK(out.front() == 77);
        CHECK(out.back() == 77);
    }
}

TEST_CASE("seed, lane and domain each change every value") {
    const std::vector<std::int64_t> values = drawn(counting_seed(), 0, 16);
    std::vector<std::int64_t> other_domain(16);
    sample_discrete_gaussian(counting_seed(), stream_domain::flood, 0, other_domain);
    const std::vector<std::int64_t> other_lane = drawn(counting_seed(), 1, 16);
    const std::vector<std::int64_t> other_seed = drawn(counting_seed(1), 0, 16);
    for (std::size_t i = 0; i < values.size(); ++i) {
        CHECK(values[i] != other_domain[i]);
        CHECK(values[i] != other_lane[i]);
        CHECK(values[i] != other_seed[i]);
    }
    CHECK(values == drawn(counting_seed(), 0, 16));
}

TEST_CASE("the variance is the product of the page, and smoothing errors add up to less than 2^-88.5") {
    double variance = 32 / std::log(2.0);
    double error = 0;
    double joins = 8;
    for (const std::uint64_t a : detail::gaussian_steps) {
        const auto length = static_cast<double>(a * a + (a + 1) * (a + 1));
        CHECK(std::gcd(a, a + 1) == 1);
        // Twice the theta function's distance from 1, for a lattice of this step:
        // docs/differential-privacy.md.
        error += joins * 4 * std::exp(-2 * 9.8696044010893586 * variance / length);
        joins /= 2;
        variance *= length;
    }
    CHECK(2 * error < std::exp2(-88.5));
    CHECK(std::abs(std::sqrt(variance) / discrete_gaussian_deviation - 1) < 1e-15);
    double share = 0;
    double squares = 0;
    for (std::size_t leaf = 0; leaf < detail::gaussian_leaves; ++leaf) {
        const auto factor = static_cast<double>(detail::gaussian_factor(leaf));
        share = std::max(share, factor * std::sqrt(32 / std::log(2.0)) / discrete_gaussian_deviation);
        squares += factor * factor;
    }
    CHECK(share < 0.3105);
    CHECK(std::abs(squares * 32 / std::log(2.0) / variance - 1) < 1e-14);
}

TEST_CASE("joined values are discrete Gaussians again, computed exactly from the table") {
    const std::vector<double> leaf = leaf_probabilities();
    const double variance = 32 / std::log(2.0);
    CHECK(relative_distance(leaf, variance, 10) < 1e-12);
    const std::vector<double> first = joined(leaf, detail::gaussian_steps[0]);
    CHECK(relative_distance(first, variance * 13, 10) < 1e-12);
    CHECK(relative_distance(joined(first, detail::gaussian_steps[1]), variance * 13 * 181, 10) < 1e-12);
    // With factors that are too large the test sees it, and by how much theory says.
    const double wrong = relative_distance(joined(leaf, 6), variance * 85, 3);
    const double theory = 2 * std::exp(-2 * 9.8696044010893586 * variance / 85);
    CHECK(wrong > 0.9 * theory);
    CHECK(wrong < 1.1 * theory);
}

TEST_CASE("a million values fill equally likely cells equally, and no distribution function is far off") {
    // The deviation is 2^30.4: next to cells this wide, the steps of the integers do not show.
    const std::vector<std::int64_t>& values = a_million();
    constexpr std::size_t cells = 4096;
    std::vector<double> counts(cells);
    for (const std::int64_t value : values) {
        const double t = static_cast<double>(value) / discrete_gaussian_deviation;
        const double below = std::erfc(-t / std::sqrt(2.0)) / 2;
        counts[std::min(cells - 1, static_cast<std::size_t>(below * cells))] += 1;
    }
    const double expected = static_cast<double>(values.size()) / cells;
    CHECK(std::abs(chi_square_deviations(counts, expected)) < 5);
    double sum = 0;
    double farthest = 0;
    for (std::size_t i = 0; i < cells; ++i) {
        sum += counts[i] - expected;
        farthest = std::max(farthest, std::abs(sum));
    }
    // Kolmogorov: P(sqrt(n) D > 2.7) < 2 exp(-2 * 2.7^2) < 1e-6.
    CHECK(farthest / std::sqrt(static_cast<double>(values.size())) < 2.7);
}
