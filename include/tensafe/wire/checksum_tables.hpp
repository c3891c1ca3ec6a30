#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensafe::wire::detail {

/// The polynomial of CRC-32C, x^32 + 0x1EDC6F41, with the bits of its 32 lower coefficients in reversed
/// order: bit 31 - i is the coefficient of x^i, as everywhere below.
inline constexpr std::uint32_t crc32c_polynomial = 0x82F63B78;

using checksum_row = std::array<std::uint32_t, 256>;

/// The remainder times x^8, with a byte that goes through from the low end.
constexpr std::uint32_t checksum_step(std::uint32_t remainder) noexcept {
    for (int bit = 0; bit < 8; ++bit) {
        remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? crc32c_polynomial : 0);
    }
    return remainder;
}

/// Row k, entry b: what byte b adds to the remainder when k more bytes follow it.
constexpr std::array<checksum_row, 8> checksum_rows() noexcept {
    std::array<checksum_row, 8> rows{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        rows[0][byte] = checksum_step(byte);
    }
    for (std::size_t k = 1; k < 8; ++k) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = rows[k - 1][byte];
            rows[k][byte] = (before >> 8) ^ rows[0][before & 255];
        }
    }
    return rows;
}

inline constexpr std::array<checksum_row, 8> checksum_table = checksum_rows();

/// The product of two polynomials modulo that of CRC-32C.
constexpr std::uint32_t checksum_product(std::uint32_t a, std::uint32_t b) noexcept {
    std::uint32_t product = 0;
    for (std::uint32_t bit = std::uint32_t{1} << 31; bit != 0; bit >>= 1) {
        product ^= (a & bit) != 0 ? b : 0;
        b = (b >> 1) ^ ((b & 1) != 0 ? crc32c_polynomial : 0);
    }
    return product;
}

/// x^(8 * bytes) modulo the polynomial: what a remainder is multiplied by when so many zero bytes follow.
constexpr std::uint32_t checksum_shift(std::size_t bytes) noexcept {
    std::uint32_t power = std::uint32_t{1} << 31;   // 1
    std::uint32_t square = std::uint32_t{1} << 23;  // x^8
    for (; bytes != 0; bytes >>= 1) {
        power = (bytes & 1) != 0 ? checksum_product(power, square) : power;
        square = checksum_product(square, square);
    }
    return power;
}

/// Row k, entry b: the product of byte k of a remainder and x^(8 * Bytes).
template <std::size_t Bytes>
inline constexpr std::array<checksum_row, 4> checksum_shift_table = [] {
    constexpr std::uint32_t power = checksum_shift(Bytes);
    std::array<checksum_row, 4> rows{};
    for (std::size_t k = 0; k < 4; ++k) {
        for (std::uint32_t bit = 0; bit < 8; ++bit) {
            // A row is linear: the entries up to 2 * 2^bit are those below 2^bit, plus that of 2^bit.
            const std::uint32_t added = checksum_product(std::uint32_t{1} << (8 * k + bit), power);
            for (std::size_t below = 0; below < std::size_t{1} << bit; ++below) {
                rows[k][(std::size_t{1} << bit) + below] = rows[k][below] ^ added;
            }
        }
    }
    return rows;
}();

}  // namespace tensafe::wire::detail
