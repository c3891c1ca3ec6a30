#pragma once

#include <tensafe/lora/protocol/cost.hpp>

#include <cstddef>
#include <string>

#include "arguments.hpp"

namespace examples {

/// What is known of a run before it starts, from shapes and types alone.
struct prediction {
    std::size_t d = 0;               ///< entries of a hidden state
    std::size_t rows = 0;            ///< rows of A in a plaintext, for coefficient_tiles
    tensafe::lora::token_cost cost;  ///< of a token or block; nothing for replies that show A
    bool trusts_client = false;  ///< more targets under an encryption of zero than a cheating client may have
    double distance = 1;         ///< statistical, of 2^20 tokens' replies from ones made of the answers alone
    double distance_of_one = 1;  ///< the same for a single token
    double flood_ratio = 0;      ///< the flood is this many times what it hides
    bool average_case = false;   ///< answers can wrap around; then the token is sent again
};

/// @param d  entries of a hidden state;  @param average-case  whether answers can wrap around
prediction prediction_of(const tensafe::lora::token_cost& cost, std::size_t d, bool average_case);

/// What each side learns if both follow the protocol, in a sentence each.
struct knowledge {
    std::string server;
    std::string client;
};
knowledge what_each_side_learns(const arguments& args, const prediction& predicted);

}  // namespace examples
