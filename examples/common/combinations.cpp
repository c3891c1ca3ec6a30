#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "arguments.hpp"

namespace examples {

namespace {

/// A row says what goes with a parameter set. pipeline.cpp has the code.
struct combination {
    std::string_view params;
    std::string_view packing;  ///< one, or two with "or" between them
    std::string_view protection;
    bool blind;  ///< also in mode blind
};

// Average-case ranges, and so the sets made for them, are for tiles and blocks.
constexpr std::string_view blocks_or_tiles = "token_blocks or coefficient_tiles";
constexpr std::array combinations{
    combination{"private_n4096", blocks_or_tiles, "protected", true},
    combination{"private_n4096", "replicated_slots", "protected", true},
    combination{"quantum_n4096", blocks_or_tiles, "protected", true},
    combination{"quantum_n4096", "replicated_slots", "protected", true},
    combination{"compact_n4096", blocks_or_tiles, "protected", true},
    combination{"minimal_n2048", blocks_or_tiles, "protected", true},
    combination{"n*", "replicated_slots", "protected", true},
    combination{"n*", "replicated_slots", "reveals_adapter_rows", false},
};

bool of_set(const combination& c, std::string_view params) {
    return c.params == params || (c.params == "n*" && params.starts_with('n'));
}

}  // namespace

void check_combination(arguments& args) {
    if (args.params != args.built_for) {
        throw usage_error("this program was built for --params " + args.built_for +
                          "; scripts/demo builds it for " + args.params + " (target rank32_pipeline_" +
                          args.params + ")");
    }
    if (args.packing.empty()) {
        const bool tiles = args.tokens_ahead == 1 || (args.tokens_ahead == 0 && args.rows != "auto");
        args.packing = args.params.starts_with('n') ? "replicated_slots"
                       : tiles                      ? "coefficient_tiles"
                                                    : "token_blocks";
    }
    const bool in_blocks = args.packing == "token_blocks";
    if (args.tokens_ahead == 0) {
        args.tokens_ahead = !in_blocks ? 1 : args.blind() ? 128 : 32;  // many rows pay for a block later
    }
    if (in_blocks && args.rows != "auto") {
        throw usage_error("--rows: got " + args.rows + ", expected none with --tokens-ahead " +
                          std::to_string(args.tokens_ahead) + ": rows go with --packing coefficient_tiles");
    }
    if (args.tokens_ahead > 4096 || in_blocks != (args.tokens_ahead > 1)) {
        throw usage_error("--tokens-ahead: got " + std::to_string(args.tokens_ahead) + ", expected " +
                          (in_blocks ? "2 to 4096" : "1") + " with --packing " + args.packing);
    }
    const auto fits = [&](const combination& c) {
        return of_set(c, args.params) && c.packing.find(args.packing) != c.packing.npos &&
               c.protection == args.protection && (c.blind || !args.blind());
    };
    if (std::none_of(combinations.begin(), combinations.end(), fits)) {
        std::string message = "this program has no " + args.params + " with --packing " + args.packing +
                              " --mode " + args.mode + " --protection " + args.protection + "; it has";
        for (const combination& c : combinations) {
            if (of_set(c, args.params)) {
                message += "\n  --params " + args.params + " --packing " + std::string(c.packing) +
                           " --protection " + std::string(c.protection) + " --mode client_held_b" +
                           (c.blind ? " or blind" : "");
            }
        }
        if (args.protection == "reveals_adapter_rows" && !args.params.starts_with('n')) {
            message += "\n--params n16384_l4 has --protection reveals_adapter_rows";
        }
        throw usage_error(message);
    }
    if (args.rescale && args.protection == "protected") {
        throw usage_error(
            "--rescale is for bare replies, --protection reveals_adapter_rows; protected ones are made short "
            "in another way, always");
    }
    if (args.pooled && args.protection != "protected") {
        throw usage_error("--pooled is for --protection protected; bare replies need no encryptions of zero");
    }
    if (args.rows != "auto" && args.packing != "coefficient_tiles") {
        throw usage_error("--rows is for --packing coefficient_tiles; in " + args.packing +
                          " it follows from the shape");
    }
}

}  // namespace examples
