#include <tensafe/rns/pointwise.hpp>

#include "../test.hpp"

namespace {

using namespace tensafe;
using arith::mul_wide;
using arith::uint128;
using arith::word;

constexpr int log_n = 6;
constexpr word q61 = arith::ntt_prime_below(word{1} << 61, log_n);
constexpr word q60 = arith::ntt_prime_below(word{1} << 60, log_n);
constexpr word q40 = arith::ntt_prime_below(word{1} << 40, log_n);
constexpr word q20 = arith::ntt_prime_below(word{1} << 20, log_n);
using chain = rns::basis<log_n, q61, q60, q40, q20>;
using values = rns::poly<chain, rns::evaluation_form>;

values residues(std::uint64_t seed) {
    return tests::random_numbers(seed).poly<values>();
}

/// The words that f(x, y, z, q) gives, modulo q.
values expected(const values& x, const values& y, const values& z, auto f) {
    values p;
    rns::for_each_limb<chain>([&]<int I>() {
        constexpr word q = chain::prime<I>;
        for (std::size_t k = 0; k < chain::degree; ++k) {
            p.limb<I>()[k] = static_cast<word>(f(x.limb<I>()[k], y.limb<I>()[k], z.limb<I>()[k], q) % q);
        }
    });
    return p;
}

TEST_CASE("sums, differences and products equal 128-bit arithmetic in every limb") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        CAPTURE(seed);
        const values a = residues(3 * seed);
        const values b = residues(3 * seed + 1);
        const values c = residues(3 * seed + 2);

        values sum = a;
        rns::add(sum, b);
        CHECK(sum == expected(a, b, c, [](word x, word y, word, word) { return uint128{x} + y; }));

        values difference = a;
        rns::subtract(difference, b);
        CHECK(difference ==
              expected(a, b, c, [](word x, word y, word, word q) { return uint128{x} + q - y; }));

        values product;
        rns::multiply(product, a, b);
        CHECK(product == expected(a, b, c, [](word x, word y, word, word) { return mul_wide(x, y); }));

        values accumulated = c;
        rns::multiply_accumulate(accumulated, a, b);
        CHECK(accumulated ==
              expected(a, b, c, [](word x, word y, word z, word) { return mul_wide(x, y) + z; }));
    }
}

TEST_CASE("operands may be one and the same polynomial") {
    const values a = residues(100);
    const values b = residues(101);
    values product;
    rns::multiply(product, a, b);

    values in_place = a;
    rns::multiply(in_place, in_place, b);
    CHECK(in_place == product);
    in_place = b;
    rns::multiply(in_place, a, in_place);
    CHECK(in_place == product);

    values zero = a;
    rns::subtract(zero, zero);
    CHECK(zero == values());
}

TEST_CASE("sums work in coefficient form and between secret and public polynomials") {
    rns::secret_poly<chain, rns::coefficient_form> secret;
    rns::poly<chain, rns::coefficient_form> open;
    secret.limb<1>()[3] = q60 - 1;
    open.limb<1>()[3] = 5;
    rns::add(secret, open);
    CHECK(secret.limb<1>()[3] == 4);
    rns::subtract(open, secret);
    CHECK(open.limb<1>()[3] == 1);
}

TEST_CASE("level reduction keeps the first limbs word for word") {
    const values a = residues(200);
    const auto two = rns::level_reduce<2>(a);
    static_assert(std::same_as<decltype(two), const rns::poly<rns::prefix<chain, 2>, rns::evaluation_form>>);
    CHECK(std::ranges::equal(two.words(), a.words().first(2 * chain::degree)));
    CHECK(rns::level_reduce<4>(a) == a);
    CHECK(std::ranges::equal(rns::level_reduce<1>(a).words(), a.words().first(chain::degree)));
}

}  // namespace
