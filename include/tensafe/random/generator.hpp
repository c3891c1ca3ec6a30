#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/random/seed.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tensafe::random {

/// A caller's source of fresh seeds.
///
/// The default one asks the operating system at each call and keeps no state, so that a fork or a restart
/// cannot make it repeat itself. A machine that is restored twice from one snapshot can, unless its kernel is
/// told that it was (VMGENID, Linux 5.18). One made from an explicit seed repeats the same seeds by
/// design: for tests. That one erases its key as it goes: each output block gives the next key and one seed,
/// so that whoever reads this object learns no seed that was given out before.
///
/// Movable, not copyable: two copies would give out the same seeds. Overwritten with zeros on destruction.
/// Not thread safe: one generator per thread, or the caller's lock.
class generator {
  public:
    /// Fresh randomness from the operating system.
    generator() noexcept = default;

    /// Gives the same seeds for the same `start`, on every machine: for tests. Never for keys or encryption:
    /// whoever runs it twice encrypts twice with the same randomness, and the difference of the messages is
    /// public.
    explicit generator(const seed& start) noexcept : source_(source::explicit_seed), key_(start) {}

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

    /// A seed that no earlier call has returned. About half a microsecond. The caller wipes the result if it
    /// is secret (memory::wipe_guard).
    /// @throws entropy_error if the system gives no entropy; parameter_error for a bad TENSAFE_BACKEND
    /// @throws error if this generator was moved from
    seed next_seed() {
        exec::check_environment();
        switch (source_) {
            case source::system:
                return fresh_seed();
            case source::explicit_seed:
                return derive();
            case source::moved_from:
                break;
        }
        throw error("random::generator::next_seed: this generator was moved from; use the one that took it");
    }

    /// Several seeds at once, as many calls of next_seed would give them with an explicit start. From the
    /// operating system comes only one, which ChaCha20 expands to all of them: 15 ns a seed.
    /// @throws as next_seed
    void next_seeds(std::span<seed> seeds) {
        if (source_ != source::system || seeds.size() < 2) {
            for (seed& s : seeds) {
                seed drawn = next_seed();
                const memory::wipe_guard guard(drawn);
                s = drawn;
            }
            return;
        }
        exec::check_environment();
        seed start = fresh_seed();
        const memory::wipe_guard guard(start);
        const chacha20_stream stream(start, stream_domain::derive, 0);
        std::array<std::uint8_t, 16 * chacha20_block_bytes> bytes;
        const memory::wipe_guard bytes_guard(bytes);
        constexpr std::size_t at_once = bytes.size() / seed_bytes;
        for (std::size_t done = 0; done < seeds.size(); done += at_once) {
            stream.generate(done / at_once * (bytes.size() / chacha20_block_bytes), bytes);
            const std::size_t count = std::min(at_once, seeds.size() - done);
            for (std::size_t i = 0; i < count; ++i) {
                std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(i * seed_bytes), seed_bytes,
                            seeds[done + i].bytes.begin());
            }
        }
    }

  private:
    enum class source { system, explicit_seed, moved_from };

    seed derive() noexcept {
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

    void take(generator& other) noexcept {
        key_ = other.key_;
        memory::wipe(other.key_);
        counter_ = std::exchange(other.counter_, 0);
        source_ = std::exchange(other.source_, source::moved_from);
    }

    source source_ = source::system;
    seed key_;
    std::uint64_t counter_ = 0;
};

}  // namespace tensafe::random
