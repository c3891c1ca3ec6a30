#pragma once

#include <tensafe/io/peft.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <nlohmann/json.hpp>

#include <cctype>

#include "server_process.hpp"

namespace split::soak {

/// Each line is a JSON object with time, level and event, and holds no secret. Nonces, tokens, keys, sessions
/// and signatures are hexadecimal digits everywhere: a log has no more than 15 of them in a row.
/// @throws failure naming the line
inline void check_log(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("tensafe-server: --insecure-plaintext")) {
            continue;  // the warning for people, before the log begins
        }
        const auto object = nlohmann::json::parse(line, nullptr, false);
        const auto secret = std::search_n(line.begin(), line.end(), 16, true,
                                          [](unsigned char c, bool) { return std::isxdigit(c) != 0; });
        require(object.is_object() && object.contains("time") && object.contains("level") &&
                    object.contains("event") && secret == line.end(),
                "a line of the log", "\"" + line + "\"",
                "a JSON object with time, level and event, and no more than 15 hexadecimal digits in a row");
    }
}

/// How much a run does.
struct sizes {
    std::size_t requests = 64;     ///< good ones of the scenarios that count, and as many malformed ones
    std::size_t repetitions = 2;   ///< of what is done again and again
    std::size_t kills = 2;         ///< of a server while it packs
    std::size_t tokens_ahead = 4;  ///< of a block: few, so that blocks end
};

/// What scenarios work on: a server, and what is known of it.
struct fixture {
    std::filesystem::path program;
    std::filesystem::path folder;  ///< temporary
    bool tls = false;
    sizes amount;
    // What the server serves under these names.
    const tensafe::lora::adapter kjv = tensafe::io::load_peft(TENSAFE_EXAMPLE_DATA "/tiny_lm/adapter");
    const tensafe::lora::adapter qwen = tensafe::io::load_peft(TENSAFE_EXAMPLE_DATA "/qwen_rank32");

    std::mt19937 generator{8};  ///< of one thread; with a seed, so that a failure comes again
    std::unique_ptr<server_process> server;
    std::atomic<std::uint16_t> port{0};  ///< of the last server: clients ask for it while the next one starts
    std::atomic<std::size_t> answers{0};  ///< right ones, all scenarios together
    std::mutex counting;                  ///< held by a bystander's request: for who compares counts

    using arguments = std::map<std::string, std::string>;

    /// Replaces the server by one with these arguments besides, or instead.
    /// @param how  its state is below `folder`, and is emptied unless the server comes back to its port
    void start(arguments given = {}, server_process::options how = {}) {
        server.reset();
        how.state = folder / how.state;
        if (how.port == 0) {
            std::filesystem::remove_all(how.state);
        }
        how.tls = tls;
        how.program = program;
        how.arguments = {"--adapter", "kjv=" TENSAFE_EXAMPLE_DATA "/tiny_lm/adapter", "--adapter",
                         "qwen=" TENSAFE_EXAMPLE_DATA "/qwen_rank32"};
        if (!given.contains("--clients")) {
            how.arguments.emplace_back("--anybody");
        }
        // Times so short that what waits for them is over in a few seconds; limits that nobody meets.
        arguments usual = {
            {"--client-share", "none"},      {"--adapter-share", "none"},
            {"--tenant-share", "none"},      {"--rate", "1e6"},
            {"--handshake-rate", "1e6"},     {"--idle-seconds", "2"},
            {"--handshake-seconds", "1.5"},  {"--write-seconds", "2"},
            {"--session-seconds", "0.5"},    {"--sessions-per-client", "16"},
            {"--largest-message", "262144"}, {"--tokens-ahead", std::to_string(amount.tokens_ahead)}};
        given.merge(usual);
        for (const auto& [name, value] : given) {
            how.arguments.insert(how.arguments.end(), {name, value});
        }
        server = std::make_unique<server_process>(how);
        port = server->where().port;
        if (tls) {  // clients keep it when the server is gone, and may be reading it
            const std::filesystem::path copy = folder / "certificate.pem";
            std::filesystem::copy_file(server->state_inside() / "certificate.pem", copy,
                                       std::filesystem::copy_options::overwrite_existing);
            std::filesystem::rename(copy, trusted());
        }
    }
    /// Ends the server with this signal; 0: it has had one. @return its log, checked
    std::string end_server(int signal, int expected) {
        server->send_signal(signal);
        require_equal("the server's exit status", server->wait(), expected);
        const std::string log = server->take_log();
        check_log(log);
        return log;
    }
    std::filesystem::path trusted() const { return folder / "trusted.pem"; }
    endpoint where() const { return {port, tls}; }
};

/// A scenario throws if something is not as it has to be.
struct scenario {
    const char* name;
    bool own_server;  ///< it starts its own, with its own options, and may end it
    bool repeats;     ///< sizes::repetitions times
    std::function<void(fixture&)> run;
};

}  // namespace split::soak
