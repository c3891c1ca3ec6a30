#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/scalar_lanes.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tensafe::device {

/// The operands of device::multiply: products of plaintexts with the ciphertexts of several tokens.
/// Polynomials are in evaluation form, [limb][N] words in [0, q); pointers are into the memory of the device.
struct product_batch {
    const word* weights = nullptr;  ///< [output][input]
    const word* c0 = nullptr;       ///< [token][input]
    const word* c1 = nullptr;       ///< [token][input]
    /// An addend of c1, [token][output]; may be c1_out. Or null.
    const word* addend = nullptr;

    /// A term of each product with the key of the token's client: c0 += v * b, c1 += v * a. With v = the
    /// transform of a fresh ternary polynomial, an encryption of zero without its errors. Or null.
    const word* v = nullptr;                   ///< [token][output]; may be c1_out
    const word* b = nullptr;                   ///< [client]
    const word* a = nullptr;                   ///< [client]
    const std::uint32_t* client_of = nullptr;  ///< [token]

    word* c0_sums = nullptr;  ///< [token][output][limb][blocks]
    word* c1_out = nullptr;   ///< [token][output]

    std::uint32_t tokens = 0;
    std::uint32_t inputs = 0;  ///< 0 with a `v`: encryptions of zero alone
    std::uint32_t outputs = 0;
    /// The sums of c0: each over N / blocks neighbours; a power of two. N keeps all of c0.
    std::uint32_t blocks = 0;
};

/// The products that one thread computes at once, which use each word that it loads.
struct product_tile {
    std::uint32_t tokens;
    std::uint32_t outputs;
};

namespace detail {

inline constexpr product_tile product_tiles[] = {{1, 1}, {1, 4}, {2, 4}};

constexpr std::uint32_t tiles_of(product_tile tile, std::uint32_t tokens, std::uint32_t outputs) noexcept {
    return blocks_for(tokens, tile.tokens) * blocks_for(outputs, tile.outputs);
}

/// Chooses a tile: few products need many threads, many products few loads.
constexpr std::size_t choose_tile(std::uint32_t tokens, std::uint32_t outputs) noexcept {
    if (outputs < 3) {
        return 0;
    }
    return tokens > 1 ? 2 : (outputs < 64 ? 0 : 1);
}

template <class Basis, std::uint32_t Tokens, std::uint32_t Outputs, bool WithC0 = true>
struct multiply_kernel {
    static constexpr int threads = Tokens * Outputs == 1 ? 128 : 256;
    static constexpr std::uint32_t lanes = 32;  // neighbouring coefficients, of one tile each
    static constexpr auto lanes_of_block = static_cast<std::uint32_t>(threads);
    static constexpr std::uint32_t tiles_at_once = lanes_of_block / lanes;
    static constexpr std::uint32_t products = Tokens * Outputs;
    struct shared_type {
        word sums[products][lanes_of_block];
    };

    product_batch p;
    std::uint32_t tiles;        ///< tiles of all tokens and outputs
    std::uint32_t tile_groups;  ///< tiles / tiles_at_once, rounded up
    std::uint32_t steps;        ///< coefficients of a lane
    std::uint32_t segment;      ///< lanes that share a sum of c0, a power of two; 32 if steps > 1

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            const std::uint32_t chunk = ctx.block().x / tile_groups;
            const std::uint32_t first = (ctx.block().x - chunk * tile_groups) * tiles_at_once;
            auto& sums = ctx.shared().sums;
            ctx.each([&](int t) {
                const std::uint32_t tile = first + static_cast<std::uint32_t>(t) / lanes;
                if (tile < tiles) {
                    multiply<I>(tile, chunk, static_cast<std::uint32_t>(t), sums);
                }
            });
            for (std::uint32_t width = segment / 2; width > 0; width /= 2) {
                ctx.each([&](int t) {
                    if (first + static_cast<std::uint32_t>(t) / lanes < tiles &&
                        (static_cast<std::uint32_t>(t) & (segment - 1)) < width) {
                        for (std::uint32_t s = 0; s < products; ++s) {
                            sums[s][t] = arith::subtract_if_not_below(
                                sums[s][t] + sums[s][static_cast<std::uint32_t>(t) + width],
                                Basis::template prime<I>);
                        }
                    }
                });
            }
            ctx.last([&](int t) {
                const std::uint32_t tile = first + static_cast<std::uint32_t>(t) / lanes;
                const std::uint32_t lane = static_cast<std::uint32_t>(t) % lanes;
                if (tile < tiles && (lane & (segment - 1)) == 0) {
                    store_sums<I>(tile, (chunk * lanes + lane) / segment, t, sums);
                }
            });
        });
    }

  private:
    static constexpr std::size_t stride = Basis::degree * static_cast<std::size_t>(Basis::limbs);

    TENSAFE_HOST_DEVICE std::uint32_t output_tiles() const { return (p.outputs + Outputs - 1) / Outputs; }
    /// The last index for tiles at the edge, which compute it again, and do not store it.
    TENSAFE_HOST_DEVICE static std::uint32_t at_most(std::uint32_t x, std::uint32_t count) {
        return x < count ? x : count - 1;
    }

    template <int I>
    TENSAFE_HOST_DEVICE static void reduce_all(arith::uint128 (&x)[Tokens][Outputs]) {
        constexpr arith::barrett<arith::fixed_modulus<Basis::template prime<I>>> policy{};
        for (std::uint32_t j = 0; j < Tokens; ++j) {
            for (std::uint32_t g = 0; g < Outputs; ++g) {
                x[j][g] = policy.reduce_fully(x[j][g]);
            }
        }
    }

    template <int I>
    TENSAFE_HOST_DEVICE void multiply(std::uint32_t tile, std::uint32_t chunk, std::uint32_t t,
                                      word (&sums)[products][lanes_of_block]) const {
        using modulus = arith::fixed_modulus<Basis::template prime<I>>;
        constexpr arith::barrett<modulus> policy{};
        constexpr std::uint32_t most = static_cast<std::uint32_t>(arith::scalar::lazy_terms<modulus>);
        const std::uint32_t first_token = tile / output_tiles() * Tokens;
        const std::uint32_t first_output = tile % output_tiles() * Outputs;

        arith::uint128 c0[Tokens][Outputs] = {};
        std::uint32_t c0_terms = 0;  // products in each since it was a residue
        for (std::uint32_t step = 0; step < steps; ++step) {
            const std::size_t k = static_cast<std::size_t>(I) * Basis::degree +
                                  (std::size_t{chunk} * steps + step) * lanes + t % lanes;
            arith::uint128 c1[Tokens][Outputs] = {};
            std::uint32_t c1_terms = 0;
            if (p.addend != nullptr) {
                for (std::uint32_t j = 0; j < Tokens; ++j) {
                    for (std::uint32_t g = 0; g < Outputs; ++g) {
                        c1[j][g] = p.addend[product(first_token, first_output, j, g) * stride + k];
                    }
                }
            }
            if (p.v != nullptr) {
                if (c0_terms == most) {
                    reduce_all<I>(c0);
                    c0_terms = 0;
                }
                ++c0_terms;
                ++c1_terms;
                for (std::uint32_t j = 0; j < Tokens; ++j) {
                    const std::uint32_t token = at_most(first_token + j, p.tokens);
                    const std::size_t key = p.client_of[token] * stride + k;
                    const word b = p.b[key];
                    const word a = p.a[key];
                    for (std::uint32_t g = 0; g < Outputs; ++g) {
                        const word v = p.v[product(first_token, first_output, j, g) * stride + k];
                        c0[j][g] += arith::mul_wide(b, v);
                        c1[j][g] += arith::mul_wide(a, v);
                    }
                }
            }
            const word* const all_weights = p.inputs == 0 ? p.v : p.weights;  // none is read then
            const word* weights[Outputs];
            for (std::uint32_t g = 0; g < Outputs; ++g) {
                const std::uint32_t o = at_most(first_output + g, p.outputs);
                weights[g] = all_weights + std::size_t{o} * p.inputs * stride + k;
            }
            std::size_t at[Tokens];
            for (std::uint32_t j = 0; j < Tokens; ++j) {
                const std::uint32_t token = at_most(first_token + j, p.tokens);
                at[j] = std::size_t{token} * p.inputs * stride + k;
            }
            std::uint32_t left = p.inputs;
            while (left > 0) {
                if (c0_terms == most) {
                    reduce_all<I>(c0);
                    c0_terms = 0;
                }
                if (c1_terms == most) {
                    reduce_all<I>(c1);
                    c1_terms = 0;
                }
                const std::uint32_t room = most - (c0_terms > c1_terms ? c0_terms : c1_terms);
                std::uint32_t run = left < room ? left : room;
                left -= run;
                c0_terms += WithC0 ? run : 0;
                c1_terms += run;
                for (; run > 0; --run) {
                    word w[Outputs];
                    for (std::uint32_t g = 0; g < Outputs; ++g) {
                        w[g] = *weights[g];
                        weights[g] += stride;
                    }
                    for (std::uint32_t j = 0; j < Tokens; ++j) {
                        [[maybe_unused]] const word x0 = WithC0 ? p.c0[at[j]] : 0;
                        const word x1 = p.c1[at[j]];
                        at[j] += stride;
                        for (std::uint32_t g = 0; g < Outputs; ++g) {
                            if constexpr (WithC0) {
                                c0[j][g] += arith::mul_wide(x0, w[g]);
                            }
                            c1[j][g] += arith::mul_wide(x1, w[g]);
                        }
                    }
                }
            }
            for (std::uint32_t j = 0; j < Tokens; ++j) {
                for (std::uint32_t g = 0; g < Outputs; ++g) {
                    if (first_token + j < p.tokens && first_output + g < p.outputs) {
                        p.c1_out[product(first_token, first_output, j, g) * stride + k] =
                            policy.reduce_fully(c1[j][g]);
                    }
                }
            }
        }
        for (std::uint32_t j = 0; j < Tokens; ++j) {
            for (std::uint32_t g = 0; g < Outputs; ++g) {
                sums[j * Outputs + g][t] = policy.reduce_fully(c0[j][g]);
            }
        }
    }

    /// The number of a product in the stacks [token][output].
    TENSAFE_HOST_DEVICE std::size_t product(std::uint32_t first_token, std::uint32_t first_output,
                                            std::uint32_t j, std::uint32_t g) const {
        return std::size_t{at_most(first_token + j, p.tokens)} * p.outputs +
               at_most(first_output + g, p.outputs);
    }

    template <int I>
    TENSAFE_HOST_DEVICE void store_sums(std::uint32_t tile, std::uint32_t block, int t,
                                        const word (&sums)[products][lanes_of_block]) const {
        const std::uint32_t first_token = tile / output_tiles() * Tokens;
        const std::uint32_t first_output = tile % output_tiles() * Outputs;
        for (std::uint32_t j = 0; j < Tokens; ++j) {
            for (std::uint32_t g = 0; g < Outputs; ++g) {
                if (first_token + j < p.tokens && first_output + g < p.outputs) {
                    const std::size_t limb = limb_of<Basis, I>(product(first_token, first_output, j, g));
                    p.c0_sums[limb * p.blocks + block] = sums[j * Outputs + g][t];
                }
            }
        }
    }
};

template <class Basis, std::uint32_t Tokens, std::uint32_t Outputs, bool WithC0, class Where>
void launch_products(const Where& where, const product_batch& p) {
    using kernel = multiply_kernel<Basis, Tokens, Outputs, WithC0>;
    const std::uint32_t span = static_cast<std::uint32_t>(Basis::degree) / p.blocks;
    const std::uint32_t tiles = tiles_of({Tokens, Outputs}, p.tokens, p.outputs);
    kernel k{};
    k.p = p;
    k.tiles = tiles;
    k.tile_groups = blocks_for(tiles, kernel::tiles_at_once);
    k.segment = span < kernel::lanes ? span : kernel::lanes;
    k.steps = span / k.segment;
    const std::uint32_t chunks = static_cast<std::uint32_t>(Basis::degree) / (kernel::lanes * k.steps);
    where.launch(k, grid_shape{chunks * k.tile_groups, static_cast<std::uint32_t>(Basis::limbs)});
}

}  // namespace detail

/// The number of sums of which c0 should consist for a device to be busy, when `trace` are needed: a multiple
/// of it; whoever reads c0 adds up neighbours. Finer sums give more thread blocks, coarser ones fewer words.
/// @param trace  a power of two up to N
template <class Basis>
constexpr std::uint32_t product_sums(std::uint32_t tokens, std::uint32_t outputs, std::uint32_t trace) {
    constexpr std::uint32_t wanted_blocks = 264;  // two for each of 132 multiprocessors
    constexpr std::uint32_t most_at_once = 256;   // coefficients of a sum
    const std::size_t tile = detail::choose_tile(tokens, outputs);
    const std::uint32_t groups =
        blocks_for(detail::tiles_of(detail::product_tiles[tile], tokens, outputs), tile == 0 ? 4 : 8);
    const auto degree = static_cast<std::uint32_t>(Basis::degree);
    std::uint32_t span = degree / trace;
    while (span > 32 && (span > most_at_once ||
                         std::uint64_t{degree / span} * groups * static_cast<std::uint32_t>(Basis::limbs) <
                             wanted_blocks)) {
        span /= 2;
    }
    return degree / span;
}

/// The most sums that are ever advised: room for c0_sums of any number of tokens.
template <class Basis>
constexpr std::uint32_t most_product_sums(std::uint32_t trace) {
    const auto finest = static_cast<std::uint32_t>(Basis::degree / 32);
    return trace > finest ? trace : finest;
}

/// Multiplies plaintexts with the ciphertexts of several tokens, all limbs in one launch: for each token t
/// and output o
///
///     c1_out[t][o][k]  = addend[t][o][k] + v[t][o][k] * a[client of t][k]
///                        + sum over i of w[o][i][k] * c1[t][i][k]
///     c0_sums[t][o][b] = sum over block b of k of v[t][o][k] * b[client of t][k]
///                        + sum over i of w[o][i][k] * c0[t][i][k]
///
/// modulo each prime: the words of rns::multiply_panel. Any number of inputs is right; several adapters are
/// more outputs. No branch or index depends on a value.
///
/// Cost: each ciphertext, result and addend or v once from memory, the weights once for each 8 to 16 tokens.
/// Below about 16 inputs memory is the bound, beyond it products of words.
/// @tparam WithC0  without it plaintexts meet c1 alone, and c0_sums are those of v*b
/// @throws shape_error if there are no tokens or outputs, or neither inputs nor a v, or if `blocks` is
///         no power of two up to N
template <class Basis, bool WithC0 = true, class Where>
void multiply(const Where& where, const product_batch& p) {
    static_assert(Basis::degree >= 32, "device::multiply: the degree must be at least 32");
    require<shape_error>(p.tokens != 0 && p.outputs != 0 && (p.inputs != 0 || p.v != nullptr),
                         {"device::multiply: got ", p.tokens, " tokens, ", p.inputs, " inputs and ",
                          p.outputs, " outputs, expected at least one of each"});
    require<shape_error>(std::has_single_bit(p.blocks) && p.blocks <= Basis::degree,
                         {"device::multiply: got ", p.blocks,
                          " blocks of c0, expected a power of two up to the degree ", Basis::degree});
    switch (detail::choose_tile(p.tokens, p.outputs)) {
        case 0:
            return detail::launch_products<Basis, 1, 1, WithC0>(where, p);
        case 1:
            return detail::launch_products<Basis, 1, 4, WithC0>(where, p);
        default:
            return detail::launch_products<Basis, 2, 4, WithC0>(where, p);
    }
}

}  // namespace tensafe::device
