#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/ckks/precision.hpp>
#include <tensafe/rns/pointwise.hpp>

#include "fixture.hpp"

using namespace tests;

namespace {

using namespace fixture;

// Plaintexts are secrets: their words are wiped.
static_assert(std::is_same_v<decltype(ckks::plaintext<four_limbs, rns::coefficient_form>::value),
                             rns::secret_poly<four_limbs::basis, rns::coefficient_form>>);

}  // namespace

TEST_CASE_TEMPLATE("Slots come back from either form at every scale", P, four_limbs, five_limbs) {
    const slot_vector z = random_slots(P::slots, 1, 3);
    for (const double scale : {0x1p20, 0x1p40, 0x1p60, 0x1p100}) {
        CAPTURE(scale);
        auto p = ckks::encode_slots<P>(z, scale);
        CHECK(p.scale == scale);
        const slot_vector direct = ckks::decode_slots(p);
        const slot_vector turned = ckks::decode_slots(ckks::inverse(ckks::forward(std::move(p))));
        CHECK(direct == turned);
        // Half a unit for each coefficient at small scales, the transform in double precision at large ones.
        const double tolerance = 0.5 * static_cast<double>(P::degree) / scale + 1e-13;
        CHECK(ckks::measure_precision(z, direct).worst_error <= tolerance);
    }
}

TEST_CASE("Coefficients come back at every level, rounded once") {
    const std::vector<double> m = random_numbers(2).uniforms(four_limbs::degree);
    const auto check = [&](const auto& p) {
        const std::vector<double> back = ckks::decode_coefficients(p);
        CHECK(ckks::measure_precision(m, back).worst_error <= 0.5000001 / four_limbs::scale);
    };
    check(ckks::encode_coefficients<four_limbs>(m));
    check(ckks::encode_coefficients<four_limbs, 2>(m));
    check(ckks::encode_coefficients<four_limbs, 1>(m));
    check(ckks::encode_coefficients<four_limbs, 0>(m));
}

TEST_CASE("Coefficients beyond one word are kept to double precision") {
    // 2^60 * 1000 needs 70 bits; a word would have wrapped.
    std::vector<double> m = random_numbers(3).uniforms(four_limbs::degree);
    for (double& x : m) {
        x *= 1000;
    }
    const auto p = ckks::encode_coefficients<four_limbs>(m, 0x1p60);
    CHECK(ckks::measure_precision(m, ckks::decode_coefficients(p)).relative_error <= 0x1p-50);
}

TEST_CASE("Missing slots and coefficients are zero") {
    const slot_vector z{{1, 2}, {3, -4}};
    const slot_vector back = ckks::decode_slots(ckks::encode_slots<four_limbs>(z));
    slot_vector expected(four_limbs::slots);
    expected[0] = z[0];
    expected[1] = z[1];
    CHECK(ckks::measure_precision(expected, back).worst_bits() > 30);

    const std::vector<double> m{0.5, -0.25};
    std::vector<double> padded(four_limbs::degree);
    padded[0] = m[0];
    padded[1] = m[1];
    CHECK(ckks::decode_coefficients(ckks::encode_coefficients<four_limbs>(m)) == padded);
}

TEST_CASE("A product in evaluation form is the product slot by slot") {
    const slot_vector a = random_slots(four_limbs::slots, 4);
    const slot_vector b = random_slots(four_limbs::slots, 5);
    auto p = ckks::forward(ckks::encode_slots<four_limbs>(a));
    const auto q = ckks::forward(ckks::encode_slots<four_limbs>(b));
    rns::multiply(p.value, p.value, q.value);
    p.scale *= q.scale;
    const slot_vector product = ckks::decode_slots(ckks::inverse(std::move(p)));
    const slot_vector expected = combine(a, b, [](auto x, auto y) { return x * y; });
    CHECK(ckks::measure_precision(expected, product).worst_bits() > 32);
}

TEST_CASE("What cannot be encoded throws, and the message names it") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto slots = [](slot_vector z, double scale = four_limbs::scale) {
        return [=] { ckks::encode_slots<four_limbs>(z, scale); };
    };
    const auto contains = [](const std::string& text, const char* part) {
        CAPTURE(text);
        CHECK(text.find(part) != std::string::npos);
    };
    contains(refusal<shape_error>(slots(slot_vector(four_limbs::slots + 1))), "513");
    contains(refusal<encoding_error>(slots({0, 0, {0, nan}})), "entry 2 is not a number");
    contains(refusal<encoding_error>(slots({0, 0x1p160})), "entry 1 is too large");
    contains(refusal<parameter_error>(slots({1}, -1.0)), "scale");
    contains(refusal<parameter_error>(slots({1}, nan)), "scale");
    // The level decides how much fits: one limb of 60 bits holds 2^59.
    CHECK_NOTHROW((ckks::encode_slots<four_limbs, 0>(slot_vector{0x1p18})));
    CHECK_THROWS_AS((ckks::encode_slots<four_limbs, 0>(slot_vector{0x1p19})), encoding_error);
}
