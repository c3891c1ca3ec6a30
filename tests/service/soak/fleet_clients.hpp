#pragma once

#include <iostream>

#include "clients.hpp"

namespace split::soak {

/// Clients of servers that somebody else starts, kills and replaces, behind these ports of a balancer: they
/// ask until standard input ends.
struct fleet_options {
    std::vector<std::uint16_t> ports;  ///< of localhost; each is a client's for good, in turns
    std::filesystem::path trust;
    std::size_t clients = 64;
};

/// Prints a line for each answer, "answer SECONDS MILLISECONDS BITS": on the monotonic clock, since it was
/// asked, and what it counts. Every eighth client leaves after 16 answers, and another one comes; every
/// eighth asks the adapter `swapped`, which may be kjv or qwen, and comes again when it was replaced.
/// Whatever else a client throws, and a wrong answer, is a line "failed".
/// @return whether there was none
inline bool ask_fleet(const fleet_options& o) {
    std::deque<fixture> balancers;
    for (const std::uint16_t port : o.ports) {
        fixture& each = balancers.emplace_back();
        each.folder = o.trust.parent_path();
        each.tls = true;
        each.port = port;
    }
    std::atomic<bool> over{false};
    std::atomic<bool> fine{true};
    const auto say = [](const std::string& line) {
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        std::cout << line << std::endl;
    };
    const auto ask = [&](std::size_t i) {
        fixture& w = balancers[i % balancers.size()];
        const bool is_swapped = i % 8 == 2;
        std::unique_ptr<good_client> client;
        const auto fail = [&](const std::exception& e) {
            client.reset();
            fine = false;
            say("failed client " + text_of(i) + ": " + e.what());
        };
        while (!over) {
            try {
                if (!client || (i % 8 == 1 && client->answers == 16)) {
                    client.reset();
                    client = std::make_unique<good_client>(w, is_swapped ? "swapped" : "kjv");
                }
                const std::size_t before = client->bits;
                client->ask();
                const std::chrono::duration<double> now = steady::now().time_since_epoch();
                std::ostringstream line;
                line << std::fixed << "answer " << now.count() << " " << client->last_ms << " "
                     << client->bits - before;
                say(line.str());
            } catch (const adapter_changed_error& e) {
                is_swapped ? client.reset() : fail(e);
            } catch (const std::exception& e) {
                fail(e);
            }
        }
    };
    auto all = std::async(std::launch::async, [&] { at_once(o.clients, ask); });
    std::cin.ignore(std::numeric_limits<std::streamsize>::max());
    over = true;
    all.get();
    return fine;
}

}  // namespace split::soak
