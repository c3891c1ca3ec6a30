#pragma once

#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/random/draws.hpp>
#include <tensafe/random/chacha20_block.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensafe::device {

/// The most groups of draws of one launch.
inline constexpr std::size_t most_draws = 8;

namespace detail {

struct alignas(16) stream_quad {
    std::uint32_t words[4];
};
struct alignas(8) stream_pair {
    std::uint32_t lower;
    std::uint32_t upper;
};

/// The part of a draw that one thread block does: `count` values of a polynomial from number `first` on.
struct draw_part {
    std::uint8_t* out;  ///< the first of them
    word q;             ///< uniform
    word mask;          ///< the bits of q
    distribution kind;
    std::uint32_t domain;
    std::uint32_t lane;
    std::uint32_t count;
    std::uint32_t width;         ///< bytes of a uniform value
    std::uint32_t stream_block;  ///< the first of the stream
    std::uint32_t stream_blocks;
    int bits;
    std::uint32_t terms;
};

/// Draws: one thread block makes one chunk of one polynomial, each thread a block of the stream; then the
/// words are cut into values. The stream lies in shared memory as it is, with bank conflicts at the stores:
/// avoiding them would cost more instructions at each read, and the arithmetic units are what is busy.
struct draw_kernel {
    static constexpr int threads = static_cast<int>(draw_threads);

    struct shared_type {
        alignas(16) std::uint32_t stream[draw_bytes / 4 + 4];  // loads of the last value reach beyond it
        alignas(16) std::uint32_t small_values[ternary_chunk_values / 4];
        alignas(16) std::uint32_t key[8];
        draw_part part;
    };
    static_assert(ternary_chunk_values >= error_chunk_values);

    std::uint32_t groups;
    dealt_draws dealt[most_draws];

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        // One warp finds out what the thread block is to draw, with a few divisions, for the others.
        ctx.each([&](int t) {
            if (t < 8) {
                const std::uint8_t* key = nullptr;
                const draw_part part = find(ctx.block().x, key);
                key += 4 * t;  // byte by byte: a seed may lie anywhere
                ctx.shared().key[t] = key[0] | static_cast<std::uint32_t>(key[1]) << 8 |
                                      static_cast<std::uint32_t>(key[2]) << 16 |
                                      static_cast<std::uint32_t>(key[3]) << 24;
                if (t == 0) {
                    ctx.shared().part = part;
                    store_quad(ctx.shared().stream + 16 * part.stream_blocks, {});
                }
            }
        });
        ctx.each([&](int t) {
            auto& shared = ctx.shared();
            const std::uint32_t thread = static_cast<std::uint32_t>(t);
            if (thread < shared.part.stream_blocks) {
                const std::uint32_t nonce[3] = {shared.part.domain, shared.part.lane, 0};
                std::uint32_t words[16];
                random::chacha20_block(shared.key, shared.part.stream_block + thread, nonce, words);
                for (int i = 0; i < 4; ++i) {
                    const stream_quad quad{
                        {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]}};
                    store_quad(shared.stream + 16 * t + 4 * i, quad);
                }
            }
        });
        ctx.each([&](int t) {
            auto& shared = ctx.shared();
            const std::uint32_t thread = static_cast<std::uint32_t>(t);
            switch (shared.part.kind) {
                case distribution::uniform:
                    cut_uniform(shared, thread);
                    break;
                case distribution::ternary:
                    cut_ternary(shared, thread);
                    break;
                case distribution::error:
                    cut_error(shared, thread);
                    break;
                case distribution::flood:
                    cut_flood(shared, thread);
                    break;
            }
        });
        ctx.each([&](int t) {
            const distribution kind = ctx.shared().part.kind;
            if (kind == distribution::ternary || kind == distribution::error) {
                copy_small_values(ctx.shared(), static_cast<std::uint32_t>(t));
            }
        });
        ctx.last([&](int t) {
            if (ctx.shared().part.kind != distribution::uniform) {
                wipe(ctx.shared(), static_cast<std::uint32_t>(t));
            }
        });
    }

  private:
    // Member by member, here and for pairs: one store all the same, and sanitizers see whether it is aligned.
    TENSAFE_HOST_DEVICE static void store_quad(void* to, const stream_quad& quad) {
        stream_quad& place = *static_cast<stream_quad*>(to);
        place.words[0] = quad.words[0];
        place.words[1] = quad.words[1];
        place.words[2] = quad.words[2];
        place.words[3] = quad.words[3];
    }
    TENSAFE_HOST_DEVICE static stream_quad load_quad(const std::uint32_t* from) {
        return *reinterpret_cast<const stream_quad*>(from);
    }

    TENSAFE_HOST_DEVICE draw_part find(std::uint32_t block, const std::uint8_t*& key) const {
        std::uint32_t group = 0;
        while (group + 1 < groups && block >= dealt[group + 1].first_block) {
            ++group;
        }
        const dealt_draws& of = dealt[group];
        const draw_group& draws = of.draws;
        block -= of.first_block;
        const std::uint32_t turn = block / of.chunks_before[of.period];
        block -= turn * of.chunks_before[of.period];
        std::uint32_t i = 0;
        while (block >= of.chunks_before[i + 1]) {
            ++i;
        }
        const std::uint32_t polynomial = turn * of.period + i;
        const std::uint32_t first = (block - of.chunks_before[i]) * of.chunk_values[i];
        const std::uint32_t seed_number = polynomial / draws.lanes;
        key = reinterpret_cast<const std::uint8_t*>(draws.seeds + seed_number);

        draw_part part{};
        part.kind = draws.kind;
        part.domain = static_cast<std::uint32_t>(draws.domain);
        part.lane = draws.first_lane + (polynomial - seed_number * draws.lanes);
        part.count = draws.size - first < of.chunk_values[i] ? draws.size - first : of.chunk_values[i];
        part.bits = draws.bits;
        part.terms = static_cast<std::uint32_t>(draws.terms);
        std::uint32_t value_bytes = 1;
        std::uint32_t bytes = 0;  // of the stream
        switch (draws.kind) {
            case distribution::uniform:
                part.q = draws.moduli[part.lane % draws.moduli_count];
                part.mask = bits_of(part.q);
                part.width = uniform_width(part.q);
                value_bytes = sizeof(word);
                part.stream_block = first / 64 * part.width;
                bytes = part.count * part.width;
                break;
            case distribution::ternary:
                part.stream_block = first / 32;
                bytes = (part.count + 3) / 4 * 8;
                break;
            case distribution::error:
                part.stream_block = first / 128 * 3;
                bytes = (part.count + 63) / 64 * 96;
                break;
            case distribution::flood:
                value_bytes = sizeof(arith::uint128);
                part.stream_block = first / 4 * part.terms;
                bytes = part.count * 16 * part.terms;
                break;
        }
        part.stream_blocks = (bytes + 63) / 64;
        part.out = static_cast<std::uint8_t*>(draws.out) +
                   (static_cast<std::size_t>(polynomial) * draws.size + first) * value_bytes;
        return part;
    }

    TENSAFE_HOST_DEVICE static void cut_uniform(const shared_type& shared, std::uint32_t thread) {
        const word q = shared.part.q;
        const std::uint32_t count = shared.part.count;
        word* out = reinterpret_cast<word*>(shared.part.out);
        bool rejected = false;
        std::uint32_t k = 2 * thread;
        if (reinterpret_cast<std::uintptr_t>(out) % sizeof(word_pair) == 0) {
            with_index<9, 1>(static_cast<int>(shared.part.width), [&]<int Width>() {
                rejected = cut_uniform_pairs<Width>(shared, thread, count / 2);
            });
            const bool has_last = count % 2 != 0 && thread == count / 2 % draw_threads;
            k = has_last ? count - 1 : count;
        }
        for (; k < count; k = next_value(k)) {
            const word value = uniform_value(shared, k);
            out[k] = value;
            rejected |= value >= q;
        }
        if (rejected) {
            redraw(shared, thread, count, out);
        }
    }

    /// Cuts values 2 i and 2 i + 1 for the thread's numbers i < pairs, 16 bytes at a time. Returns whether
    /// any of them is not below q.
    template <int Width>
    TENSAFE_HOST_DEVICE static bool cut_uniform_pairs(const shared_type& shared, std::uint32_t thread,
                                                      std::uint32_t pairs) {
        const word q = shared.part.q;
        const word mask = shared.part.mask;
        word_pair* out = reinterpret_cast<word_pair*>(shared.part.out);
        bool rejected = false;
        for (std::uint32_t i = thread; i < pairs; i += draw_threads) {
            word_pair pair = cut_pair<Width>(shared.stream, i);
            pair.first &= mask;
            pair.second &= mask;
            out[i].first = pair.first;
            out[i].second = pair.second;
            rejected |= pair.first >= q || pair.second >= q;
        }
        return rejected;
    }

    /// The number of a thread's value k: 2 t, 2 t + 1, 2 (t + threads), and so on.
    TENSAFE_HOST_DEVICE static constexpr std::uint32_t next_value(std::uint32_t k) {
        return k % 2 == 0 ? k + 1 : k + (2 * draw_threads - 1);
    }

    /// Draws again what this thread has cut and what is not below q, until it is.
    TENSAFE_HOST_DEVICE static void redraw(const shared_type& shared, std::uint32_t thread,
                                           std::uint32_t count, word* out) {
        const word q = shared.part.q;
        std::uint32_t k = 2 * thread;
        std::uint32_t round = 1;
        while (true) {
            // Threads step over what they keep by themselves, and then make their blocks together.
            while (k < count && uniform_value(shared, k) < q) {
                k = next_value(k);
            }
            if (k >= count) {
                return;
            }
            const word value = draw_again(shared, k, round) & shared.part.mask;
            if (value < q) {
                out[k] = value;
                k = next_value(k);
                round = 0;
            }
            ++round;
        }
    }

    TENSAFE_HOST_DEVICE static word uniform_value(const shared_type& shared, std::uint32_t k) {
        const std::uint32_t position = k * shared.part.width;
        const std::uint32_t* words = shared.stream + position / 4;
        return cut_word(words[0], words[1], words[2], position) & shared.part.mask;
    }

    /// Draws eight bytes from the place of value k of the part on, from the stream of a later round.
    TENSAFE_HOST_DEVICE static word draw_again(const shared_type& shared, std::uint32_t k,
                                               std::uint32_t round) {
        const std::uint32_t nonce[3] = {shared.part.domain, shared.part.lane, round};
        const std::uint32_t position = k * shared.part.width;
        std::uint32_t wanted[3] = {};
        std::uint32_t number = position / 64 * 16;  // of the words of the block at hand, in the part
        do {
            std::uint32_t words[16];
            random::chacha20_block(shared.key, shared.part.stream_block + number / 16, nonce, words);
            // Selects, since registers have no index.
            for (std::uint32_t i = 0; i < 16; ++i) {
                for (std::uint32_t j = 0; j < 3; ++j) {
                    wanted[j] = number + i == position / 4 + j ? words[i] : wanted[j];
                }
            }
            number += 16;
        } while (number * 4 < position + shared.part.width);
        return cut_word(wanted[0], wanted[1], wanted[2], position);
    }

    TENSAFE_HOST_DEVICE static void cut_ternary(shared_type& shared, std::uint32_t thread) {
        const std::uint32_t words = (shared.part.count + 3) / 4;
        for (std::uint32_t i = thread; i < words; i += draw_threads) {
            const stream_pair pair = *reinterpret_cast<const stream_pair*>(shared.stream + 2 * i);
            shared.small_values[i] = ternary_bytes(pair.lower, pair.upper);
        }
    }

    TENSAFE_HOST_DEVICE static void cut_error(shared_type& shared, std::uint32_t thread) {
        static_assert(error_chunk_values / 32 <= draw_threads);
        if (thread < (shared.part.count + 63) / 64 * 2) {
            const std::uint32_t* group =
                shared.stream + thread / 2 * (2 * random::detail::error_words) + thread % 2;
            std::uint32_t halves[random::detail::error_words];
            for (int i = 0; i < random::detail::error_words; ++i) {
                halves[i] = group[2 * i];
            }
            std::uint32_t values[8];
            error_half(halves, values);
            std::uint32_t* to = shared.small_values + 8 * thread;
            store_quad(to, {{values[0], values[1], values[2], values[3]}});
            store_quad(to + 4, {{values[4], values[5], values[6], values[7]}});
        }
    }

    TENSAFE_HOST_DEVICE static void cut_flood(const shared_type& shared, std::uint32_t thread) {
        const std::uint32_t terms = shared.part.terms;
        const arith::uint128 mask = (static_cast<arith::uint128>(1) << shared.part.bits) - 1;
        arith::uint128* out = reinterpret_cast<arith::uint128*>(shared.part.out);
        for (std::uint32_t k = thread; k < shared.part.count; k += draw_threads) {
            arith::uint128 sum = 0;
            for (std::uint32_t term = 0; term < terms; ++term) {
                const stream_quad quad = load_quad(shared.stream + 4 * (k * terms + term));
                const word lower = word_of(quad.words[0], quad.words[1]);
                const word upper = word_of(quad.words[2], quad.words[3]);
                sum += ((static_cast<arith::uint128>(upper) << 64) | lower) & mask;
            }
            out[k] = sum;
        }
    }

    /// Copies small values with coalesced stores, 16 bytes at a time where the place allows.
    TENSAFE_HOST_DEVICE static void copy_small_values(const shared_type& shared, std::uint32_t thread) {
        std::uint8_t* out = shared.part.out;
        const std::uint32_t count = shared.part.count;
        const std::uint32_t quads = reinterpret_cast<std::uintptr_t>(out) % 16 == 0 ? count / 16 : 0;
        for (std::uint32_t i = thread; i < quads; i += draw_threads) {
            store_quad(out + 16 * static_cast<std::size_t>(i), load_quad(shared.small_values + 4 * i));
        }
        const std::uint8_t* values = reinterpret_cast<const std::uint8_t*>(shared.small_values);
        for (std::uint32_t i = 16 * quads + thread; i < count; i += draw_threads) {
            out[i] = values[i];
        }
    }

    TENSAFE_HOST_DEVICE static void wipe(shared_type& shared, std::uint32_t thread) {
        constexpr stream_quad zeros{};
        for (std::uint32_t i = 0; i < 4; ++i) {
            store_quad(shared.stream + 4 * (draw_threads * i + thread), zeros);
        }
        for (std::uint32_t i = 0; i < 2; ++i) {
            store_quad(shared.small_values + 4 * (draw_threads * i + thread), zeros);
        }
        if (thread < 8) {
            shared.key[thread] = 0;
        }
    }
};

}  // namespace detail

/// Draws up to eight groups of polynomials in one launch, and more in several; empty groups take nothing.
/// Every value is that of the host's sampler, whatever else is drawn. Distinct groups must not write to the
/// same place; that a lane serves one sampler is the caller's affair, as everywhere.
///
/// Returns at once. Secret values steer no branch and no index, and shared memory that held stream and key is
/// wiped; registers are not; `out` and `seeds` are the caller's to wipe. Thread-safe for disjoint places.
/// @pre  seeds and out point into memory of `where`, large enough; they stay until the draws are done
/// @throws parameter_error, before any launch, if a group is impossible: no lane, a lane past 2^32, no or
///         more than eight moduli, a modulus of 0, terms other than 1 or 4, bits outside [1, 120], a null or
///         misaligned pointer, more than 2^31 - 1 thread blocks
/// Cost: bytes of key stream as on the host; a rejected uniform value is one or two blocks more for its
/// thread. Every polynomial takes a thread block at least.
template <class Where>
void draw(const Where& where, std::span<const draw_group> groups) {
    for (int pass = 0; pass < 2; ++pass) {  // checks, then launches
        detail::draw_kernel kernel{};
        std::uint64_t blocks = 0;
        const auto launch = [&] {
            if (pass == 1 && kernel.groups != 0) {
                where.launch(kernel, grid_shape{static_cast<std::uint32_t>(blocks), 1, 1});
            }
            kernel.groups = 0;
            blocks = 0;
        };
        for (const draw_group& draws : groups) {
            if (draws.polynomials == 0 || draws.size == 0) {
                continue;
            }
            detail::check_draws(draws);
            std::uint64_t more = 0;
            detail::dealt_draws dealt = detail::deal_draws(draws, more);
            constexpr std::uint64_t most_blocks = 0x7fffffff;
            require<parameter_error>(more <= most_blocks,
                                     {"device::draw: thread blocks: got ", more, ", expected below 2^31"});
            if (kernel.groups == most_draws || blocks + more > most_blocks) {
                launch();
            }
            dealt.first_block = static_cast<std::uint32_t>(blocks);
            kernel.dealt[kernel.groups++] = dealt;
            blocks += more;
        }
        launch();
    }
}

}  // namespace tensafe::device
