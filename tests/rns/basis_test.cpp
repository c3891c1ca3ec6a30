#include <tensafe/ntt/transform.hpp>
#include <tensafe/rns/basis.hpp>

#include "../test.hpp"

namespace {

using namespace tensafe;

constexpr arith::word q0 = arith::ntt_prime_below(arith::word{1} << 60, 10);
constexpr arith::word q1 = arith::ntt_prime_below(arith::word{1} << 40, 10);
constexpr arith::word q2 = arith::ntt_prime_below(q1, 10);
using chain = rns::basis<10, q0, q1, q2>;

TEST_CASE("a basis reports its degree and its primes in the order given") {
    CHECK(chain::degree == 1024);
    CHECK(chain::limbs == 3);
    CHECK(chain::primes[2] == q2);
    CHECK(chain::prime<0> == q0);
    CHECK(chain::prime<2> == q2);
    CHECK(chain::log2_modulus() == doctest::Approx(140).epsilon(1e-6));
}

TEST_CASE("a prefix keeps the first primes and is the very type that names them") {
    CHECK(std::same_as<rns::prefix<chain, 1>, rns::basis<10, q0>>);
    CHECK(std::same_as<rns::prefix<chain, 2>, rns::basis<10, q0, q1>>);
    CHECK(std::same_as<rns::prefix<chain, 3>, chain>);
}

TEST_CASE("for_each_limb visits each limb once, in order") {
    std::vector<arith::word> visited;
    rns::for_each_limb<chain>([&]<int I>() { visited.push_back(chain::prime<I>); });
    CHECK(visited == std::vector<arith::word>{q0, q1, q2});
}

TEST_CASE("the arithmetic of a prime has its width and value") {
    CHECK(rns::modulus_of<q1>::bits == 45);
    CHECK(rns::modulus_of<q1>::least_bits == 36);
    CHECK(rns::variable_arithmetic<q1>.modulus().value() == q1);
    CHECK(rns::fixed_arithmetic<q2>.modulus().value() == q2);
    CHECK(std::same_as<rns::modulus_of<q1>, rns::modulus_of<q2>>);
}

TEST_CASE("all threads share one plan of a prime, with the smallest root") {
    std::vector<const void*> seen(8);
    tests::on_threads(seen.size(), [&](std::size_t i) { seen[i] = &rns::shared_plan<10, q2>(); });
    for (const void* plan : seen) {
        CHECK(plan == &rns::shared_plan<10, q2>());
    }
    CHECK(rns::shared_plan<10, q2>().psi() == arith::smallest_primitive_root(q2, 10));
    CHECK(rns::shared_plan<10, q2>().log_n() == 10);
}

TEST_CASE("a trace plan's values stand in the order of the large ring's values") {
    const auto& large = rns::shared_plan<10, q1>();
    for (const int log_n : {1, 4, 9, 10}) {
        CAPTURE(log_n);
        const auto& small = rns::shared_subring_plan<10, q1>(log_n);
        REQUIRE(&small == &rns::shared_subring_plan<10, q1>(log_n));
        const std::size_t spread = std::size_t{1} << (10 - log_n);
        std::vector<arith::word> short_limb(small.degree());
        std::vector<arith::word> long_limb(large.degree());
        for (std::size_t k = 0; k < short_limb.size(); ++k) {
            short_limb[k] = arith::power_mod(3, k, q1);
            long_limb[k * spread] = short_limb[k];  // the same polynomial in X^spread
        }
        ntt::forward(small, std::span(short_limb));
        ntt::forward(large, std::span(long_limb));
        for (std::size_t i = 0; i < long_limb.size(); ++i) {
            CHECK(long_limb[i] == short_limb[i / spread]);
        }
    }
}

TEST_CASE("a trace plan of an impossible degree is refused") {
    CHECK_THROWS_AS((rns::shared_subring_plan<10, q1>(0)), parameter_error);
    CHECK_NOTHROW(rns::shared_subring_plan<10, q1>(2));
}

}  // namespace
