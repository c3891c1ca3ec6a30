#pragma once

#include <tensafe/memory/wipe.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensafe::random {

inline constexpr std::size_t seed_bytes = 32;

/// The 256-bit key of the random streams, in the order in which it is sent and stored. A plain value: for
/// public seeds, and for passing on; secret ones are kept in a secret_seed.
struct seed {
    std::array<std::uint8_t, seed_bytes> bytes{};

    /// Not constant time: for public seeds.
    friend bool operator==(const seed&, const seed&) = default;
};

/// A seed whose bytes are overwritten with zeros when it is destroyed, assigned to or moved from.
///
/// It converts to `const seed&`, so it goes wherever a seed goes; what is copied out of that reference is the
/// caller's to wipe. Thread safety: that of a standard value.
class secret_seed {
  public:
    explicit secret_seed(const seed& value) noexcept : value_(value) {}
    secret_seed(const secret_seed&) noexcept = default;
    secret_seed(secret_seed&& other) noexcept : value_(other.value_) { memory::wipe(other.value_); }
    secret_seed& operator=(secret_seed other) noexcept {
        value_ = other.value_;
        return *this;
    }
    ~secret_seed() { memory::wipe(value_); }

    operator const seed&() const& noexcept { return value_; }

  private:
    seed value_;
};

}  // namespace tensafe::random
