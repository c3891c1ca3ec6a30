#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/prime.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/core/built_once.hpp>
#include <tensafe/memory/packed_bits.hpp>
#include <tensafe/ntt/plan.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

namespace tensafe::rns {

/// A residue number system for Z_Q[X] / (X^N + 1), N = 2^LogN: the modulus chain Q = product of `Primes`, in
/// the order in which the limbs are stored; the last is dropped first. A type without state.
template <int LogN, arith::word... Primes>
struct basis {
    static_assert(LogN >= ntt::min_log_n && LogN <= ntt::max_log_n, "rns::basis: log_n must be in [1, 17]");
    static_assert(sizeof...(Primes) >= 1, "rns::basis: the modulus chain needs at least one prime");
    static_assert((arith::is_ntt_prime(Primes, LogN) && ...),
                  "rns::basis: every modulus must be a prime that is 1 modulo 2N");
    static_assert(((std::bit_width(Primes) <= arith::max_modulus_bits) && ...),
                  "rns::basis: every prime must be below 2^61");

    static constexpr int log_n = LogN;
    static constexpr std::size_t degree = std::size_t{1} << LogN;
    static constexpr int limbs = static_cast<int>(sizeof...(Primes));
    static constexpr std::array<arith::word, sizeof...(Primes)> primes{Primes...};

    static_assert(((std::count(primes.begin(), primes.end(), Primes) == 1) && ...),
                  "rns::basis: the primes of a chain must be distinct");

    template <int I>
    static constexpr arith::word prime = primes[static_cast<std::size_t>(I)];

    /// The binary logarithm of Q.
    static double log2_modulus() noexcept {
        double bits = 0;
        for (const arith::word q : primes) {
            bits += std::log2(static_cast<double>(q));
        }
        return bits;
    }
};

namespace detail {
template <class Basis, class Indices>
struct prefix_of;
template <class Basis, int... I>
struct prefix_of<Basis, std::integer_sequence<int, I...>> {
    using type = basis<Basis::log_n, Basis::template prime<I>...>;
};
template <class Basis, int Limbs>
struct prefix_length {
    static_assert(Limbs >= 0 && Limbs <= Basis::limbs, "rns::prefix: a chain can only get shorter");
    static constexpr int value = Limbs;
};
}  // namespace detail

/// The first `Limbs` primes of a chain: what is left after dropping the others.
template <class Basis, int Limbs>
using prefix = typename detail::prefix_of<
    Basis, std::make_integer_sequence<int, detail::prefix_length<Basis, Limbs>::value>>::type;

/// Calls `f.template operator()<I>()` for each limb I of the basis, in order.
template <class Basis, class F>
constexpr void for_each_limb(F&& f) {
    [&]<int... I>(std::integer_sequence<int, I...>) {
        (f.template operator()<I>(), ...);
    }
    (std::make_integer_sequence<int, Basis::limbs>{});
}

/// For each limb the residues of the same coefficients: residues[i][k] is x_k modulo q_i, in [0, q_i).
template <class Basis>
using residue_spans = std::array<std::span<const arith::word>, static_cast<std::size_t>(Basis::limbs)>;

/// The sum of the widths of the primes: Q is below 2^modulus_bits.
template <class Basis>
inline constexpr int modulus_bits = [] {
    int bits = 0;
    for (const arith::word q : Basis::primes) {
        bits += static_cast<int>(std::bit_width(q));
    }
    return bits;
}();

namespace detail {

// The constants of Garner's algorithm: digit I becomes (digit - digit J) / q_J modulo q_I, for each J < I.

/// The inverse 1/q_J modulo q_I.
template <class Basis, int I, int J>
inline constexpr arith::word garner_inverse = arith::inverse_mod(Basis::template prime<J> %
                                                                     Basis::template prime<I>,
                                                                 Basis::template prime<I>);

/// The least multiple of q_I that is not below q_J, hence less than q_I + q_J: makes the difference positive.
template <class Basis, int I, int J>
inline constexpr arith::word garner_offset = [] {
    constexpr arith::word q = Basis::template prime<I>;
    return (Basis::template prime<J> + q - 1) / q * q;
}();

}  // namespace detail

/// Bytes of `count` residues modulo each prime of a basis, bit-packed: limb after limb, each in whole bytes.
template <class Basis>
constexpr std::size_t packed_bytes(std::size_t count = Basis::degree) noexcept {
    std::size_t bytes = 0;
    for (const arith::word q : Basis::primes) {
        bytes += memory::packed_bytes(count, static_cast<int>(std::bit_width(q)));
    }
    return bytes;
}

/// The modulus type of host code: one instantiation for all primes of a class of widths.
template <arith::word Q>
using modulus_of = arith::modulus_class<std::bit_width(Q)>;

/// Arithmetic with variable operands modulo Q, on the host.
template <arith::word Q>
inline constexpr arith::barrett<modulus_of<Q>> variable_arithmetic{modulus_of<Q>{Q}};

/// Arithmetic with fixed operands modulo Q, on the host.
template <arith::word Q>
inline constexpr arith::shoup<modulus_of<Q>> fixed_arithmetic{modulus_of<Q>{Q}};

/// The NTT plan of degree 2^LogN modulo Q, built on first use and shared by everything in the process.
/// Thread-safe.  @throws std::bad_alloc on first use
template <int LogN, arith::word Q>
const ntt::plan<arith::shoup<modulus_of<Q>>>& shared_plan() {
    static const ntt::plan<arith::shoup<modulus_of<Q>>> plan(fixed_arithmetic<Q>, LogN);
    return plan;
}

/// The plan of the subring of degree 2^log_n, log_n <= LogN, modulo Q, with a power of the large ring's root,
/// so that values of a trace need no reordering. Built on first use; thread-safe.
template <int LogN, arith::word Q>
const ntt::plan<arith::shoup<modulus_of<Q>>>& shared_subring_plan(int log_n) {
    using plan = ntt::plan<arith::shoup<modulus_of<Q>>>;
    static std::array<built_once<plan>, static_cast<std::size_t>(LogN) + 1> plans;
    return plans[static_cast<std::size_t>(log_n)].get([log_n] {
        const arith::word psi = shared_plan<LogN, Q>().psi();
        return plan(fixed_arithmetic<Q>, log_n, arith::power_mod(psi, arith::word{1} << (LogN - log_n), Q));
    });
}

}  // namespace tensafe::rns
