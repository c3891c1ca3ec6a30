#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace examples {

/// What the pipelines take on the command line.
struct arguments {
    /// @param set  the parameter set that is compiled in
    explicit arguments(std::string set = {}) : built_for(std::move(set)), params(built_for) {}

    std::string adapter = TENSAFE_EXAMPLE_DATA "/qwen_rank32";
    std::string hidden;  ///< empty: random hidden states
    std::string site = "q_proj";
    std::string built_for;
    std::string params;
    std::string packing;  ///< empty: one that the set and tokens_ahead go with
    std::string mode = "client_held_b";
    std::string protection = "protected";
    std::string rows = "auto";
    std::size_t tokens_ahead = 0;  ///< tokens of a block; 1: no blocks; 0: not said
    std::size_t tokens = 128;
    bool pooled = false;
    bool rescale = false;
    bool json = false;
    std::size_t rank = 16;  ///< of the truncated adapter, if there is one
    double variance = 0;    ///< the part of it to keep instead; 0: go by rank

    bool blind() const { return mode == "blind"; }
};

/// Options that do not go together: the message says which ones do. The programs end with status 2.
class usage_error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

enum class adapter_options { as_it_is, truncated };

/// Reads the command line. Returns an exit status if the program should end: after --help, or an error that
/// is already printed.
std::optional<int> parse(int argc, char** argv, const char* title, adapter_options options, arguments& args);

/// Fills in packing and tokens_ahead, and says whether the programs were built for these options together: a
/// parameter set is a type, so each combination is code of its own.
/// @throws usage_error if not; the message lists what there is
void check_combination(arguments& args);

}  // namespace examples
