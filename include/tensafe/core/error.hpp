#pragma once

#include <tensafe/core/macros.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace tensafe {

/// Base of everything this library throws. The message says what was wrong, where, what was found and what
/// was needed. Errors are thrown at construction, input/output and host boundaries only; hot loops are
/// noexcept.
class error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// A modulus, degree, scale, level or option that the operation cannot work with.
struct parameter_error : error {
    using error::error;
};

/// A count of entries, rows or columns that does not fit its counterpart.
struct shape_error : error {
    using error::error;
};

/// @throws shape_error "<before><got><between><expected>" unless the two counts are equal
inline void check_count(const char* before, std::size_t got, const char* between, std::size_t expected) {
    if (got != expected) {
        throw shape_error(std::string(before) + std::to_string(got) + between + std::to_string(expected));
    }
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
