#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/ntt/order.hpp>

#include <span>
#include <vector>

namespace tests {

namespace arith = tensafe::arith;

/// The product of a chain's primes, of 128 bits at most.
template <class Basis>
constexpr arith::uint128 modulus() {
    arith::uint128 product = 1;
    for (const arith::word q : Basis::primes) {
        product *= q;
    }
    return product;
}

/// The negacyclic NTT straight from its definition, O(N^2): entry i of the result is the polynomial's value
/// at psi^(2*bit_reverse(i) + 1). The yardstick of every other transform; not constant time.
/// @pre coefficients.size() == 2^log_n, natural order, in [0, q); psi a primitive 2N-th root modulo q
inline std::vector<arith::word> reference_forward(std::span<const arith::word> coefficients, int log_n,
                                                  arith::word q, arith::word psi) {
    std::vector<arith::word> values(coefficients.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        const arith::word point = arith::power_mod(psi, 2 * tensafe::ntt::bit_reverse(i, log_n) + 1, q);
        arith::word sum = 0;
        for (std::size_t k = coefficients.size(); k-- > 0;) {
            sum = (arith::multiply_mod(sum, point, q) + coefficients[k]) % q;
        }
        values[i] = sum;
    }
    return values;
}

/// The product in Z_q[X] / (X^N + 1) by the schoolbook method, O(N^2).
/// @pre a.size() == b.size(), entries in [0, q)
inline std::vector<arith::word> reference_multiply(std::span<const arith::word> a,
                                                   std::span<const arith::word> b, arith::word q) {
    const std::size_t degree = a.size();
    std::vector<arith::word> product(degree);
    for (std::size_t i = 0; i < degree; ++i) {
        for (std::size_t j = 0; j < degree; ++j) {
            const arith::word term = arith::multiply_mod(a[i], b[j], q);
            arith::word& target = product[(i + j) % degree];
            target = (target + (i + j < degree ? term : q - term)) % q;
        }
    }
    return product;
}

}  // namespace tests
