#pragma once

#include <tensafe/io/safetensors.hpp>
#include <tensafe/serving/file_store.hpp>

#include <nlohmann/json.hpp>

#include <csignal>

#include "../../../service/limits.hpp"
#include "check.hpp"
#include "clients.hpp"
#include "fixture.hpp"

// What happens to the server itself: it is killed, stopped, flooded, administered, or has no room on its
// disk. Long for each scenario starts servers of its own.

namespace split::soak {

/// A PEFT directory with random values, large enough that packing takes a while.
inline void write_large_adapter(const std::filesystem::path& folder, std::size_t sites) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "adapter_config.json")
        << R"({"peft_type":"LORA","r":32,"lora_alpha":32,"target_modules":["q_proj"]})";
    std::mt19937 generator(1);
    std::uniform_real_distribution<double> values(-0.1, 0.1);
    std::vector<double> a(32 * 2048);
    std::generate(a.begin(), a.end(), [&] { return values(generator); });
    const std::vector<double> b(a.begin(), a.begin() + 16 * 32);
    tensafe::io::safetensors_writer to;
    for (std::size_t i = 0; i < sites; ++i) {
        const std::string name = "base_model.model.layers." + std::to_string(i) + ".self_attn.q_proj.lora_";
        to.add(name + "A.weight", tensafe::io::dtype::f32, {32, 2048}, a);
        to.add(name + "B.weight", tensafe::io::dtype::f32, {16, 32}, b);
    }
    to.write(folder / "adapter_model.safetensors");
}

/// What the admin endpoint tells of an adapter: its version, 0 if there is none, and its load in progress or
/// failed, or null.
inline std::pair<std::uint64_t, nlohmann::json> state_of(const server_process& server,
                                                         const std::string& name) {
    const auto page = nlohmann::json::parse(server.http("GET", "/admin/adapters", server.admin_token()).body);
    std::pair<std::uint64_t, nlohmann::json> result;
    for (const auto& each : page.at("adapters")) {
        if (each["name"] == name && each["state"] != "retired") {
            result.first = std::max(result.first, each["version"].get<std::uint64_t>());
        }
    }
    for (const auto& each : page.at("loading")) {
        if (each["name"] == name) {
            result.second = each;
        }
    }
    return result;
}

/// Asks the server to load an adapter. Waits until it has, or has given up, or has packed so many groups.
/// @return whether nothing failed
inline bool load_adapter(const server_process& server, const std::string& name, const std::string& folder,
                         std::size_t groups = ~std::size_t{0}) {
    const std::uint64_t before = state_of(server, name).first;
    const http_answer said = server.http("PUT", "/admin/adapters/" + name, server.admin_token(),
                                         R"({"directory":")" + folder + "\"}");
    require_equal("PUT /admin/adapters/" + name + ": " + said.body, said.status, 202);
    bool has_failed = false;
    wait_until_none("the adapter " + name, "a later version", [&] {
        const auto [version, load] = state_of(server, name);
        has_failed = !load.is_null() && load.at("state") == "failed";
        const bool is_far = !load.is_null() && load["state"] == "packing" && load.at("done") >= groups;
        return has_failed || is_far || (load.is_null() && version > before) ? std::string() : load.dump();
    });
    return !has_failed;
}

/// What the state folder of a server that ended says of a client, its tenant and an adapter, added up over
/// inputs.
inline std::array<std::uint64_t, 3> sums_of_counts(const std::filesystem::path& state,
                                                   const std::string& client, const std::string& tenant,
                                                   const std::string& adapter) {
    constexpr std::size_t most_inputs = 64;
    const tensafe::serving::query_counts counts(state);
    const auto rows = counts.account_of(client, tenant, adapter);
    std::array<std::uint64_t, 3> sums{};
    for (std::size_t group = 0; group < most_inputs; ++group) {
        const auto used = counts.used(rows, group);
        for (std::size_t i = 0; i < sums.size(); ++i) {
            sums[i] += used[i];
        }
    }
    return sums;
}

inline void killed_during_swap(fixture& w) {
    const std::filesystem::path root = w.folder / "adapters";
    std::filesystem::remove_all(root);
    write_large_adapter(root / "large", 16);
    std::filesystem::copy(TENSAFE_EXAMPLE_DATA "/qwen_rank32", root / "other");
    const fixture::arguments arguments = {{"--adapter-root", root.string()}};
    w.start(arguments);
    const std::uint16_t port = w.where().port;
    good_client client(w, "kjv");
    client.ask();
    std::size_t sessions = 1;
    for (std::size_t k = 0; k < w.amount.kills; ++k) {
        require(load_adapter(*w.server, "kjv", "large", w.generator() % 12), "packing", "failed", "packing");
        w.end_server(SIGKILL, -SIGKILL);
        w.start(arguments, {.port = port});  // reads its state files: it would not start with broken ones
        require_equal("version after a restart", state_of(*w.server, "kjv").first, 1u);
        // The client is connected to nobody: it comes back by itself, finds no session, and opens another.
        client.ask();
        require_equal("sessions of the client", client.remote().counted().sessions, ++sessions);
    }
    // Whole swaps, with requests all the while: a session stays with its version, a fresh one gets the last.
    auto swaps = std::async(std::launch::async, [&] {
        for (const char* folder : {"other", "large", "other"}) {
            require(load_adapter(*w.server, "kjv", folder), "packing", "failed", "a later version");
        }
    });
    while (swaps.wait_for(milliseconds(0)) != std::future_status::ready) {
        client.ask();
    }
    swaps.get();
    client.ask();
    require_equal("sessions of the client", client.remote().counted().sessions, sessions);
    good_client fresh(w, "kjv", frame_form::binary, 6 * patience, {}, &w.qwen);
    fresh.ask();
    fresh.ask();
}

/// What clients got over all lives of a server is within the limits, and at most what its files say.
inline void count_and_kill(fixture& w) {
    constexpr std::size_t kills = 5;  // of one state: what is counted too much is a 32nd of a limit for each
    struct listed {
        std::string tenant;
        std::string key;
        std::size_t answers = 0;
        std::size_t bits = 0;
    };
    std::array<listed, 3> clients{{{"acme", {}}, {"acme", {}}, {}}};
    const std::string state = "counting_state";
    const auto identity = [&](std::size_t i) { return w.folder / ("counted_" + text_of(i)); };
    {
        std::filesystem::remove_all(w.folder / state);
        std::ofstream list(w.folder / "listed");
        for (std::size_t i = 0; i < clients.size(); ++i) {
            clients[i].key = client_identity(identity(i)).verifying().hex();
            list << clients[i].key << (clients[i].tenant.empty() ? "" : " " + clients[i].tenant) << "\n";
        }
    }
    // An input of qwen is answered 1139 times for all of its A.
    const double share = static_cast<double>(10 * kills) / 1139;
    constexpr std::array<double, 3> times{1, 1.5, 2.2};  // by scope
    fixture::arguments arguments = {{"--clients", (w.folder / "listed").string()}};
    for (std::size_t i = 0; i < times.size(); ++i) {
        arguments[share_options[i]] = text_of(times[i] * share);
    }
    w.start(arguments, {.state = state});
    const std::uint16_t port = w.where().port;
    std::size_t limit = 0;  // answers to one client, of an input
    {
        good_client first(w, "qwen", frame_form::binary, 6 * patience, identity(0));
        limit = first.remote().queries_left().value_or(0);
        require(limit > 8 * kills && limit < 12 * kills, "queries left", limit, "those of the share");
    }
    std::atomic<bool> over{false};
    const auto ask = [&](std::size_t i) {
        std::optional<good_client> client;
        for (int refused = 0; refused < 2;) {  // as many as there are inputs
            try {
                if (!client) {
                    client.emplace(w, "qwen", frame_form::binary, 6 * patience, identity(i));
                }
                client->ask();
                refused = 0;
            } catch (const query_limit_error&) {
                ++refused;
            } catch (const connection_lost&) {
                if (over) {
                    throw;
                }
            }
        }
        clients[i].answers = client->answers;
        clients[i].bits = client->bits;
    };
    // Servers are started by this thread: they die with the one that starts them.
    auto all = std::async(std::launch::async, [&] { at_once(clients.size(), ask); });
    {
        const std::shared_ptr<void> end(nullptr, [&](void*) { over = true; });
        std::mt19937 generator(std::random_device{}());
        for (std::size_t k = 0; k < kills; ++k) {
            const std::size_t enough = w.answers + 4 + generator() % 8;
            while (w.answers < enough &&
                   all.wait_for(std::chrono::microseconds(generator() % 1000)) != std::future_status::ready) {
            }
            w.end_server(SIGKILL, -SIGKILL);
            w.start(arguments, {.state = state, .port = port});  // it would not start with broken files
        }
    }
    all.get();
    w.end_server(SIGKILL, -SIGKILL);
    for (const listed& client : clients) {
        const auto counted = sums_of_counts(w.folder / state, client.key, client.tenant, "qwen");
        for (std::size_t i = 0; i < counted.size(); ++i) {
            listed sum;
            for (const listed& each : clients) {
                if (i == 2 || (i == 0 ? each.key == client.key : each.tenant == client.tenant)) {
                    sum.answers += each.answers;
                    sum.bits += each.bits;
                }
            }
            const auto most = static_cast<std::size_t>(times[i] * static_cast<double>(2 * (limit + 1)));
            require(sum.answers <= most, "answers over all lives, for " + std::string(share_options[i]),
                    sum.answers, "at most " + text_of(most));
            require(counted[i] >= sum.bits, "bits counted after " + text_of(kills) + " kills", counted[i],
                    "at least the " + text_of(sum.bits) + " that clients hold");
        }
    }
}

inline void killed_while_counting(fixture& w) {
    const std::size_t rounds = w.amount.repetitions > 3 ? w.amount.kills : 1;
    for (std::size_t r = 0; r < rounds; ++r) {
        count_and_kill(w);
    }
}

/// Its state is on a disk of its own without room, or the system lets the server write no file at all.
inline void write_nothing(fixture& w, bool has_disk) {
    const std::filesystem::path root = w.folder / "full_adapters";
    write_large_adapter(root / "large", 2);
    w.start({{"--adapter-root", root.string()}}, {.private_disk = has_disk});
    const server_process& server = *w.server;
    const std::filesystem::path rest = server.state_inside() / "rest";
    const auto fill = [&] {
        if (!has_disk) {
            server.limit_files("0");
            return;
        }
        std::ofstream to(rest, std::ios::binary);
        while (to << std::string(4096, 'x') && to.flush()) {
        }
        require_equal("room on the disk", std::filesystem::space(server.state_inside()).available, 0u);
    };
    good_client client(w, "kjv");
    const auto ask_all = [&] {
        for (std::size_t i = 0; i < client.remote().layout().groups.size(); ++i) {
            client.ask();
        }
    };
    ask_all();
    fill();
    ask_all();  // of what is reserved
    require(load_adapter(server, "large", "large"), "loading an adapter", "failed", "a version");
    std::unique_ptr<good_client> second;
    std::string refused;
    for (int i = 0; i < 100 && refused.empty(); ++i) {  // the last page of the file may have room
        second = std::make_unique<good_client>(w, "qwen");
        try {
            second->ask();
        } catch (const refused_error& e) {
            refused = e.what();
        }
    }
    require_contains("a request that cannot be counted", refused, "(internal)");
    ask_all();
    require_equal("GET /healthz", server.http("GET", "/healthz").status, 200);
    for (const auto& each : std::filesystem::recursive_directory_iterator(server.state_inside())) {
        require(each.path().filename().string().find("partial") == std::string::npos, "the state folder",
                each.path().filename().string(), "no files that are half written");
    }
    // With room again all is answered.
    if (has_disk) {
        std::filesystem::remove(rest);
    } else {
        server.limit_files("unlimited");
    }
    second->ask();
    fill();
    const std::string log = w.end_server(SIGTERM, 0);
    require_contains("the log", log, "\"internal_error\"");
    require_contains("the log", log, "\"usage_not_saved\"");
    require_contains("the log", log, has_disk ? "No space left on device" : "File too large");
}

inline void disk_full(fixture& w) {
    if (std::system("unshare --mount mount -t tmpfs soak /tmp 2> /dev/null") == 0) {
        write_nothing(w, true);
    } else {
        std::printf("disk_full: not run: this process may mount no disk; file_limit runs without one\n");
    }
}

inline void drain(fixture& w) {
    w.start({{"--drain-seconds", "20"}});
    constexpr std::size_t clients = 3;
    const std::size_t enough = w.answers + 4 * clients;
    std::atomic<std::size_t> served{0};  // clients with an answer
    std::atomic<std::size_t> bits{0};
    at_once(clients + 1, [&](std::size_t i) {
        if (i == clients) {
            wait_until_none("the clients", "answers to all of them",
                            [&] { return served < clients || w.answers < enough ? "too few" : ""; });
            w.server->send_signal(SIGTERM);
            return;
        }
        good_client client(w, "kjv", i == 0 ? frame_form::json : frame_form::binary, patience / 4);
        try {
            for (client.ask(), ++served;; client.ask()) {
            }
        } catch (const connection_lost&) {
            bits += client.bits;
        }
    });
    const std::string log = w.end_server(0, 0);
    require_contains("the log", log, "\"draining\"");
    require_contains("the log", log, "\"stopped\"");
    // What was computed was counted, and everything computed has arrived.
    require_equal("bits that the server counted", sums_of_counts(w.folder / "state", {}, {}, "kjv")[2],
                  bits.load());
}

/// While its balancer finds out that it drains, it serves old and new clients; a second signal ends it.
inline void drain_delay(fixture& w) {
    w.start({{"--drain-delay-seconds", "600"}});
    good_client client(w, "kjv");
    client.ask();
    w.server->send_signal(SIGTERM);
    wait_until_none("GET /healthz", "503", [&] {
        const int got = w.server->http("GET", "/healthz").status;
        return got == 503 ? std::string() : text_of(got);
    });
    client.ask();
    good_client(w, "kjv").ask();
    w.end_server(SIGTERM, 0);
}

/// What many sessions took is given back to the system when they are gone.
inline void crowd(fixture& w) {
    const std::size_t allowed_kb = w.server->figures().resident_kb + std::size_t{16} * 1024;
    at_once(8, [&](std::size_t) {
        std::deque<raw_session> all;
        for (std::size_t i = 0; i < std::min<std::size_t>(5 * w.amount.repetitions, 25); ++i) {
            all.emplace_back(w).ask();
        }
    });
    static_cast<void>(w.server->wait_until_resident(allowed_kb));
    static_cast<void>(w.server->forget_peak());  // what sessions take is theirs
}

}  // namespace split::soak
