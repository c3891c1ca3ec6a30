#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/portable.hpp>
#include <tensafe/core/text.hpp>

#if TENSAFE_COMPILED_BODIES
#include <tensafe/io/json.hpp>
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tensafe::io {

/// The element types of the safetensors format, which its names spell out. Values of the first six are read,
/// of the first four written; the others are listed only.
enum class dtype {
    f64,
    f32,
    f16,
    bf16,
    f8_e4m3,
    f8_e5m2,
    i64,
    i32,
    i16,
    i8,
    u64,
    u32,
    u16,
    u8,
    boolean,
    c64,
    f8_e8m0,
    f8_e4m3fnuz,
    f8_e5m2fnuz,
    f6_e2m3,
    f6_e3m2,
    f4
};

namespace detail {

struct dtype_row {
    std::string_view name;  ///< as the file spells it
    std::size_t bits;       ///< the bits of one element
};

/// The name and size of each type, indexed by dtype.
inline constexpr std::array<dtype_row, 22> dtype_table{
    {{"F64", 64},        {"F32", 32},    {"F16", 16},    {"BF16", 16}, {"F8_E4M3", 8}, {"F8_E5M2", 8},
     {"I64", 64},        {"I32", 32},    {"I16", 16},    {"I8", 8},    {"U64", 64},    {"U32", 32},
     {"U16", 16},        {"U8", 8},      {"BOOL", 8},    {"C64", 64},  {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}}};
static_assert(dtype_table[static_cast<std::size_t>(dtype::f4)].name == "F4",
              "dtype_table: rows must stand in the order of the enumerators");

}  // namespace detail

/// The type's name as safetensors files spell it.
constexpr std::string_view dtype_name(dtype type) noexcept {
    return detail::dtype_table[static_cast<std::size_t>(type)].name;
}

/// The bits of one element: of most types a multiple of eight, of the smallest 4 or 6.
constexpr std::size_t dtype_bits(dtype type) noexcept {
    return detail::dtype_table[static_cast<std::size_t>(type)].bits;
}

/// One row of a safetensors header. A plain value.
struct tensor_info {
    std::string name;
    dtype type = dtype::f32;
    std::vector<std::size_t> shape;  ///< outermost dimension first, row-major; empty for a single number
    std::size_t begin = 0;           ///< first byte, counted from the start of the data section
    std::size_t end = 0;             ///< one past the last byte

    /// The number of elements, the product of the shape.
    std::size_t size() const noexcept {
        const std::size_t bits = dtype_bits(type);
        return bits < 8 ? (end - begin) / bits * 8 + (end - begin) % bits * 8 / bits
                        : (end - begin) / (bits / 8);
    }
};

namespace detail {

/// The longest JSON header that is read or written, in bytes, as in the format's reference implementation.
inline constexpr std::size_t max_header_bytes = 100'000'000;

/// The most dimensions: bounds what a shape full of ones can make the reader allocate, as in numpy.
inline constexpr std::size_t max_dimensions = 64;

/// The product a * b, or nothing if it does not fit.
constexpr std::optional<std::size_t> checked_product(std::size_t a, std::size_t b) noexcept {
    if (b != 0 && a > std::numeric_limits<std::size_t>::max() / b) {
        return std::nullopt;
    }
    return a * b;
}

/// The bytes of a tensor, or nothing if the number does not fit or is not whole.
constexpr std::optional<std::size_t> tensor_bytes(dtype type,
                                                  const std::vector<std::size_t>& shape) noexcept {
    const std::size_t bits = dtype_bits(type);
    std::optional<std::size_t> result = bits < 8 ? bits : bits / 8;
    for (std::size_t i = 0; i < shape.size() && result; ++i) {
        result = checked_product(*result, shape[i]);
    }
    if (bits < 8 && result) {
        return *result % 8 == 0 ? std::optional(*result / 8) : std::nullopt;
    }
    return result;
}

struct safetensors_header {
    std::vector<tensor_info> tensors;  ///< tensors in the order of their bytes
    std::vector<std::size_t> by_name;  ///< indices into `tensors`, sorted by name
    std::map<std::string, std::string> metadata;
};

/// Other files that people find under the name of a safetensors file, by how they begin, and what to do.
struct foreign_file {
    std::string_view begins;
    std::string_view is;
};
inline constexpr std::array<foreign_file, 9> foreign_files{
    {{"version ", "a pointer of Git LFS, not the file: run git lfs pull"},
     {"GGUF", "a GGUF file, which is not read: save the adapter as safetensors with PEFT"},
     {"PK\x03\x04",
      "a zip archive, as torch.save writes it, whose pickle is not read: save it as safetensors"},
     {"\x80\x02", "a pickle, which is not read: save it as safetensors"},
     {"\x80\x03", "a pickle, which is not read: save it as safetensors"},
     {"\x80\x04", "a pickle, which is not read: save it as safetensors"},
     {"\x80\x05", "a pickle, which is not read: save it as safetensors"},
     {"<!", "a web page: download the file itself"},
     {"<html", "a web page: download the file itself"}}};

/// Checks the first eight bytes, a length, against what follows them, and returns the header's length.
inline std::size_t checked_header_length(const std::array<std::byte, 8>& prefix, std::size_t remaining,
                                         std::string_view file) {
    const auto length = bit_cast<std::uint64_t>(prefix);
    if (length > max_header_bytes) {
        const std::string_view text(reinterpret_cast<const char*>(prefix.data()), prefix.size());
        for (const foreign_file& each : foreign_files) {
            if (text.starts_with(each.begins)) {
                throw format_error(std::string(file) + ": is " + std::string(each.is));
            }
        }
        throw format_error(std::string(file) + ": header length: got " + std::to_string(length) +
                           ", expected at most " + std::to_string(max_header_bytes) +
                           "; is this a safetensors file?");
    }
    if (length > remaining) {
        throw format_error(std::string(file) + ": header length: got " + std::to_string(length) +
                           ", but only " + std::to_string(remaining) + " bytes follow");
    }
    return static_cast<std::size_t>(length);
}

/// Parses and checks a whole header.
/// @param file how messages call the file, already quoted
/// @throws format_error if anything about it is not what the format asks for
TENSAFE_COMPILED_API safetensors_header parse_safetensors_header(std::string_view text,
                                                                 std::size_t data_bytes,
                                                                 std::string_view file);

#if TENSAFE_COMPILED_BODIES
/// Turns the JSON events of a header into tensor rows. The grammar is fixed, so no document tree is built:
/// memory stays within a small multiple of the header's length and the nesting depth within three, whatever
/// the file says.
class safetensors_header_parser final : public json_events {
  public:
    safetensors_header_parser(safetensors_header& header, std::string_view file)
        : header_(header), file_(file) {}

    bool null() override {
        if (place_ == place::header && tensor_.name == metadata_name) {
            return true;  // no metadata
        }
        wrong_value("null");
    }
    bool boolean(bool value) override { wrong_value(value ? "true" : "false"); }
    bool number_integer(number_integer_t value) override { wrong_value(std::to_string(value)); }
    bool number_float(number_float_t, const string_t& digits) override {
        wrong_value("the number " + quote(digits));
    }
    bool binary(binary_t&) override { wrong_value("binary data"); }

    bool number_unsigned(number_unsigned_t number) override {
        if (!std::in_range<std::size_t>(number)) {
            reject("got " + std::to_string(number) + ", more than the addresses of this machine");
        }
        const auto value = static_cast<std::size_t>(number);
        if (place_ == place::shape) {
            if (tensor_.shape.size() == max_dimensions) {
                reject("shape: got more dimensions, expected at most " + std::to_string(max_dimensions));
            }
            tensor_.shape.push_back(value);
        } else if (place_ == place::offsets && offsets_seen_ < 2) {
            (offsets_seen_ == 0 ? tensor_.begin : tensor_.end) = value;
            ++offsets_seen_;
        } else {
            wrong_value(std::to_string(value));
        }
        return true;
    }

    bool string(string_t& value) override {
        if (place_ == place::tensor && field_ == field::type) {
            const auto row =
                std::find_if(dtype_table.begin(), dtype_table.end(),
                             [&](const dtype_row& candidate) { return candidate.name == value; });
            if (row == dtype_table.end()) {
                reject("dtype: got " + quote(value) +
                       ", expected a type of the safetensors format such as \"F32\"");
            }
            tensor_.type = static_cast<dtype>(row - dtype_table.begin());
        } else if (place_ == place::metadata) {
            if (!header_.metadata.emplace(metadata_key_, std::move(value)).second) {
                reject("duplicate key " + quote(metadata_key_));
            }
        } else {
            wrong_value("the string " + quote(value));
        }
        return true;
    }

    bool start_object(std::size_t) override {
        if (place_ == place::outside) {
            place_ = place::header;
        } else if (place_ == place::header) {
            place_ = tensor_.name == metadata_name ? place::metadata : place::tensor;
        } else {
            wrong_value("an object");
        }
        return true;
    }

    bool key(string_t& name) override {
        if (place_ == place::header) {
            tensor_ = tensor_info{};
            tensor_.name = std::move(name);
            type_seen_ = shape_seen_ = false;
            offsets_seen_ = -1;
            if (tensor_.name == metadata_name && std::exchange(metadata_seen_, true)) {
                throw format_error(std::string(file_) + ": header: duplicate key \"__metadata__\"");
            }
        } else if (place_ == place::metadata) {
            metadata_key_ = std::move(name);
        } else if (name == "dtype") {
            choose(field::type, name, std::exchange(type_seen_, true));
        } else if (name == "shape") {
            choose(field::shape, name, std::exchange(shape_seen_, true));
        } else if (name == "data_offsets") {
            choose(field::offsets, name, std::exchange(offsets_seen_, 0) >= 0);
        } else {
            reject("unknown key " + quote(name) + ", expected dtype, shape and data_offsets");
        }
        return true;
    }

    bool end_object() override {
        if (place_ == place::tensor) {
            finish_tensor();
        }
        place_ = place::header;
        return true;
    }

    bool start_array(std::size_t) override {
        if (place_ != place::tensor || field_ == field::type) {
            wrong_value("an array");
        }
        place_ = field_ == field::shape ? place::shape : place::offsets;
        return true;
    }

    bool end_array() override {
        if (place_ == place::offsets && offsets_seen_ != 2) {
            reject("data_offsets: got " + std::to_string(offsets_seen_) + " numbers, expected two");
        }
        place_ = place::tensor;
        return true;
    }

    bool parse_error(std::size_t position, const std::string& last_token,
                     const nlohmann::detail::exception&) override {
        throw format_error(std::string(file_) + ": header: not valid JSON at byte " +
                           std::to_string(position) + ", near " + quote(last_token));
    }

  private:
    enum class place { outside, header, metadata, tensor, shape, offsets };
    enum class field { type, shape, offsets };
    static constexpr std::string_view metadata_name = "__metadata__";

    [[noreturn]] void reject(const std::string& problem) const {
        const std::string where =
            place_ == place::metadata ? "__metadata__" : "tensor " + quote(tensor_.name);
        throw format_error(std::string(file_) + ": " + where + ": " + problem);
    }

    [[noreturn]] void wrong_value(const std::string& got) const {
        switch (place_) {
            case place::outside:
                throw format_error(std::string(file_) + ": header: got " + got + ", expected an object");
            case place::header:
                reject("got " + got + ", expected an object");
            case place::metadata:
                reject(quote(metadata_key_) + ": got " + got + ", expected a string");
            case place::shape:
                reject("shape: got " + got + ", expected non-negative integers");
            case place::offsets:
                reject("data_offsets: got " + got + ", expected two non-negative integers");
            case place::tensor:
                break;
        }
        switch (field_) {
            case field::type:
                reject("dtype: got " + got + ", expected a string");
            case field::shape:
                reject("shape: got " + got + ", expected an array of non-negative integers");
            case field::offsets:
                break;
        }
        reject("data_offsets: got " + got + ", expected an array of two non-negative integers");
    }

    void choose(field chosen, const std::string& name, bool seen) {
        if (seen) {
            reject("duplicate key " + quote(name));
        }
        field_ = chosen;
    }

    void finish_tensor() {
        if (!type_seen_ || !shape_seen_ || offsets_seen_ < 0) {
            reject("missing key " + quote(!type_seen_ ? "dtype" : !shape_seen_ ? "shape" : "data_offsets"));
        }
        if (tensor_.begin > tensor_.end) {
            reject("data_offsets: begin " + std::to_string(tensor_.begin) + " is after end " +
                   std::to_string(tensor_.end));
        }
        const std::optional<std::size_t> wanted = tensor_bytes(tensor_.type, tensor_.shape);
        if (!wanted) {
            reject("shape " + shape_text(tensor_.shape) + ": the number of bytes does not fit " +
                   std::to_string(std::numeric_limits<std::size_t>::digits) + " bits, or is not whole");
        }
        if (tensor_.end - tensor_.begin != *wanted) {
            reject("data_offsets: got " + std::to_string(tensor_.end - tensor_.begin) + " bytes, expected " +
                   std::to_string(*wanted) + " for shape " + shape_text(tensor_.shape) + " of " +
                   std::string(dtype_name(tensor_.type)));
        }
        header_.tensors.push_back(std::move(tensor_));
    }

    safetensors_header& header_;
    std::string_view file_;
    place place_ = place::outside;
    field field_ = field::type;
    tensor_info tensor_;
    std::string metadata_key_;
    bool metadata_seen_ = false;
    bool type_seen_ = false;
    bool shape_seen_ = false;
    int offsets_seen_ = -1;  // numbers read so far; -1 before the key
};

/// The tensors must tile the data section: sorted by their bytes, each begins where the one before ends.
inline void check_layout(const std::vector<tensor_info>& tensors, std::size_t data_bytes,
                         std::string_view file) {
    const std::string prefix(file);
    std::size_t covered = 0;
    for (const tensor_info& tensor : tensors) {
        if (tensor.end > data_bytes) {
            throw format_error(prefix + ": tensor " + quote(tensor.name) + ": data_offsets end at " +
                               std::to_string(tensor.end) + ", but the file holds " +
                               std::to_string(data_bytes) + " bytes of data");
        }
        if (tensor.begin != covered) {
            throw format_error(
                prefix + ": tensor " + quote(tensor.name) + ": " +
                (tensor.begin < covered ? "overlaps the tensor before it" : "leaves a hole before it") +
                ": begins at " + std::to_string(tensor.begin) + ", expected " + std::to_string(covered));
        }
        covered = tensor.end;
    }
    if (covered != data_bytes) {
        throw format_error(prefix + ": " + std::to_string(data_bytes - covered) +
                           " bytes at the end belong to no tensor");
    }
}

inline safetensors_header parse_safetensors_header(std::string_view text, std::size_t data_bytes,
                                                   std::string_view file) {
    const std::string prefix(file);
    if (!text.starts_with('{')) {
        throw format_error(prefix + ": header: begins with " + quote(text.substr(0, 1)) + ", expected \"{\"");
    }
    safetensors_header header;
    safetensors_header_parser parser(header, file);
    parse_json(text, prefix + ": header", parser);

    std::vector<tensor_info>& tensors = header.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const tensor_info& left, const tensor_info& right) {
        return std::tie(left.begin, left.end, left.name) < std::tie(right.begin, right.end, right.name);
    });
    header.by_name.resize(tensors.size());
    std::iota(header.by_name.begin(), header.by_name.end(), std::size_t{0});
    std::sort(header.by_name.begin(), header.by_name.end(),
              [&](std::size_t left, std::size_t right) { return tensors[left].name < tensors[right].name; });
    const auto duplicate = std::adjacent_find(
        header.by_name.begin(), header.by_name.end(),
        [&](std::size_t left, std::size_t right) { return tensors[left].name == tensors[right].name; });
    if (duplicate != header.by_name.end()) {
        throw format_error(prefix + ": tensor " + quote(tensors[*duplicate].name) + ": duplicate name");
    }
    check_layout(tensors, data_bytes, file);
    return header;
}
#endif

}  // namespace detail
}  // namespace tensafe::io
