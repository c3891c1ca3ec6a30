#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/ckks/parameters.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tensafe::wire {

/// Makes a 64-bit identifier of what two sides must agree on: FNV-1a over the numbers and texts that it is
/// given, in order. Two are the same by accident once in 2^64, and whoever looks for such two finds them: it
/// protects from mistakes, not from attackers.
class identifier {
  public:
    /// Adds a number: its bytes, the lowest first.
    template <std::unsigned_integral T>
    constexpr identifier& add(T number) noexcept {
        for (std::size_t k = 0; k < sizeof(T); ++k) {
            add_byte(static_cast<std::uint8_t>((std::uint64_t{number} >> (8 * k)) & 255));
        }
        return *this;
    }
    /// Adds a text: its bytes. Add its length first if another text follows.
    constexpr identifier& add(std::string_view text) noexcept {
        for (const char c : text) {
            add_byte(static_cast<std::uint8_t>(c));
        }
        return *this;
    }

    constexpr std::uint64_t value() const noexcept { return value_; }

  private:
    constexpr void add_byte(std::uint8_t byte) noexcept { value_ = (value_ ^ byte) * 0x0000'0100'0000'01B3U; }

    std::uint64_t value_ = 0xCBF2'9CE4'8422'2325U;
};

/// An identifier as text: "0x" and 16 lower-case hexadecimal digits, the highest first.
inline std::string identifier_text(std::uint64_t id) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text = "0x";
    for (int shift = 60; shift >= 0; shift -= 4) {
        text += digits[(id >> shift) & 15];
    }
    return text;
}

/// The identifier of a parameter set in messages, of log_n (4 bytes), the number of primes (4), each
/// prime (8), scale_bits (4), and where keys are switched primes_per_digit (4), the number of special primes
/// (4) and each of them (8). The security tag is not part of it.
template <ckks::parameter_set P>
inline constexpr std::uint64_t set_id = [] {
    identifier id;
    id.add(static_cast<std::uint32_t>(P::log_n));
    id.add(static_cast<std::uint32_t>(P::limbs));
    for (const arith::word q : P::basis::primes) {
        id.add(std::uint64_t{q});
    }
    id.add(static_cast<std::uint32_t>(P::scale_bits));
    if constexpr (P::switches_keys) {
        id.add(static_cast<std::uint32_t>(P::primes_per_digit));
        id.add(static_cast<std::uint32_t>(P::special_primes.size()));
        for (const arith::word p : P::special_primes) {
            id.add(std::uint64_t{p});
        }
    }
    return id.value();
}();

namespace detail {

struct named_set {
    std::uint64_t id;
    std::string_view name;
    std::string_view shape;
};

/// The sets that ckks/parameters.hpp names, as numbers: every program that reads a message would otherwise
/// look for the primes of all of them.
inline constexpr std::array<named_set, 13> named_sets{{
    {0x6D96'194A'39AD'A232U, "n16384_l4", "N = 16384, primes of 60, 40, 40 and 60 bits, scale 2^40"},
    {0xA605'84D9'E453'0F1CU, "n16384_l5", "N = 16384, primes of 60, 40, 40, 40 and 60 bits, scale 2^40"},
    {0x5FB2'CAE6'5677'D82EU, "n32768_l4", "N = 32768, primes of 60, 40, 40 and 60 bits, scale 2^40"},
    {0x1626'F838'5219'D88EU, "n32768_l5", "N = 32768, primes of 60, 40, 40, 40 and 60 bits, scale 2^40"},
    {0xFAA0'AAB3'3847'93ECU, "n8192_l4", "N = 8192, primes of 60, 40, 40 and 60 bits, scale 2^40"},
    {0x6853'E9E8'5AB7'0BF0U, "private_n4096", "N = 4096, primes of 45 and 44 bits, scale 2^40"},
    {0x407D'5152'E067'2B4DU, "quantum_n4096", "N = 4096, primes of 45 and 35 bits, scale 2^40"},
    {0x17A2'0302'8A3D'5FD1U, "compact_n4096", "N = 4096, primes of 35 and 35 bits, scale 2^30"},
    {0xEECA'A516'9EFC'5C14U, "minimal_n2048", "N = 2048, a prime of 41 bits, scale 2^20"},
    {0xD92E'5F1C'7602'AA4AU, "n4096_depth0", "N = 4096, a prime of 47 bits, scale 2^40"},
    {0x97D0'9F92'F222'474DU, "n8192_depth2", "N = 8192, primes of 47, 41 and 40 bits, scale 2^40"},
    {0x4032'1740'F57D'BB43U, "n16384_depth5",
     "N = 16384, primes of 50, 40, 41, 41, 40 and 41 bits, scale 2^40"},
    {0x329D'F23F'F073'11ADU, "n32768_depth10",
     "N = 32768, primes of 50, 45, 44, 45, 44, 45, 45, 44, 45, 45 and 45 bits, scale 2^44"},
}};

}  // namespace detail

/// The name of a set: "private_n4096 (N = 4096, primes of 45 and 44 bits, scale 2^40, id 0x...)" if the
/// library names it, "an unknown parameter set (id 0x...)" otherwise.
inline std::string set_name(std::uint64_t id) {
    for (const detail::named_set& set : detail::named_sets) {
        if (set.id == id) {
            return std::string(set.name) + " (" + std::string(set.shape) + ", id " + identifier_text(id) +
                   ')';
        }
    }
    return "an unknown parameter set (id " + identifier_text(id) + ')';
}

/// The name of the caller's set, "a parameter set without a name (N = 1024, ...)" if it is not a named one.
template <ckks::parameter_set P>
std::string set_name() {
    for (const detail::named_set& set : detail::named_sets) {
        if (set.id == set_id<P>) {
            return set_name(set_id<P>);
        }
    }
    std::string widths;
    for (std::size_t i = 0; i < P::basis::primes.size(); ++i) {
        const bool last = i + 1 == P::basis::primes.size();
        widths += i == 0 ? "" : last ? " and " : ", ";
        widths += std::to_string(std::bit_width(P::basis::primes[i]));
    }
    return "a parameter set without a name (N = " + std::to_string(P::degree) +
           (P::limbs == 1 ? ", a prime of " : ", primes of ") + widths + " bits, scale 2^" +
           std::to_string(P::scale_bits) + ", id " + identifier_text(set_id<P>) + ')';
}

}  // namespace tensafe::wire
