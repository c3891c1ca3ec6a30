#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/portable.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/half.hpp>
#include <tensafe/io/safetensors_header.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::io {

namespace detail {

static_assert(std::endian::native == std::endian::little,
              "safetensors: files are little-endian and their bytes are copied as they are");

/// Bytes in memory, with the members of input_file.
class memory_source {
  public:
    explicit memory_source(std::span<const std::byte> bytes) noexcept : rest_(bytes), size_(bytes.size()) {}

    std::size_t size() const noexcept { return size_; }
    void read(std::span<std::byte> bytes) noexcept {
        std::copy_n(rest_.begin(), bytes.size(), bytes.begin());
        rest_ = rest_.subspan(bytes.size());
    }

  private:
    std::span<const std::byte> rest_;
    std::size_t size_;
};

}  // namespace detail

/// A safetensors file, held in memory: header checked in full, values decoded when asked for.
///
/// The file is treated as untrusted. Before anything is allocated for it, its length, header and offsets are
/// checked: no duplicate or unknown keys, no tensor that overlaps another, leaves a hole or ends outside the
/// file. Memory: the data section plus a small multiple of the header, both bounded by the file's real
/// length.
///
/// A value type; after construction it never changes, so any number of threads may read from one object.
/// Errors: format_error (malformed bytes), io_error (the system), unsupported_error (a type that is listed
/// but not decoded); their messages name the file and the tensor, with text from the file escaped and cut. An
/// error leaves the object as it was.
class safetensors_file {
  public:
    /// Reads and checks a whole file.
    /// @throws io_error, format_error, std::bad_alloc
    TENSAFE_COMPILED_API static safetensors_file open(const std::filesystem::path& path);

    /// Checks a file's bytes in memory, which are copied. `name` stands for the file in messages.
    /// @throws format_error, std::bad_alloc
    TENSAFE_COMPILED_API static safetensors_file parse(std::span<const std::byte> bytes,
                                                       std::string_view name = "memory");

    /// Checks a file's bytes in memory and keeps them without a copy. They are gone also if this throws.
    /// @throws format_error, std::bad_alloc
    TENSAFE_COMPILED_API static safetensors_file adopt(std::vector<std::byte> bytes,
                                                       std::string_view name = "memory");

    /// The tensors in the order of their bytes in the file.
    const std::vector<tensor_info>& tensors() const noexcept { return header_.tensors; }

    /// The header's `__metadata__`; empty if it has none.
    const std::map<std::string, std::string>& metadata() const noexcept { return header_.metadata; }

    /// The file's name as messages give it: quoted and escaped.
    const std::string& quoted_name() const noexcept { return name_; }

    /// The tensor of that name, or nullptr. Cost: logarithmic. The pointer lives as long as this object.
    const tensor_info* find(std::string_view name) const noexcept {
        const auto position = std::lower_bound(header_.by_name.begin(), header_.by_name.end(), name,
                                               [this](std::size_t index, std::string_view wanted) {
                                                   return header_.tensors[index].name < wanted;
                                               });
        if (position == header_.by_name.end() || header_.tensors[*position].name != name) {
            return nullptr;
        }
        return &header_.tensors[*position];
    }

    /// Reads all values of a tensor of any shape, row-major, exactly as stored.
    /// @throws format_error if there is no such tensor, or a value is NaN or infinite (the message gives its
    /// index)
    /// @throws unsupported_error if its type is not F64, F32, F16, BF16, F8_E4M3 or F8_E5M2
    TENSAFE_COMPILED_API std::vector<double> read_doubles(std::string_view name) const;

    /// Reads a tensor of two dimensions. All types are exact but F64, which is rounded to the nearest float.
    /// @throws format_error if there is no such tensor, its shape has not two dimensions, or a value is NaN,
    ///         infinite or beyond the range of float (the message gives its index)
    /// @throws unsupported_error if its type is not F64, F32, F16, BF16, F8_E4M3 or F8_E5M2
    TENSAFE_COMPILED_API lora::matrix read_matrix(std::string_view name) const;

  private:
    template <class Source>
    safetensors_file(Source& source, std::string_view name) : name_(quote(name)) {
        data_.resize(read_header(source));
        source.read(data_);
    }

    safetensors_file(std::vector<std::byte>&& bytes, std::string_view name) : name_(quote(name)) {
        detail::memory_source source(bytes);
        data_begin_ = bytes.size() - read_header(source);
        data_ = std::move(bytes);
    }

    /// Reads all that stands before the data section and checks it; returns the section's length.
    template <class Source>
    std::size_t read_header(Source& source) {
        std::array<std::byte, 8> prefix{};
        if (source.size() < prefix.size()) {
            throw format_error(name_ + ": got " + std::to_string(source.size()) +
                               " bytes, expected at least the 8 of the header length");
        }
        source.read(prefix);
        const std::size_t header_bytes =
            detail::checked_header_length(prefix, source.size() - prefix.size(), name_);
        const std::size_t data_bytes = source.size() - prefix.size() - header_bytes;
        std::string text(header_bytes, '\0');
        source.read(std::as_writable_bytes(std::span<char>(text)));
        header_ = detail::parse_safetensors_header(text, data_bytes, name_);
        return data_bytes;
    }

    const tensor_info& existing(std::string_view name) const {
        const tensor_info* tensor = find(name);
        if (tensor == nullptr) {
            throw format_error(name_ + ": no tensor " + quote(name) + " among its " +
                               std::to_string(tensors().size()));
        }
        return *tensor;
    }

    template <class Real>
    std::vector<Real> decode(const tensor_info& tensor) const {
        switch (tensor.type) {
            case dtype::f64:
                return decode_words<Real, std::uint64_t>(
                    tensor, [](std::uint64_t bits) { return bit_cast<double>(bits); });
            case dtype::f32:
                return decode_words<Real, std::uint32_t>(
                    tensor, [](std::uint32_t bits) { return bit_cast<float>(bits); });
            case dtype::f16:
                return decode_words<Real, std::uint16_t>(tensor, float_from_half);
            case dtype::bf16:
                return decode_words<Real, std::uint16_t>(tensor, float_from_bfloat16);
            case dtype::f8_e4m3:
                return decode_words<Real, std::uint8_t>(tensor, float_from_e4m3);
            case dtype::f8_e5m2:  // the upper byte of a half
                return decode_words<Real, std::uint8_t>(tensor, [](std::uint8_t bits) {
                    return float_from_half(static_cast<std::uint16_t>(bits << 8));
                });
            default:
                throw unsupported_error(name_ + ": tensor " + quote(tensor.name) +
                                        ": reading values of type " + std::string(dtype_name(tensor.type)) +
                                        " is not supported, only F64, F32, F16, BF16, F8_E4M3 and F8_E5M2");
        }
    }

    template <class Real, class Word, class Convert>
    std::vector<Real> decode_words(const tensor_info& tensor, Convert convert) const {
        std::vector<Real> values(tensor.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            Word bits;
            std::memcpy(&bits, data_.data() + data_begin_ + tensor.begin + i * sizeof(Word), sizeof(Word));
            const auto stored = convert(bits);
            values[i] = static_cast<Real>(stored);
            if (!std::isfinite(values[i])) {
                throw format_error(name_ + ": tensor " + quote(tensor.name) + ": value " + std::to_string(i) +
                                   " is " + shortest_text(stored) + ", expected a finite " +
                                   (sizeof(Real) == sizeof(float) ? "float" : "double"));
            }
        }
        return values;
    }

    std::string name_;
    detail::safetensors_header header_;
    std::vector<std::byte> data_;
    std::size_t data_begin_ = 0;  // of the data section within data_
};

/// Collects tensors and writes them as one safetensors file, in the order in which they were added:
/// `safetensors_writer{}.add("w", dtype::f32, {2, 3}, values).write(path);`
///
/// A value type that holds the encoded bytes; one thread at a time. An error in `add` leaves it as it was.
class safetensors_writer {
  public:
    /// Encodes `values` (row-major), each rounded to the nearest value of `type`, ties to even.
    /// Cost: linear in the number of values, and in the number of tensors added before.
    /// @throws parameter_error if the name is taken, is reserved ("__metadata__") or is not UTF-8
    /// @throws shape_error if the shape's product differs from the number of values
    /// @throws encoding_error if a value is NaN, infinite, or would round to infinity (the message gives its
    /// index)
    /// @throws unsupported_error if the type is not F64, F32, F16 or BF16
    safetensors_writer& add(std::string_view name, dtype type, std::vector<std::size_t> shape,
                            std::span<const double> values) {
        // Not one nested initialiser: g++ 12 destroys the inner aggregate twice if a later part of it throws.
        entry added;
        added.key = json_key(name);
        added.tensor.name = name;
        added.tensor.type = type;
        added.tensor.shape = std::move(shape);
        const std::optional<std::size_t> bytes = detail::tensor_bytes(type, added.tensor.shape);
        added.tensor.end = bytes.value_or(0);
        if (!bytes || added.tensor.size() != values.size()) {
            throw shape_error("safetensors_writer: tensor " + quote(name) + ": got " +
                              std::to_string(values.size()) + " values for shape " +
                              shape_text(added.tensor.shape));
        }
        added.tensor.begin = entries_.empty() ? 0 : entries_.back().tensor.end;
        added.tensor.end = added.tensor.begin + *bytes;
        added.data = encode(added.tensor, values);
        entries_.push_back(std::move(added));
        return *this;
    }

    /// The bytes of the file. The header is padded with spaces to a multiple of eight bytes.
    /// @throws parameter_error if the header would be longer than 100 MB
    std::vector<std::byte> bytes() const {
        std::string header = "{";
        for (const entry& written : entries_) {
            const tensor_info& tensor = written.tensor;
            header += (header.size() == 1 ? "" : ",") + written.key + ":{\"dtype\":\"";
            header += dtype_name(tensor.type);
            header += "\",\"shape\":" + shape_text(tensor.shape) +
                      ",\"data_offsets\":" + shape_text({tensor.begin, tensor.end}) + "}";
        }
        header += "}";
        header.resize((header.size() + 7) / 8 * 8, ' ');
        if (header.size() > detail::max_header_bytes) {
            throw parameter_error("safetensors_writer: header: got " + std::to_string(header.size()) +
                                  " bytes, expected at most " + std::to_string(detail::max_header_bytes));
        }
        std::vector<std::byte> file;
        file.reserve(sizeof(std::uint64_t) + header.size() +
                     (entries_.empty() ? 0 : entries_.back().tensor.end));
        const auto append = [&file](std::span<const std::byte> part) {
            file.insert(file.end(), part.begin(), part.end());
        };
        append(bit_cast<std::array<std::byte, 8>>(std::uint64_t{header.size()}));
        append(std::as_bytes(std::span<const char>(header)));
        for (const entry& written : entries_) {
            append(written.data);
        }
        return file;
    }

    /// Writes the file at `path`, all of it or nothing; see replace_file.
    /// @throws io_error, parameter_error if the header would be longer than 100 MB
    void write(const std::filesystem::path& path) const { replace_file(path, bytes()); }

  private:
    struct entry {
        tensor_info tensor;
        std::string key;  // the name as JSON
        std::vector<std::byte> data;
    };

    TENSAFE_COMPILED_API std::string json_key(std::string_view name) const;

    static std::vector<std::byte> encode(const tensor_info& tensor, std::span<const double> values) {
        switch (tensor.type) {
            case dtype::f64:
                return encode_words(
                    tensor, values, [](double value) { return bit_cast<std::uint64_t>(value); },
                    [](std::uint64_t bits) { return bit_cast<double>(bits); });
            case dtype::f32:
                return encode_words(
                    tensor, values,
                    [](double value) { return bit_cast<std::uint32_t>(static_cast<float>(value)); },
                    [](std::uint32_t bits) { return bit_cast<float>(bits); });
            case dtype::f16:
                return encode_words(tensor, values, half_from_double, float_from_half);
            case dtype::bf16:
                return encode_words(tensor, values, bfloat16_from_double, float_from_bfloat16);
            default:
                throw unsupported_error("safetensors_writer: tensor " + quote(tensor.name) +
                                        ": writing values of type " + std::string(dtype_name(tensor.type)) +
                                        " is not supported, only F64, F32, F16 and BF16");
        }
    }

    template <class Narrow, class Widen>
    static std::vector<std::byte> encode_words(const tensor_info& tensor, std::span<const double> values,
                                               Narrow narrow, Widen widen) {
        std::vector<std::byte> data(tensor.end - tensor.begin);
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto bits = narrow(values[i]);
            if (!std::isfinite(widen(bits))) {
                throw encoding_error("safetensors_writer: tensor " + quote(tensor.name) + ": value " +
                                     std::to_string(i) + " is " + shortest_text(values[i]) +
                                     ", expected one within the range of " +
                                     std::string(dtype_name(tensor.type)));
            }
            std::memcpy(data.data() + i * sizeof(bits), &bits, sizeof(bits));
        }
        return data;
    }

    std::vector<entry> entries_;
};

#if TENSAFE_COMPILED_BODIES
inline safetensors_file safetensors_file::open(const std::filesystem::path& path) {
    input_file file(path);
    return safetensors_file(file, path.string());
}

inline safetensors_file safetensors_file::parse(std::span<const std::byte> bytes, std::string_view name) {
    detail::memory_source source(bytes);
    return safetensors_file(source, name);
}

inline safetensors_file safetensors_file::adopt(std::vector<std::byte> bytes, std::string_view name) {
    return safetensors_file(std::move(bytes), name);
}

inline std::vector<double> safetensors_file::read_doubles(std::string_view name) const {
    return decode<double>(existing(name));
}

inline lora::matrix safetensors_file::read_matrix(std::string_view name) const {
    const tensor_info& tensor = existing(name);
    if (tensor.shape.size() != 2) {
        throw format_error(name_ + ": tensor " + quote(name) + ": got shape " + shape_text(tensor.shape) +
                           ", expected two dimensions");
    }
    lora::matrix result;
    result.values = decode<float>(tensor);
    result.rows = tensor.shape[0];
    result.columns = tensor.shape[1];
    return result;
}

inline std::string safetensors_writer::json_key(std::string_view name) const {
    const bool taken = std::any_of(entries_.begin(), entries_.end(),
                                   [&](const entry& other) { return other.tensor.name == name; });
    if (taken || name == "__metadata__") {
        throw parameter_error("safetensors_writer: the name " + quote(name) + " is " +
                              (taken ? "already taken" : "reserved by the format"));
    }
    try {
        return nlohmann::ordered_json(std::string(name)).dump();
    } catch (const nlohmann::ordered_json::type_error&) {
        throw parameter_error("safetensors_writer: the name " + quote(name) + " is not UTF-8");
    }
}
#endif

}  // namespace tensafe::io
