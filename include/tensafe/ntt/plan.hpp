#pragma once

#include <tensafe/arith/policy.hpp>
#include <tensafe/arith/prime.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/ntt/order.hpp>
#include <tensafe/ntt/vector_tables.hpp>

#include <cstddef>
#include <string>

namespace tensafe::ntt {

inline constexpr int min_log_n = 1;
inline constexpr int max_log_n = 17;

/// The tables of the negacyclic NTT of one degree modulo one prime: natural order in, bit-reversed order out.
/// About 3N modular products and 2N factors of memory, and for each SIMD back-end that is used as much again,
/// or half more for wide primes. Immutable; safe to share between threads.
template <arith::modular_policy Policy>
class plan {
  public:
    using policy_type = Policy;
    using factor = typename Policy::factor;

    /// Makes the tables with the smallest primitive 2N-th root of unity.
    /// @param log_n  the degree is 2^log_n, log_n in [1, 17]
    /// @throws parameter_error if log_n is out of range or the modulus is not a prime that is 1 modulo 2N
    plan(Policy policy, int log_n)
        : plan(policy, log_n, arith::smallest_primitive_root(policy.modulus().value(), checked(log_n))) {}

    /// Makes the tables with a primitive 2N-th root of the caller's choice instead of the smallest one.
    /// @throws parameter_error if log_n is out of range, the modulus is not a prime that is 1 modulo 2N, or
    ///         `psi` is no primitive 2N-th root
    plan(Policy policy, int log_n, arith::word psi)
        : policy_(policy),
          log_n_(checked(log_n)),
          psi_(psi),
          vector_tables_(policy.modulus().value(), log_n, checked_root(policy.modulus().value(), log_n, psi)),
          forward_(std::size_t{1} << log_n),
          inverse_(std::size_t{1} << log_n) {
        const arith::word q = policy_.modulus().value();
        const arith::word psi_inverse = arith::inverse_mod(psi, q);
        arith::word power = 1;
        arith::word inverse_power = 1;
        for (std::size_t i = 0; i < degree(); ++i) {
            const std::size_t index = bit_reverse(i, log_n);
            forward_[index] = policy_.prepare(power);
            inverse_[index] = policy_.prepare(inverse_power);
            power = arith::multiply_mod(power, psi, q);
            inverse_power = arith::multiply_mod(inverse_power, psi_inverse, q);
        }
        const arith::word degree_inverse = arith::inverse_mod(degree(), q);
        degree_inverse_ = policy_.prepare(degree_inverse);
        for (std::size_t i = 1; i < 4; ++i) {
            const arith::word w = arith::power_mod(psi_inverse, bit_reverse(i, log_n), q);
            scaled_inverse_[i] = policy_.prepare(arith::multiply_mod(w, degree_inverse, q));
        }
    }

    const Policy& policy() const noexcept { return policy_; }
    int log_n() const noexcept { return log_n_; }
    std::size_t degree() const noexcept { return std::size_t{1} << log_n_; }
    arith::word psi() const noexcept { return psi_; }

    /// Factor m + i is psi^bit_reverse(m + i): the twiddle of block i among the m blocks of one stage.
    const factor* forward_factors() const noexcept { return forward_.data(); }
    /// The inverses of the forward factors, at the same places.
    const factor* inverse_factors() const noexcept { return inverse_.data(); }
    /// The factor 1; multiplying by it reduces an entry of any bound.
    factor one() const noexcept { return forward_[0]; }
    /// The factor 1/N. The last inverse stages scale as they go, with inverse factors 1 to 3 times 1/N too.
    factor degree_inverse() const noexcept { return degree_inverse_; }
    factor scaled_inverse_factor(std::size_t i) const noexcept { return scaled_inverse_[i]; }
    /// The tables that the SIMD back-ends read instead of these factors.
    const ntt::vector_tables<Policy>& vector_tables() const noexcept { return vector_tables_; }

  private:
    static int checked(int log_n) {
        if (log_n < min_log_n || log_n > max_log_n) {
            throw parameter_error("ntt::plan: log_n is " + std::to_string(log_n) + ", expected " +
                                  std::to_string(min_log_n) + " to " + std::to_string(max_log_n));
        }
        return log_n;
    }

    static arith::word checked_root(arith::word q, int log_n, arith::word psi) {
        const arith::word n = arith::word{1} << log_n;
        if (!arith::is_ntt_prime(q, log_n) || psi >= q || arith::power_mod(psi, n, q) != q - 1) {
            throw parameter_error("ntt::plan: " + std::to_string(psi) + " is not a primitive " +
                                  std::to_string(2 * n) + "-th root of unity modulo " + std::to_string(q));
        }
        return psi;
    }

    Policy policy_;
    int log_n_;
    arith::word psi_;
    [[no_unique_address]] ntt::vector_tables<Policy> vector_tables_;
    memory::buffer<factor> forward_;
    memory::buffer<factor> inverse_;
    factor degree_inverse_ = {};
    factor scaled_inverse_[4] = {};
};

}  // namespace tensafe::ntt
