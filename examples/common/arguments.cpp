#include "arguments.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>

namespace examples {

namespace {

void add_options(CLI::App& app, arguments& args) {
    app.set_help_flag("--help", "Print this help and exit");
    app.get_formatter()->column_width(34);
    app.add_option("--adapter", args.adapter, "PEFT directory; default: the one in examples/data")
        ->type_name("DIR");
    app.add_option(
           "--hidden", args.hidden,
           "safetensors with one [tokens, d] tensor for each site; default: the one in examples/data, and "
           "normal random numbers for an adapter of your own")
        ->type_name("FILE");
    app.add_option("--site", args.site,
                   "adapter site: the last dotted parts of its name, as q_proj or self_attn.q_proj")
        ->type_name("NAME")
        ->capture_default_str();
    app.add_option("--params", args.params, "parameter set")
        ->check(CLI::IsMember({"private_n4096", "quantum_n4096", "compact_n4096", "minimal_n2048", "n8192_l4",
                               "n16384_l4", "n16384_l5", "n32768_l4", "n32768_l5"}))
        ->type_name("NAME")
        ->capture_default_str();
    app.add_option("--packing", args.packing,
                   "how h and A are laid out: token_blocks, and for one token at a time coefficient_tiles "
                   "or replicated_slots; default: the first of these that goes with the other options")
        ->check(CLI::IsMember({"token_blocks", "coefficient_tiles", "replicated_slots"}))
        ->type_name("NAME");
    app.add_option("--tokens-ahead", args.tokens_ahead,
                   "tokens of a block, prepared before they exist; 1: no blocks; default: 32, in mode "
                   "blind 128")
        ->check(CLI::Range(1, 4096))
        ->type_name("T");
    app.add_option("--mode", args.mode, "who applies B: client_held_b (the client) or blind (the server)")
        ->check(CLI::IsMember({"client_held_b", "blind"}))
        ->type_name("NAME")
        ->capture_default_str();
    app.add_option("--protection", args.protection,
                   "what a reply gives away: protected (its answers) or reveals_adapter_rows (A)")
        ->check(CLI::IsMember({"protected", "reveals_adapter_rows"}))
        ->type_name("NAME")
        ->capture_default_str();
    app.add_option("--rows", args.rows,
                   "rows of A in a plaintext of coefficient_tiles: 1, 2, 4, 8, 16, 32, or auto for the "
                   "fewest bytes")
        ->check(CLI::IsMember({"auto", "1", "2", "4", "8", "16", "32"}))
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--tokens", args.tokens, "hidden states to send, going round the file if there are fewer")
        ->check(CLI::Range(std::size_t{1}, std::size_t{1000000}))
        ->type_name("N")
        ->capture_default_str();
    app.add_flag(
        "--pooled", args.pooled,
        "make encryptions of zero before each token or block, off the clock, as an idle server does");
    app.add_flag("--rescale", args.rescale, "rescale bare replies: shorter, and more server time");
    app.add_flag("--json", args.json, "print the results as one JSON object on the last line");
}

void add_truncation_options(CLI::App& app, arguments& args) {
    auto* rank = app.add_option("--rank", args.rank, "rank to keep")
                     ->check(CLI::PositiveNumber)
                     ->type_name("N")
                     ->capture_default_str();
    app.add_option("--variance", args.variance, "keep this part of the variance instead, in (0, 1]")
        ->check(CLI::Range(1e-9, 1.0))
        ->type_name("X")
        ->excludes(rank);
}

}  // namespace

std::optional<int> parse(int argc, char** argv, const char* title, adapter_options options, arguments& args) {
    CLI::App app(title);
    add_options(app, args);
    if (options == adapter_options::truncated) {
        add_truncation_options(app, args);
    }
    try {
        app.parse(argc, argv);
        if (args.hidden.empty() && app.count("--adapter") == 0) {
            args.hidden = TENSAFE_EXAMPLE_DATA "/qwen_rank32/hidden_states.safetensors";
        }
        check_combination(args);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 2;
    } catch (const usage_error& e) {
        std::fprintf(stderr, "%s\nRun with --help for more information.\n", e.what());
        return 2;
    }
    return std::nullopt;
}

}  // namespace examples
