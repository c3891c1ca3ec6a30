// Floods: what is drawn, how it is added, and the bounds on what it hides beside exact distributions: long,
// for the bounds are checked with the same distributions as the draws.
#include <tensafe/ckks/sanitize/flooding.hpp>

#include <nlohmann/json.hpp>

#include "../../backends.hpp"
#include "../../guarded_pages.hpp"
#include "../../random/stream_reference.hpp"
#include "../../test.hpp"

namespace {

using namespace tests;
using namespace ckks;
using arith::uint128;
using arith::word;
using random::stream_domain;
using testing::counting_seed;
__extension__ typedef __int128 signed_wide;

std::vector<uint128> sums_of(auto f, const random::seed& key, std::uint32_t lane, std::size_t count) {
    std::vector<uint128> out(count);
    f.sample({key, stream_domain::flood, lane}, 0, out);
    return out;
}

/// docs/design/random-streams.md, literally.
template <int Terms>
uint128 reference_sum(int bits, const random::seed& key, std::uint32_t lane, std::size_t k) {
    uint128 sum = 0;
    for (std::size_t t = 0; t < Terms; ++t) {
        const std::size_t offset = 16 * (Terms * k + t);
        const uint128 low = testing::stream_word(key, stream_domain::flood, lane, 0, offset);
        const uint128 high = testing::stream_word(key, stream_domain::flood, lane, 0, offset + 8);
        sum += (high << 64 | low) % (static_cast<uint128>(1) << bits);
    }
    return sum;
}

/// The probabilities of the sums, lowest first.
template <int Terms>
std::vector<double> distribution(int bits) {
    const std::size_t width = std::size_t{1} << bits;
    std::vector<double> p{1};
    for (int t = 0; t < Terms; ++t) {
        std::vector<double> next(p.size() + width - 1);
        double window = 0;  // integers below 2^53 until the division: exact
        for (std::size_t m = 0; m < next.size(); ++m) {
            window += m < p.size() ? p[m] : 0;
            window -= m >= width ? p[m - width] : 0;
            next[m] = window;
        }
        p = next;
    }
    for (double& probability : p) {
        probability = std::ldexp(probability, -Terms * bits);
    }
    return p;
}

/// The total variation distance of a distribution from itself, shifted.
double distance_of_shift(const std::vector<double>& p, std::size_t shift) {
    double sum = 0;
    for (std::size_t m = 0; m < p.size() + shift; ++m) {
        sum += std::abs((m < p.size() ? p[m] : 0) - (m >= shift ? p[m - shift] : 0));
    }
    return sum / 2;
}

/// The same for pairs of independent draws, each with its own shift.
double distance_of_shifts(const std::vector<double>& p, std::size_t first, std::size_t second) {
    const auto at = [&](std::size_t m, std::size_t shift) {
        return m >= shift && m - shift < p.size() ? p[m - shift] : 0;
    };
    double sum = 0;
    for (std::size_t m = 0; m < p.size() + first; ++m) {
        for (std::size_t n = 0; n < p.size() + second; ++n) {
            sum += std::abs(at(m, 0) * at(n, 0) - at(m, first) * at(n, second));
        }
    }
    return sum / 2;
}

/// The bounds are compared in double precision.
constexpr double rounding = 1 + 1e-12;

// Everything but sampling is there at compile time.
static_assert(uniform_smudging{10}.largest() == 512);
static_assert(irwin_hall_smudging{10}.largest() == 2048);
static_assert(irwin_hall_smudging{10}.centre() == 2048);
static_assert(irwin_hall_smudging::of_deviation(0x1p80).bits == 80);
static_assert(uniform_smudging::of_deviation(0x1p80).bits == 81);
static_assert(irwin_hall_smudging{100}.statistical_distance(0x1p40, 0x1p20) < 0x1p-49);

}  // namespace

TEST_CASE_TEMPLATE("sums agree with the definition for every width and length", Flood, uniform_smudging,
                   irwin_hall_smudging) {
    for (const int bits : {1, 7, 8, 63, 64, 65, 100, 120}) {
        CAPTURE(bits);
        for (const std::size_t count : {0U, 1U, 3U, 5U, 64U, 65U, 600U}) {
            const auto drawn = sums_of(Flood{bits}, counting_seed(), 4, count);
            CHECK(testing::different(drawn, [&](std::size_t k) {
                      return reference_sum<Flood::terms>(bits, counting_seed(), 4, k);
                  }) == 0);
        }
    }
}

TEST_CASE("sampling floods writes nothing beside its output") {
    std::vector<uint128> out(1001, 77);
    irwin_hall_smudging{30}.sample({counting_seed(), stream_domain::flood, 0}, 0,
                                   std::span(out).subspan(1, 999));
    CHECK((out.front() == 77 && out.back() == 77));
}

TEST_CASE("the floods of tests/data/random_streams.json come out") {
    const auto all =
        nlohmann::json::parse(std::ifstream(TENSAFE_TEST_DATA "/random_streams.json")).at("flood");
    const auto check = [](const std::vector<uint128>& sums, const nlohmann::json& expected) {
        std::vector<word> words;
        for (const uint128 sum : sums) {
            words.push_back(arith::low_word(sum));
            words.push_back(arith::high_word(sum));
        }
        const auto from_hex = [](const std::string& digits) { return std::stoull(digits, nullptr, 16); };
        const auto is = [&](std::size_t place, const std::string& digits) {
            const std::size_t high = digits.size() - 16;
            CHECK(words.at(2 * place) == from_hex(digits.substr(high)));
            CHECK(words.at(2 * place + 1) == from_hex(digits.substr(0, high)));
        };
        for (std::size_t place = 0; place < 3; ++place) {
            is(place, expected.at("first").at(place));
        }
        is(sums.size() - 1, expected.at("last").at(0));
        CHECK(testing::digest(words) == from_hex(expected.at("digest")));
    };
    check(sums_of(uniform_smudging{70}, counting_seed(), 0, 4096), all.at(0));
    check(sums_of(irwin_hall_smudging{100}, counting_seed(), 1, 4096), all.at(1));
}

TEST_CASE_TEMPLATE("deviation and largest magnitude are those of the distribution", Flood, uniform_smudging,
                   irwin_hall_smudging) {
    for (int bits = 1; bits <= 10; ++bits) {
        const std::vector<double> p = distribution<Flood::terms>(bits);
        const double mean = (static_cast<double>(p.size()) - 1) / 2;
        double variance = 0;
        for (std::size_t m = 0; m < p.size(); ++m) {
            variance += p[m] * (static_cast<double>(m) - mean) * (static_cast<double>(m) - mean);
        }
        CHECK(Flood{bits}.deviation() == doctest::Approx(std::sqrt(variance)).epsilon(1e-12));
        CHECK(Flood{bits}.largest() == static_cast<double>(Flood{bits}.centre()));
        CHECK(static_cast<double>(p.size() - 1) - Flood{bits}.largest() ==
              Flood{bits}.largest() - Flood::terms);
    }
}

TEST_CASE_TEMPLATE("residues modulo several primes are those of the centred flood", Flood, uniform_smudging,
                   irwin_hall_smudging) {
    constexpr word q0 = arith::ntt_prime_below(word{1} << 61, 4);
    constexpr word q1 = arith::ntt_prime_below(word{1} << 60, 4);
    constexpr word q2 = 97;
    using chain = rns::basis<4, q0, q1, q2>;
    constexpr std::size_t count = 200;
    random_numbers random(1);
    for (const int bits : {1, 5, 60, 64, 100, 115}) {
        CAPTURE(bits);
        const Flood f{bits};
        std::array<std::vector<word>, 3> before;
        for (std::size_t k = 0; k < count; ++k) {
            for (std::size_t i = 0; i < 3; ++i) {
                // Both ends of the range too.
                const word q = chain::primes[i];
                before[i].push_back(k == 0 ? 0 : k == 1 ? q - 1 : random() % q);
            }
        }
        std::array<std::vector<word>, 3> after = before;
        add_flood<chain>(f, counting_seed(), 9,
                         {std::span(after[0]), std::span(after[1]), std::span(after[2])});
        tests::for_each_backend([&](auto) {
            std::array<std::vector<word>, 3> again = before;
            add_flood<chain>(f, counting_seed(), 9,
                             {std::span(again[0]), std::span(again[1]), std::span(again[2])});
            CHECK(again == after);
        });
        const std::vector<uint128> sums = sums_of(f, counting_seed(), 9, count);
        std::size_t wrong = 0;
        for (std::size_t k = 0; k < count; ++k) {
            const auto added = static_cast<signed_wide>(sums[k]) - static_cast<signed_wide>(f.centre());
            std::array<word, 3> difference{};
            for (std::size_t i = 0; i < 3; ++i) {
                const word q = chain::primes[i];
                wrong += after[i][k] >= q;
                difference[i] = (after[i][k] + q - before[i][k]) % q;
            }
            // The first two primes give the flood back, taken nearest to zero.
            const word digit = arith::multiply_mod((difference[1] + q1 - difference[0] % q1) % q1,
                                                   arith::inverse_mod(q0 % q1, q1), q1);
            const uint128 lifted = difference[0] + arith::mul_wide(q0, digit);
            const uint128 product = arith::mul_wide(q0, q1);
            const auto centred = lifted > product / 2
                                     ? static_cast<signed_wide>(lifted) - static_cast<signed_wide>(product)
                                     : static_cast<signed_wide>(lifted);
            wrong += centred != added;
            wrong += ((added % 97) + 97) % 97 != static_cast<signed_wide>(difference[2]);
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE_TEMPLATE("pieces of a lane are those of the whole", Flood, uniform_smudging, irwin_hall_smudging) {
    const Flood f{77};
    const std::vector<uint128> whole = sums_of(f, counting_seed(), 3, 700);
    const random::chacha20_stream stream(counting_seed(), stream_domain::flood, 3);
    for (const std::size_t first : {0U, 4U, 64U, 252U, 256U, 512U, 696U}) {
        for (const std::size_t count : {0U, 1U, 4U, 130U}) {
            const std::size_t here = std::min<std::size_t>(count, 700 - first);
            std::vector<uint128> piece(here + 1, 77);
            f.sample(stream, first, std::span(piece).first(here));
            CHECK(std::equal(piece.begin(), piece.end() - 1,
                             whole.begin() + static_cast<std::ptrdiff_t>(first)));
            CHECK((piece.back() == 77));
        }
    }
}

TEST_CASE("sums are added exactly for every prime, extreme sum, length and back-end") {
    const auto check = []<word q>(std::integral_constant<word, q>) {
        random_numbers random(2);
        const irwin_hall_smudging f{120};
        const uint128 centre = f.centre();
        const uint128 top = (uint128{1} << 122) - 4;  // the largest sum
        const std::vector<uint128> telling{
            0,   1,       q - 1,  q,          ~word{0},          uint128{1} << 64,
            top, top - 1, centre, centre - 1, (top >> 64) << 64, (uint128{1} << 64) - q};
        const std::vector<word> ends{0, 1, q / 2, q - 1};
        for (std::size_t count = 0; count <= 70; ++count) {
            std::vector<word> residues(count + 2, 77);
            std::vector<uint128> sums(count);
            for (std::size_t k = 0; k < count; ++k) {
                residues[k + 1] = k % 3 == 0 ? random() % q : ends[random() % ends.size()];
                sums[k] = k % 3 == 1 ? (static_cast<uint128>(random()) << 64 | random()) >> 6
                                     : telling[random() % telling.size()];
            }
            tests::for_each_backend([&](auto) {
                CAPTURE(count);
                std::vector<word> added = residues;
                f.add_to(rns::variable_arithmetic<q>, std::span(added).subspan(1, count), sums);
                CHECK(added.front() == 77);
                CHECK(added.back() == 77);
                std::size_t wrong = 0;
                for (std::size_t k = 0; k < count; ++k) {
                    const uint128 exact = residues[k + 1] + sums[k] % q + (q - centre % q);
                    wrong += added[k + 1] != static_cast<word>(exact % q);
                }
                CHECK(wrong == 0);
            });
        }
    };
    check(std::integral_constant<word, arith::ntt_prime_below(word{1} << 61, 4)>());
    check(std::integral_constant<word, arith::ntt_prime_below(word{1} << 60, 4)>());
    check(std::integral_constant<word, arith::ntt_prime_below(word{1} << 45, 4)>());
    check(std::integral_constant<word, arith::ntt_prime_below(word{1} << 32, 4)>());
    check(std::integral_constant<word, 97>());
}

TEST_CASE("nothing outside the spans of sums and residues is read") {
    constexpr word q = arith::ntt_prime_below(word{1} << 61, 4);
    const tests::guarded_pages memory[2];
    for (std::size_t count = 1; count <= 40; ++count) {
        for (const bool at_end : {false, true}) {
            const std::span<word> residues = memory[0].place<word>(count, at_end);
            const std::span<uint128> sums = memory[1].place<uint128>(count, at_end);
            tests::for_each_backend([&](auto) {
                std::fill(residues.begin(), residues.end(), 5);
                std::fill(sums.begin(), sums.end(), irwin_hall_smudging{99}.centre() + 7);
                irwin_hall_smudging{99}.add_to(rns::variable_arithmetic<q>, residues, sums);
                CHECK(std::count(residues.begin(), residues.end(), 12) == static_cast<std::ptrdiff_t>(count));
            });
        }
    }
}

TEST_CASE("every coefficient gets its own flood, however many there are") {
    constexpr word q0 = arith::ntt_prime_below(word{1} << 61, 4);
    using chain = rns::basis<4, q0, 97>;
    const irwin_hall_smudging f{90};
    for (const std::size_t count : {0U, 1U, 255U, 256U, 257U, 511U, 512U, 1000U}) {
        CAPTURE(count);
        std::array<std::vector<word>, 2> one_by_one{std::vector<word>(count, 5), std::vector<word>(count, 6)};
        std::array<std::vector<word>, 2> flooded = one_by_one;
        const std::vector<uint128> sums = sums_of(f, counting_seed(), 8, count);
        f.add_to(rns::variable_arithmetic<q0>, one_by_one[0], sums);
        f.add_to(rns::variable_arithmetic<97>, one_by_one[1], sums);
        add_flood<chain>(f, counting_seed(), 8, {std::span(flooded[0]), std::span(flooded[1])});
        CHECK(flooded == one_by_one);
    }
}

TEST_CASE("floods refuse wrong widths and sizes") {
    std::vector<uint128> sums(4);
    for (const int bits : {-1, 0, 121, 128}) {
        CHECK_THROWS_AS(
            (irwin_hall_smudging{bits}.sample({counting_seed(), stream_domain::flood, 0}, 0, sums)),
            parameter_error);
    }
    CHECK_THROWS_WITH_AS((uniform_smudging{0}.sample({counting_seed(), stream_domain::flood, 0}, 0, sums)),
                         "flood::sample: bits: got 0, expected 1 to 120", parameter_error);
    using chain = rns::basis<4, 97, 193>;
    CHECK_THROWS_AS((add_flood<chain>(irwin_hall_smudging{121}, counting_seed(), 0, {})), parameter_error);
    std::vector<word> residues(5);
    CHECK_THROWS_WITH_AS((irwin_hall_smudging{20}.add_to(rns::variable_arithmetic<97>, residues, sums)),
                         "flood::add_to: got 5 residues, expected 4", shape_error);
    CHECK_THROWS_WITH_AS(add_flood<chain>(irwin_hall_smudging{20}, counting_seed(), 0,
                                          {std::span(residues), std::span(residues).first(3)}),
                         "add_flood: got 3 residues of a limb, expected 5", shape_error);
}

TEST_CASE_TEMPLATE("of_deviation takes the widest flood that fits", Flood, uniform_smudging,
                   irwin_hall_smudging) {
    for (int bits = 1; bits <= Flood::max_bits; ++bits) {
        CAPTURE(bits);
        const double deviation = Flood{bits}.deviation();
        CHECK(Flood::of_deviation(deviation).bits == bits);
        CHECK(Flood::of_deviation(deviation * 1.9).bits == bits);
        if (bits > 1) {
            CHECK(Flood::of_deviation(std::nextafter(deviation, 0)).bits == bits - 1);
        }
    }
    CHECK(Flood::of_deviation(0x1p500).bits == Flood::max_bits);
    CHECK(Flood::of_deviation(std::numeric_limits<double>::infinity()).bits == Flood::max_bits);
    for (const double bad :
         {std::nextafter(Flood{1}.deviation(), 0), 0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
        CHECK_THROWS_AS(Flood::of_deviation(bad), parameter_error);
    }
}

TEST_CASE_TEMPLATE("the distance is above the exact one for a single draw", Flood, uniform_smudging,
                   irwin_hall_smudging) {
    for (int bits = 1; bits <= 12; ++bits) {
        const std::vector<double> p = distribution<Flood::terms>(bits);
        for (std::size_t shift = 0; shift <= p.size() + 1; shift = shift < 40 ? shift + 1 : 2 * shift) {
            INFO("bits := ", bits, ", shift := ", shift);
            CHECK(distance_of_shift(p, shift) <=
                  Flood{bits}.statistical_distance(static_cast<double>(shift), 1) * rounding);
        }
        // A shift by one is what the bound is made for.
        CHECK(distance_of_shift(p, 1) * rounding >= Flood{bits}.statistical_distance(1, 1));
    }
}

TEST_CASE_TEMPLATE("the distance is above the exact one for two draws", Flood, uniform_smudging,
                   irwin_hall_smudging) {
    for (int bits = 1; bits <= 5; ++bits) {
        const std::vector<double> p = distribution<Flood::terms>(bits);
        for (std::size_t shift = 1; shift <= 6; ++shift) {
            INFO("bits := ", bits, ", shift := ", shift);
            const double bound = Flood{bits}.statistical_distance(static_cast<double>(shift), 2);
            const double both = distance_of_shifts(p, shift, shift);
            CHECK(both <= bound * rounding);
            // Noises of mean square shift^2 that the observer knows: 0 or twice that square, together or not.
            const double root = std::sqrt(2.0) * static_cast<double>(shift);
            const auto larger = static_cast<std::size_t>(root);  // rounded down: still within the square
            const double together = distance_of_shifts(p, larger, larger) / 2;
            CHECK(together <= bound * rounding);
            const double apart = (distance_of_shifts(p, larger, 0) + distance_of_shifts(p, 0, larger)) / 2;
            CHECK(apart <= bound * rounding);
        }
    }
}

TEST_CASE("the squared Hellinger distance of bells is below the bound that is used, for narrow ones too") {
    // The page proves it from 8 bits on and relies on this test below.
    for (int bits = 1; bits <= 12; ++bits) {
        const std::vector<double> p = distribution<4>(bits);
        double sum = 0;  // of (sqrt f(m) - sqrt f(m-1))^2, without cancellation
        for (std::size_t m = 0; m <= p.size(); ++m) {
            const double here = m < p.size() ? p[m] : 0;
            const double before = m > 0 ? p[m - 1] : 0;
            const double step = (here - before) / (std::sqrt(here) + std::sqrt(before));
            sum += step * step;
        }
        CAPTURE(bits);
        // Many draws of a small noise, so that nothing is capped and only this bound is at work.
        const double noise = std::ldexp(1.0, bits - 16);
        const double used = irwin_hall_smudging{bits}.statistical_distance(noise, 0x1p16) / noise * 0x1p-8;
        CHECK(std::sqrt(sum) <= used);
        CHECK((bits < 4 || used <= 1.003 * std::sqrt(sum)));
    }
}

// docs/design/protocol.md: the lemma about distinguishers that may decline to answer.
TEST_CASE("whoever answers on the clearest values alone gains no more than the square of the distance") {
    for (int bits = 2; bits <= 9; ++bits) {
        const std::vector<double> p = distribution<4>(bits);
        for (const std::size_t shift : {1U, 2U, 5U}) {
            std::vector<std::pair<double, double>> values;  // |p - q| and p + q
            for (std::size_t m = 0; m < p.size() + shift; ++m) {
                const double here = m < p.size() ? p[m] : 0;
                const double there = m >= shift ? p[m - shift] : 0;
                values.emplace_back(std::abs(here - there), here + there);
            }
            std::ranges::sort(values, std::greater{}, [](const auto& v) { return v.first / v.second; });
            double best = 0;  // alpha (2 beta - 1)^2, over all thresholds
            double difference = 0;
            double sum = 0;
            for (const auto& [d, s] : values) {
                difference += d;
                sum += s;
                best = std::max(best, difference * difference / (2 * sum));
            }
            INFO("bits := ", bits, ", shift := ", shift);
            // That of many draws of a small noise, carried over to one draw of this noise.
            const double unit = irwin_hall_smudging{bits}.statistical_distance(0x1p-12, 0x1p16) * 16;
            const double distance = unit * static_cast<double>(shift);
            CHECK(best <= distance * distance);
            CHECK(
                (bits < 6 || best >= 0.4 * distance * distance));  // no more than a factor 2.5 is given away
        }
    }
}

TEST_CASE("the constant of the bell is its Fisher information times its variance, rounded up") {
    // Simpson's rule for the inner half of the density 2/3 - x^2 + |x|^3 / 2; the outer part gives 3/2.
    constexpr int steps = 2000;
    double integral = 0;
    for (int i = 0; i <= steps; ++i) {
        const double x = static_cast<double>(i) / steps;
        const double slope = -2 * x + 1.5 * x * x;
        const double value = slope * slope / (2.0 / 3 - x * x + x * x * x / 2);
        integral += value * (i == 0 || i == steps ? 1 : i % 2 == 1 ? 4 : 2) / (3.0 * steps);
    }
    const double constant = (1.5 + 2 * integral) / 3;
    CHECK(constant == doctest::Approx(1.038575232687).epsilon(1e-11));
    const double used =
        irwin_hall_smudging{100}.statistical_distance(1, 0x1p20) * 2 * irwin_hall_smudging{100}.deviation();
    CHECK(used >= std::sqrt(constant * 0x1p20));
    CHECK(used <= 1.00002 * std::sqrt(constant * 0x1p20));
}

TEST_CASE_TEMPLATE("the distance grows with noise and draws, falls with width, and stays below 1", Flood,
                   uniform_smudging, irwin_hall_smudging) {
    CHECK(Flood{20}.statistical_distance(0, 1e9) == 0);
    CHECK(Flood{20}.statistical_distance(5, 0) == 0);
    CHECK(Flood{4}.statistical_distance(1e9, 1) == 1);
    CHECK(Flood{4}.statistical_distance(1, 1e9) == 1);
    for (int bits = 1; bits < Flood::max_bits; ++bits) {
        for (const double noise : {1e-3, 1.0, 3.2, 1e6, 1e12}) {
            for (const double draws : {1.0, 2.0, 32.0, 1e6, 1e12}) {
                const double distance = Flood{bits}.statistical_distance(noise, draws);
                CHECK((distance > 0 && distance <= 1));
                CHECK(Flood{bits}.statistical_distance(noise * 1.5, draws) >= distance);
                CHECK(Flood{bits}.statistical_distance(noise, draws + 1) >= distance);
                CHECK(Flood{bits + 1}.statistical_distance(noise, draws) <= distance);
            }
        }
    }
}
