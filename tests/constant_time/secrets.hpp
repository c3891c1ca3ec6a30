#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string>
#include <sys/random.h>
#include <utility>
#include <valgrind/memcheck.h>
#include <vector>

// memcheck follows every bit of memory that a program has not yet written, through all that is computed from
// it, and reports a branch or an address that depends on one. Secrets are marked as such memory, so that it
// follows them. After an idea of Adam Langley, "ctgrind" (2010).
namespace tests {

/// Marks the elements of a contiguous range as secret.
template <std::ranges::contiguous_range Range>
void make_secret(Range&& values) {
    VALGRIND_MAKE_MEM_UNDEFINED(std::ranges::data(values),
                                std::ranges::size(values) * sizeof(*std::ranges::data(values)));
}

/// Marks the elements as public: what is sent, and what the caller may look at.
template <std::ranges::contiguous_range Range>
void make_public(Range&& values) {
    VALGRIND_MAKE_MEM_DEFINED(std::ranges::data(values),
                              std::ranges::size(values) * sizeof(*std::ranges::data(values)));
}

/// Whether a bit of each element depends on a secret, or was never written. False says that a secret got lost
/// on the way, so that nothing was checked.
template <std::ranges::contiguous_range Range>
bool all_secret(Range&& values) {
    constexpr std::size_t bytes = sizeof(*std::ranges::data(values));
    std::vector<std::uint8_t> bits(bytes);
    return std::ranges::size(values) != 0 && std::ranges::all_of(values, [&](const auto& value) {
               VALGRIND_GET_VBITS(&value, bits.data(), bytes);
               return std::ranges::any_of(bits, [](std::uint8_t b) { return b != 0; });
           });
}

/// What the operating system's generator gives in this program: pseudo-random bytes, the same in each run,
/// secret unless announced as public.
class entropy {
  public:
    /// The next `count` calls give nonces and seeds that are sent.
    static void next_are_public(int count) { public_calls() = count; }

    static void fill(std::span<std::uint8_t> out) {
        static std::uint64_t state = 1;
        for (std::uint8_t& byte : out) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            byte = static_cast<std::uint8_t>(state >> 56);
        }
        if (public_calls() > 0) {
            --public_calls();
        } else {
            make_secret(out);
        }
    }

  private:
    static int& public_calls() {
        static int count = 0;
        return count;
    }
};

}  // namespace tests

/// In the place of the C library's.
extern "C" ssize_t getrandom(void* buffer, std::size_t length, unsigned) {
    tests::entropy::fill({static_cast<std::uint8_t*>(buffer), length});
    return static_cast<ssize_t>(length);
}
