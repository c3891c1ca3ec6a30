#include <tensafe/rns/pointwise.hpp>

#include "../ntt/reference.hpp"
#include "../test.hpp"

namespace {

using namespace tensafe;

constexpr arith::word q0 = arith::ntt_prime_below(arith::word{1} << 61, 5);
constexpr arith::word q1 = arith::ntt_prime_below(arith::word{1} << 40, 5);
using chain = rns::basis<5, q0, q1>;
using coefficients = rns::poly<chain, rns::coefficient_form>;
using values = rns::poly<chain, rns::evaluation_form>;

coefficients random_poly(std::uint64_t seed) {
    return tests::random_numbers(seed).poly<coefficients>();
}

std::vector<arith::word> to_vector(auto words) {
    return {words.begin(), words.end()};
}

TEST_CASE("a new polynomial is zero") {
    const coefficients p;
    CHECK(p.words().size() == 64);
    CHECK(std::all_of(p.words().begin(), p.words().end(), [](arith::word x) { return x == 0; }));
}

TEST_CASE("limbs lie one after the other and start at a cache line") {
    coefficients p;
    p.limb<0>()[31] = 5;
    p.limb<1>()[0] = 7;
    CHECK(p.words()[31] == 5);
    CHECK(p.words()[32] == 7);
    CHECK(reinterpret_cast<std::uintptr_t>(p.words().data()) % memory::alignment == 0);
    CHECK(std::as_const(p).limb<1>()[0] == 7);
}

TEST_CASE("polynomials are equal exactly when all their words are") {
    const coefficients p = random_poly(1);
    coefficients same = p;
    CHECK(same == p);
    same.limb<1>()[31] ^= 1;
    CHECK_FALSE(same == p);
}

TEST_CASE("a copy is deep and a moved-from polynomial gives its memory away") {
    coefficients p = random_poly(2);
    coefficients copy = p;
    copy.limb<0>()[0] ^= 1;
    CHECK_FALSE(copy == p);
    const arith::word* memory = p.words().data();
    const coefficients moved = std::move(p);
    CHECK(moved.words().data() == memory);
}

TEST_CASE("a transform of a temporary reuses its memory, both ways") {
    coefficients p = random_poly(3);
    const coefficients original = p;
    const arith::word* memory = p.words().data();
    values v = rns::forward(std::move(p));
    CHECK(v.words().data() == memory);
    const coefficients back = rns::inverse(std::move(v));
    CHECK(back.words().data() == memory);
    CHECK(back == original);
}

TEST_CASE("a transform of a named polynomial leaves it unchanged") {
    const coefficients p = random_poly(4);
    coefficients named = p;
    const values v = rns::forward(named);
    CHECK(named == p);
    CHECK(v.words().data() != named.words().data());
}

TEST_CASE("each limb is transformed modulo its own prime") {
    const coefficients p = random_poly(5);
    const values v = rns::forward(p);
    rns::for_each_limb<chain>([&]<int I>() {
        constexpr arith::word q = chain::prime<I>;
        const auto expected =
            tests::reference_forward(p.limb<I>(), 5, q, arith::smallest_primitive_root(q, 5));
        CHECK(to_vector(v.limb<I>()) == expected);
    });
}

TEST_CASE("the product of two transforms is the negacyclic product in every limb") {
    const coefficients a = random_poly(6);
    const coefficients b = random_poly(7);
    values product;
    rns::multiply(product, rns::forward(a), rns::forward(b));
    const coefficients c = rns::inverse(std::move(product));
    rns::for_each_limb<chain>([&]<int I>() {
        CHECK(to_vector(c.limb<I>()) == tests::reference_multiply(a.limb<I>(), b.limb<I>(), chain::prime<I>));
    });
}

TEST_CASE("secret polynomials stay secret through a transform") {
    using secret = rns::secret_poly<chain, rns::coefficient_form>;
    static_assert(std::same_as<secret::release_type, memory::wipe_on_release>);
    using transformed = decltype(rns::forward(std::declval<secret>()));
    CHECK(std::same_as<transformed, rns::secret_poly<chain, rns::evaluation_form>>);
    CHECK_FALSE(std::is_convertible_v<secret, coefficients>);
    CHECK_FALSE(std::is_convertible_v<values, coefficients>);
}

}  // namespace
