#include <tensafe/rns/crt.hpp>

#include "../backends.hpp"
#include "../guarded_pages.hpp"

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

#define CRT_CHAINS                                                                             \
    rns::basis<log_n, q61>, rns::basis<log_n, q54>, rns::basis<log_n, q40a, q40b>,             \
        rns::basis<log_n, q54, q40a>, rns::basis<log_n, q61, q60>, rns::basis<log_n, 97, q61>, \
        rns::basis<log_n, q60, q40a, q40b>, rns::basis<log_n, q40a, q61, 97, q60>,             \
        rns::basis<log_n, q60, q40a, q40b, q40c, q50>, rns::basis<log_n, 17, 97, 113, 193, q60>

TEST_CASE_TEMPLATE("integers of magnitude up to 2^52 are exact", Basis, CRT_CHAINS) {
    tests::random_numbers random(1);
    const std::int64_t end = std::int64_t{1} << 52;
    const auto check = [](std::int64_t x) {
        CAPTURE(x);
        CHECK(rns::to_double<Basis>(scaled_integer<Basis>(x, 0)) == static_cast<double>(x));
        CHECK(rns::to_double<Basis>(scaled_integer<Basis>(-x, 0)) == -static_cast<double>(x));
    };
    for (const std::int64_t x :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, end, end - 1, end - 2, end / 2, end / 2 + 1}) {
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

TEST_CASE_TEMPLATE("numbers of every size have a small relative error and the right sign", Basis,
                   CRT_CHAINS) {
    tests::random_numbers random(2);
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

TEST_CASE_TEMPLATE("both ends of the range, (Q-1)/2 and its negative, keep their sign", Basis, CRT_CHAINS) {
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

TEST_CASE_TEMPLATE("many numbers at once give the same doubles, bit for bit, with every back-end", Basis,
                   CRT_CHAINS) {
    constexpr std::size_t limbs = static_cast<std::size_t>(Basis::limbs);
    tests::random_numbers random(3);
    std::vector<residues_of<Basis>> numbers;
    // Every combination of telling residues, then random ones, and random ones that are small.
    constexpr std::size_t telling = 7;
    std::size_t combinations = 1;
    for (std::size_t i = 0; i < limbs; ++i) {
        combinations *= telling;
    }
    for (std::size_t c = 0; c < combinations; ++c) {
        residues_of<Basis> r{};
        std::size_t rest = c;
        for (std::size_t i = 0; i < limbs; ++i, rest /= telling) {
            const word q = Basis::primes[i];
            r[i] = std::array<word, telling>{0, 1, 2, q - 1, q - 2, (q - 1) / 2, (q + 1) / 2}[rest % telling];
        }
        numbers.push_back(r);
    }
    for (int i = 0; i < 3000; ++i) {
        residues_of<Basis> r{};
        for (std::size_t j = 0; j < limbs; ++j) {
            r[j] = random() % Basis::primes[j];
        }
        numbers.push_back(r);
        numbers.push_back(scaled_integer<Basis>(static_cast<std::int64_t>(random()) >> (1 + i % 60), 0));
    }
    const auto check = [&](std::size_t count) {
        std::array<std::vector<word>, limbs> words;
        std::array<std::span<const word>, limbs> spans;
        for (std::size_t j = 0; j < limbs; ++j) {
            words[j].push_back(0);  // so that the residues are not aligned
            for (std::size_t k = 0; k < count; ++k) {
                words[j].push_back(numbers[k][j]);
            }
            spans[j] = std::span<const word>(words[j]).subspan(1);
        }
        tests::for_each_backend([&](auto) {
            CAPTURE(count);
            std::vector<double> out(count + 2, 77);
            rns::to_doubles<Basis>(spans, std::span(out).subspan(1, count));
            CHECK(out.front() == 77);
            CHECK(out.back() == 77);
            std::size_t wrong = 0;
            for (std::size_t k = 0; k < count; ++k) {
                wrong +=
                    std::bit_cast<word>(out[k + 1]) != std::bit_cast<word>(rns::to_double<Basis>(numbers[k]));
            }
            CHECK(wrong == 0);
        });
    };
    for (std::size_t count = 0; count <= 40; ++count) {
        check(count);
    }
    check(numbers.size());
}

TEST_CASE("nothing outside the spans of residues is read") {
    using chain = rns::basis<log_n, q60, q40a>;
    const tests::guarded_pages memory[2];
    for (std::size_t count = 1; count <= 20; ++count) {
        for (const bool at_end : {false, true}) {
            const std::span<word> residues[2] = {memory[0].place<word>(count, at_end),
                                                 memory[1].place<word>(count, at_end)};
            std::fill(residues[0].begin(), residues[0].end(), q60 - 1);
            std::fill(residues[1].begin(), residues[1].end(), q40a - 1);
            tests::for_each_backend([&](auto) {
                std::vector<double> out(count);
                rns::to_doubles<chain>({residues[0], residues[1]}, out);
                CHECK(out == std::vector<double>(count, -1));
            });
        }
    }
}

TEST_CASE("many numbers at once need residues of one size") {
    using chain = rns::basis<log_n, q60, q40a>;
    std::vector<word> residues(5);
    std::vector<double> out(5);
    CHECK_THROWS_WITH_AS((rns::to_doubles<chain>({residues, std::span(residues).first(3)}, out)),
                         "to_doubles: got 3 residues of a limb, expected 5", shape_error);
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
