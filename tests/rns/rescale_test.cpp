#include <tensafe/rns/rescale.hpp>

#include "../ntt/reference.hpp"
#include "../test.hpp"

namespace {

using namespace tensafe;
using arith::uint128;
using arith::word;
using tests::modulus;
__extension__ typedef __int128 signed_wide;

constexpr int log_n = 4;
constexpr std::size_t degree = 16;
constexpr word q40 = arith::ntt_prime_below(word{1} << 40, log_n);
constexpr word q42 = arith::ntt_prime_below(word{1} << 42, log_n);
constexpr word q41 = arith::ntt_prime_below(word{1} << 41, log_n);
constexpr word q60 = arith::ntt_prime_below(word{1} << 60, log_n);
constexpr word q61 = arith::ntt_prime_below(word{1} << 61, log_n);

word residue(signed_wide x, word q) {
    const signed_wide r = x % static_cast<signed_wide>(q);
    return static_cast<word>(r < 0 ? r + static_cast<signed_wide>(q) : r);
}

template <class Basis>
rns::poly<Basis, rns::coefficient_form> poly_of(const std::vector<signed_wide>& coefficients) {
    rns::poly<Basis, rns::coefficient_form> p;
    rns::for_each_limb<Basis>([&]<int I>() {
        for (std::size_t k = 0; k < degree; ++k) {
            p.template limb<I>()[k] = residue(coefficients[k], Basis::template prime<I>);
        }
    });
    return p;
}

/// The integer next to x / q, by integer arithmetic; q is odd, so there are no ties.
signed_wide round_quotient(signed_wide x, word q) {
    const auto divisor = static_cast<signed_wide>(q);
    const signed_wide half = (divisor - 1) / 2;
    return x >= 0 ? (x + half) / divisor : -((-x + half) / divisor);
}

/// Sixteen coefficients in (-Q/2, Q/2): zero, both ends, next to the midpoints between multiples of the
/// dropped prime, random.
template <class Basis>
std::vector<signed_wide> telling_coefficients(tests::random_numbers& random) {
    const auto q = static_cast<signed_wide>(modulus<Basis>());
    const auto last = static_cast<signed_wide>(Basis::primes.back());
    const signed_wide end = (q - 1) / 2;
    const signed_wide multiple = q / last / 3 * last;
    std::vector<signed_wide> x{0,
                               1,
                               -1,
                               end,
                               -end,
                               (last - 1) / 2,
                               (last + 1) / 2,
                               -(last - 1) / 2,
                               -(last + 1) / 2,
                               multiple + (last - 1) / 2,
                               multiple + (last + 1) / 2,
                               -multiple - (last - 1) / 2,
                               -multiple - (last + 1) / 2};
    while (x.size() < degree) {
        const uint128 bits = static_cast<uint128>(random()) << 64 | random();
        x.push_back(static_cast<signed_wide>(bits % modulus<Basis>()) - end);
    }
    return x;
}

// Of two limbs the smaller, or the larger, is dropped.
#define RESCALE_CHAINS                                                                          \
    rns::basis<log_n, q41, q40>, rns::basis<log_n, q40, q61>, rns::basis<log_n, q42, q40, q41>, \
        rns::basis<log_n, q61, q60>, rns::basis<log_n, 97, 193>

TEST_CASE_TEMPLATE("rescaling rounds every coefficient to the nearest integer", Basis, RESCALE_CHAINS) {
    using shorter = rns::prefix<Basis, Basis::limbs - 1>;
    tests::random_numbers random(1);
    for (int round = 0; round < 20; ++round) {
        const std::vector<signed_wide> x = telling_coefficients<Basis>(random);
        std::vector<signed_wide> quotients;
        for (const signed_wide c : x) {
            quotients.push_back(round_quotient(c, Basis::primes.back()));
        }
        const auto rescaled = rns::rescale(rns::forward(poly_of<Basis>(x)));
        static_assert(std::same_as<decltype(rescaled), const rns::poly<shorter, rns::evaluation_form>>);
        CHECK(rns::inverse(rescaled) == poly_of<shorter>(quotients));
    }
}

TEST_CASE("rescaling is right for every residue of a tiny chain") {
    using chain = rns::basis<log_n, 193, 97>;
    const auto q = static_cast<signed_wide>(modulus<chain>());
    for (signed_wide first = -(q - 1) / 2; first <= (q - 1) / 2; first += degree) {
        std::vector<signed_wide> x;
        std::vector<signed_wide> quotients;
        for (std::size_t k = 0; k < degree; ++k) {
            x.push_back(std::min(first + static_cast<signed_wide>(k), (q - 1) / 2));
            quotients.push_back(round_quotient(x.back(), 97));
        }
        const auto rescaled = rns::rescale(rns::forward(poly_of<chain>(x)));
        CHECK(rns::inverse(rescaled) == poly_of<rns::prefix<chain, 1>>(quotients));
    }
}

TEST_CASE("rescaling twice drops two primes") {
    using chain = rns::basis<log_n, q42, q40, q41>;
    const std::vector<signed_wide> x(degree, signed_wide{5} * q40 * q41 + 7 * static_cast<signed_wide>(q41));
    const auto once = rns::rescale(rns::forward(poly_of<chain>(x)));
    const auto twice = rns::rescale(once);
    CHECK(rns::inverse(twice) == poly_of<rns::prefix<chain, 1>>(std::vector<signed_wide>(degree, 5)));
}

TEST_CASE("rescaling a secret polynomial gives a secret one") {
    using chain = rns::basis<log_n, q42, q40>;
    using secret = rns::secret_poly<chain, rns::evaluation_form>;
    using result = decltype(rns::rescale(std::declval<const secret&>()));
    CHECK(std::same_as<result, rns::secret_poly<rns::prefix<chain, 1>, rns::evaluation_form>>);
}

}  // namespace
