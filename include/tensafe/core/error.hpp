#pragma once

#include <tensafe/core/macros.hpp>

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
class parameter_error : public error {
  public:
    using error::error;
};

/// A count of entries, rows or columns that does not fit its counterpart.
class shape_error : public error {
  public:
    using error::error;
};

/// A value that cannot be encoded: NaN, infinite, or too large for the modulus. Names the entry.
class encoding_error : public error {
  public:
    using error::error;
};

/// An answer that wrapped around the modulus, so that its value is lost.
class range_exceeded_error : public error {
  public:
    using error::error;
};

/// The operating system refused to open, read or write something.
class io_error : public error {
  public:
    using error::error;
};

/// Bytes from outside that are malformed: lengths, offsets, types, duplicate or missing keys.
class format_error : public error {
  public:
    using error::error;
};

/// Well-formed input that asks for something this library does not do.
class unsupported_error : public error {
  public:
    using error::error;
};

/// A signature that is missing, does not fit what it came with, or is not by somebody who is trusted.
class signature_error : public error {
  public:
    using error::error;
};

/// A release that a privacy budget does not allow: refused, and nothing was spent for it.
class budget_error : public error {
  public:
    using error::error;
};

/// The operating system's entropy source failed.
class entropy_error : public error {
  public:
    using error::error;
};

/// A GPU call that failed, or no GPU to call.
class device_error : public error {
  public:
    using error::error;
};

/// Work that its owner cancelled before it was done.
class cancelled_error : public error {
  public:
    using error::error;
};

/// Work given to something that takes no more.
class closed_error : public error {
  public:
    using error::error;
};

}  // namespace tensafe
