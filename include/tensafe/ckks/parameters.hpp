#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/rns/basis.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace tensafe::ckks {

/// The widest modulus, in bits of Q, that keeps 128-bit classical security at degree 2^log_n for uniform
/// ternary secrets and errors of standard deviation 3.2; 0 if the degree is not tabulated.
///
/// Bossuat et al., "Security Guidelines for Implementing Homomorphic Encryption" (2024), ternary secrets.
constexpr int max_modulus_bits_128(int log_n) noexcept {
    constexpr std::array<int, 8> bits{26, 53, 106, 214, 430, 868, 1747, 3523};  // log_n = 10 .. 17
    return log_n < 10 || log_n > 17 ? 0 : bits[static_cast<std::size_t>(log_n - 10)];
}
/// The widest modulus, in bits of Q, that keeps 128 bits against quantum computers at degree 2^log_n, from
/// the quantum column of the same guidelines, which ends at log_n 15; 0 if the degree is not tabulated.
constexpr int max_modulus_bits_quantum_128(int log_n) noexcept {
    constexpr std::array<int, 6> bits{20, 40, 80, 161, 322, 644};
    return log_n < 10 || log_n > 15 ? 0 : bits[static_cast<std::size_t>(log_n - 10)];
}

/// A parameter set of at least 128-bit classical security: the default, checked when the set is compiled.
struct secure_128 {};
/// A parameter set of at least 128 bits against quantum computers too, checked when the set is compiled.
struct quantum_128 {};
/// A parameter set without security checks, for tests with small rings only: it protects nothing.
struct insecure_for_tests {};

/// A modulus chain by widths: for each, the largest NTT prime of that width that the chain does not have yet,
/// so that primes of equal width stand largest first. The last limb is dropped first.
template <int... Bits>
struct limb_bits {};

/// A modulus chain by explicit primes.
template <arith::word... Primes>
struct limb_primes {};

namespace detail {

/// The Index-th largest NTT prime below 2^Bits for degree 2^LogN.
template <int LogN, int Bits, int Index>
inline constexpr arith::word ntt_prime = arith::ntt_prime_below(ntt_prime<LogN, Bits, Index - 1>, LogN);
template <int LogN, int Bits>
inline constexpr arith::word ntt_prime<LogN, Bits, 0> = arith::ntt_prime_below(arith::word{1} << Bits, LogN);

/// The number of limbs before limb I that have its width.
template <int... Bits>
constexpr int repetitions_before(std::size_t index) noexcept {
    constexpr std::array<int, sizeof...(Bits)> widths{Bits...};
    int count = 0;
    for (std::size_t i = 0; i < index; ++i) {
        count += widths[i] == widths[index] ? 1 : 0;
    }
    return count;
}

/// Whether there are as many NTT primes of each width as the chain asks for.
template <int LogN, int... Bits, std::size_t... I>
constexpr bool widths_exist(std::index_sequence<I...>) noexcept {
    return ((std::bit_width(ntt_prime<LogN, Bits, repetitions_before<Bits...>(I)>) == Bits) && ...);
}

template <int LogN, class Chain>
struct chain_traits;

template <int LogN, arith::word... Primes>
struct chain_traits<LogN, limb_primes<Primes...>> {
    using basis = rns::basis<LogN, Primes...>;
    static constexpr int total_bits = (static_cast<int>(std::bit_width(Primes)) + ...);
};

template <int LogN, int... Bits>
struct chain_traits<LogN, limb_bits<Bits...>> {
    static_assert(((Bits > LogN + 1 && Bits <= arith::max_modulus_bits) && ...),
                  "ckks::parameters: each limb must be wider than log_n + 1 bits and at most 61 bits");

    static_assert(widths_exist<LogN, Bits...>(std::make_index_sequence<sizeof...(Bits)>{}),
                  "ckks::parameters: there are fewer NTT primes of this width; use wider limbs");

    template <std::size_t... I>
    static auto find(std::index_sequence<I...>)
        -> rns::basis<LogN, ntt_prime<LogN, Bits, repetitions_before<Bits...>(I)>...>;
    using basis = decltype(find(std::make_index_sequence<sizeof...(Bits)>{}));
    static constexpr int total_bits = (Bits + ...);
};

}  // namespace detail

/// A CKKS parameter set as a type. Everything else in this namespace takes it as its first template argument.
///
/// @tparam LogN       the ring is Z[X] / (X^N + 1) with N = 2^LogN; there are N/2 slots
/// @tparam Chain      limb_bits<...> or limb_primes<...>
/// @tparam ScaleBits  messages are encoded at the scale Delta = 2^ScaleBits
/// @tparam Security   secure_128 or quantum_128; insecure_for_tests switches the security check off
template <int LogN, class Chain, int ScaleBits, class Security = secure_128>
struct parameters {
    static_assert(LogN >= 10 && LogN <= 17, "ckks::parameters: log_n must be in [10, 17]");
    static_assert(ScaleBits >= 1 && ScaleBits <= 62, "ckks::parameters: scale_bits must be in [1, 62]");
    static_assert(std::is_same_v<Security, secure_128> || std::is_same_v<Security, quantum_128> ||
                      std::is_same_v<Security, insecure_for_tests>,
                  "ckks::parameters: the security tag must be secure_128, quantum_128 or insecure_for_tests");
    static_assert(std::is_same_v<Security, insecure_for_tests> ||
                      detail::chain_traits<LogN, Chain>::total_bits <= max_modulus_bits_128(LogN),
                  "ckks::parameters: the modulus is too wide for 128-bit security at this degree; "
                  "use fewer or narrower limbs, or a larger log_n");
    static_assert(!std::is_same_v<Security, quantum_128> || max_modulus_bits_quantum_128(LogN) > 0,
                  "ckks::parameters: quantum_128 has figures for log_n of 10 to 15 only; use one of these, "
                  "or secure_128");
    static_assert(!std::is_same_v<Security, quantum_128> || max_modulus_bits_quantum_128(LogN) == 0 ||
                      detail::chain_traits<LogN, Chain>::total_bits <= max_modulus_bits_quantum_128(LogN),
                  "ckks::parameters: the modulus is too wide for quantum_128 at this degree; "
                  "use fewer or narrower limbs, or a larger log_n");

    using basis = typename detail::chain_traits<LogN, Chain>::basis;
    using security = Security;

    static constexpr int log_n = LogN;
    static constexpr std::size_t degree = basis::degree;
    static constexpr std::size_t slots = degree / 2;
    static constexpr int limbs = basis::limbs;
    /// The number of rescales that a fresh ciphertext can go through.
    static constexpr int max_level = limbs - 1;
    static constexpr int scale_bits = ScaleBits;
    static constexpr double scale = static_cast<double>(arith::word{1} << ScaleBits);
    static_assert(ScaleBits < detail::chain_traits<LogN, Chain>::total_bits,
                  "ckks::parameters: the scale must be smaller than the modulus");

    /// The chain of a ciphertext with `Level` rescales left.
    template <int Level>
    using basis_at = rns::prefix<basis, Level + 1>;

    /// The prime that a rescale at `Level` divides by: the scale at which to encode a plaintext factor so
    /// that the rescaled product keeps the ciphertext's scale exactly.
    template <int Level>
    requires(Level >= 1 && Level <= max_level) static constexpr double rescale_factor =
        static_cast<double>(basis::template prime<Level>);
};

/// Any instance of `parameters`.
template <class P>
concept parameter_set = requires {
    typename P::basis;
    { P::max_level } -> std::convertible_to<int>;
    { P::scale } -> std::convertible_to<double>;
};

// The named sets: degree, limbs; every scale is 2^40.
using n16384_l4 = parameters<14, limb_bits<60, 40, 40, 60>, 40>;
using n16384_l5 = parameters<14, limb_bits<60, 40, 40, 40, 60>, 40>;
using n32768_l4 = parameters<15, limb_bits<60, 40, 40, 60>, 40>;
using n32768_l5 = parameters<15, limb_bits<60, 40, 40, 40, 60>, 40>;
using n8192_l4 = parameters<13, limb_bits<60, 40, 40, 60>, 40>;

// Short chains for encrypted LoRA with protected replies, one product deep. There the client picks a scale
// for each message, and the scale of the set is not used.
/// The set with Q of 89 bits: room for a flood that hides the noise of a million replies.
using private_n4096 = parameters<12, limb_bits<45, 44>, 40>;
/// The set with Q of 80 bits, which keeps the quantum limit too: the flood is nine bits narrower.
using quantum_n4096 = parameters<12, limb_bits<45, 35>, 40, quantum_128>;
/// The set with Q of 70 bits: room to hide a million replies of average-case ranges, in smaller messages.
using compact_n4096 = parameters<12, limb_bits<35, 35>, 30>;
/// The set with one prime of 41 bits: the smallest messages, with a flood of a few bits.
using minimal_n2048 = parameters<11, limb_bits<41>, 20>;

}  // namespace tensafe::ckks
