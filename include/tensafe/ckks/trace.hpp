#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/keys.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/encoding/slot_transform.hpp>
#include <tensafe/rns/crt.hpp>
#include <tensafe/rns/limb.hpp>

#include <array>
#include <complex>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensafe::ckks {

namespace detail {

/// The factors 2^-k modulo Q for k up to LogN.
template <int LogN, arith::word Q>
inline constexpr auto inverse_powers_of_two = [] {
    constexpr auto policy = rns::fixed_arithmetic<Q>;
    std::array<typename std::remove_cv_t<decltype(policy)>::factor, static_cast<std::size_t>(LogN) + 1>
        result{};
    arith::word power = 1;
    for (auto& factor : result) {
        factor = policy.prepare(power);
        power = power % 2 == 0 ? power / 2 : (power + Q) / 2;
    }
    return result;
}();

}  // namespace detail

/// Turns block sums of an evaluation form, modulo Q, into the coefficients of X^(k*N/n) that they stand for,
/// in place: the inverse transform of the subring of degree n = 2^log_n, and the division by N/n.
/// @pre sums.size() == n, 0 <= log_n <= LogN
template <int LogN, arith::word Q>
void block_sums_to_coefficients(int log_n, std::span<arith::word> sums) {
    if (log_n == LogN) {
        ntt::inverse(rns::shared_plan<LogN, Q>(), sums);
        return;
    }
    if (log_n > 0) {
        ntt::inverse(rns::shared_subring_plan<LogN, Q>(log_n), sums);
    }
    rns::limb::scale(rns::fixed_arithmetic<Q>, sums, sums,
                     detail::inverse_powers_of_two<LogN, Q>[static_cast<std::size_t>(LogN - log_n)]);
}

/// The trace of a decrypted message to a subring of degree 2^log_n, enough for the sums of its slots r, r +
/// g, r + 2g, ... (g = 2^(log_n - 1)). Evaluation form of the subring, bit-reversed; residues modulo the
/// first `Limbs` primes. Wiped on release.
template <parameter_set P, int Limbs>
struct trace {
    using basis = rns::prefix<typename P::basis, Limbs>;

    int log_n = 0;
    std::array<memory::secret_buffer<arith::word>, static_cast<std::size_t>(Limbs)> limbs;
    double scale = P::scale;
};

/// Decrypts a ciphertext modulo its first `Limbs` primes and traces it to degree 2^log_n at once.
///
/// The trace is a sum over blocks of c0 + c1*s (docs/design/encoding.md): no transform, N multiply-adds for
/// each limb.
/// @pre the coefficients of the trace, which are at most the largest sum times the scale plus N/2^log_n times
/// the noise, stay below half the product of the first `Limbs` primes
/// @throws parameter_error unless 1 <= log_n <= P::log_n
template <int Limbs, parameter_set P, int Level>
trace<P, Limbs> decrypt_trace(const secret_key<P>& key, const ciphertext<P, Level>& c, int log_n) {
    static_assert(Limbs >= 1 && Limbs <= Level + 1, "ckks::decrypt_trace: the ciphertext has fewer limbs");
    if (log_n < 1 || log_n > P::log_n) {
        throw parameter_error("decrypt_trace: log_n: got " + std::to_string(log_n) + ", expected 1 to " +
                              std::to_string(P::log_n));
    }
    trace<P, Limbs> result;
    result.log_n = log_n;
    result.scale = c.scale;
    rns::for_each_limb<typename trace<P, Limbs>::basis>([&]<int I>() {
        memory::secret_buffer<arith::word> sums(std::size_t{1} << log_n, memory::uninitialized);
        rns::limb::block_sums(rns::variable_arithmetic<P::basis::template prime<I>>, sums.span(),
                              c.c1.template limb<I>(), key.value().template limb<I>(),
                              c.c0.template limb<I>());
        result.limbs[I] = std::move(sums);
    });
    return result;
}

/// Decodes a trace to g = 2^(log_n - 1) sums: entry r is the sum over t of slot r + g*t of the message.
template <parameter_set P, int Limbs>
std::vector<std::complex<double>> decode_trace(trace<P, Limbs> f) {
    using basis = typename trace<P, Limbs>::basis;
    const std::size_t points = std::size_t{1} << f.log_n;
    rns::for_each_limb<basis>([&]<int I>() {
        ntt::inverse(rns::shared_subring_plan<P::log_n, basis::template prime<I>>(f.log_n),
                     f.limbs[I].span());
    });
    memory::secret_buffer<double> coefficients(points, memory::uninitialized);
    rns::residue_spans<basis> limbs;
    rns::for_each_limb<basis>([&]<int I>() { limbs[I] = f.limbs[I].span(); });
    rns::to_doubles<basis>(limbs, coefficients.span());
    for (double& x : coefficients) {
        x /= f.scale;
    }
    std::vector<std::complex<double>> sums(points / 2);
    encoding::shared_slot_transform(f.log_n).to_slots(coefficients.span(), std::span(sums));
    return sums;
}

}  // namespace tensafe::ckks
