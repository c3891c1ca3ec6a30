// service/control_message.hpp: a text frame of the service.

#include "../../service/control_message.hpp"

#include "target.hpp"

TENSAFE_FUZZ_TARGET(control_message) {
    constexpr std::size_t largest_message = 4096;
    const fuzz::memory_limit limit(400 * input.size() + 200'000);
    const std::string_view text = fuzz::text_of(input);
    const auto message = fuzz::read_or_refuse([&] { return split::parse_control(text, largest_message); });
    const auto bare = fuzz::read_or_refuse([&] { return split::parse_control(text, 0); });
    if (!message) {
        fuzz::holds(!bare, "where no message may come, no more is taken");
        return;
    }
    fuzz::took();
    fuzz::holds(!bare || *bare == *message, "the size of a message that never came does not matter");
    const std::string written = std::visit([](const auto& m) { return split::to_text(m); }, *message);
    fuzz::holds(split::parse_control(written, largest_message) == *message,
                "what is written again is the same message");
}
