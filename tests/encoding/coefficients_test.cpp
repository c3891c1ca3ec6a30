#include <tensafe/encoding/coefficients.hpp>

#include "../backends.hpp"
#include "../test.hpp"

namespace {

using namespace tests;
using arith::uint128;
using arith::word;

constexpr int log_n = 4;
constexpr word q60 = arith::ntt_prime_below(word{1} << 60, log_n);
constexpr word q61 = arith::ntt_prime_below(word{1} << 61, log_n);
constexpr word q59 = arith::ntt_prime_below(word{1} << 59, log_n);
constexpr word q40 = arith::ntt_prime_below(word{1} << 40, 6);
constexpr word q60_of_2048 = arith::ntt_prime_below(word{1} << 60, 11);
constexpr word q40_of_2048 = arith::ntt_prime_below(word{1} << 40, 11);
using one_limb = rns::basis<log_n, q60>;
using three_limbs = rns::basis<log_n, q61, q60, q59>;
template <class Basis>
using poly = rns::poly<Basis, rns::coefficient_form>;
using reals = std::vector<double>;

template <class Basis>
poly<Basis> encode(const reals& values, double scale) {
    poly<Basis> p;
    encoding::encode_coefficients(values, scale, p);
    return p;
}

template <class Basis>
reals decode(const poly<Basis>& p, double scale, std::size_t count = Basis::degree) {
    reals values(count);
    encoding::decode_coefficients(p, scale, std::span(values));
    return values;
}

/// The integer next to x modulo q, from the bits of x.
word exact_residue(double x, word q) {
    int exponent = 0;
    const auto mantissa = static_cast<word>(std::ldexp(std::frexp(std::fabs(x), &exponent), 53));
    word r = 0;
    if (exponent >= 53) {
        r = static_cast<word>(mantissa % q);
        for (int i = 53; i < exponent; ++i) {
            r = static_cast<word>(uint128{2} * r % q);
        }
    } else if (exponent >= 0) {
        const word half = word{1} << (52 - exponent);
        r = ((mantissa + half) >> (53 - exponent)) % q;
    }
    return x < 0 && r != 0 ? q - r : r;
}

/// Encodes x alone among values of the sizes given and compares every limb with the exact residue.
template <class Basis>
void check_residues(const reals& values) {
    const poly<Basis> p = encode<Basis>(values, 1);
    rns::for_each_limb<Basis>([&]<int I>() {
        for (std::size_t k = 0; k < values.size(); ++k) {
            CAPTURE(values[k]);
            CHECK(p.template limb<I>()[k] == exact_residue(values[k], Basis::template prime<I>));
        }
    });
}

BACKEND_TEST_CASE("coefficients are the scaled values rounded to the nearest integer, ties away from zero") {
    const poly<one_limb> p = encode<one_limb>({0.25, -0.25, 0.375, -0.375, 0.3, 1, -1, 0.12}, 4);
    const std::vector<word> expected{1, q60 - 1, 2, q60 - 2, 1, 4, q60 - 4, 0};
    CHECK(std::vector<word>(p.words().begin(), p.words().begin() + 8) == expected);
}

BACKEND_TEST_CASE("the numbers next to a half are rounded to the nearest integer, not by adding a half") {
    const double below_half = std::nextafter(0.5, 0);
    check_residues<three_limbs>({0.5, below_half, std::nextafter(0.5, 1), -0.5, -below_half, 1.5,
                                 std::nextafter(1.5, 0), 2.5, std::nextafter(2.5, 0), -2.5});
    CHECK(encode<one_limb>({below_half, -below_half}, 1) == poly<one_limb>());
}

BACKEND_TEST_CASE("negative zero and numbers that round to zero are zero") {
    CHECK(encode<three_limbs>({-0.0, 0.0, -0.25, 0.25, -4.9e-324, 4.9e-324}, 1) == poly<three_limbs>());
}

BACKEND_TEST_CASE("missing values become zero whatever the polynomial held before") {
    poly<one_limb> p;
    for (word& x : p.limb<0>()) {
        x = 9;
    }
    encoding::encode_coefficients(reals{2}, 1, p);
    CHECK(p.limb<0>()[0] == 2);
    CHECK(p.limb<0>()[1] == 0);
    CHECK(p.limb<0>()[15] == 0);
    encoding::encode_coefficients(reals{}, 1, p);
    CHECK(p == poly<one_limb>());
}

BACKEND_TEST_CASE("values above 2^63 and around 2^112 have exact residues") {
    for (const double size : {0x1p49, 0x1p50, 0x1p53, 0x1p62, 0x1p63, 0x1p64, 0x1p100, 0x1p111, 0x1p112,
                              0x1p113, 0x1p150, 0x1p178}) {
        check_residues<three_limbs>({size, -size, std::nextafter(size, 0), -std::nextafter(size, 0),
                                     std::nextafter(size, infinity), 1.7 * size});
    }
}

BACKEND_TEST_CASE("small values beside one above 2^112 are rounded as if it were not there") {
    check_residues<three_limbs>({0x1p170, 0.0, -0.0, 0.49, 0.5, -0.5, 1.5, -2.5, std::nextafter(0.5, 0),
                                 12345.678, 0x1p52 + 1, -0x1p53 - 2, 0x1p63, 0x1p111});
}

BACKEND_TEST_CASE("random values of every size have exact residues") {
    tests::random_numbers random(1);
    for (int round = 0; round < 50; ++round) {
        reals values(16);
        const int top = round % 2 == 0 ? 112 : 178;
        for (double& x : values) {
            const int exponent = static_cast<int>(random() % static_cast<word>(top + 10)) - 10;
            x = std::ldexp(static_cast<double>(random() >> 11), exponent - 53) * (random() % 2 == 0 ? 1 : -1);
        }
        check_residues<three_limbs>(values);
    }
}

BACKEND_TEST_CASE("decoding gives back integers times the inverse scale exactly") {
    const reals values{
        0, 1, -1, 0.5, -0.5, 1234.5678 - std::fmod(1234.5678, 0x1p-20), -0x1p20, 0x1p31 - 0x1p-20};
    CHECK(decode(encode<three_limbs>(values, 0x1p20), 0x1p20, values.size()) == values);
    CHECK(decode(encode<one_limb>(values, 0x1p20), 0x1p20, values.size()) == values);
}

BACKEND_TEST_CASE("a round trip of any values is off by at most half a unit of the scale") {
    const reals values = tests::random_numbers(2).uniforms(16);
    const double scale = 0x1.23456789abcdp39;
    const reals decoded = decode(encode<three_limbs>(values, scale), scale);
    for (std::size_t k = 0; k < values.size(); ++k) {
        CHECK(std::fabs(decoded[k] - values[k]) * scale <= 0.50001);
    }
}

BACKEND_TEST_CASE("what cannot be encoded is refused by entry and leaves the polynomial unchanged") {
    poly<one_limb> p;
    p.limb<0>()[3] = 77;
    const poly<one_limb> before = p;
    const auto refuse = [&](const reals& values, double scale, const char* text) {
        CAPTURE(text);
        CHECK_THROWS_WITH_AS(encoding::encode_coefficients(values, scale, p), doctest::Contains(text),
                             encoding_error);
        CHECK(p == before);
    };
    refuse({1, not_a_number}, 1, "entry 1 is not a number");
    refuse({infinity}, 1, "entry 0 is too large");
    refuse({0, 0, -infinity}, 1, "entry 2 is too large");
    refuse({0, 0x1p59}, 1, "entry 1 is too large");
    refuse({0, 0, 0, -1}, 0x1p59, "entry 3 is too large");
    refuse({1e300}, 1e300, "entry 0 is too large");
    refuse({5, not_a_number, infinity}, 1, "entry 1 is not a number");
}

TEST_CASE("every entry of any number of values is looked at, whatever its place") {
    using basis = rns::basis<6, q40>;
    tests::for_each_backend([&](exec::backend) {
        for (std::size_t count = 1; count <= 20; ++count) {
            for (std::size_t bad = 0; bad < count; ++bad) {
                INFO("count := ", count, ", bad := ", bad);
                for (const double x : {not_a_number, -not_a_number, infinity, -infinity, 0x1p39, -0x1p39}) {
                    // One more in front, so that the values stand at any alignment; what is next to them is
                    // no value.
                    reals values(count + 2, not_a_number);
                    std::fill_n(values.begin() + 1, count, 0x1p38);
                    values[1 + bad] = x;
                    const std::string named = "entry " + std::to_string(bad) + " is ";
                    poly<basis> p;
                    const std::span<const double> view = std::span(values).subspan(1, count);
                    CHECK_THROWS_WITH_AS(encoding::encode_coefficients(view, 1, p),
                                         doctest::Contains(named.c_str()), encoding_error);
                }
            }
        }
    });
}

TEST_CASE("values in any number are rounded and the rest is zero, whatever the polynomial held") {
    using basis = rns::basis<11, q60_of_2048, q40_of_2048>;
    tests::for_each_backend([&](exec::backend) {
        for (const std::size_t count :
             {0UL, 1UL, 7UL, 8UL, 9UL, 511UL, 512UL, 513UL, 1024UL, 1500UL, 2047UL, 2048UL}) {
            CAPTURE(count);
            const reals values = tests::random_numbers(count).uniforms(count, -0x1p30, 0x1p30);
            poly<basis> p;
            rns::for_each_limb<basis>([&]<int I>() { std::ranges::fill(p.limb<I>(), word{9}); });
            encoding::encode_coefficients(values, 2, p);
            std::size_t wrong = 0;
            rns::for_each_limb<basis>([&]<int I>() {
                for (std::size_t k = 0; k < basis::degree; ++k) {
                    const word expected = k < count ? exact_residue(2 * values[k], basis::prime<I>) : 0;
                    wrong += p.limb<I>()[k] == expected ? 0U : 1U;
                }
            });
            CHECK(wrong == 0);
            const reals decoded = decode(p, 2, count);
            for (std::size_t k = 0; k < count; ++k) {
                wrong += decoded[k] == std::round(2 * values[k]) / 2 ? 0U : 1U;
            }
            CHECK(wrong == 0);
        }
    });
}

TEST_CASE("a scale that is not positive and finite is refused") {
    poly<one_limb> p;
    for (const double scale : {0.0, -0.0, -1.0, infinity, -infinity, not_a_number}) {
        CAPTURE(scale);
        CHECK_THROWS_AS(encoding::encode_coefficients(reals{1}, scale, p), parameter_error);
    }
}

TEST_CASE("more values than coefficients are refused, in both directions") {
    poly<one_limb> p;
    CHECK_THROWS_WITH_AS(encoding::encode_coefficients(reals(17), 1, p),
                         doctest::Contains("got 17 values, expected at most N = 16"), shape_error);
    reals room(17);
    CHECK_THROWS_WITH_AS(encoding::decode_coefficients(p, 1, std::span(room)),
                         doctest::Contains("got room for 17 values, expected at most N = 16"), shape_error);
}

template <class Basis>
void check_no_wrap_around() {
    double half = 0.5;
    for (const word q : Basis::primes) {
        half *= static_cast<double>(q);
    }
    int accepted = 0;
    double x = half * (1 - 0x1p-43);
    for (int i = 0; i < 2000; ++i) {
        poly<Basis> p;
        try {
            encoding::encode_coefficients(reals{x, -x}, 1, p);
        } catch (const encoding_error&) {
            break;
        }
        const reals decoded = decode(p, 1, 2);
        CHECK(decoded[0] == doctest::Approx(x));
        CHECK(decoded[1] == doctest::Approx(-x));
        ++accepted;
        x = x + half * 0x1p-52;
    }
    CHECK(accepted > 0);
    CHECK(accepted < 1500);
}

BACKEND_TEST_CASE("no value next to half the modulus is accepted and comes back with the other sign") {
    check_no_wrap_around<one_limb>();
    check_no_wrap_around<three_limbs>();
    check_no_wrap_around<rns::basis<log_n, q40>>();
    check_no_wrap_around<rns::basis<log_n, q61, q40>>();
}

}  // namespace
