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

/// A modulus chain for `Depth` products of ciphertexts at the scale 2^ScaleBits: the largest NTT prime of
/// FirstBits bits, and `Depth` primes of which each is as near as there is one to what leaves the scale of
/// the next level at 2^ScaleBits. Some are one bit wider than the scale.
template <int FirstBits, int Depth, int ScaleBits>
struct scaled_limbs {};

/// Special primes by widths: for each, the largest NTT prime of that width that neither the chain nor the
/// list has yet.
template <int... Bits>
struct special_bits {};

/// Special primes as explicit ones.
template <arith::word... Primes>
struct special_primes {};

/// Says how a parameter set switches keys, which products of ciphertexts and rotations need: a ciphertext is
/// cut into digits of PrimesPerDigit limbs, and `Special` are the primes, special_bits<...> or
/// special_primes<...>, by which the noise of the switch is divided. Q times their product P is what security
/// depends on.
template <int PrimesPerDigit, class Special>
struct key_switching {
    static_assert(PrimesPerDigit >= 1 && PrimesPerDigit <= 16,
                  "ckks::key_switching: the number of primes in a digit must be in [1, 16]");
};

/// Says that a parameter set switches no keys.
struct no_key_switching {};

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

/// The NTT prime for degree 2^log_n nearest to `target` that is none of `used`; 0 if none is near.
template <std::size_t Size>
constexpr arith::word nearest_ntt_prime(double target, int log_n, const std::array<arith::word, Size>& used) {
    const arith::word step = arith::word{2} << log_n;
    const arith::word below = static_cast<arith::word>(target) / step * step + 1;
    for (arith::word k = 0; k < 4096; ++k) {
        // Two candidates at a time, of which the one on the side of the target is nearer.
        const bool above_first = target - static_cast<double>(below) > static_cast<double>(step) / 2;
        for (const bool above : {above_first, !above_first}) {
            const arith::word p = above ? below + (k + 1) * step : below > k * step ? below - k * step : 0;
            if (std::find(used.begin(), used.end(), p) == used.end() && arith::is_prime(p)) {
                return p;
            }
        }
    }
    return 0;
}

/// The scale after a product of two ciphertexts at `scale` and the rescale by q.
constexpr double scale_of_product(double scale, arith::word q) noexcept {
    return scale * scale / static_cast<double>(q);
}

/// The scale of a level where products of each level are rescaled to the next, from the highest on.
template <class Basis>
constexpr double scale_of_level(double scale, int level) noexcept {
    for (int above = Basis::limbs - 1; above > level; --above) {
        scale = scale_of_product(scale, Basis::primes[static_cast<std::size_t>(above)]);
    }
    return scale;
}

template <int LogN, int FirstBits, int Depth, int ScaleBits>
struct chain_traits<LogN, scaled_limbs<FirstBits, Depth, ScaleBits>> {
    static_assert(Depth >= 0 && Depth <= 63, "ckks::scaled_limbs: the depth must be in [0, 63]");
    static_assert(
        ScaleBits > LogN + 1 && ScaleBits < FirstBits && FirstBits <= arith::max_modulus_bits,
        "ckks::scaled_limbs: the scale must be wider than log_n + 1 bits and narrower than the first "
        "prime, of at most 61 bits");

    static constexpr std::size_t count = static_cast<std::size_t>(Depth) + 1;
    static constexpr std::array<arith::word, count> primes = [] {
        std::array<arith::word, count> result{ntt_prime<LogN, FirstBits, 0>};
        constexpr double aim = static_cast<double>(arith::word{1} << ScaleBits);
        double scale = aim;
        for (std::size_t level = count - 1; level > 0; --level) {
            result[level] = nearest_ntt_prime(scale * scale / aim, LogN, result);
            scale = scale_of_product(scale, result[level]);
        }
        return result;
    }();
    template <std::size_t... I>
    static auto find(std::index_sequence<I...>) -> rns::basis<LogN, primes[I]...>;
    using basis = decltype(find(std::make_index_sequence<count>{}));
    static constexpr int total_bits = rns::modulus_bits<basis>;
};

template <class Basis, class KeySwitching>
struct special_traits;
template <class Basis>
struct special_traits<Basis, no_key_switching> {
    static constexpr int total_bits = 0;
    static constexpr int primes_per_digit = 0;
    static constexpr std::array<arith::word, 0> primes{};
};
template <class Basis, int PrimesPerDigit, arith::word... Primes>
struct special_traits<Basis, key_switching<PrimesPerDigit, special_primes<Primes...>>> {
    static_assert(sizeof...(Primes) >= 1 && sizeof...(Primes) <= 31,
                  "ckks::key_switching: the number of special primes must be in [1, 31]");
    static constexpr int total_bits = (static_cast<int>(std::bit_width(Primes)) + ... + 0);
    template <std::size_t... I>
    static auto with_chain(std::index_sequence<I...>)
        -> rns::basis<Basis::log_n, Basis::primes[I]..., Primes...>;
    // All primes together are a chain: they are distinct, and each has a transform.
    static_assert(decltype(with_chain(std::make_index_sequence<Basis::primes.size()>{}))::limbs > 0);
    static constexpr int primes_per_digit = PrimesPerDigit;
    static constexpr std::array<arith::word, sizeof...(Primes)> primes{Primes...};

    /// The product of the first `count` special primes, over that of the widest digit of the first `limbs`
    /// limbs of the chain. Beyond 2^1000 either way it is that.
    static constexpr double room(int count, int limbs) noexcept {
        double least = 0x1p1000;
        for (int first = 0; first < limbs; first += PrimesPerDigit) {
            // Mantissas and exponents: products of primes are wider than a double.
            double ratio = 1;
            int exponent = 0;
            for (int k = 0; k < count; ++k) {
                const arith::word prime = primes[static_cast<std::size_t>(k)];
                const int bits = static_cast<int>(std::bit_width(prime));
                ratio *= static_cast<double>(prime) / static_cast<double>(arith::word{1} << bits);
                exponent += bits;
            }
            for (int i = first; i < std::min(first + PrimesPerDigit, limbs); ++i) {
                const arith::word prime = Basis::primes[static_cast<std::size_t>(i)];
                const int bits = static_cast<int>(std::bit_width(prime));
                ratio /= static_cast<double>(prime) / static_cast<double>(arith::word{1} << bits);
                exponent -= bits;
            }
            for (; exponent > 0 && ratio < 0x1p900; --exponent) {
                ratio *= 2;
            }
            for (; exponent < 0 && ratio > 0x1p-900; ++exponent) {
                ratio /= 2;
            }
            least = std::min(least, ratio);
        }
        return least;
    }
    /// The special primes that `limbs` limbs need: so many that their product is three bits wider than the
    /// widest digit, or all.
    static constexpr int count_for(int limbs) noexcept {
        int count = 1;
        while (count < static_cast<int>(primes.size()) && room(count, limbs) < 7.9) {
            ++count;
        }
        return count;
    }
    // Neighbouring primes of one width are as good as equal.
    static_assert(room(static_cast<int>(sizeof...(Primes)), Basis::limbs) >= 0.99,
                  "ckks::key_switching: the special primes are narrower than the widest digit; take more or "
                  "wider ones, or fewer primes in a digit");
};
template <class Basis, int PrimesPerDigit, int... Bits>
struct special_traits<Basis, key_switching<PrimesPerDigit, special_bits<Bits...>>> {
    static_assert(
        ((Bits > Basis::log_n + 1 && Bits <= arith::max_modulus_bits) && ...),
        "ckks::key_switching: each special prime must be wider than log_n + 1 bits and at most 61 bits");

    static constexpr std::array<arith::word, sizeof...(Bits)> found = [] {
        std::array<arith::word, sizeof...(Bits)> result{};
        constexpr std::array<int, sizeof...(Bits)> widths{Bits...};
        for (std::size_t k = 0; k < widths.size(); ++k) {
            const auto taken = [&](arith::word p) {
                return std::find(Basis::primes.begin(), Basis::primes.end(), p) != Basis::primes.end() ||
                       std::find(result.begin(), result.begin() + k, p) != result.begin() + k;
            };
            arith::word p = arith::ntt_prime_below(arith::word{1} << widths[k], Basis::log_n);
            while (p != 0 && taken(p)) {
                p = arith::ntt_prime_below(p, Basis::log_n);
            }
            result[k] = p;
        }
        return result;
    }();
    template <std::size_t... I>
    static constexpr bool widths_exist(std::index_sequence<I...>) noexcept {
        return ((static_cast<int>(std::bit_width(found[I])) == Bits) && ...);
    }
    static_assert(widths_exist(std::make_index_sequence<sizeof...(Bits)>{}),
                  "ckks::key_switching: there are fewer NTT primes of this width; use wider special primes");

    template <std::size_t... I>
    static auto find(std::index_sequence<I...>)
        -> special_traits<Basis, key_switching<PrimesPerDigit, special_primes<found[I]...>>>;
};
template <class Basis, class KeySwitching>
struct special_of {
    using type = special_traits<Basis, KeySwitching>;
};
template <class Basis, int PrimesPerDigit, int... Bits>
struct special_of<Basis, key_switching<PrimesPerDigit, special_bits<Bits...>>> {
    using type = decltype(special_traits<Basis, key_switching<PrimesPerDigit, special_bits<Bits...>>>::find(
        std::make_index_sequence<sizeof...(Bits)>{}));
};

}  // namespace detail

/// A CKKS parameter set as a type. Everything else in this namespace takes it as its first template argument.
///
/// @tparam LogN       the ring is Z[X] / (X^N + 1) with N = 2^LogN; there are N/2 slots
/// @tparam Chain      limb_bits<...>, limb_primes<...> or scaled_limbs<...>
/// @tparam ScaleBits  messages are encoded at the scale Delta = 2^ScaleBits
/// @tparam Security   secure_128 or quantum_128; insecure_for_tests switches the security check off
/// @tparam KeySwitching  key_switching<...>, for sets with products of ciphertexts and rotations
template <int LogN, class Chain, int ScaleBits, class Security = secure_128,
          class KeySwitching = no_key_switching>
struct parameters {
  private:
    using special =
        typename detail::special_of<typename detail::chain_traits<LogN, Chain>::basis, KeySwitching>::type;
    /// Of Q, and of the special primes with it.
    static constexpr int all_bits = detail::chain_traits<LogN, Chain>::total_bits + special::total_bits;

  public:
    static_assert(LogN >= 10 && LogN <= 17, "ckks::parameters: log_n must be in [10, 17]");
    static_assert(ScaleBits >= 1 && ScaleBits <= 62, "ckks::parameters: scale_bits must be in [1, 62]");
    static_assert(std::is_same_v<Security, secure_128> || std::is_same_v<Security, quantum_128> ||
                      std::is_same_v<Security, insecure_for_tests>,
                  "ckks::parameters: the security tag must be secure_128, quantum_128 or insecure_for_tests");
    static_assert(std::is_same_v<Security, insecure_for_tests> || all_bits <= max_modulus_bits_128(LogN),
                  "ckks::parameters: the modulus is too wide for 128-bit security at this degree; "
                  "use fewer or narrower limbs (special primes count as well), or a larger log_n");
    static_assert(!std::is_same_v<Security, quantum_128> || max_modulus_bits_quantum_128(LogN) > 0,
                  "ckks::parameters: quantum_128 has figures for log_n of 10 to 15 only; use one of these, "
                  "or secure_128");
    static_assert(!std::is_same_v<Security, quantum_128> || max_modulus_bits_quantum_128(LogN) == 0 ||
                      all_bits <= max_modulus_bits_quantum_128(LogN),
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

    /// The prime that a rescale at `Level` divides by.
    template <int Level>
    requires(Level >= 1 && Level <= max_level) static constexpr double rescale_factor =
        static_cast<double>(basis::template prime<Level>);

    /// Whether products of ciphertexts and rotations are possible.
    static constexpr bool switches_keys = special::primes.size() > 0;
    static constexpr int primes_per_digit = special::primes_per_digit;
    /// The primes by which the noise of a key switch is divided.
    static constexpr auto special_primes = special::primes;
    /// The special primes, the first ones, of a key for ciphertexts of up to this level.
    template <int Level>
    requires(switches_keys) static constexpr int special_limbs = special::count_for(Level + 1);

    /// The scale of ciphertexts of a level. Where keys are switched, two at the scale of their level have a
    /// product that is rescaled to the scale of the next one: scale^2 over the prime that is dropped.
    template <int Level>
    requires(Level >= 0 && Level <= max_level) static constexpr double scale_at =
        switches_keys ? detail::scale_of_level<basis>(scale, Level) : scale;
    static_assert(!switches_keys || std::is_same_v<Security, insecure_for_tests> ||
                      (detail::scale_of_level<basis>(scale, 0) <= 2 * scale &&
                       detail::scale_of_level<basis>(scale, 0) >= scale / 2),
                  "ckks::parameters: with these primes products do not keep the scale; take "
                  "scaled_limbs<first_bits, depth, scale_bits> with the scale of the set");
    /// The scale at which to encode a plaintext factor so that the product, rescaled, is at the scale of the
    /// next level where the ciphertext was at that of its own.
    template <int Level>
    requires(Level >= 1 && Level <= max_level) static constexpr double factor_scale =
        switches_keys ? rescale_factor<Level> * (scale_at<Level - 1> / scale_at<Level>)
                      : rescale_factor<Level>;
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

// Sets with products of ciphertexts and rotations: values stay below q_0 / 2^(scale bits + 1).
/// The set without a product: sums and rotations.
using n4096_depth0 =
    parameters<12, scaled_limbs<47, 0, 40>, 40, secure_128, key_switching<1, special_bits<50>>>;
/// The set of two products one after the other.
using n8192_depth2 =
    parameters<13, scaled_limbs<47, 2, 40>, 40, secure_128, key_switching<1, special_bits<50>>>;
/// The set of five products one after the other.
using n16384_depth5 =
    parameters<14, scaled_limbs<50, 5, 40>, 40, secure_128, key_switching<3, special_bits<48, 48, 48>>>;
/// The set of ten products one after the other.
using n32768_depth10 = parameters<15, scaled_limbs<50, 10, 44>, 44, secure_128,
                                  key_switching<6, special_bits<48, 48, 48, 48, 48, 48>>>;

}  // namespace tensafe::ckks
