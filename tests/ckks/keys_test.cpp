#include <tensafe/ckks/keys.hpp>

#include "fixture.hpp"

using namespace tests;

namespace {

using namespace fixture;

using secret = ckks::secret_key<four_limbs>;
static_assert(!std::is_copy_constructible_v<secret>);
static_assert(!std::is_copy_assignable_v<secret>);
static_assert(std::is_nothrow_move_constructible_v<secret>);
static_assert(std::is_nothrow_move_assignable_v<secret>);

}  // namespace

TEST_CASE("A fresh key is ternary in every limb, and each value comes about equally often") {
    auto source = generator(1);
    const secret key(source);
    const auto s = small_coefficients(rns::inverse(key.value()));
    std::array<int, 3> counts{};
    for (const std::int64_t x : s) {
        REQUIRE(x >= -1);
        REQUIRE(x <= 1);
        ++counts[static_cast<std::size_t>(x + 1)];
    }
    for (const int count : counts) {
        CHECK(std::abs(count - 341) < 90);  // six standard deviations
    }
}

TEST_CASE("Keys follow from their generator: equal states give equal keys, later calls others") {
    auto one = generator(2);
    auto same = generator(2);
    auto other = generator(3);
    const secret a(one);
    CHECK(a.value() == secret(same).value());
    CHECK(!(a.value() == secret(one).value()));
    CHECK(!(a.value() == secret(other).value()));
}

TEST_CASE("A key from given coefficients is those coefficients, transformed") {
    std::vector<std::int8_t> ternary(four_limbs::degree);
    for (std::size_t k = 0; k < ternary.size(); ++k) {
        ternary[k] = static_cast<std::int8_t>(static_cast<int>(k * k % 3) - static_cast<int>(k % 2));
    }
    const secret key{std::span<const std::int8_t>(ternary)};
    const auto s = small_coefficients(rns::inverse(key.value()));
    CHECK(std::equal(ternary.begin(), ternary.end(), s.begin(), s.end()));
}

TEST_CASE("Coefficients that make no key are refused without telling which") {
    const auto make = [](std::vector<std::int8_t> coefficients) {
        return [=] { secret{std::span<const std::int8_t>(coefficients)}; };
    };
    for (const std::size_t count : {std::size_t{0}, four_limbs::degree - 1, four_limbs::degree + 1}) {
        CHECK(refusal<tensafe::shape_error>(make(std::vector<std::int8_t>(count))) ==
              "secret_key: got " + std::to_string(count) + " coefficients, expected N = 1024");
    }
    for (const std::int8_t wrong : {std::int8_t{2}, std::int8_t{-2}, std::int8_t{-128}, std::int8_t{127}}) {
        std::vector<std::int8_t> coefficients(four_limbs::degree);
        coefficients.back() = wrong;
        CHECK(refusal<tensafe::parameter_error>(make(coefficients)) ==
              "secret_key: every coefficient must be -1, 0 or 1");
    }
}

TEST_CASE("Moving a key hands over its words") {
    auto source = generator(4);
    secret key(source);
    const auto value = key.value();
    secret moved(std::move(key));
    CHECK(moved.value() == value);
    secret assigned(source);
    assigned = std::move(moved);
    CHECK(assigned.value() == value);
}

TEST_CASE("b + a*s of a public key is an error") {
    auto source = generator(5);
    const secret key(source);
    const ckks::public_key<four_limbs> pk(key, source);
    rns::poly<four_limbs::basis, rns::evaluation_form> e;
    rns::multiply(e, pk.a(), key.value());
    rns::add(e, pk.b());
    double squares = 0;
    for (const std::int64_t x : small_coefficients(rns::inverse(e))) {
        CHECK(std::abs(x) <= 11);
        squares += static_cast<double>(x * x) / four_limbs::degree;
    }
    CHECK(squares > 0.7 * 10.5);  // seven standard deviations around 10.5
    CHECK(squares < 1.3 * 10.5);
}

TEST_CASE("The uniform half of a public key is what its seed expands to, and keys of one owner differ") {
    auto source = generator(6);
    const secret key(source);
    const ckks::public_key<four_limbs> pk(key, source);
    const ckks::public_key<four_limbs> second(key, source);
    rns::poly<four_limbs::basis, rns::evaluation_form> a;
    ckks::expand_uniform(pk.seed(), tensafe::random::stream_domain::public_key, a);
    CHECK(a == pk.a());
    CHECK(!(pk.seed() == second.seed()));
    CHECK(!(pk.a() == second.a()));
    CHECK(!(pk.b() == second.b()));
}
