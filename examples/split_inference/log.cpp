#include "log.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

namespace split {

namespace {

std::string utc_text(std::chrono::system_clock::time_point at) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
    const auto within = std::chrono::duration_cast<std::chrono::milliseconds>(
                            at - std::chrono::system_clock::from_time_t(seconds))
                            .count();
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    std::array<char, 48> text{};
    const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    static_cast<void>(
        std::snprintf(text.data() + size, text.size() - size, ".%03dZ", static_cast<int>(within)));
    return text.data();
}

constexpr std::array<const char*, 3> level_names = {"info", "warning", "error"};

}  // namespace

log::log(std::function<void(std::string_view)> write,
         std::function<std::chrono::system_clock::time_point()> now)
    : write_(std::move(write)), now_(std::move(now)) {}

void log::line(log_level level, std::string_view event, std::initializer_list<field> fields) const noexcept {
    if (!write_) {
        return;
    }
    try {
        nlohmann::ordered_json object;
        object["time"] = utc_text(now_());
        object["level"] = level_names[static_cast<std::size_t>(level)];
        object["event"] = event;
        for (const field& each : fields) {
            std::visit([&](const auto& value) { object[std::string(each.name)] = value; }, each.value);
        }
        write_(object.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    } catch (...) {
        return;
    }
}

log log::to_standard_error() {
    // One call for a line: the stream's lock keeps it whole.
    return log(
        [](std::string_view line) { static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr)); });
}

}  // namespace split
