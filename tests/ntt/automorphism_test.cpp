#include <tensafe/ntt/automorphism.hpp>
#include <tensafe/ntt/transform.hpp>

#include "../backends.hpp"
#include "../test.hpp"

using namespace tests;

namespace {

using tensafe::arith::word;

/// a(X^g), coefficient by coefficient.
std::vector<word> moved(const std::vector<word>& a, word exponent, word q) {
    std::vector<word> result(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        const std::size_t place = i * exponent % (2 * a.size());
        result[place % a.size()] = place < a.size() || a[i] == 0 ? a[i] : q - a[i];
    }
    return result;
}

}  // namespace

BACKEND_TEST_CASE("an automorphism moves the values of a transform as X -> X^g moves coefficients") {
    for (const int log_n : {3, 4, 5, 8, 11}) {
        const std::size_t degree = std::size_t{1} << log_n;
        const word q = tensafe::arith::ntt_prime_below(word{1} << 45, log_n);
        using policy = tensafe::arith::shoup<tensafe::arith::runtime_modulus<45>>;
        const tensafe::ntt::plan<policy> plan(policy(tensafe::arith::runtime_modulus<45>(q)), log_n);
        random_numbers random(static_cast<std::uint64_t>(log_n));
        const std::vector<word> a = random.residues(degree, q);
        std::vector<word> values = a;
        tensafe::ntt::forward(plan, values);
        for (word exponent = 1; exponent < 2 * degree; exponent += log_n < 8 ? 2 : 2 * (random() % 97) + 2) {
            CAPTURE(log_n);
            CAPTURE(exponent);
            const tensafe::ntt::automorphism move(log_n, exponent);
            CHECK(move.exponent() == exponent);
            std::vector<word> expected = moved(a, exponent, q);
            tensafe::ntt::forward(plan, expected);
            std::vector<word> got(degree, ~word{0});
            move.apply(values.data(), got.data());
            CHECK(got == expected);
        }
    }
}

TEST_CASE("exponents that are even or too large, and other degrees, are refused") {
    using tensafe::ntt::automorphism;
    CHECK(refusal<parameter_error>([] { automorphism(10, 4); }) ==
          "automorphism: got the exponent 4, expected an odd one below 2N");
    CHECK_THROWS_AS(automorphism(10, 2049), parameter_error);
    CHECK_NOTHROW(automorphism(10, 2047));
    CHECK(refusal<parameter_error>([] { automorphism(2, 1); }) ==
          "automorphism: log_n: got 2, expected 3 to 17");
    CHECK_THROWS_AS(automorphism(18, 1), parameter_error);
}
