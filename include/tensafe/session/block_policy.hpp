#pragma once

#include <tensafe/lora/protocol/cost.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace tensafe::session {

/// The blocks of a group that a server keeps for a session until they are used up: the one in use and the
/// next one. A client asks for a third when the first is used up, and goes on without blocks if refused.
inline constexpr std::size_t most_blocks = 2;

/// The bytes of replies that a client may leave unanswered, and that a server keeps until they are
/// acknowledged, or one reply if that is longer: at 100 Mbit/s the line is full for a round trip of 80 ms.
inline constexpr std::size_t reply_window = std::size_t{1} << 20;
/// The bytes of requests that a client keeps until their replies are there, or one longer request.
inline constexpr std::size_t request_window = std::size_t{4} << 20;

/// Decides for a client of blocks whether a block is worth its bytes and its memory, and when it asks for
/// the next one. Sizes are lora::cost_of's, of a hidden state alone and of a whole block.
struct block_policy {
    /// The hidden states of each group in the whole life of the client_session, prompts and generated tokens
    /// together, if that is known: nothing is prepared for more.
    std::size_t expected_tokens = std::numeric_limits<std::size_t>::max();
    /// The most tokens of a block that is used: a block is 16 bytes of the client's memory for each token and
    /// entry of a hidden state. 1: no blocks.
    std::size_t most_tokens = 128;

    /// Whether blocks of `tokens_ahead` tokens are used at all.
    constexpr bool uses(std::size_t tokens_ahead) const noexcept {
        return tokens_ahead > 1 && tokens_ahead <= most_tokens;
    }

    /// Whether `tokens` hidden states, no more than a block has, cost fewer bytes in one than alone.
    static constexpr bool saves_bytes(const lora::token_cost& alone, const lora::token_cost& block,
                                      std::size_t tokens) noexcept {
        const std::size_t unused = block.hidden_states - tokens;
        return block.bytes() - unused * (block.online_up + block.online_down) < tokens * alone.bytes();
    }

    /// Whether another block costs fewer bytes than the hidden states that are to come, alone.
    /// @param asked  hidden states of the group so far
    /// @param left   positions of earlier blocks that the next ones take
    constexpr bool is_worth(const lora::token_cost& alone, const lora::token_cost& block, std::size_t asked,
                            std::size_t left) const noexcept {
        const std::size_t known = expected_tokens - std::min(expected_tokens, asked);
        const std::size_t to_come = known - std::min(known, left);
        return saves_bytes(alone, block, std::min(to_come, block.hidden_states));
    }

    /// The number of positions left at which a group asks for its next block: from a quarter to three
    /// quarters of a block, so that not all groups ask at one token.
    static constexpr std::size_t ask_ahead_at(std::size_t group, std::size_t groups,
                                              std::size_t tokens) noexcept {
        return tokens / 4 + group * (tokens / 2) / groups;
    }

    /// The outputs of the next part of a block that is asked for ahead: 16, so that no answer waits long
    /// behind the part (parts of 8 cost servers of many clients a tenth more), and enough that the last part
    /// comes before it is needed.
    /// @param rest  outputs that were not asked for
    /// @param left  positions of the block in use
    static constexpr std::size_t outputs_of_part(std::size_t rest, std::size_t left) noexcept {
        const std::size_t steps = std::max<std::size_t>(left, 1);
        const std::size_t least = std::max<std::size_t>(rest / steps + (rest % steps == 0 ? 0 : 1), 16);
        return std::min(rest, (least + 7) / 8 * 8);
    }
};

}  // namespace tensafe::session
