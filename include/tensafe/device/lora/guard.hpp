#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/device/exec/context.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tensafe::lora {

// What may have gone wrong with a token on the device: bits of its status word. Bits 0 to 7 of a server's
// words say which limb of the request held something that is no residue.

/// Of a client: the hidden state holds what is no finite number, or its norm passes what can be encoded.
inline constexpr std::uint32_t status_not_finite = 1;
/// Of a client: an answer passed the calibrated range.
inline constexpr std::uint32_t status_range_exceeded = 2;
/// Of a client: the reply is no packing of coefficients, or was erased.
inline constexpr std::uint32_t status_malformed_reply = 4;
/// Staged, and not answered: work was not enqueued, or is under way.
inline constexpr std::uint32_t status_pending = std::uint32_t{1} << 30;
/// Work that was replayed without staging: its randomness has been used before.
inline constexpr std::uint32_t status_stale = std::uint32_t{1} << 31;

/// What a staging says about its batch.
struct batch_record {
    std::uint64_t number = 0;  ///< of the staging: no two have the same
    std::uint64_t tokens = 0;
    const void* states = nullptr;  ///< hidden states that are on the device already
    double overflow_margin = 1;
};

/// Starts a batch: sets its status words to 0, or to status_stale if the staging was seen before or is of
/// another batch than the one that was enqueued. So a graph that is replayed once too often hides nothing
/// twice with the same randomness: seal_kernel then erases what would have left the device.
struct claim_kernel {
    static constexpr int threads = 256;
    using shared_type = exec::no_shared;

    const batch_record* staged;
    std::uint64_t* seen;  ///< number of the last staging
    std::uint32_t* status;
    const void* states;
    std::uint32_t tokens;

    /// One block.
    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.each([&](int t) {
            const bool fresh =
                staged->number != *seen && staged->tokens == tokens && staged->states == states;
            const std::uint32_t start = fresh ? 0 : status_stale;
            for (auto token = static_cast<std::uint32_t>(t); token < tokens; token += threads) {
                status[token] = start;
            }
        });
        ctx.last([&](int t) {
            if (t == 0) {
                *seen = staged->number;
            }
        });
    }
};

/// Ends a batch: overwrites the messages of tokens whose status has one of these bits with zeros.
struct seal_kernel {
    static constexpr int threads = 256;
    static constexpr std::size_t bytes_per_block = 16 * threads;
    using shared_type = exec::no_shared;

    const std::uint32_t* status;
    std::uint8_t* messages;
    std::size_t stride;    ///< bytes of a token's message, a multiple of 4
    std::uint32_t blocks;  ///< for one token
    std::uint32_t bits;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::uint32_t token = ctx.block().x / blocks;
        if ((status[token] & bits) == 0) {
            return;
        }
        const std::size_t first = std::size_t{ctx.block().x % blocks} * bytes_per_block;
        ctx.last([&](int t) {
            for (std::size_t word = 0; word < 4; ++word) {
                const std::size_t at = first + (word * threads + static_cast<std::size_t>(t)) * 4;
                if (at < stride) {
                    *reinterpret_cast<std::uint32_t*>(messages + token * stride + at) = 0;
                }
            }
        });
    }
};

/// Before a new staging touches anything: what is staged by halves when it fails must never be enqueued, nor
/// replayed.
inline void withdraw(batch_record& record, std::size_t& tokens) noexcept {
    tokens = 0;
    record.tokens = 0;
}

/// @throws shape_error unless a workspace was made for this layout: its memory would be too small
template <class Layout>
void check_workspace(const char* who, const Layout& of_workspace, const Layout& wanted) {
    if (!(of_workspace == wanted)) {
        throw shape_error(std::string(who) + ": got a workspace made for a " +
                          std::to_string(of_workspace.rank) + " x " + std::to_string(of_workspace.d) +
                          " matrix, expected one for this " + std::to_string(wanted.rank) + " x " +
                          std::to_string(wanted.d) + " matrix");
    }
}
/// @throws error unless something is staged
inline void check_staged(const char* who, std::size_t tokens) {
    if (tokens == 0) {
        throw error(std::string(who) + ": nothing is staged; call stage() first");
    }
}
/// @throws shape_error unless there is room for a token
inline std::size_t checked_room(const char* who, std::size_t largest) {
    if (largest == 0) {
        throw shape_error(std::string(who) + ": got a workspace for 0 tokens, expected 1 or more");
    }
    return largest;
}

template <class Where>
void claim(const Where& where, const batch_record* staged, std::uint64_t* seen, std::uint32_t* status,
           std::size_t tokens, const void* states = nullptr) {
    where.launch(claim_kernel{staged, seen, status, states, static_cast<std::uint32_t>(tokens)},
                 exec::grid_shape{});
}

template <class Where>
void seal(const Where& where, const std::uint32_t* status, std::uint8_t* messages, std::size_t stride,
          std::size_t tokens, std::uint32_t bits) {
    const std::uint32_t blocks = exec::blocks_for(stride, seal_kernel::bytes_per_block);
    where.launch(seal_kernel{status, messages, stride, blocks, bits},
                 exec::grid_shape{static_cast<std::uint32_t>(tokens) * blocks});
}

}  // namespace tensafe::lora
