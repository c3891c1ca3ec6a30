#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tensafe::memory::detail {

/// Where the bits of one round of packed values lie, for vectors that move bytes: `Values` values, a multiple
/// of 8, so that rounds start at whole bytes. A round is made of pieces of `Piece` values, each moved within
/// one register (or one half of it) that holds the packed bytes from the piece's first one on, here called
/// its window. Depends on the width alone.
/// @pre  bits in [1, digits of T]; a piece and the bits before it in its first byte fit its window
template <class T, std::size_t Values, std::size_t Piece>
class bit_layout {
    static_assert(Values % 8 == 0 && Values % Piece == 0);

  public:
    static constexpr std::size_t register_bytes = Values * sizeof(T);
    static constexpr std::size_t window = Piece * sizeof(T);
    using bytes = std::array<std::uint8_t, register_bytes>;

    explicit constexpr bit_layout(int bits) noexcept : bits_(static_cast<std::size_t>(bits)) {}

    /// Packed bytes of a round.
    constexpr std::size_t round_bytes() const noexcept { return Values / 8 * bits_; }
    /// The packed byte that holds the first bit of value k.
    constexpr std::size_t first_byte(std::size_t k) const noexcept { return k * bits_ / 8; }
    /// The number of that bit in its byte.
    constexpr std::size_t shift(std::size_t k) const noexcept { return k * bits_ % 8; }

    /// For each byte of the unpacked values the byte of the window that is its source, before shifting:
    /// sizeof(T) bytes from first_byte(k) on. May point behind the window where no bit is needed.
    constexpr void fill_sources(bytes& from) const noexcept {
        for (std::size_t k = 0; k < Values; ++k) {
            const std::size_t first = first_byte(k) - first_byte(k / Piece * Piece);
            for (std::size_t m = 0; m < sizeof(T); ++m) {
                from[k * sizeof(T) + m] = static_cast<std::uint8_t>(first + m);
            }
        }
    }

    /// How the bytes of a window come from values that were rotated to the left by shift(k): `source` is a
    /// byte of the piece's rotated values, `mask` the bits of it that belong there. The first bits of a value
    /// that starts within a byte are in `starts`, all others in `rest`: with 8 bits or more, no byte of the
    /// window takes two of a kind.
    struct packing {
        alignas(64) bytes rest_source{};
        alignas(64) bytes rest_mask{};
        alignas(64) bytes starts_source{};
        alignas(64) bytes starts_mask{};
    };
    /// @pre  bits >= 8
    constexpr void fill_packing(packing& p) const noexcept {
        for (std::size_t k = 0; k < Values; ++k) {
            const std::size_t piece = k / Piece;
            const std::size_t begin = k * bits_;
            const std::size_t end = begin + bits_;
            const std::size_t first = begin / 8;
            // Where the byte with number `first` of the round stands in the tables.
            const std::size_t at = piece * window + first - first_byte(piece * Piece);
            const std::size_t lane = k % Piece * sizeof(T);
            for (std::size_t m = 0; 8 * (first + m) < end; ++m) {
                const unsigned below = m == 0 ? (1U << (begin % 8)) - 1 : 0U;
                const unsigned upto = (1U << std::min<std::size_t>(8, end - 8 * (first + m))) - 1;
                const auto source = static_cast<std::uint8_t>(lane + m % sizeof(T));
                const auto mask = static_cast<std::uint8_t>(upto & ~below);
                if (m == 0 && begin % 8 != 0) {
                    p.starts_source[at] = source;
                    p.starts_mask[at] = mask;
                } else {
                    p.rest_source[at + m] = source;
                    p.rest_mask[at + m] = mask;
                }
            }
        }
    }

  private:
    std::size_t bits_;
};

}  // namespace tensafe::memory::detail
