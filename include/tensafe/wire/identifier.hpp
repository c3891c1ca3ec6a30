#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace tensafe::wire {

/// Makes a 64-bit identifier of what two sides must agree on: FNV-1a over the numbers and texts that it is
/// given, in order. Two different ones have the same identifier by accident once in 2^64; whoever looks for
/// two can find them, so it protects from mistakes and not from attackers.
///
/// A value type, for constant expressions too.
class identifier {
  public:
    /// A number: its bytes, the lowest first.
    template <std::unsigned_integral T>
    constexpr identifier& add(T number) noexcept {
        for (std::size_t k = 0; k < sizeof(T); ++k) {
            add_byte(static_cast<std::uint8_t>((std::uint64_t{number} >> (8 * k)) & 255));
        }
        return *this;
    }
    /// A text: its bytes. Add its length first if another text follows.
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

/// "0x" and 16 lower-case hexadecimal digits, the highest first.
inline std::string identifier_text(std::uint64_t id) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text = "0x";
    for (int shift = 60; shift >= 0; shift -= 4) {
        text += digits[(id >> shift) & 15];
    }
    return text;
}

}  // namespace tensafe::wire
