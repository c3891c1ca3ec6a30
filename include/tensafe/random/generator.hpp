#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/random/stream_domain.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <unistd.h>
#include <utility>

namespace tensafe::random {

/// A caller's source of fresh seeds.
///
/// Forward secrecy by key erasure: each output block gives the next key and one seed, and the old key is
/// gone, so that whoever reads this object learns no seed that was given out before. Movable, not copyable:
/// two copies would give out the same seeds. Overwritten with zeros on destruction.
///
/// After fork, a generator made from the system's entropy draws a new key in the child, which it recognises
/// by its process number; a process that forks twice and meets its grandparent's number again is not
/// recognised. One made from an explicit seed repeats the parent's seeds. Not thread safe: one generator per
/// thread, or the caller's lock.
class generator {
  public:
    /// Seeded by the operating system.
    /// @throws entropy_error
    generator() : key_(fresh_seed()), process_(::getpid()) {}

    /// Gives the same seeds for the same `start`, on every machine: for tests and for deriving a tree of
    /// seeds from a secret one. Never for fresh randomness from a seed that is used twice.
    explicit generator(const seed& start) noexcept : key_(start) {}

    generator(const generator&) = delete;
    generator& operator=(const generator&) = delete;
    generator(generator&& other) noexcept { take(other); }
    generator& operator=(generator&& other) noexcept {
        if (this != &other) {
            take(other);
        }
        return *this;
    }
    ~generator() { memory::wipe(key_); }

    /// A seed that no earlier call has returned.
    ///
    /// Cost: one group of ChaCha20 blocks, and one getpid: about 0.4 us. The caller wipes the result
    /// (secret_seed).
    /// @throws entropy_error after a fork if the system gives no entropy
    /// @throws error if this generator was moved from
    seed next_seed() {
        if (!usable_) {
            throw error(
                "random::generator::next_seed: this generator was moved from; use the one that took it");
        }
        if (process_ != reproducible && process_ != ::getpid()) {
            key_ = fresh_seed();
            process_ = ::getpid();
            counter_ = 0;
        }
        std::array<std::uint8_t, chacha20_block_bytes> block;
        const memory::wipe_guard guard(block);
        chacha20_stream(key_, stream_domain::derive, static_cast<std::uint32_t>(counter_),
                        static_cast<std::uint32_t>(counter_ >> 32))
            .generate(0, block);
        ++counter_;
        seed result;
        std::copy_n(block.begin(), seed_bytes, key_.bytes.begin());
        std::copy_n(block.begin() + seed_bytes, seed_bytes, result.bytes.begin());
        return result;
    }

  private:
    static constexpr pid_t reproducible = -1;

    void take(generator& other) noexcept {
        key_ = other.key_;
        memory::wipe(other.key_);
        counter_ = std::exchange(other.counter_, 0);
        process_ = other.process_;
        usable_ = std::exchange(other.usable_, false);
    }

    seed key_;
    std::uint64_t counter_ = 0;
    pid_t process_ = reproducible;
    bool usable_ = true;
};

}  // namespace tensafe::random
