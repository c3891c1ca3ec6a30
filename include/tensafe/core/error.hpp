#pragma once

#include <tensafe/core/portable.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace tensafe {

/// A part of an error's message: a text that stays until the message is made, or a number.
class text_part {
  public:
    constexpr text_part(const char* text) noexcept : text_(text) {}
    constexpr text_part(std::string_view text) noexcept : text_(text) {}
    text_part(const std::string& text) noexcept : text_(text) {}
    /// Makes a part that becomes show(text) when the message is made.
    constexpr text_part(std::string_view text, std::string (*show)(std::string_view)) noexcept
        : text_(text), show_(show) {}
    constexpr text_part(double number) noexcept : kind_(kind::real), real_(number) {}
    template <std::integral T>
    constexpr text_part(T number) noexcept
        : kind_(std::is_signed_v<T> ? kind::whole : kind::natural),
          natural_(static_cast<std::uint64_t>(number)) {}

    std::string shown() const {
        switch (kind_) {
            case kind::whole:
                return std::to_string(static_cast<std::int64_t>(natural_));
            case kind::natural:
                return std::to_string(natural_);
            case kind::real:
                return shortest_text(real_);
            case kind::text:
                break;
        }
        return show_ != nullptr ? show_(text_) : std::string(text_);
    }

  private:
    enum class kind { text, whole, natural, real };

    kind kind_ = kind::text;
    std::string_view text_;
    std::string (*show_)(std::string_view) = nullptr;
    std::uint64_t natural_ = 0;
    double real_ = 0;
};

/// The text of all parts, one behind the other.
inline std::string text_of(std::initializer_list<text_part> parts) {
    std::string text;
    for (const text_part& part : parts) {
        text += part.shown();
    }
    return text;
}

/// Base of everything this library throws. The message says what was wrong, where, what was found and what
/// was needed. Errors are thrown at construction, input/output and host boundaries; hot loops are noexcept.
class error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
    /// Makes the message of its parts, as in `throw shape_error({"got ", count, " rows"});`.
    explicit error(std::initializer_list<text_part> parts) : std::runtime_error(text_of(parts)) {}
};

/// Throws an Error of these parts unless `holds`. They are evaluated always, and put together only then.
template <class Error>
constexpr void require(bool holds, std::initializer_list<text_part> parts) {
    if (!holds) {
        throw Error(parts);
    }
}

/// A modulus, degree, scale, level or option that the operation cannot work with.
struct parameter_error : error {
    using error::error;
};

/// A count of entries, rows or columns that does not fit its counterpart.
struct shape_error : error {
    using error::error;
};

/// Compares two counts.  @throws shape_error "<before><got><between><expected>" unless they are equal
inline void check_count(const char* before, std::size_t got, const char* between, std::size_t expected) {
    require<shape_error>(got == expected, {before, got, between, expected});
}

/// A value that cannot be encoded: NaN, infinite, or too large for the modulus. Names the entry.
struct encoding_error : error {
    using error::error;
};

/// An answer that wrapped around the modulus, so that its value is lost.
struct range_exceeded_error : error {
    using error::error;
};

/// The operating system refused to open, read or write something.
struct io_error : error {
    using error::error;
};

/// Bytes from outside that are malformed: lengths, offsets, types, duplicate or missing keys.
struct format_error : error {
    using error::error;
};

/// Well-formed input that asks for something this library does not do.
struct unsupported_error : error {
    using error::error;
};

/// A signature that is missing, does not fit what it came with, or is not by somebody who is trusted.
struct signature_error : error {
    using error::error;
};

/// A release that a privacy budget does not allow: refused, and nothing was spent for it.
struct budget_error : error {
    using error::error;
};

/// The operating system's entropy source failed.
struct entropy_error : error {
    using error::error;
};

/// A GPU call that failed, or no GPU to call.
struct device_error : error {
    using error::error;
};

/// Work that its owner cancelled before it was done.
struct cancelled_error : error {
    using error::error;
};

/// Work given to something that takes no more.
struct closed_error : error {
    using error::error;
};

}  // namespace tensafe
