#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/random/input_hash.hpp>
#include <tensafe/random/seed.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace tensafe::random {

/// A caller's source of fresh seeds.
///
/// The default one asks the operating system at each call and keeps no state: no fork or restart makes it
/// repeat itself, only a machine restored twice from one snapshot whose kernel is not told (VMGENID, Linux
/// 5.18), and then not what is drawn under `hedge` for different inputs. A generator with an explicit seed,
/// for tests, is not hedged; it erases its key as it goes: whoever reads this object learns no seed given out
/// before.
///
/// Movable, not copyable: two copies would give out the same seeds. Wiped on destruction. Not thread-safe.
class generator {
  public:
    /// Makes a generator of fresh randomness from the operating system.
    generator() noexcept = default;

    /// Makes a generator that gives the same seeds for the same `start`, on every machine: for tests, never
    /// for keys or encryption.
    /// Two encryptions with the same randomness publish the difference of their messages.
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

    /// A secret seed that no earlier call has returned. About half a microsecond. The caller wipes the result
    /// (memory::wipe_guard).
    /// @throws entropy_error if the system gives no entropy; parameter_error for a bad TENSAFE_BACKEND
    /// @throws error if this generator was moved from
    seed next_seed() {
        exec::check_environment();
        switch (source_) {
            case source::system:
                return fresh_seed();
            case source::explicit_seed:
            case source::hedged:
                return derive();
            case source::moved_from:
                break;
        }
        throw error("random::generator::next_seed: this generator was moved from; use the one that took it");
    }

    /// A seed to send: what may be published of the next one.
    /// @throws as next_seed
    seed next_nonce() {
        seed drawn = next_seed();
        const memory::wipe_guard guard(drawn);
        return to_send(drawn);
    }

    /// What is sent in the place of a seed that this generator gave: with an explicit start the seed itself.
    seed to_send(const seed& drawn) const noexcept { return is_explicit() ? drawn : published(drawn); }

    /// Fills `seeds` at once: with an explicit start as that many calls of next_seed would, else from one
    /// seed of the operating system's, which ChaCha20 expands: 15 ns a seed.
    /// @throws entropy_error if the system gives no entropy; parameter_error for a bad TENSAFE_BACKEND
    /// @throws error if this generator was moved from
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
        constexpr std::size_t seed_words = seed_bytes / sizeof(std::uint64_t);
        detail::for_each_chunk<seed_words, 32>(
            chacha20_stream(start, stream_domain::derive, 0), 0, seeds.size(),
            [&](const std::uint64_t* words, std::size_t first, std::size_t count) {
                for (std::size_t i = 0; i < count; ++i) {
                    std::memcpy(seeds[first + i].bytes.data(), words + i * seed_words, seed_bytes);
                }
            });
    }

    /// Makes the seeds of its generator depend on an input too while it lives. `hedge` returns one.
    class [[nodiscard]] hedging {
      public:
        hedging(const hedging&) = delete;
        hedging& operator=(const hedging&) = delete;
        ~hedging() {
            if (of_ != nullptr) {
                of_->end_hedge();
            }
        }

      private:
        friend class generator;
        explicit hedging(generator* of) noexcept : of_(of) {}

        generator* of_;
    };

    /// Makes seeds, until the result ends, from one of the operating system's and a hash of the input: name
    /// all that the draws will hide, and the key that hides it. Does nothing for an explicit start, and
    /// inside another hedge. A move of the generator ends it.
    /// @param parts  vectors, arrays or spans of numbers, in an order that the caller keeps
    /// @throws entropy_error, parameter_error or error as next_seed does
    template <class... Parts>
    hedging hedge(const Parts&... parts) {
        if (source_ != source::system) {
            return hedging(nullptr);
        }
        exec::check_environment();
        key_ = input_hash::of(parts...);
        counter_ = 0;
        source_ = source::hedged;
        return hedging(this);
    }

    /// Whether this generator has an explicit start, which determines its seeds.
    bool is_explicit() const noexcept { return source_ == source::explicit_seed; }

  private:
    enum class source { system, hedged, explicit_seed, moved_from };

    seed derive() noexcept {
        auto block = chacha20_stream_block(key_, stream_domain::derive, static_cast<std::uint32_t>(counter_),
                                           static_cast<std::uint32_t>(counter_ >> 32));
        const memory::wipe_guard guard(block);
        ++counter_;
        seed result;
        std::copy_n(block.begin(), seed_bytes, key_.bytes.begin());
        std::copy_n(block.begin() + seed_bytes, seed_bytes, result.bytes.begin());
        return result;
    }

    void end_hedge() noexcept {
        if (source_ == source::hedged) {
            memory::wipe(key_);
            source_ = source::system;
        }
    }

    void take(generator& other) noexcept {
        other.end_hedge();
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
