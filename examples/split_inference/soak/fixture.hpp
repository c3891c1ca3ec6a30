#pragma once

#include <tensafe/lora/adapter/adapter.hpp>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "log_watch.hpp"
#include "server_process.hpp"

namespace split::soak {

/// How much a run does.
struct sizes {
    std::size_t requests = 64;     ///< good ones of the scenarios that count, and as many malformed ones
    std::size_t repetitions = 2;   ///< of what is done again and again
    std::size_t kills = 2;         ///< of a server while it packs
    std::size_t handshakes = 230;  ///< of a flood; a server lets 200 through at once
};

/// What scenarios work on: a server, and what is known of it.
struct fixture {
    std::filesystem::path program;
    std::filesystem::path folder;  ///< temporary
    bool tls = false;
    sizes amount;
    tensafe::lora::adapter kjv;  ///< what the server serves under these names
    tensafe::lora::adapter qwen;

    known_secrets secrets;
    std::unique_ptr<server_process> server;
    std::atomic<std::size_t> answers{0};  ///< right ones, all scenarios together

    using arguments = std::map<std::string, std::string>;

    /// Times so short that what waits for them is over in a few seconds; limits that nobody meets.
    static arguments usual_arguments() {
        return {{"--query-limit", "none"},      {"--rate", "1e6"},
                {"--handshake-rate", "1e6"},    {"--idle-seconds", "2"},
                {"--handshake-seconds", "1.5"}, {"--write-seconds", "2"},
                {"--session-seconds", "0.5"},   {"--sessions-per-client", "16"},
                {"--largest-message", "262144"}};
    }

    /// Replaces the server by one with these arguments besides, or instead.
    void start(arguments given = {}, const std::string& state = "state", std::uint16_t port = 0,
               std::size_t private_disk_kb = 0) {
        server.reset();
        server_process::options how;
        how.program = program;
        how.tls = tls;
        how.state = folder / state;
        how.arguments = {"--adapter", "kjv=" TENSAFE_EXAMPLE_DATA "/tiny_lm/adapter", "--adapter",
                         "qwen=" TENSAFE_EXAMPLE_DATA "/qwen_rank32"};
        given.merge(usual_arguments());
        for (const auto& [name, value] : given) {
            how.arguments.push_back(name);
            how.arguments.push_back(value);
        }
        how.port = port;
        how.private_disk_kb = private_disk_kb;
        server = std::make_unique<server_process>(how);
        secrets.add(server->admin_token());
        if (tls) {  // clients keep it when the server is gone
            std::filesystem::copy_file(server->state_inside() / "certificate.pem", trusted(),
                                       std::filesystem::copy_options::overwrite_existing);
        }
    }
    std::filesystem::path trusted() const {
        return folder / ("trusted_" + std::to_string(server->where().port) + ".pem");
    }
    endpoint where() const { return server->where(); }
};

/// A scenario throws a failure, or says what it did and what was checked.
struct scenario {
    const char* name;
    bool own_server;  ///< it starts its own, with its own options, and may end it
    std::string (*run)(fixture&);
};

}  // namespace split::soak
