#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace examples {

/// What the pipelines take on the command line.
struct arguments {
    std::string adapter = TENSAFE_EXAMPLE_DATA "/qwen_rank32";
    std::string hidden;  ///< empty: random hidden states
    std::string site = "q_proj";
    std::string params = "n16384_l4";
    std::string packing = "replicated_slots";
    std::string mode = "client_held_b";
    std::string protection = "reveals_adapter_rows";
    std::size_t tokens = 16;
    bool rescale = false;
    bool json = false;
    std::size_t rank = 16;  ///< of the truncated adapter, if there is one
    double variance = 0;    ///< the part of it to keep instead; 0: go by rank
};

enum class adapter_options { as_it_is, truncated };

/// Reads the command line. Returns an exit status if the program should end: after --help, or an error that
/// is already printed.
std::optional<int> parse(int argc, char** argv, const char* title, adapter_options options, arguments& args);

}  // namespace examples
