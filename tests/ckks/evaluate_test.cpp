#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/precision.hpp>

#include "fixture.hpp"

using namespace tests;

namespace {

using namespace fixture;

/// A client with its key, and what it sends and reads.
template <class P>
struct client {
    tensafe::random::generator source = generator(1);
    ckks::secret_key<P> key{source};

    template <int Level = P::max_level>
    ckks::ciphertext<P, Level> encrypt(const slot_vector& z, double scale = P::scale) {
        return ckks::expand(ckks::encrypt(key, ckks::encode_slots<P, Level>(z, scale), source));
    }
    template <int Level>
    slot_vector decrypt(const ckks::ciphertext<P, Level>& c) const {
        return ckks::decrypt_slots(key, c);
    }
};

template <class P, int Level = P::max_level>
auto encode(const slot_vector& z, double scale = P::scale) {
    return ckks::forward(ckks::encode_slots<P, Level>(z, scale));
}

double bits(const slot_vector& expected, const slot_vector& got) {
    return ckks::measure_precision(expected, got).worst_bits();
}

constexpr auto sum = [](auto x, auto y) { return x + y; };
constexpr auto difference = [](auto x, auto y) { return x - y; };
constexpr auto product = [](auto x, auto y) { return x * y; };

template <class P, int Level>
bool equal(const ckks::ciphertext<P, Level>& a, const ckks::ciphertext<P, Level>& b) {
    return a.c0 == b.c0 && a.c1 == b.c1 && a.scale == b.scale;
}

/// Multiplies by one plaintext per level and rescales, down to the last level.
template <class P, int Level>
ckks::ciphertext<P, 0> to_the_last_level(ckks::ciphertext<P, Level> c, slot_vector& expected) {
    CHECK(c.scale == P::scale);  // exactly, after every cycle
    if constexpr (Level == 0) {
        return c;
    } else {
        const slot_vector w = random_slots(P::slots, 100 + Level);
        expected = combine(expected, w, product);
        ckks::multiply_plain(c, encode<P, Level>(w, P::template rescale_factor<Level>));
        return to_the_last_level<P, Level - 1>(ckks::rescale(c), expected);
    }
}

template <class P>
double bits_after_all_levels() {
    client<P> c;
    slot_vector expected = random_slots(P::slots, 1);
    const auto fresh = c.encrypt(expected);
    const auto last = to_the_last_level<P, P::max_level>(fresh, expected);
    return bits(expected, c.decrypt(last));
}

}  // namespace

TEST_CASE_FIXTURE(client<four_limbs>, "Sums and differences of ciphertexts are those of the slots") {
    for (std::uint64_t round = 0; round < 5; ++round) {
        CAPTURE(round);
        const double radius = std::pow(4, round);
        const slot_vector x = random_slots(four_limbs::slots, 2 * round, radius);
        const slot_vector y = random_slots(four_limbs::slots, 2 * round + 1, radius);
        const auto a = encrypt(x);
        const auto b = encrypt(y);
        auto result = a;
        ckks::add(result, b);
        CHECK(bits(combine(x, y, sum), decrypt(result)) > 28);
        ckks::subtract(result, b);
        CHECK(equal(result, a));
        ckks::subtract(result, b);
        CHECK(bits(combine(x, y, difference), decrypt(result)) > 28);
        ckks::subtract(result, result);
        CHECK(equal(result, {{}, {}, a.scale}));
    }
}

TEST_CASE_FIXTURE(client<four_limbs>, "Adding and multiplying by a plaintext are those of the slots") {
    for (std::uint64_t round = 0; round < 5; ++round) {
        CAPTURE(round);
        const slot_vector x = random_slots(four_limbs::slots, 10 + 2 * round);
        const slot_vector y = random_slots(four_limbs::slots, 11 + 2 * round);
        auto a = encrypt(x);
        ckks::add_plain(a, encode<four_limbs>(y));
        CHECK(bits(combine(x, y, sum), decrypt(a)) > 28);
        ckks::multiply_plain(a, encode<four_limbs>(y));
        CHECK(a.scale == 0x1p80);
        CHECK(bits(combine(combine(x, y, sum), y, product), decrypt(a)) > 28);
    }
}

TEST_CASE_FIXTURE(client<four_limbs>, "A linear combination of ciphertexts is that of the slots") {
    ckks::ciphertext<four_limbs> total;
    slot_vector expected(four_limbs::slots);
    total.scale = 0x1p80;
    for (std::uint64_t i = 0; i < 8; ++i) {
        const slot_vector x = random_slots(four_limbs::slots, 30 + 2 * i);
        const slot_vector w = random_slots(four_limbs::slots, 31 + 2 * i);
        auto term = encrypt(x);
        ckks::multiply_plain(term, encode<four_limbs>(w));
        ckks::add(total, term);
        expected = combine(expected, combine(x, w, product), sum);
    }
    CHECK(bits(expected, decrypt(total)) > 27);
}

TEST_CASE_FIXTURE(client<four_limbs>,
                  "Scales that differ are refused, both are named, and the ciphertext is left as it was") {
    const slot_vector z = random_slots(four_limbs::slots, 60);
    auto a = encrypt(z);
    const auto before = a;
    const auto b = encrypt(z, 0x1p30);
    // What is left after a product at scale Delta and a rescale by a 40-bit prime: nearly Delta, not Delta.
    constexpr double near = 0x1p80 / four_limbs::rescale_factor<2>;
    auto close = encrypt(z);
    close.scale = near;
    const auto p = encode<four_limbs>(z, 0x1p30);
    const std::string ending =
        "; encode the plaintext at the ciphertext's scale, or bring both to one level, "
        "by adjust_level where keys are switched";
    CHECK(refusal<parameter_error>([&] { ckks::add(a, b); }) ==
          "add: the scales differ, got 2^40.000000000000 and 2^30.000000000000" + ending);
    CHECK(refusal<parameter_error>([&] { ckks::subtract(a, b); }) ==
          "subtract: the scales differ, got 2^40.000000000000 and 2^30.000000000000" + ending);
    CHECK(refusal<parameter_error>([&] { ckks::add_plain(a, p); }) ==
          "add_plain: the scales differ, got 2^40.000000000000 and 2^30.000000000000" + ending);
    CHECK(refusal<parameter_error>([&] { ckks::add(a, close); }).find("2^40.000000000000 and 2^40.00000") !=
          std::string::npos);
    CHECK(refusal<parameter_error>([&] {
              ckks::add(a, close);
          }).find("2^40.000000000000 and 2^40.000000000000") == std::string::npos);
    close.scale = std::numeric_limits<double>::quiet_NaN();
    CHECK_THROWS_AS(ckks::add(a, close), parameter_error);
    CHECK(equal(a, before));

    // Rounding differences of a few units in the last place are no mismatch.
    close.scale = a.scale * (1 + 0x1p-50);
    CHECK_NOTHROW(ckks::add(a, close));
}

TEST_CASE_FIXTURE(client<four_limbs>, "Reducing the level keeps value and scale at every level") {
    const slot_vector z = random_slots(four_limbs::slots, 70);
    const auto fresh = encrypt(z);
    const auto check = [&](const auto& reduced) {
        CHECK(reduced.scale == fresh.scale);
        CHECK(bits(z, decrypt(reduced)) > 28);
    };
    CHECK(equal(ckks::level_reduce<3>(fresh), fresh));
    check(ckks::level_reduce<2>(fresh));
    check(ckks::level_reduce<0>(fresh));
    // In steps or at once is the same, and so is a fresh encryption at that level, but for its noise.
    const auto steps = ckks::level_reduce<1>(ckks::level_reduce<2>(fresh));
    auto at_once = ckks::level_reduce<1>(fresh);
    CHECK(equal(steps, at_once));
    ckks::subtract(at_once, encrypt<1>(z));
    CHECK(bits(slot_vector(four_limbs::slots), decrypt(at_once)) > 28);
}

TEST_CASE_FIXTURE(client<four_limbs>, "A rescale divides value and scale by the prime that it drops") {
    const slot_vector z = random_slots(four_limbs::slots, 80, 1000);
    const auto a = encrypt(z, 0x1p90);
    const auto b = ckks::rescale(a, 0x1p29);
    CHECK(b.scale == 0x1p90 / four_limbs::rescale_factor<3>);
    CHECK(bits(z, decrypt(b)) > 17);
    const auto d = ckks::rescale(encrypt<1>(z, 0x1p60), 0x1p19);
    CHECK(d.scale == 0x1p60 / four_limbs::rescale_factor<1>);
}

TEST_CASE("Four limbs run three cycles of product and rescale, five run four, with precision to spare") {
    // Each rescale rounds by about sqrt(N / 18) in a coefficient, sqrt(N) times that in a slot.
    CHECK(bits_after_all_levels<four_limbs>() > 29);
    CHECK(bits_after_all_levels<five_limbs>() > 28);
}

TEST_CASE("At full size a chain runs to its last level, with the precision stated here") {
    CHECK(bits_after_all_levels<ckks::n16384_l4>() > 24);
}

TEST_CASE_FIXTURE(client<four_limbs>,
                  "A plaintext at the scale of a 60-bit prime has coefficients beyond a word") {
    // 2^60 times slots of up to 64 needs 66 bits; the product must stay below half of 2^200.
    const slot_vector x = random_slots(four_limbs::slots, 90);
    const slot_vector w(four_limbs::slots, {64, 0});
    auto a = encrypt(x);
    ckks::multiply_plain(a, encode<four_limbs>(w, four_limbs::rescale_factor<3>));
    const auto reduced = ckks::rescale(a);
    CHECK(reduced.scale == four_limbs::scale);
    CHECK(bits(combine(x, w, product), decrypt(reduced)) > 22);
}

TEST_CASE("A rescale that would leave less than half of the set's scale is refused") {
    using P = ckks::n8192_l4;
    client<P> c;
    const slot_vector x = random_slots(P::slots, 70);
    auto a = c.encrypt(x);
    ckks::multiply_plain(a, encode<P>(x));  // at 2^40, where the prime that goes has 60 bits
    CHECK_THROWS_WITH_AS(
        static_cast<void>(ckks::rescale(a)),
        "rescale: got a scale of 2^80.0 and a prime of 2^60.0, which leaves 2^20.0, expected at least "
        "2^39.0: "
        "encode the factor by encode_factor(), at the prime that this rescale drops, or name a smaller "
        "least_scale",
        tensafe::parameter_error);
    CHECK(ckks::rescale(a, 1).scale < 0x1p21);
    CHECK_THROWS_AS(static_cast<void>(ckks::rescale(a, std::numeric_limits<double>::quiet_NaN())),
                    tensafe::parameter_error);
    auto b = c.encrypt(x);
    ckks::multiply_plain(b, ckks::encode_factor(b, x));
    const auto rescaled = ckks::rescale(b);
    CHECK(rescaled.scale == P::scale);
    CHECK(bits(combine(x, x, product), ckks::decrypt_slots(c.key, rescaled)) > 20);
}

TEST_CASE_FIXTURE(client<four_limbs>,
                  "Factors and addends take level and scale from the ciphertext they are for") {
    const slot_vector x = random_slots(four_limbs::slots, 80);
    const slot_vector y = random_slots(four_limbs::slots, 81);
    auto a = ckks::level_reduce<2>(encrypt(x));
    ckks::multiply_plain(a, ckks::encode_factor(a, y));
    auto b = ckks::rescale(a);
    CHECK(b.scale == four_limbs::scale);
    ckks::add_plain(b, ckks::encode_like(b, x));
    CHECK(bits(combine(combine(x, y, product), x, sum), decrypt(b)) > 28);
    ckks::subtract_plain(b, ckks::encode_like(b, x));
    CHECK(bits(combine(x, y, product), decrypt(b)) > 28);
    CHECK_THROWS_AS(ckks::subtract_plain(b, ckks::encode_constant<four_limbs, 1>(1, 3)),
                    tensafe::parameter_error);
}

TEST_CASE("Real slots are complex slots without imaginary parts") {
    const std::vector<double> reals = {1.5, -2.25, 1e-3};
    const slot_vector values = {1.5, -2.25, 1e-3};
    CHECK(ckks::encode_slots<four_limbs>(reals).value == ckks::encode_slots<four_limbs>(values).value);
    CHECK_THROWS_AS(ckks::encode_slots<four_limbs>(std::vector<double>(four_limbs::slots + 1)),
                    tensafe::shape_error);
}

TEST_CASE("A constant in evaluation form is that of equal slots") {
    const slot_vector equal(four_limbs::slots, -0.75);
    const auto constant = ckks::encode_constant<four_limbs>(-0.75);
    CHECK(constant.scale == four_limbs::scale);
    CHECK(bits(equal, ckks::decode_slots(ckks::inverse(constant))) > 38);
    CHECK_THROWS_AS(ckks::encode_constant<four_limbs>(std::numeric_limits<double>::infinity()),
                    tensafe::encoding_error);
}

TEST_CASE_FIXTURE(client<four_limbs>, "Negation and scalars are those of the slots") {
    const slot_vector x = random_slots(four_limbs::slots, 90);
    const auto times = [&](double factor, double addend) {
        slot_vector result = x;
        for (auto& z : result) {
            z = z * factor + addend;
        }
        return result;
    };
    auto a = encrypt(x);
    const auto before = a;
    ckks::negate(a);
    CHECK(bits(times(-1, 0), decrypt(a)) > 28);
    ckks::add(a, before);
    CHECK(equal(a, {{}, {}, a.scale}));  // x + -x is zero in every residue
    a = before;
    ckks::add_scalar(a, 2.5);
    CHECK(bits(times(1, 2.5), decrypt(a)) > 28);
    a = before;
    ckks::multiply_integer(a, -3);
    CHECK(a.scale == before.scale);
    CHECK(bits(times(-3, 0), decrypt(a)) > 26);
    a = before;
    ckks::multiply_scalar(a, 1.25);
    const auto rescaled = ckks::rescale(a);
    CHECK(rescaled.scale == four_limbs::scale);
    CHECK(bits(times(1.25, 0), decrypt(rescaled)) > 28);
}

TEST_CASE_FIXTURE(client<four_limbs>, "A bound on values is followed, and what could wrap is refused") {
    // Q/2 = 2^199 holds a product at the scale 2^100 below 2^99: 7.9e14 squared, and not 1e15 squared.
    const auto square = [&](double value, double bound) {
        const slot_vector values(four_limbs::slots, value);  // equal slots: one large coefficient
        auto c = encrypt(values);
        c.largest = bound;
        ckks::multiply_plain(c, ckks::encode_factor(c, values));
        return ckks::rescale(c);
    };
    const auto fits = square(7.9e14, 7.9e14);
    CHECK(fits.largest == doctest::Approx(6.241e29));
    CHECK(std::abs(decrypt(fits)[0] - 7.9e14 * 7.9e14) < 1e-12 * fits.largest);
    CHECK_THROWS_WITH_AS(
        square(1e15, 1e15),
        "multiply_plain: values could reach 1e+30, expected less than 6.34e+29 at a scale of "
        "2^100.0, or they wrap modulo Q; take smaller values, a longer modulus chain or a "
        "tighter `largest`",
        tensafe::encoding_error);
    // Without a bound it wraps, as it did: the number is another one.
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    CHECK(std::abs(decrypt(square(1e15, none))[0] - 1e30) > 1e29);

    auto a = encrypt({3.0});
    a.largest = 4;
    auto b = a;
    ckks::add(a, b);
    ckks::subtract(a, b);
    CHECK(a.largest == 12);
    ckks::negate(a);
    ckks::multiply_integer(a, -5);
    CHECK(a.largest == 60);
    ckks::add_scalar(a, -1.5);
    ckks::add_plain(a, ckks::encode_like(a, slot_vector{{3, -4}, 1}));
    ckks::subtract_plain(a, ckks::encode_like(a, slot_vector{0.5}));
    CHECK(a.largest == doctest::Approx(67));
    CHECK(a.largest > 67);
    ckks::multiply_scalar(a, -2);
    CHECK(ckks::level_reduce<1>(ckks::rescale(a)).largest == a.largest);
    CHECK(a.largest == doctest::Approx(134));

    // Refused sums, levels and half a bound leave everything as it was.
    a = b;
    a.largest = 0.75 * 0x1p159;
    CHECK_THROWS_AS(ckks::add(a, a), tensafe::encoding_error);
    CHECK_THROWS_AS(static_cast<void>(ckks::level_reduce<2>(a)), tensafe::encoding_error);
    CHECK(equal(a, b));
    CHECK(a.largest == 0.75 * 0x1p159);
    CHECK_THROWS_AS(ckks::multiply_plain(a, encode<four_limbs>({1.0})), tensafe::parameter_error);
    b.largest = none;
    CHECK_THROWS_AS(ckks::add(a, b), tensafe::parameter_error);
    CHECK_THROWS_AS(ckks::add(b, a), tensafe::parameter_error);
    CHECK(std::isnan(ckks::encode_factor(b, slot_vector{1.0}).largest));  // nobody asked for it
    for (const double bound : {-1.0, std::numeric_limits<double>::infinity()}) {
        a.largest = bound;
        CHECK_THROWS_AS(ckks::multiply_scalar(a, 0), tensafe::parameter_error);
    }
    a.largest = 1;
    CHECK(ckks::encode_like(a, slot_vector{0.0}).largest > 0);  // as rounding is
    ckks::multiply_scalar(a, 0);
    CHECK(a.largest == 0);
}
