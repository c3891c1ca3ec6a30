#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

#include "check.hpp"

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

}  // namespace split::soak
