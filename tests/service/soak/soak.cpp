// Faults against a real server: clients that die, lie and flood, servers that are killed, disks that are
// full. Every scenario has good clients beside the bad ones, whose answers must be right, and after each the
// server must hold what it held before. docs/service.md, section Faults; scripts/soak runs it for long.
//
//   service_soak --server build/release/service/tensafe-server --scale full --seconds 600

#include <CLI/CLI.hpp>

#include <csignal>
#include <exception>
#include <sched.h>
#include <system_error>

#include "check.hpp"
#include "clients.hpp"
#include "fixture.hpp"
#include "fleet_clients.hpp"
#include "frame_scenarios.hpp"
#include "message_scenarios.hpp"
#include "server_process.hpp"
#include "server_scenarios.hpp"

namespace {

using namespace split::soak;

constexpr bool own_server = true;
constexpr bool repeats = true;

const std::vector<scenario> scenarios = {
    {"killed_mid_frame", !own_server, repeats, killed_mid_frame},
    {"announced_4_gigabytes", !own_server, repeats, announced_4_gigabytes},
    {"random_bytes", !own_server, repeats, random_bytes},
    {"endless_requests", !own_server, !repeats, endless_requests},
    {"malformed_among_good", !own_server, !repeats, malformed_among_good},
    {"crowd", !own_server, !repeats, crowd},
    {"killed_during_swap", own_server, !repeats, killed_during_swap},
    {"killed_while_counting", own_server, !repeats, killed_while_counting},
    {"disk_full", own_server, !repeats, disk_full},
    // What a full disk is to the server of a user without privileges.
    {"file_limit", own_server, !repeats, [](fixture& w) { write_nothing(w, false); }},
    {"drain", own_server, repeats, drain},
    {"drain_delay", own_server, !repeats, drain_delay},
};

/// A row of the table: of all rounds so far.
struct outcome {
    std::size_t rounds = 0;
    std::size_t answers = 0;
    std::size_t failures = 0;
    double seconds = 0;
    std::size_t peak_kb = 0;
    std::optional<process_figures> first;
    process_figures last;
    std::vector<double> beside_ms;  ///< of a bystander's requests
};

struct soak_options {
    std::string server;
    std::vector<std::string> only;  ///< scenarios; empty: all
    std::string scale = "small";
    double seconds = 0;
    bool tls = false;
};

/// Nobody is connected any more, no session waits, and descriptors and threads are as many as before.
process_figures settle(const server_process& server, const std::optional<process_figures>& before) {
    const auto text = [](double connections, double sessions, const process_figures& f) {
        return text_of(connections) + " connections, " + text_of(sessions) + " sessions, " +
               text_of(f.descriptors) + " descriptors, " + text_of(f.threads) + " threads";
    };
    process_figures now;
    wait_until_none("the server", before ? text(0, 0, *before) : "0 connections, 0 sessions", [&] {
        const auto page = server.metrics();
        now = server.quiet_figures();
        const std::string got =
            text(sample(page, "tensafe_split_connections"), sample(page, "tensafe_split_sessions"), now);
        return got == text(0, 0, before.value_or(now)) ? std::string() : got;
    });
    return now;
}

class soak {
  public:
    explicit soak(const soak_options& o) : options_(o) {
        std::string folder = (std::filesystem::temp_directory_path() / "service_soak_XXXXXX").string();
        require(::mkdtemp(folder.data()) != nullptr, "temporary folder", "none", "one");
        folder_ = folder;
        for (fixture* each : {&shared_, &own_}) {
            each->program = std::filesystem::absolute(o.server);
            each->folder = folder_ / (each == &own_ ? "own" : "shared");
            std::filesystem::create_directory(each->folder);
            each->tls = o.tls;
            if (o.scale == "full") {
                each->amount = {10'000, 20, 10, 32};
            }
        }
    }
    soak(const soak&) = delete;
    soak& operator=(const soak&) = delete;
    ~soak() {
        shared_.server.reset();
        own_.server.reset();
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    /// Whether nothing failed.
    bool run() {
        const auto end = steady::now() + std::chrono::duration<double>(options_.seconds);
        std::printf("%-22s %7s %9s %9s %8s %19s %8s %12s %13s\n", "scenario", "rounds", "answers", "failures",
                    "seconds", "resident KB", "peak KB", "descriptors", "p50, p99 ms");
        do {
            for (const scenario& each : scenarios) {
                if (options_.only.empty() || std::ranges::count(options_.only, each.name) > 0) {
                    run_one(each);
                }
            }
        } while (steady::now() < end);
        if (shared_.server) {
            attempt("the end", shared_, [&] { shared_.end_server(SIGTERM, 0); });
        }
        return !failed_;
    }

  private:
    template <class Step>
    bool attempt(const char* name, fixture& w, Step step) {
        try {
            step();
            return true;
        } catch (const std::exception& e) {
            failed_ = true;
            std::printf("FAILED %s: %s\n", name, e.what());
            if (w.server) {
                constexpr std::size_t most = 2000;
                const std::string log = w.server->take_log();
                std::printf("the end of the server's log:\n%s",
                            log.substr(log.size() - std::min(log.size(), most)).c_str());
            }
            w.server.reset();  // the next one gets a fresh server
            return false;
        }
    }

    /// As much of everything as later comes at once, so that what is kept for good is there before it counts.
    void warm_up() {
        for (int round = 0; round < 2; ++round) {
            at_once(6, [&](std::size_t i) {
                good_client client(shared_, i % 3 == 0 ? "qwen" : "kjv",
                                   i % 2 == 0 ? split::frame_form::binary : split::frame_form::json);
                for (int k = 0; k < 6; ++k) {
                    client.ask();
                }
            });
        }
        outcome& row = table_["nothing else"];
        row.beside_ms = with_bystander(shared_, [] { std::this_thread::sleep_for(std::chrono::seconds(2)); });
        before_ = settle(*shared_.server, std::nullopt);
        row.first = row.last = *before_;
        row.peak_kb = before_->peak_kb;
        print("nothing else", row);
    }

    void run_one(const scenario& each) {
        fixture& w = each.own_server ? own_ : shared_;
        outcome& row = table_[each.name];
        const auto began = steady::now();
        const std::size_t answers_before = w.answers;
        const bool fine = attempt(each.name, w, [&] {
            const auto run = [&] {
                for (std::size_t r = 0; r < (each.repeats ? w.amount.repetitions : 1); ++r) {
                    each.run(w);
                }
            };
            if (each.own_server) {
                run();
                if (!w.server || w.server->id() < 0) {
                    return;  // it ended, as it had to
                }
            } else {
                if (!w.server) {
                    w.start();
                    warm_up();
                }
                static_cast<void>(w.server->forget_peak());
                const auto ms = with_bystander(w, [&] {
                    std::async(std::launch::async, [&] {
                        if (options_.scale == "full") {  // to measure: others' machines are elsewhere
                            const sched_param none{};
                            static_cast<void>(::sched_setscheduler(0, SCHED_IDLE, &none));
                        }
                        run();
                    }).get();
                });
                row.beside_ms.insert(row.beside_ms.end(), ms.begin(), ms.end());
                w.server->require_peak(before_->resident_kb, 64);
            }
            // Connections of one's own that go may still have all places.
            wait_until_none("GET /healthz", "200", [&] {
                const int got = w.server->http("GET", "/healthz").status;
                require(each.own_server || got == 200, "GET /healthz", got, 200);
                return got == 200 ? std::string() : text_of(got);
            });
            row.last = settle(*w.server, each.own_server ? std::nullopt : before_);
            if (!each.own_server) {
                row.last.resident_kb =
                    w.server->wait_until_resident(before_->resident_kb + std::size_t{16} * 1024);
            }
            row.peak_kb = std::max(row.peak_kb, row.last.peak_kb);
            row.first = row.first.value_or(row.last);
            check_log(w.server->take_log());
        });
        own_.server.reset();
        ++row.rounds;
        row.answers += w.answers - answers_before;
        row.failures += fine ? 0 : 1;
        row.seconds += std::chrono::duration<double>(steady::now() - began).count();
        print(each.name, row);
    }

    static void print(const std::string& name, outcome row) {
        std::printf("%-22s %7zu %9zu %9zu %8.1f", name.c_str(), row.rounds, row.answers, row.failures,
                    row.seconds);
        if (row.first) {
            std::printf(" %8zu -> %7zu %8zu %4zu -> %4zu", row.first->resident_kb, row.last.resident_kb,
                        row.peak_kb, row.first->descriptors, row.last.descriptors);
        }
        if (!row.beside_ms.empty()) {
            std::ranges::sort(row.beside_ms);
            const std::size_t n = row.beside_ms.size();
            std::printf(" %6.2f %6.2f", row.beside_ms[n / 2], row.beside_ms[n * 99 / 100]);
        }
        std::printf("\n");
        static_cast<void>(std::fflush(stdout));
    }

    soak_options options_;
    std::filesystem::path folder_;
    fixture shared_;                         ///< its server goes on from scenario to scenario
    fixture own_;                            ///< for a server that is one scenario's
    std::optional<process_figures> before_;  ///< of the shared one, after the warm-up
    std::map<std::string, outcome> table_;
    bool failed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Faults against a tensafe-server. docs/service.md");
    soak_options options;
    app.add_option("--server", options.server, "path of tensafe-server")->check(CLI::ExistingFile);
    std::vector<std::string> names;
    for (const scenario& each : scenarios) {
        names.emplace_back(each.name);
    }
    app.add_option("--scenario", options.only, "these only; default: all")->check(CLI::IsMember(names));
    app.add_option("--scale", options.scale, "small: seconds; full: 10,000 requests and minutes")
        ->check(CLI::IsMember({"small", "full"}))
        ->capture_default_str();
    app.add_option("--seconds", options.seconds,
                   "again and again for so long; the last rows are of all rounds");
    app.add_flag("--tls", options.tls, "with TLS");
    fleet_options fleet;
    app.add_option("--against", fleet.ports,
                   "no scenario: clients of servers behind these ports of localhost");
    app.add_option("--trust", fleet.trust, "the servers' certificate, as trusted.pem");
    app.add_option("--clients", fleet.clients, "how many of them")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    // A peer that is gone is found out by what send returns.
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    try {
        if (!fleet.ports.empty()) {
            return ask_fleet(fleet) ? 0 : 1;
        }
        require(!options.server.empty(), "--server", "none", "the path of tensafe-server");
        return soak(options).run() ? 0 : 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "service_soak: %s\n", e.what());
        return 1;
    }
}
