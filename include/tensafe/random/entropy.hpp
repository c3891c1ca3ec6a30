#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/random/seed.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <span>
#include <string>
#include <system_error>
#include <unistd.h>

#if !defined(__EMSCRIPTEN__)
#include <sys/random.h>
#endif

namespace tensafe::random {

namespace detail {

[[noreturn]] inline void throw_entropy_error(const std::string& call, int number) {
    throw entropy_error("random::os_entropy: " + call +
                        " failed: " + std::generic_category().message(number));
}

/// Fills `out` from a random device, for kernels without getrandom.
/// @throws entropy_error if the device cannot be opened or read, or ends
inline void read_random_device(const char* path, std::span<std::uint8_t> out) {
    const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        throw_entropy_error(std::string("open ") + path, errno);
    }
    while (!out.empty()) {
        const ssize_t got = ::read(descriptor, out.data(), out.size());
        if (got > 0) {
            out = out.subspan(static_cast<std::size_t>(got));
        } else if (got == 0 || errno != EINTR) {
            const int number = got == 0 ? EIO : errno;
            ::close(descriptor);
            throw_entropy_error(std::string("read ") + path, number);
        }
    }
    ::close(descriptor);
}

}  // namespace detail

/// Fills `out` with bytes from the operating system's generator, fit for keys.
///
/// getrandom(2), which waits at boot until the kernel's pool is seeded; before Linux 3.17 /dev/urandom; in
/// WebAssembly crypto.getRandomValues. Every call enters the kernel: for many seeds use a generator. Thread
/// safe.
/// @throws entropy_error if the system gives no entropy; `out` must then not be used
TENSAFE_COMPILED_INLINE void os_entropy(std::span<std::uint8_t> out) {
    while (!out.empty()) {
#if defined(__EMSCRIPTEN__)
        const std::size_t most = out.size() < 256 ? out.size() : 256;  // what getentropy gives at once
        const ssize_t got = ::getentropy(out.data(), most) == 0 ? static_cast<ssize_t>(most) : -1;
#else
        const ssize_t got = ::getrandom(out.data(), out.size(), 0);
#endif
        if (got >= 0) {
            out = out.subspan(static_cast<std::size_t>(got));
        } else if (errno == ENOSYS) {
            detail::read_random_device("/dev/urandom", out);
            return;
        } else if (errno != EINTR) {
            detail::throw_entropy_error("getrandom", errno);
        }
    }
}

/// A seed of 32 bytes from os_entropy. Thread safe.
/// @throws entropy_error
TENSAFE_COMPILED_INLINE seed fresh_seed() {
    seed result;
    os_entropy(result.bytes);
    return result;
}

}  // namespace tensafe::random
