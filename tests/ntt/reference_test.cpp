
#include "reference.hpp"

#include "../test.hpp"

namespace {

using tensafe::arith::multiply_mod;
using tensafe::arith::ntt_prime_below;
using tensafe::arith::smallest_primitive_root;
using tensafe::arith::word;
using tests::reference_forward;
using tests::reference_multiply;

using words = std::vector<word>;

TEST_CASE("degree 2 modulo 5 gives the values at 2 and 3") {
    // psi = 2: 2^2 = -1. Entry 0 is the value at 2, entry 1 the value at 2^3 = 3.
    CHECK(reference_forward(words{4, 1}, 1, 5, 2) == words{1, 2});
}

TEST_CASE("degree 4 modulo 17 gives the values in bit-reversed order") {
    // psi = 2: 2^4 = -1. The values of X at 2^1, 2^5, 2^3, 2^7.
    CHECK(reference_forward(words{0, 1, 0, 0}, 2, 17, 2) == words{2, 15, 8, 9});
}

TEST_CASE("the schoolbook product replaces X^N by -1") {
    CHECK(reference_multiply(words{0, 0, 0, 1}, words{0, 1, 0, 0}, 17) == words{16, 0, 0, 0});
    CHECK(reference_multiply(words{1, 2, 3, 4}, words{5, 6, 7, 8}, 97) == words{41, 61, 2, 60});
    CHECK(reference_multiply(words{0, 5}, words{0, 0}, 17) == words{0, 0});
}

TEST_CASE("the transform turns schoolbook products into products entry by entry") {
    for (int log_n = 1; log_n <= 6; ++log_n) {
        for (const word bound : {word{1} << 20, word{1} << 61}) {
            const std::size_t degree = std::size_t{1} << log_n;
            const word q = ntt_prime_below(bound, log_n);
            const word psi = smallest_primitive_root(q, log_n);
            const words a = tests::random_numbers(1).residues(degree, q);
            const words b = tests::random_numbers(2).residues(degree, q);
            const words values_a = reference_forward(a, log_n, q, psi);
            const words values_b = reference_forward(b, log_n, q, psi);
            words product(degree);
            for (std::size_t i = 0; i < degree; ++i) {
                product[i] = multiply_mod(values_a[i], values_b[i], q);
            }
            CAPTURE(log_n);
            CAPTURE(q);
            CHECK(reference_forward(reference_multiply(a, b, q), log_n, q, psi) == product);
        }
    }
}

}  // namespace
