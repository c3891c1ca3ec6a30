#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/ckks/sanitize/flooding.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/lora/rerandomize.hpp>
#include <tensafe/device/lora/staging.hpp>
#include <tensafe/device/random/draws.hpp>
#include <tensafe/device/rns/rescale.hpp>
#include <tensafe/device/rns/trace.hpp>
#include <tensafe/memory/packed_bits.hpp>
#include <tensafe/random/chacha20_block.hpp>
#include <tensafe/random/input_hash.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/rns/basis.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tensafe::device {

// Tokens of token blocks: what becomes of the d residues of each modulo each prime, and of what was prepared
// for its position. Pointers are into the memory of the device.

/// The places of packed residues modulo each prime in a token's request as it is staged: each limb begins a
/// word pair, and a word follows it that is read and not used.
template <class Basis>
struct token_places {
    std::uint32_t offset[Basis::limbs] = {};
    std::uint32_t stride = 0;  ///< bytes of a token

    template <int I>
    static constexpr int bits = static_cast<int>(std::bit_width(Basis::template prime<I>));

    explicit token_places(std::size_t d) {
        rns::for_each_limb<Basis>([&]<int I>() {
            offset[I] = stride;
            stride += static_cast<std::uint32_t>((memory::packed_bytes(d, bits<I>) + 23) / 16 * 16);
        });
    }
};

/// The operands of device::multiply_tokens: rows of A times tokens.
template <class Basis>
struct token_products {
    const std::uint8_t* requests;  ///< requests of the tokens, at `places`; 16-byte aligned
    token_places<Basis> places;
    const std::int32_t* integers;  ///< eight rows at a time, [d][8]: magnitudes below 2^27, 16-byte aligned
    word* sums;                    ///< [token][limb][output]
    std::uint32_t* status;         ///< words of the tokens: bit I for a residue of limb I not below its prime
    std::uint32_t tokens;
    std::uint32_t d;
    std::uint32_t outputs;
};

/// A token's place in its token block. Secret.
struct block_position {
    word* zeros;              ///< limb 0's: a word for each output; wiped when it was read
    std::uint32_t secret[8];  ///< the block's, for floods
    std::uint64_t position;
};

/// Sums of tokens on their way into replies.
struct token_answers {
    word* sums = nullptr;  ///< [token][limb][output]
    const block_position* tokens = nullptr;
    const std::uint32_t* status = nullptr;
    std::size_t limb_stride = 0;  ///< words of a block from one limb to the next
    std::uint32_t outputs = 0;
    std::uint32_t rows = 0;        ///< outputs with `bits`; the others have `check_bits`
    std::uint32_t bits = 0;        ///< width of an answer
    std::uint32_t check_bits = 0;  ///< the width of checksum outputs
    std::uint8_t* replies = nullptr;
    std::size_t stride = 0;  ///< bytes from one reply to the next
};

namespace detail {

inline constexpr std::uint32_t rows_at_once = 8;
struct alignas(16) integer_quad {
    std::int32_t values[4];
};

/// Multiplies `Tokens` tokens by eight rows in each lane at once.
template <class Basis, std::uint32_t Tokens>
struct multiply_tokens_kernel {
    static constexpr int threads = 256;
    static constexpr std::uint32_t products = Tokens * rows_at_once;
    struct shared_type {
        word sums[products][threads];
    };

    token_products<Basis> p;
    std::uint32_t tiles;
    std::uint32_t token_tiles;
    std::uint32_t lanes;  ///< lanes that share the entries of a tile: a power of two, 32 to 256

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            constexpr word q = Basis::template prime<I>;
            auto& sums = ctx.shared().sums;
            const std::uint32_t first = ctx.block().x * (threads / lanes);
            ctx.each([&](int t) {
                const std::uint32_t tile = first + static_cast<std::uint32_t>(t) / lanes;
                if (tile < tiles) {
                    multiply<I>(ctx, tile, static_cast<std::uint32_t>(t), sums);
                }
            });
            for (std::uint32_t width = lanes / 2; width > 0; width /= 2) {
                ctx.each([&](int t) {
                    const auto thread = static_cast<std::uint32_t>(t);
                    if (first + thread / lanes < tiles && thread % lanes < width) {
                        for (std::uint32_t s = 0; s < products; ++s) {
                            sums[s][thread] =
                                arith::subtract_if_not_below(sums[s][thread] + sums[s][thread + width], q);
                        }
                    }
                });
            }
            ctx.last([&](int t) {
                const auto thread = static_cast<std::uint32_t>(t);
                const std::uint32_t tile = first + thread / lanes;
                const std::uint32_t s = thread % lanes;
                if (tile < tiles && s < products) {
                    const std::uint32_t token = first_token(tile) + s / rows_at_once;
                    const std::uint32_t o = tile / token_tiles * rows_at_once + s % rows_at_once;
                    if (token < p.tokens && o < p.outputs) {
                        p.sums[limb_of<Basis, I>(token) * p.outputs + o] = sums[s][thread - s];
                    }
                }
            });
        });
    }

  private:
    // Neighbouring tiles have the same rows, which are read from memory once.
    TENSAFE_HOST_DEVICE std::uint32_t first_token(std::uint32_t tile) const {
        return tile % token_tiles * Tokens;
    }
    /// Token j of a tile; tiles at the edge compute the last one again, and do not store it.
    TENSAFE_HOST_DEVICE std::uint32_t token_of(std::uint32_t tile, std::uint32_t j) const {
        const std::uint32_t token = first_token(tile) + j;
        return token < p.tokens ? token : p.tokens - 1;
    }

    /// The width of a residue's two digits; sums of their products with so many integers fit 64 bits.
    template <int I>
    static constexpr int half = (token_places<Basis>::template bits<I> + 1) / 2;
    template <int I>
    static constexpr std::uint32_t terms = std::uint32_t{1} << (36 - half<I>);

    /// The sum low + 2^half high modulo q.
    template <int I>
    TENSAFE_HOST_DEVICE static word folded(std::int64_t low, std::int64_t high) {
        constexpr word q = Basis::template prime<I>;
        constexpr arith::barrett<arith::fixed_modulus<q>> policy{};
        // Both with 2^63 added, so that neither is negative.
        constexpr arith::uint128 shift = (arith::uint128{1} << 63) + (arith::uint128{1} << (63 + half<I>));
        constexpr word minus_shift = q - policy.reduce_any(shift);
        constexpr word sign = word{1} << 63;
        const arith::uint128 sum = (static_cast<arith::uint128>(static_cast<word>(high) ^ sign)
                                    << half<I>)+(static_cast<word>(low) ^ sign);
        return arith::subtract_if_not_below(policy.reduce_fully(sum) + minus_shift, q);
    }

    template <int I, class Context>
    TENSAFE_HOST_DEVICE void multiply(Context& ctx, std::uint32_t tile, std::uint32_t t,
                                      word (&sums)[products][threads]) const {
        constexpr word q = Basis::template prime<I>;
        constexpr auto bits = static_cast<std::uint32_t>(token_places<Basis>::template bits<I>);
        const auto* const rows = reinterpret_cast<const integer_quad*>(
            p.integers + std::size_t{tile / token_tiles} * p.d * rows_at_once);
        const word* packed[Tokens];
        for (std::uint32_t j = 0; j < Tokens; ++j) {
            packed[j] = reinterpret_cast<const word*>(
                p.requests + std::size_t{token_of(tile, j)} * p.places.stride + p.places.offset[I]);
        }
        for (std::uint32_t s = 0; s < products; ++s) {
            sums[s][t] = 0;
        }
        std::uint32_t malformed = 0;  // bit j: token j
        for (std::uint32_t k = t % lanes; k < p.d;) {
            std::int64_t low[Tokens][rows_at_once] = {};
            std::int64_t high[Tokens][rows_at_once] = {};
            const std::uint32_t left = (p.d - k - 1) / lanes + 1;
            const std::uint32_t end = k + (left < terms<I> ? left : terms<I>)*lanes;
            for (; k < end; k += lanes) {
                const integer_quad a[2] = {rows[2 * std::size_t{k}], rows[2 * std::size_t{k} + 1]};
                const std::uint32_t at = k * bits / 64;
                const std::uint32_t shift = k * bits % 64;
                for (std::uint32_t j = 0; j < Tokens; ++j) {
                    const word x = ((packed[j][at] >> shift) | (packed[j][at + 1] << 1 << (63 - shift))) &
                                   (~word{0} >> (64 - bits));
                    malformed |= (x < q ? 0U : 1U) << j;  // what came from outside is public
                    const auto lower = static_cast<std::int32_t>(x & ((word{1} << half<I>)-1));
                    const auto upper = static_cast<std::int32_t>(x >> half<I>);
                    for (std::uint32_t g = 0; g < rows_at_once; ++g) {
                        const std::int32_t integer = a[g / 4].values[g % 4];
                        low[j][g] = arith::multiply_add_signed(lower, integer, low[j][g]);
                        high[j][g] = arith::multiply_add_signed(upper, integer, high[j][g]);
                    }
                }
            }
            for (std::uint32_t j = 0; j < Tokens; ++j) {
                for (std::uint32_t g = 0; g < rows_at_once; ++g) {
                    // One after the other, for two thread blocks at once on a multiprocessor.
                    const int at =
                        Tokens == 1 ? static_cast<int>(t) : arith::rematerialized(static_cast<int>(t));
                    word& sum = sums[j * rows_at_once + g][at];
                    sum = arith::subtract_if_not_below(sum + folded<I>(low[j][g], high[j][g]), q);
                }
            }
        }
        if (malformed != 0) {
            for (std::uint32_t j = 0; j < Tokens; ++j) {
                if ((malformed >> j & 1) != 0) {
                    ctx.atomic_or(p.status + token_of(tile, j), std::uint32_t{1} << I);
                }
            }
        }
    }
};

template <class Basis, std::uint32_t Tokens, class Where>
void launch_token_products(const Where& where, const token_products<Basis>& p) {
    using kernel = multiply_tokens_kernel<Basis, Tokens>;
    constexpr auto threads = static_cast<std::uint32_t>(kernel::threads);
    constexpr auto limbs = static_cast<std::uint32_t>(Basis::limbs);
    constexpr std::uint32_t wanted_blocks = 264;  // two for each of 132 multiprocessors
    const std::uint32_t token_tiles = blocks_for(p.tokens, Tokens);
    const std::uint32_t tiles = token_tiles * blocks_for(p.outputs, rows_at_once);
    std::uint32_t lanes = threads;
    while (lanes > 32 && blocks_for(tiles, threads / lanes) * limbs > wanted_blocks) {
        lanes /= 2;
    }
    where.launch(kernel{p, tiles, token_tiles, lanes}, grid_shape{blocks_for(tiles, threads / lanes), limbs});
}

/// Computes the seed that random::input_hash makes of a block's secret, a position and a token's sums, in
/// pieces that the threads of a thread block add up.
struct token_hash : random::mersenne_61 {
    TENSAFE_HD_INLINE static void points(const std::uint32_t* secret, word* to) noexcept {
        const std::uint32_t nonce[3] = {static_cast<std::uint32_t>(random::stream_domain::hedge_points), 0,
                                        0};
        std::uint32_t words[16];
        random::chacha20_block(secret, 0, nonce, words);
        to[0] = word_of(words[0], words[1]) & prime;
        to[1] = word_of(words[2], words[3]) & prime;
    }
    TENSAFE_HD_INLINE static void seed(const std::uint32_t* secret, word first, word second,
                                       std::uint32_t* to) noexcept {
        first = canonical(first);
        second = canonical(second);
        const std::uint32_t nonce[3] = {static_cast<std::uint32_t>(random::stream_domain::hedged),
                                        static_cast<std::uint32_t>(first),
                                        static_cast<std::uint32_t>(second)};
        const auto counter =
            static_cast<std::uint32_t>((first >> 32 & 0xffff) | (second >> 32 & 0xffff) << 16);
        std::uint32_t words[16];
        random::chacha20_block(secret, counter, nonce, words);
        for (int i = 0; i < 8; ++i) {
            to[i] = words[i];
        }
    }
};

template <class Basis>
struct answer_token_kernel {
    static constexpr int threads = 256;
    static constexpr auto at_once = static_cast<std::uint32_t>(threads);
    static constexpr auto limbs = static_cast<std::uint32_t>(Basis::limbs);
    struct shared_type {
        word points[2];
        word sums[2][threads];
        std::uint32_t seed[8];
        std::uint32_t values[threads];
    };

    token_answers p;
    int flood_bits;
    word minus_centre[Basis::limbs];

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::uint32_t token = ctx.block().x;
        const std::uint32_t status = p.status[token];
        std::uint8_t* const to = p.replies + token * p.stride;
        if ((status & status_stale) != 0) {  // what is staged may belong to another batch
            return ctx.last([&](int t) { erase(to, static_cast<std::uint32_t>(t)); });
        }
        const block_position& of = p.tokens[token];
        word* const sums = p.sums + std::size_t{token} * limbs * p.outputs;
        auto& shared = ctx.shared();
        ctx.each([&](int t) {
            add_zeros<0>(of, sums, static_cast<std::uint32_t>(t));
            if (t == 0) {
                token_hash::points(of.secret, shared.points);
            }
        });
        if (status != 0) {
            return ctx.last([&](int t) {
                erase(to, static_cast<std::uint32_t>(t));
                if (t < 2) {
                    shared.points[t] = 0;
                }
            });
        }
        ctx.each([&](int t) {
            for (int i = 0; i < 2; ++i) {
                shared.sums[i][t] = hash_part(of, sums, static_cast<std::uint32_t>(t), shared.points[i]);
            }
        });
        for (int width = threads / 2; width > 0; width /= 2) {
            ctx.each([&](int t) {
                if (t < width) {
                    for (auto& part : shared.sums) {
                        part[t] = token_hash::reduced(arith::uint128{part[t]} + part[t + width]);
                    }
                }
            });
        }
        ctx.each([&](int t) {
            if (t == 0) {
                token_hash::seed(of.secret, shared.sums[0][0], shared.sums[1][0], shared.seed);
            }
        });
        std::uint8_t* const checks = to + (p.rows * p.bits + 7) / 8;
        send(ctx, of, sums, 0, p.rows, p.bits, to);
        send(ctx, of, sums, p.rows, p.outputs, p.check_bits, checks);
        ctx.last([&](int t) {
            shared.sums[0][t] = 0;
            shared.sums[1][t] = 0;
            if (t < 8) {
                shared.seed[t] = 0;
            }
            if (t < 2) {
                shared.points[t] = 0;
            }
        });
    }

  private:
    TENSAFE_HOST_DEVICE void erase(std::uint8_t* to, std::uint32_t t) const {
        for (std::size_t i = t; i < p.stride; i += at_once) {
            to[i] = 0;
        }
    }

    template <std::uint32_t I>
    TENSAFE_HOST_DEVICE void add_zeros(const block_position& of, word* sums, std::uint32_t t) const {
        for (std::uint32_t o = t; o < p.outputs; o += at_once) {
            word& sum = sums[I * p.outputs + o];
            word& zero = of.zeros[I * p.limb_stride + o];
            sum = arith::subtract_if_not_below(sum + zero, Basis::template prime<static_cast<int>(I)>);
            zero = 0;
        }
        if constexpr (I + 1 < limbs) {
            add_zeros<I + 1>(of, sums, t);
        }
    }

    /// Word k of the hashed input, of 64 bits: 1, and as input_hash::add has it, the position and each limb.
    TENSAFE_HOST_DEVICE word hashed(const block_position& of, const word* sums, std::uint32_t k) const {
        if (k < 3) {
            return k == 0 ? word{1} << 32 : (k == 1 ? word{8} : of.position);
        }
        const std::uint32_t limb = (k - 3) / (p.outputs + 1);
        const std::uint32_t o = k - 3 - limb * (p.outputs + 1);
        return o == 0 ? word{8} * p.outputs : sums[limb * p.outputs + o - 1];
    }
    /// The sum of every word number `last` - e times point^(2 e), for e = t, t + threads, ...
    TENSAFE_HOST_DEVICE word hash_part(const block_position& of, const word* sums, std::uint32_t t,
                                       word point) const {
        word step = token_hash::reduced(arith::mul_wide(point, point));
        word power = 1;
        for (std::uint32_t bit = 1; bit < at_once; bit *= 2) {
            if ((t & bit) != 0) {
                power = token_hash::reduced(arith::mul_wide(power, step));
            }
            step = token_hash::reduced(arith::mul_wide(step, step));
        }
        const std::uint32_t last = 2 + limbs * (p.outputs + 1);
        word sum = 0;
        for (std::uint32_t count = last < t ? 0 : (last - t) / at_once + 1; count > 0; --count) {
            const word x = hashed(of, sums, last - t - (count - 1) * at_once);
            sum = token_hash::reduced(arith::mul_wide(sum, step) + arith::mul_wide(x & 0xffffffff, point) +
                                      (x >> 32));
        }
        return token_hash::reduced(arith::mul_wide(sum, power));
    }

    template <std::uint32_t I>
    TENSAFE_HOST_DEVICE word shares(const word* sums, std::uint32_t o, arith::uint128 flood) const {
        constexpr int limb = static_cast<int>(I);
        const word share = rns::detail::share_of<Basis, limb>(
            plus_flood<Basis::template prime<limb>>(sums[I * p.outputs + o], flood, minus_centre[I]));
        if constexpr (I + 1 < limbs) {
            return share + shares<I + 1>(sums, o, flood);
        } else {
            return share;
        }
    }

    /// Sends outputs from `first` to `end`, flooded, switched and packed.
    template <class Context>
    TENSAFE_HOST_DEVICE void send(Context& ctx, const block_position& of, const word* sums,
                                  std::uint32_t first, std::uint32_t end, std::uint32_t bits,
                                  std::uint8_t* to) const {
        auto& shared = ctx.shared();
        for (; first < end; first += at_once) {
            const std::uint32_t count = end - first < at_once ? end - first : at_once;
            ctx.each([&](int t) {
                const auto thread = static_cast<std::uint32_t>(t);
                if (thread < count) {
                    // A flood is four draws, one block of the stream.
                    const std::uint32_t nonce[3] = {static_cast<std::uint32_t>(random::stream_domain::flood),
                                                    static_cast<std::uint32_t>(of.position), 0};
                    std::uint32_t words[16];
                    random::chacha20_block(shared.seed, first + thread, nonce, words);
                    const arith::uint128 mask = (arith::uint128{1} << flood_bits) - 1;
                    arith::uint128 flood = 0;
                    for (int i = 0; i < 16; i += 4) {
                        const word lower = word_of(words[i], words[i + 1]);
                        const word upper = word_of(words[i + 2], words[i + 3]);
                        flood += (static_cast<arith::uint128>(upper) << 64 | lower) & mask;
                    }
                    shared.values[t] = round_shares(shares<0>(sums, first + thread, flood), bits);
                }
            });
            ctx.each([&](int t) {
                const std::uint32_t bytes = (count * bits + 7) / 8;
                for (auto i = static_cast<std::uint32_t>(t); i < bytes; i += at_once) {
                    to[i] = packed_byte(shared.values, count, bits, i);
                }
            });
            to += at_once / 8 * bits;
        }
    }
};

/// Stores what a token block keeps of the encryption of zero of one product: a warp for each limb.
template <class Basis>
struct block_words_kernel {
    static constexpr int threads = 32 * Basis::limbs;
    static_assert(threads <= 1024);
    struct shared_type {
        word words[Basis::limbs][std::size_t{1} << most_subring_log_n];
    };

    const word* zero_sums;  ///< [product][limb][n][parts], evaluation form
    const std::int8_t* e0;  ///< [product][n]
    word* const* blocks;    ///< the words of each session's block, [limb][token][output]
    const std::uint32_t* status;
    const trace_factor* factors;
    std::uint32_t log_n;
    std::uint32_t parts;
    std::uint32_t outputs;
    std::uint32_t tokens;  ///< at most n: the coefficients that are kept

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::uint32_t product = ctx.block().x;
        const std::uint32_t session = product / outputs;
        if (status[session] != 0) {
            return;
        }
        const std::uint32_t n = std::uint32_t{1} << log_n;
        auto& words = ctx.shared().words;
        fold_block_sums<Basis>(ctx, words, factors, log_n, [&]<int I>(std::uint32_t k) {
            return sum_of_parts<Basis::template prime<I>>(
                zero_sums + (limb_of<Basis, I>(product) * n + k) * parts, parts);
        });
        word* const to = blocks[session] + product % outputs;
        ctx.last([&](int t) {
            each_word<Basis>(t, tokens, [&]<int I>(std::uint32_t k) {
                constexpr word q = Basis::template prime<I>;
                const word coefficient =
                    fold_scale<q>(words[I][k], factors + static_cast<std::uint32_t>(I) * n);
                to[(static_cast<std::size_t>(I) * tokens + k) * outputs] =
                    arith::plus_small<q>(coefficient, e0[std::size_t{product} * n + k]);
            });
        });
    }
};

}  // namespace detail

/// Takes the inner products of all rows with the residues of all tokens, in one launch, those of the rows
/// once from memory for neighbouring tokens: each integer meets the two digits of a residue, and sums are
/// reduced when they are done. No branch or index depends on a row.
/// @pre  all primes above 2^28; d <= 2^24
template <class Basis, class Where>
void multiply_tokens(const Where& where, const token_products<Basis>& p) {
    if (p.tokens == 1) {
        return detail::launch_token_products<Basis, 1>(where, p);
    }
    return detail::launch_token_products<Basis, 2>(where, p);
}

/// Makes replies of sums, in one launch, as lora::server does: with the encryptions of zero of their
/// positions, which are wiped, and floods whose seeds are hashes of secret, position and sums; switched and
/// packed. Replies to tokens whose status is not 0 are all 0. No branch or index depends on a secret.
/// @pre  flood.bits in [1, 120]
template <class Basis, class Where>
void answer_tokens(const Where& where, ckks::irwin_hall_smudging flood, const token_answers& p,
                   std::uint32_t tokens) {
    static_assert(ckks::irwin_hall_smudging::terms == 4);
    detail::answer_token_kernel<Basis> kernel{};
    kernel.p = p;
    kernel.flood_bits = flood.bits;
    detail::set_minus_centre<Basis>(flood, kernel.minus_centre);
    where.launch(kernel, grid_shape{tokens});
}

}  // namespace tensafe::device
