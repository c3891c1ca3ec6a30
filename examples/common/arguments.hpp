#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <string>

namespace examples {

/// What the pipelines take on the command line.
struct arguments {
    std::string adapter;
    std::string hidden;
    std::string site = "q_proj";
    std::string params = "n16384_l4";
    std::string packing = "replicated_slots";
    std::string mode = "client_held_b";
    std::string protection = "reveals_adapter_rows";
    std::size_t tokens = 16;
    std::size_t rank = 16;
    bool rescale = false;
    bool json = false;
};

inline void add_options(CLI::App& app, arguments& args, const std::string& data) {
    args.adapter = data + "/qwen_rank32";
    args.hidden = data + "/qwen_rank32/hidden_states.safetensors";
    app.set_help_flag("--help", "Print this help and exit");
    app.get_formatter()->column_width(34);
    app.add_option("--adapter", args.adapter, "PEFT directory")->type_name("DIR");
    app.add_option("--hidden", args.hidden, "safetensors with one [tokens, d] tensor for each site")
        ->type_name("FILE");
    app.add_option("--site", args.site, "adapter site: any unambiguous end of its name")
        ->type_name("NAME")
        ->capture_default_str();
    app.add_option("--params", args.params, "parameter set")
        ->check(CLI::IsMember({"n8192_l4", "n16384_l4", "n16384_l5", "n32768_l4", "n32768_l5"}))
        ->type_name("NAME")
        ->capture_default_str();
    app.add_option("--packing", args.packing, "how h and A are laid out")
        ->check(CLI::IsMember({"replicated_slots"}))
        ->type_name("NAME")
        ->capture_default_str();
    app.add_option("--mode", args.mode, "who applies B")
        ->check(CLI::IsMember({"client_held_b"}))
        ->type_name("NAME")
        ->capture_default_str();
    app.add_option("--protection", args.protection, "what a reply gives away")
        ->check(CLI::IsMember({"reveals_adapter_rows"}))
        ->type_name("NAME")
        ->capture_default_str();
    app.add_option("--tokens", args.tokens, "hidden states to send, going round the file if there are fewer")
        ->check(CLI::Range(std::size_t{1}, std::size_t{1000000}))
        ->type_name("N")
        ->capture_default_str();
    app.add_flag("--rescale", args.rescale, "rescale on the server: shorter replies, more server time");
    app.add_flag("--json", args.json, "print the results as one JSON object on the last line");
}

}  // namespace examples
