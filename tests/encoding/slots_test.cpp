#include <tensafe/encoding/slots.hpp>

#include "../backends.hpp"
#include "../test.hpp"
#include "../worst.hpp"

namespace {

using namespace tests;
using arith::word;

constexpr word q60 = arith::ntt_prime_below(word{1} << 60, 13);
constexpr word q40 = arith::ntt_prime_below(word{1} << 40, 13);
constexpr word q41 = arith::ntt_prime_below(word{1} << 41, 13);
template <int LogN>
using chain = rns::basis<LogN, q60, q41, q40>;
template <class Basis>
using poly = rns::poly<Basis, rns::coefficient_form>;
using complex = std::complex<double>;
using slots = std::vector<complex>;

template <class Basis>
poly<Basis> encode(const slots& values, double scale) {
    poly<Basis> p;
    encoding::encode_slots(values, scale, p);
    return p;
}

template <class Basis>
slots decode(const poly<Basis>& p, double scale) {
    slots values(Basis::degree / 2);
    encoding::decode_slots(p, scale, std::span(values));
    return values;
}

slots random_slots(std::size_t count, std::uint64_t seed) {
    tests::random_numbers random(seed);
    return random.many(count, [&] { return complex(random.uniform(-1, 1), random.uniform(-1, 1)); });
}

template <int LogN>
void check_round_trip() {
    const slots values = random_slots(std::size_t{1} << (LogN - 1), LogN);
    const slots decoded = decode(encode<chain<LogN>>(values, 0x1p40), 0x1p40);
    double largest = 0;
    for (std::size_t j = 0; j < values.size(); ++j) {
        largest = tests::worse(largest, std::abs(decoded[j] - values[j]));
    }
    // N roundings of at most 1/2 each reach a slot as a sum of norm at most N/2 units of the scale.
    CHECK(largest <= std::ldexp(1, LogN - 1) * 0x1p-40);
}

BACKEND_TEST_CASE("slots survive a round trip up to the rounding of the coefficients") {
    check_round_trip<1>();
    check_round_trip<2>();
    check_round_trip<5>();
    check_round_trip<6>();
    check_round_trip<9>();
    check_round_trip<13>();
}

BACKEND_TEST_CASE("slot j is the polynomial's value at zeta to the power 5^j") {
    using basis = chain<3>;
    poly<basis> p;
    rns::for_each_limb<basis>([&]<int I>() {
        p.limb<I>()[1] = 1024;  // 1024 X - 512 X^6
        p.limb<I>()[6] = basis::prime<I> - 512;
    });
    const slots values = decode(p, 1024);
    int power = 1;
    for (const complex& z : values) {
        const double angle = std::numbers::pi / 8 * power;
        const complex expected = std::polar(1.0, angle) - 0.5 * std::polar(1.0, 6 * angle);
        CHECK(std::abs(z - expected) < 1e-14);
        power = power * 5 % 16;
    }
}

BACKEND_TEST_CASE("missing slots are zero") {
    using basis = chain<5>;
    slots values = random_slots(16, 1);
    const poly<basis> full = [&] {
        slots padded = values;
        for (std::size_t j = 5; j < 16; ++j) {
            padded[j] = 0;
        }
        return encode<basis>(padded, 0x1p35);
    }();
    values.resize(5);
    CHECK(encode<basis>(values, 0x1p35) == full);
    CHECK(encode<basis>({}, 0x1p35) == poly<basis>());
}

BACKEND_TEST_CASE("with a workspace of the caller, encoding and decoding give the same as without") {
    using basis = chain<9>;
    for (const std::size_t count : {0UL, 1UL, 2UL, 3UL, 5UL, 77UL, 255UL, 256UL}) {
        CAPTURE(count);
        const slots values = random_slots(count, 5);
        std::vector<double> workspace(basis::degree, not_a_number);
        poly<basis> p;
        encoding::encode_slots(values, 0x1p40, p, std::span(workspace));
        CHECK(p == encode<basis>(values, 0x1p40));
        std::ranges::fill(workspace, not_a_number);
        slots decoded(basis::degree / 2);
        encoding::decode_slots(p, 0x1p40, std::span(decoded), std::span(workspace));
        CHECK(decoded == decode(p, 0x1p40));
    }
}

TEST_CASE("all back-ends encode slots to the same residues") {
    using basis = chain<13>;
    for (const double size : {1.0, 0x1p60, 0x1p72}) {
        const slots values = random_slots(basis::degree / 2 - 3, 6);
        poly<basis> first;
        tests::for_each_backend([&](exec::backend b) {
            const poly<basis> p = encode<basis>(values, size * 0x1p40);
            if (b == exec::backend::portable) {
                first = p;
            }
            CHECK(p == first);
        });
    }
}

TEST_CASE("every slot is looked at, whatever its place") {
    using basis = rns::basis<6, q40>;
    tests::for_each_backend([&](exec::backend) {
        for (std::size_t count = 1; count <= 11; ++count) {
            for (std::size_t bad = 0; bad < count; ++bad) {
                INFO("count := ", count, ", bad := ", bad);
                for (const double x : {not_a_number, -not_a_number, infinity, -infinity, 0x1p39, -0x1p39}) {
                    for (const bool imaginary : {false, true}) {
                        slots values(count, 0x1p37);
                        values[bad] = imaginary ? complex(0, x) : complex(x, 0);
                        const std::string named = "entry " + std::to_string(bad) + " is ";
                        CHECK_THROWS_WITH_AS(encode<basis>(values, 1), doctest::Contains(named.c_str()),
                                             encoding_error);
                    }
                }
            }
        }
    });
}

BACKEND_TEST_CASE("slots above 2^63 and above 2^112 survive to double precision") {
    using basis = chain<5>;
    for (const double size : {0x1p70, 0x1p111, 0x1p112, 0x1p130}) {
        slots values = random_slots(16, 3);
        for (complex& z : values) {
            z *= size;
        }
        const slots decoded = decode(encode<basis>(values, 1), 1);
        for (std::size_t j = 0; j < 16; ++j) {
            CAPTURE(size);
            CHECK(std::abs(decoded[j] - values[j]) <= 1e-13 * size);
        }
    }
}

BACKEND_TEST_CASE("slots that cannot be encoded are refused by entry and leave the polynomial unchanged") {
    using basis = rns::basis<4, q40>;
    poly<basis> p;
    p.limb<0>()[2] = 5;
    const poly<basis> before = p;
    const auto refuse = [&](const slots& values, double scale, const char* text) {
        CAPTURE(text);
        CHECK_THROWS_WITH_AS(encoding::encode_slots(values, scale, p), doctest::Contains(text),
                             encoding_error);
        CHECK(p == before);
    };
    refuse({1.0, {0, not_a_number}}, 1, "entry 1 is not a number");
    refuse({{not_a_number, 0}}, 1, "entry 0 is not a number");
    refuse({0.0, 0.0, {0, -infinity}}, 1, "entry 2 is too large");
    refuse({{0x1p39, 0}}, 1, "entry 0 is too large");
    refuse({0.0, {0.8, 0.8}}, 0x1p39, "entry 1 is too large");  // each part fits, the magnitude does not
}

template <int Limbs, word... Primes>
constexpr auto longest_chain() {
    if constexpr (sizeof...(Primes) == Limbs) {
        return rns::basis<4, Primes...>();
    } else {
        constexpr std::array<word, sizeof...(Primes) + 1> bounds{word{1} << 60, Primes...};
        return longest_chain<Limbs, Primes..., arith::ntt_prime_below(bounds.back(), 4)>();
    }
}

BACKEND_TEST_CASE("the limit of slots holds where its square is beyond double precision") {
    using basis = decltype(longest_chain<17>());
    REQUIRE(basis::log2_modulus() > 1019);
    const double limit = encoding::detail::encoding_limit<basis>();
    for (const double scale : {0.5, 1.0, 0x1p40}) {
        CAPTURE(scale);
        const slots fits(8, std::polar(0.999 * limit / scale, 0.7));
        const slots decoded = decode(encode<basis>(fits, scale), scale);
        CHECK(std::abs(decoded[3] / limit * scale - fits[3] / limit * scale) < 1e-12);
        for (const complex& z :
             {complex(std::polar(1.001 * limit / scale, 0.7)), complex(infinity, 0), complex(0, -infinity),
              complex(not_a_number, 0), complex(0x1p1023, 0x1p1023)}) {
            CAPTURE(z.real());
            CHECK_THROWS_AS(encode<basis>(slots{z}, scale), encoding_error);
        }
    }
}

BACKEND_TEST_CASE("a refusal names a bound that is itself beyond double precision") {
    using basis = rns::basis<4, q60>;
    poly<basis> p;
    CHECK_THROWS_WITH_AS(encoding::encode_slots(slots{infinity}, 0x1p-1000, p),
                         doctest::Contains("its magnitude must be below 2^1059.0"), encoding_error);
}

BACKEND_TEST_CASE(
    "slots just within half the modulus come back with the same sign, whatever their common argument") {
    using basis = rns::basis<4, q40>;
    const double size = 0.499999 * static_cast<double>(q40);
    for (int i = 0; i < 64; ++i) {
        const complex z = std::polar(size, 0.1 * i);
        for (const complex& back : decode(encode<basis>(slots(8, z), 1), 1)) {
            CHECK(std::abs(back - z) < 16);
        }
    }
}

TEST_CASE("a bad scale and a wrong number of slots are refused") {
    using basis = rns::basis<4, q40>;
    poly<basis> p;
    for (const double scale : {0.0, -1.0, infinity, not_a_number}) {
        CAPTURE(scale);
        CHECK_THROWS_AS(encoding::encode_slots(slots{1.0}, scale, p), parameter_error);
    }
    CHECK_THROWS_WITH_AS(encoding::encode_slots(slots(9), 1, p),
                         doctest::Contains("got 9 values, expected at most N/2 = 8"), shape_error);
    for (const std::size_t size : {0UL, 15UL, 17UL}) {
        std::vector<double> workspace(size);
        slots room(8);
        const std::string expected =
            "got a workspace of " + std::to_string(size) + " values, expected N = 16";
        CHECK_THROWS_WITH_AS(encoding::encode_slots(slots{1.0}, 1, p, std::span(workspace)),
                             doctest::Contains(expected.c_str()), shape_error);
        CHECK_THROWS_WITH_AS(encoding::decode_slots(p, 1, std::span(room), std::span(workspace)),
                             doctest::Contains(expected.c_str()), shape_error);
    }
    for (const std::size_t count : {0UL, 7UL, 9UL}) {
        slots room(count);
        CHECK_THROWS_AS(encoding::decode_slots(p, 1, std::span(room)), shape_error);
    }
}

}  // namespace
