#pragma once

#include <tensafe/lora/adapter/adapter.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

#include "server_process.hpp"

namespace split::soak {

/// Texts that must never stand in a log. Sixteen characters of one in a row are enough to be found. For all
/// threads.
class known_secrets {
  public:
    void add(std::string_view secret) {
        const std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i + piece <= secret.size(); ++i) {
            pieces_.emplace(secret.substr(i, piece));
        }
    }
    bool found_in(std::string_view line) const {
        const std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i + piece <= line.size(); ++i) {
            if (pieces_.contains(std::string(line.substr(i, piece)))) {
                return true;
            }
        }
        return false;
    }
    void clear() {
        const std::lock_guard lock(mutex_);
        pieces_.clear();
    }

  private:
    static constexpr std::size_t piece = 16;
    mutable std::mutex mutex_;
    std::unordered_set<std::string> pieces_;
};

inline void require_no_long_run(const std::string& line) {
    constexpr std::size_t longest = 15;
    std::size_t run = 0;
    for (std::size_t i = 0; i <= line.size(); ++i) {
        const char c = i < line.size() ? line[i] : '\0';
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) {
            ++run;
            continue;
        }
        require(run <= longest, "a line of the log", "\"" + line + "\"",
                "no more than 15 hexadecimal digits in a row");
        run = 0;
    }
}

/// Each line is a JSON object with time, level and event, and holds no secret: none that is known, and
/// nothing that looks like one, a run of more digits and letters than any word has.
/// @return how often each event was there
/// @throws failure naming the line
inline std::map<std::string, std::size_t> check_log(std::string_view text, const known_secrets& secrets) {
    std::map<std::string, std::size_t> events;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string line(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.rfind("split_server: --insecure-plaintext", 0) == 0) {
            continue;  // the warning for people, before the log begins
        }
        const auto object = nlohmann::json::parse(line, nullptr, false);
        require(object.is_object() && object.contains("time") && object.contains("level") &&
                    object.contains("event"),
                "a line of the log", "\"" + line + "\"", "a JSON object with time, level and event");
        require(!secrets.found_in(line), "a line of the log", "\"" + line + "\"", "no secret in it");
        require_no_long_run(line);
        ++events[object["event"].get<std::string>()];
    }
    return events;
}

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
        return {{"--client-share", "none"},     {"--adapter-share", "none"},
                {"--tenant-share", "none"},     {"--rate", "1e6"},
                {"--handshake-rate", "1e6"},    {"--idle-seconds", "2"},
                {"--handshake-seconds", "1.5"}, {"--write-seconds", "2"},
                {"--session-seconds", "0.5"},   {"--sessions-per-client", "16"},
                {"--largest-message", "262144"}};
    }

    /// Replaces the server by one with these arguments besides, or instead.
    void start(arguments given = {}, const std::string& state = "state", std::uint16_t port = 0,
               std::size_t private_disk_kb = 0, bool log_stands_still = false) {
        server.reset();
        server_process::options how;
        how.program = program;
        how.tls = tls;
        how.state = folder / state;
        how.arguments = {"--adapter", "kjv=" TENSAFE_EXAMPLE_DATA "/tiny_lm/adapter", "--adapter",
                         "qwen=" TENSAFE_EXAMPLE_DATA "/qwen_rank32"};
        if (!given.contains("--clients")) {
            how.arguments.emplace_back("--anybody");
        }
        given.merge(usual_arguments());
        for (const auto& [name, value] : given) {
            how.arguments.push_back(name);
            how.arguments.push_back(value);
        }
        how.port = port;
        how.private_disk_kb = private_disk_kb;
        how.log_stands_still = log_stands_still;
        server = std::make_unique<server_process>(how);
        secrets.add(server->admin_token());
        if (tls) {  // clients keep it when the server is gone, and may be reading it
            const std::filesystem::path copy = folder / "certificate.pem";
            std::filesystem::copy_file(server->state_inside() / "certificate.pem", copy,
                                       std::filesystem::copy_options::overwrite_existing);
            std::filesystem::rename(copy, trusted());
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
