#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/seed.hpp>

#include <algorithm>
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
/// It asks getrandom(2), which waits at boot until the kernel's pool is seeded; before Linux 3.17
/// /dev/urandom; in WebAssembly crypto.getRandomValues. Every call enters the kernel: for many seeds use a
/// generator. Thread-safe.
/// @throws entropy_error if the system gives no entropy; `out` must then not be used
TENSAFE_COMPILED_INLINE void os_entropy(std::span<std::uint8_t> out) {
#if defined(__EMSCRIPTEN__)
    while (!out.empty()) {
        const std::size_t count = std::min<std::size_t>(out.size(), 256);  // at most so many at once
        if (::getentropy(out.data(), count) != 0) {
            detail::throw_entropy_error("getentropy", errno);
        }
        out = out.subspan(count);
    }
#else
    while (!out.empty()) {
        const ssize_t got = ::getrandom(out.data(), out.size(), 0);
        if (got >= 0) {
            out = out.subspan(static_cast<std::size_t>(got));
        } else if (errno == ENOSYS) {
            detail::read_random_device("/dev/urandom", out);
            return;
        } else if (errno != EINTR) {
            detail::throw_entropy_error("getrandom", errno);
        }
    }
#endif
}

/// Returns a seed of 32 bytes from os_entropy, to keep secret: for what is sent there is fresh_nonce.
/// Thread-safe.
/// @throws entropy_error
TENSAFE_COMPILED_INLINE seed fresh_seed() {
    seed result;
    os_entropy(result.bytes);
    return result;
}

/// Returns 32 bytes to send: a nonce, the number of a session, a salt. They tell nothing of what the system's
/// generator gave for them, which may be the secret seed of a copy of this machine. Thread-safe.
/// @throws entropy_error
inline seed fresh_nonce() {
    seed drawn = fresh_seed();
    const memory::wipe_guard guard(drawn);
    return published(drawn);
}

}  // namespace tensafe::random
