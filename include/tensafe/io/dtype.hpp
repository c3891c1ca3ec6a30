#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace tensafe::io {

/// The element types of the safetensors format whose elements fill whole bytes. Values are read and written
/// for the first four; the others are listed only.
enum class dtype { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean, f8_e4m3, f8_e5m2 };

namespace detail {

struct dtype_row {
    std::string_view name;  ///< as the file spells it
    std::size_t bytes;      ///< of one element
};

/// Indexed by dtype.
inline constexpr std::array<dtype_row, 15> dtype_table{{{"F64", 8},
                                                        {"F32", 4},
                                                        {"F16", 2},
                                                        {"BF16", 2},
                                                        {"I64", 8},
                                                        {"I32", 4},
                                                        {"I16", 2},
                                                        {"I8", 1},
                                                        {"U64", 8},
                                                        {"U32", 4},
                                                        {"U16", 2},
                                                        {"U8", 1},
                                                        {"BOOL", 1},
                                                        {"F8_E4M3", 1},
                                                        {"F8_E5M2", 1}}};
static_assert(dtype_table[static_cast<std::size_t>(dtype::f8_e5m2)].name == "F8_E5M2",
              "dtype_table: rows must stand in the order of the enumerators");

}  // namespace detail

/// The type's name as safetensors files spell it.
constexpr std::string_view dtype_name(dtype type) noexcept {
    return detail::dtype_table[static_cast<std::size_t>(type)].name;
}

/// Bytes of one element.
constexpr std::size_t dtype_bytes(dtype type) noexcept {
    return detail::dtype_table[static_cast<std::size_t>(type)].bytes;
}

}  // namespace tensafe::io
