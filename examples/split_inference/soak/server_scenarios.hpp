#pragma once

#include <tensafe/io/safetensors.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../query_counts.hpp"
#include "check.hpp"
#include "clients.hpp"
#include "fixture.hpp"

// What happens to the server itself: it is killed, stopped, flooded, administered, or has no room on its
// disk.

namespace split::soak {

/// A PEFT directory with random values, large enough that packing takes a while.
inline void write_large_adapter(const std::filesystem::path& folder, std::size_t sites) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "adapter_config.json")
        << R"({"peft_type":"LORA","r":32,"lora_alpha":32,"target_modules":["q_proj"]})";
    std::mt19937 generator(1);
    std::uniform_real_distribution<double> values(-0.1, 0.1);
    std::vector<double> a(32 * 2048);
    std::vector<double> b(16 * 32);
    std::generate(a.begin(), a.end(), [&] { return values(generator); });
    std::generate(b.begin(), b.end(), [&] { return values(generator); });
    tensafe::io::safetensors_writer to;
    for (std::size_t i = 0; i < sites; ++i) {
        const std::string name = "base_model.model.layers." + std::to_string(i) + ".self_attn.q_proj.lora_";
        to.add(name + "A.weight", tensafe::io::dtype::f32, {32, 2048}, a);
        to.add(name + "B.weight", tensafe::io::dtype::f32, {16, 32}, b);
    }
    to.write(folder / "adapter_model.safetensors");
}

/// What the admin endpoint tells of an adapter.
struct adapter_state {
    std::uint64_t version = 0;  ///< 0: there is none
    std::string loading;        ///< empty: it is not being loaded
    std::size_t done = 0;
    std::size_t total = 0;
};

inline adapter_state state_of(const server_process& server, const std::string& name) {
    const http_answer page = server.http("GET", "/admin/adapters", server.admin_token());
    require_equal("GET /admin/adapters", page.status, 200);
    const auto object = nlohmann::json::parse(page.body);
    adapter_state result;
    for (const auto& each : object["adapters"]) {
        if (each["name"] == name && each["state"] != "retired") {
            result.version = std::max(result.version, each["version"].get<std::uint64_t>());
        }
    }
    for (const auto& each : object["loading"]) {
        if (each["name"] == name) {
            result.loading = each["state"].get<std::string>();
            result.done = each["done"].get<std::size_t>();
            result.total = each["total"].get<std::size_t>();
        }
    }
    return result;
}

/// Waits until the admin endpoint tells what `holds` wants. @throws failure if that takes too long
template <class Holds>
adapter_state wait_for_adapter(const server_process& server, const std::string& name, const char* what,
                               Holds holds) {
    const auto end = steady::now() + raw_connection::patience;
    for (;;) {
        const adapter_state now = state_of(server, name);
        if (holds(now)) {
            return now;
        }
        require(steady::now() < end, "the adapter " + name,
                "version " + text_of(now.version) + " " + now.loading, what);
    }
}

inline void put_adapter(const server_process& server, const std::string& name, const std::string& folder,
                        int expected = 202) {
    const http_answer said = server.http("PUT", "/admin/adapters/" + name, server.admin_token(),
                                         R"({"directory":")" + folder + "\"}");
    require_equal("PUT /admin/adapters/" + name + ": " + said.body, said.status, expected);
}

/// What the state folder of a server that ended says of a client, its tenant and an adapter, added up over
/// inputs.
inline std::array<std::uint64_t, 3> sums_of_counts(const std::filesystem::path& state,
                                                   const std::string& client, const std::string& tenant,
                                                   const std::string& adapter) {
    constexpr std::size_t most_inputs = 64;
    const query_counts counts(state);
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

inline std::string killed_during_swap(fixture& w) {
    const std::filesystem::path root = w.folder / "adapters";
    write_large_adapter(root / "large", 16);
    std::filesystem::copy(
        TENSAFE_EXAMPLE_DATA "/qwen_rank32", root / "other",
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    const fixture::arguments arguments = {{"--adapter-root", root.string()}};
    w.start(arguments, "swap_state");
    const std::uint16_t port = w.where().port;
    good_client client(w, "kjv");
    client.ask();
    std::mt19937 generator(3);
    std::size_t sessions = 1;
    for (std::size_t k = 0; k < w.amount.kills; ++k) {
        put_adapter(*w.server, "kjv", "large");
        const std::size_t groups = generator() % 12;
        wait_for_adapter(*w.server, "kjv", "packing", [&](const adapter_state& now) {
            require(now.loading != "failed", "packing", now.loading, "packing");
            return now.loading.empty() || (now.loading == "packing" && now.done >= groups);
        });
        w.server->send_signal(SIGKILL);
        require_equal("exit of a server that is killed", w.server->wait(raw_connection::patience), -SIGKILL);
        check_log(w.server->take_log(), w.secrets);
        w.start(arguments, "swap_state", port);  // reads its state files: it would not start with broken ones
        require_equal("version after a restart", state_of(*w.server, "kjv").version, 1u);
        // The client is connected to nobody: it comes back by itself, finds no session, and opens another.
        client.ask();
        require_equal("sessions of the client", client.remote().counted().sessions, ++sessions);
    }
    // Whole swaps, with requests all the while: a session stays with its version, a fresh one gets the last.
    std::atomic<bool> over{false};
    at_once(2, [&](std::size_t i) {
        if (i == 0) {
            while (!over) {
                client.ask();
            }
            return;
        }
        const struct end_of_swaps {
            std::atomic<bool>& over;
            ~end_of_swaps() { over = true; }
        } end{over};
        std::uint64_t before = state_of(*w.server, "kjv").version;
        for (const char* folder : {"other", "large", "other"}) {
            put_adapter(*w.server, "kjv", folder);
            before = wait_for_adapter(*w.server, "kjv", "a later version", [&](const adapter_state& now) {
                         require(now.loading != "failed", "packing", now.loading, "packing");
                         return now.version > before && now.loading.empty();
                     }).version;
        }
    });
    client.ask();
    require_equal("sessions of the client", client.remote().counted().sessions, sessions);
    // A fresh session gets the last one, whole.
    good_client fresh(w, "kjv", w.qwen);
    fresh.ask();
    fresh.ask();
    return text_of(w.amount.kills) +
           " servers killed while they packed, and restarted: the client came back to right "
           "answers each time; then 3 swaps under load";
}

/// What clients got over all lives of a server is within the limits, and at most what its files say.
/// @return how many answers
inline std::size_t count_and_kill(fixture& w, std::size_t kills) {
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
    const fixture::arguments arguments = {{"--clients", (w.folder / "listed").string()},
                                          {"--client-share", text_of(share)},
                                          {"--tenant-share", text_of(1.5 * share)},
                                          {"--adapter-share", text_of(2.2 * share)}};
    w.start(arguments, state);
    const std::uint16_t port = w.where().port;
    std::size_t limit = 0;  // answers to one client, of an input
    {
        good_client first(w, "qwen", w.qwen, frame_form::binary, 10, identity(0));
        limit = first.remote().queries_left().value_or(0);
        require(limit > 8 * kills && limit < 12 * kills, "queries left", limit, "those of the share");
    }
    std::atomic<std::size_t> answers{0};
    std::atomic<std::size_t> asking{clients.size()};
    std::atomic<bool> over{false};
    const auto ask = [&](std::size_t i) {
        const struct end_of_asking {
            std::atomic<std::size_t>& asking;
            ~end_of_asking() { --asking; }
        } end{asking};
        std::optional<good_client> client;
        for (int refused = 0; refused < 2;) {  // as many as there are inputs
            try {
                if (!client) {
                    client.emplace(w, "qwen", w.qwen, frame_form::binary, 10, identity(i));
                }
                client->ask();
                refused = 0;
                ++answers;
            } catch (const query_limit_error&) {
                ++refused;
            } catch (const connection_lost&) {
                if (over) {
                    throw;
                }
            }
        }
        clients[i].answers = client->answers();
        clients[i].bits = client->bits();
    };
    // Servers are started by this thread: they die with the one that starts them.
    auto all = std::async(std::launch::async, [&] { at_once(clients.size(), ask); });
    {
        const struct end_of_kills {
            std::atomic<bool>& over;
            ~end_of_kills() { over = true; }
        } end{over};
        std::mt19937 generator(std::random_device{}());
        for (std::size_t k = 0; k < kills; ++k) {
            const std::size_t enough = answers + 4 + generator() % 8;
            while (answers < enough && asking > 0) {
                std::this_thread::sleep_for(std::chrono::microseconds(generator() % 1000));
            }
            w.server->send_signal(SIGKILL);
            require_equal("exit of a server that is killed", w.server->wait(raw_connection::patience),
                          -SIGKILL);
            check_log(w.server->take_log(), w.secrets);
            w.start(arguments, state, port);  // it would not start with broken files
        }
    }
    all.get();
    w.server->send_signal(SIGKILL);
    w.server->wait(raw_connection::patience);
    std::map<std::string, listed> sums;
    for (const listed& each : clients) {
        require(each.answers <= 2 * (limit + 1), "answers to a client over all lives", each.answers,
                "at most " + text_of(2 * (limit + 1)));
        for (const std::string& row : {std::string("adapter"), "tenant " + each.tenant}) {
            sums[row].answers += each.answers;
            sums[row].bits += each.bits;
        }
    }
    const auto most = [&](double times) {
        return static_cast<std::size_t>(times * static_cast<double>(2 * (limit + 1)));
    };
    require(sums["tenant acme"].answers <= most(1.5), "answers to a tenant over all lives",
            sums["tenant acme"].answers, "at most " + text_of(most(1.5)));
    require(sums["adapter"].answers <= most(2.2), "answers of an adapter over all lives",
            sums["adapter"].answers, "at most " + text_of(most(2.2)));
    for (const listed& each : clients) {
        const auto counted = sums_of_counts(w.folder / state, each.key, each.tenant, "qwen");
        const std::array<std::size_t, 3> got{each.bits, sums["tenant " + each.tenant].bits,
                                             sums["adapter"].bits};
        for (std::size_t i = 0; i < got.size(); ++i) {
            require(counted[i] >= got[i], "bits counted after " + text_of(kills) + " kills", counted[i],
                    "at least the " + text_of(got[i]) + " that clients hold");
        }
    }
    return sums["adapter"].answers;
}

inline std::string killed_while_counting(fixture& w) {
    constexpr std::size_t kills = 5;  // of one state: what is counted too much is a 32nd of a limit for each
    const std::size_t rounds = w.amount.repetitions > 3 ? w.amount.kills : 1;
    std::size_t answers = 0;
    for (std::size_t r = 0; r < rounds; ++r) {
        answers += count_and_kill(w, kills);
    }
    return text_of(rounds * kills) + " servers killed while clients asked: " + text_of(answers) +
           " answers, within the limits, and all of them counted";
}

/// Its state is on a disk of its own without room, or the system lets the server write no file at all.
inline std::string write_nothing(fixture& w, bool has_disk) {
    constexpr std::size_t disk_kb = 1024;
    const std::filesystem::path root = w.folder / "full_adapters";
    write_large_adapter(root / "large", 2);
    std::filesystem::remove_all(w.folder / "full_state");
    w.start({{"--adapter-root", root.string()}}, "full_state", 0, has_disk ? disk_kb : 0);
    const server_process& server = *w.server;
    const auto fill = [&] {
        if (!has_disk) {
            server.limit_files(0);
            return;
        }
        std::ofstream rest(server.state_inside() / "rest", std::ios::binary);
        const std::string page(4096, 'x');
        while (rest.write(page.data(), 4096) && rest.flush()) {
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
    put_adapter(server, "large", "large");
    wait_for_adapter(server, "large", "a version",
                     [](const adapter_state& now) { return now.version > 0 && now.loading.empty(); });
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
    if (has_disk) {
        std::filesystem::remove(server.state_inside() / "rest");
    } else {
        server.limit_files(std::nullopt);
    }
    second->ask();
    fill();
    server.send_signal(SIGTERM);
    require_equal("exit status with a full disk", w.server->wait(raw_connection::patience), 0);
    const std::string log = w.server->take_log();
    auto events = check_log(log, w.secrets);
    for (const char* event : {"internal_error", "usage_not_saved"}) {
        require(events[event] > 0, std::string(event) + " in the log", 0, "one or more");
    }
    const std::string reason = has_disk ? "No space left on device" : "File too large";
    require_contains("the log", log, reason);
    return "what is reserved is given out, an adapter is packed and served, other requests are refused and "
           "the log says why; with room again they are answered";
}

inline std::string disk_full(fixture& w) {
    return can_mount() ? "disk full (a tmpfs of 1 MB): " + write_nothing(w, true)
                       : "not run: this process may mount no disk; file_limit runs without one";
}

/// What a full disk is to the server of a user without privileges.
inline std::string file_limit(fixture& w) {
    return "file size limit 0: " + write_nothing(w, false);
}

inline std::string drain(fixture& w) {
    std::size_t answered = 0;
    std::size_t tried = 0;
    const std::size_t rounds = w.amount.repetitions > 3 ? w.amount.repetitions : 1;
    for (std::size_t r = 0; r < rounds; ++r) {
        const std::string state = "drain_state";
        std::filesystem::remove_all(w.folder / state);
        w.start({{"--drain-seconds", "20"}}, state);
        constexpr std::size_t clients = 3;
        std::atomic<std::size_t> answers{0};
        std::atomic<std::size_t> bits{0};
        std::atomic<std::size_t> tries{0};
        std::atomic<std::size_t> told{0};
        std::atomic<std::size_t> served{0};  // clients with an answer
        at_once(clients + 1, [&](std::size_t i) {
            if (i == clients) {
                while (served < clients || answers < 4 * clients) {
                    std::this_thread::sleep_for(milliseconds(1));
                }
                w.server->send_signal(SIGTERM);
                return;
            }
            good_client client(w, "kjv", i == 0 ? frame_form::json : frame_form::binary, 1);
            try {
                for (std::size_t done = 0;;) {
                    client.ask();
                    served += done == 0 ? 1 : 0;
                    answers += client.answers() - done;
                    done = client.answers();
                }
            } catch (const connection_lost&) {
                ++told;
                bits += client.bits();
                tries += client.tries();
            }
        });
        require_equal("clients told that the server goes", told.load(), clients);
        require_equal("exit status after SIGTERM", w.server->wait(raw_connection::patience), 0);
        const auto events = check_log(w.server->take_log(), w.secrets);
        require(events.contains("draining") && events.contains("stopped"), "events of the log", "others",
                "draining and stopped");
        // What was computed was counted, and everything computed has arrived.
        require_equal("bits that the server counted", sums_of_counts(w.folder / state, {}, {}, "kjv")[2],
                      bits.load());
        answered += answers;
        tried += tries;
    }
    return text_of(answered) + " requests computed before the end, every reply arrived; " +
           text_of(tried - answered) + " that came too late were not begun; exit status 0";
}

inline std::string stalled_log(fixture& w) {
    constexpr std::size_t most = 300;
    w.start({}, "stalled_state", 0, 0, true);
    good_client client(w, "kjv");
    for (std::size_t i = 0; i < most; ++i) {
        raw_connection stranger(w.where());
        stranger.upgrade();
    }
    client.ask();
    require_equal("GET /healthz", w.server->http("GET", "/healthz").status, 200);
    w.server->send_signal(SIGTERM);
    require_equal("exit status", w.server->wait(raw_connection::patience), 0);
    return text_of(most) + " connections and good answers while nobody reads a full log; exit status 0";
}

inline std::string connection_limits(fixture& w) {
    constexpr std::size_t most = 8;
    w.start({{"--connections", text_of(most)}, {"--idle-seconds", "60"}, {"--handshake-seconds", "20"}},
            "limit_state");
    for (std::size_t r = 0; r < w.amount.repetitions; ++r) {
        std::vector<std::unique_ptr<raw_session>> all;
        for (std::size_t i = 0; i + 1 < most; ++i) {  // the last place is never a session's
            all.push_back(std::make_unique<raw_session>(w));
        }
        raw_session beyond(w, false);
        for (std::size_t i = 0; i < 4 * most; ++i) {
            raw_connection c(w.where());
            require_equal("what one beyond the limit hears", c.receive_all(), "");
        }
        for (const auto& each : all) {
            each->ask();
        }
        all.pop_back();
        // A place is free again when the server has seen that its client is gone.
        const auto end = steady::now() + raw_connection::patience;
        for (bool in = false; !in;) {
            raw_connection c(w.where());
            c.secure();
            c.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            in = c.receive_all().find("ok\n") != std::string::npos;
            require(in || steady::now() < end, "a free place", "none in 20 s", "one");
        }
        while (!all.empty()) {
            all.back()->wire().send(whole_frame(op_text, to_text(bye{})));
            all.back()->wire().receive_end();
            all.pop_back();
        }
    }
    return text_of(4 * most * w.amount.repetitions) + " connections beyond a limit of " + text_of(most) +
           " closed without a word, those within it served";
}

/// Two addresses hold all they can get and say nothing. Others are served, in a session and before one.
inline std::string silent_addresses(fixture& w) {
    constexpr std::size_t most = 32;
    w.start({{"--connections", text_of(most)},
             {"--connections-per-address", text_of(most / 2)},
             {"--handshake-seconds", "20"}},
            "silent_state");
    good_client fine(w, "kjv");
    fine.ask();
    std::vector<std::unique_ptr<raw_connection>> silent;
    const auto fill = [&](std::size_t of_each) {
        for (std::size_t i = 0; i < of_each; ++i) {
            for (const char* from : {"127.0.0.2", "127.0.0.3"}) {
                silent.push_back(std::make_unique<raw_connection>(
                    w.where(), raw_connection::options{.receive_buffer = 0, .from = from}));
            }
        }
    };
    fill(most / 2);
    constexpr std::size_t newcomers = 20;
    for (std::size_t i = 0; i < newcomers; ++i) {
        fill(1);
        require_equal("GET /healthz", w.server->http("GET", "/healthz").status, 200);
        raw_session newcomer(w, true, {.receive_buffer = 0, .from = "127.0.0.4"});
        newcomer.ask();
        fine.ask();
    }
    return text_of(newcomers) + " newcomers served beside two addresses that held all places";
}

/// What many sessions took is given back to the system when they are gone.
inline std::string crowd(fixture& w) {
    const std::size_t before = w.server->figures().resident_kb;
    constexpr std::size_t clients = 8;
    const std::size_t of_each = std::min<std::size_t>(5 * w.amount.repetitions, 25);
    std::atomic<std::size_t> most{0};
    at_once(clients, [&](std::size_t) {
        std::vector<std::unique_ptr<raw_session>> all;
        for (std::size_t i = 0; i < of_each; ++i) {
            all.push_back(std::make_unique<raw_session>(w));
            all.back()->ask();
        }
        most = std::max(most.load(), w.server->figures().resident_kb);
    });
    const auto end = steady::now() + raw_connection::patience;
    constexpr std::size_t allowed_kb = 16 * 1024;
    std::size_t now = 0;
    while ((now = w.server->figures().resident_kb) > before + allowed_kb) {
        require(steady::now() < end, "resident memory 20 s after a crowd, KB", now,
                text_of(before) + " and at most 16 MB more");
        std::this_thread::sleep_for(milliseconds(20));
    }
    return text_of(clients * of_each) + " sessions at once took " + text_of((most - before) / 1024) +
           " MB, given back after them";
}

inline std::string handshake_flood(fixture& w) {
    w.start({{"--handshake-rate", "0.01"}}, "flood_state");
    const std::string greeting =
        whole_frame(op_text, to_text(hello{"nothing of this name", {}, tensafe::wire::set_id<params>, {}}));
    std::map<std::string, std::size_t> answers;
    for (std::size_t i = 0; i < w.amount.handshakes; ++i) {
        raw_connection c(w.where());
        c.upgrade();
        static_cast<void>(c.receive_text());
        c.send(greeting);
        const auto said = nlohmann::json::parse(c.receive_text());
        ++answers[said.at("code").get<std::string>()];
        if (said["code"] == "rate_limit") {
            require(said.contains("retry_after_ms"), "a rate_limit", said.dump(), "retry_after_ms in it");
        }
        require_equal("close code", c.receive_end(), 1008u);
    }
    constexpr std::size_t at_once_by_default = 200;
    require_equal("handshakes of one address let through", answers["not_authorised"], at_once_by_default);
    require_equal("and refused", answers["rate_limit"], w.amount.handshakes - at_once_by_default);
    // Another address has a bucket of its own.
    raw_session elsewhere(w, true, {0, "127.0.0.2"});
    elsewhere.ask();
    return text_of(answers["rate_limit"]) + " of " + text_of(w.amount.handshakes) +
           " handshakes of a flood refused; a client of another address is served";
}

inline std::string admin_requests(fixture& w) {
    const std::filesystem::path root = w.folder / "admin_adapters";
    std::filesystem::create_directories(root / "empty");
    write_large_adapter(root / "good", 1);
    std::filesystem::create_directory_symlink("/", root / "way_out");
    w.start({{"--adapter-root", root.string()}}, "admin_state");
    const server_process& server = *w.server;
    const std::string token = server.admin_token();
    const auto status = [&](const char* method, const std::string& target, const std::string& with = {},
                            const std::string& body = {}) {
        return server.http(method, target, with, body).status;
    };
    std::size_t refused = 0;
    const auto refuses = [&](int expected, const char* method, const std::string& target,
                             const std::string& with, const std::string& body = {}) {
        require_equal(std::string(method) + " " + target.substr(0, 60), status(method, target, with, body),
                      expected);
        ++refused;
    };
    good_client client(w, "kjv");
    for (std::size_t r = 0; r < w.amount.repetitions; ++r) {
        for (const std::string& wrong : {std::string("wrong"), token.substr(1), token + "0",
                                         "0" + token.substr(1), token + " " + token}) {
            if (wrong != token) {
                refuses(401, "GET", "/admin/adapters", wrong);
                refuses(401, "DELETE", "/admin/adapters/kjv", wrong);
            }
        }
        refuses(401, "GET", "/admin/usage", "");
        refuses(401, "GET", "/metrics", "");
        refuses(401, "GET", "/admin/nothing", "");
        refuses(404, "GET", "/admin/nothing", token);
        refuses(404, "GET", "/admin/../healthz", token);
        refuses(404, "PUT", "/admin/adapters/..%2f", token, R"({"directory":"good"})");
        refuses(404, "DELETE", "/admin/adapters/nothing", token);
        refuses(405, "POST", "/admin/adapters/kjv", token);
        refuses(405, "POST", "/healthz", token);
        for (const char* body :
             {"", "{}", "[]", R"({"directory":5})", R"({"directory":".."})", R"({"directory":"/etc"})",
              R"({"directory":"way_out"})", R"({"directory":"way_out/etc"})", R"({"directory":"no"})",
              R"({"directory":"good","directory":"good"})", R"({"directory":"good","x":1})", "\xff"}) {
            refuses(400, "PUT", "/admin/adapters/kjv", token, body);
        }
        refuses(431, "GET", "/admin/adapters", token + std::string(20'000, 'a'));
        refuses(413, "PUT", "/admin/adapters/kjv", token, std::string(100'000, ' '));
        // One that cannot be loaded leaves the old one where it is.
        put_adapter(server, "kjv", "empty");
        wait_for_adapter(server, "kjv", "failed",
                         [](const adapter_state& now) { return now.loading == "failed"; });
        client.ask();
        put_adapter(server, "more", "good");
        wait_for_adapter(server, "more", "a version",
                         [](const adapter_state& now) { return now.version > 0 && now.loading.empty(); });
        require_equal("DELETE of an adapter", status("DELETE", "/admin/adapters/more", token), 200);
        // A client is forgotten: it finds itself without a session, and opens another.
        raw_session other(w);
        other.ask();
        require_equal("DELETE of a client", status("DELETE", "/admin/clients/" + other.identity(), token),
                      200);
        require_equal("close code of a client that is forgotten", other.wire().receive_end(), 1000u);
        client.ask();
    }
    return text_of(refused) + " admin requests refused, those with the token done";
}

}  // namespace split::soak
