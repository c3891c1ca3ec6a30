// Faults against a real server: clients that die, lie, stall and flood, servers that are killed, disks that
// are full. Every scenario has good clients beside the bad ones, whose answers must be right, and after each
// the server must hold what it held before. docs/split-inference.md, section Faults; scripts/soak runs it for
// long.
//
//   split_soak --server build/release/examples/split_server --scale full --seconds 600

#include <tensafe/core/error.hpp>
#include <tensafe/io/peft.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "soak/check.hpp"
#include "soak/clients.hpp"
#include "soak/fixture.hpp"
#include "soak/frame_scenarios.hpp"
#include "soak/message_scenarios.hpp"
#include "soak/server_process.hpp"
#include "soak/server_scenarios.hpp"

namespace {

using namespace split::soak;

const std::vector<scenario> scenarios = {
    {"killed_mid_frame", false, killed_mid_frame},
    {"half_open", false, half_open},
    {"slow_reader", false, slow_reader},
    {"slow_handshake", false, slow_handshake},
    {"announced_4_gigabytes", false, announced_4_gigabytes},
    {"random_bytes", false, random_bytes},
    {"endless_requests", false, endless_requests},
    {"replayed_frames", false, replayed_frames},
    {"wrong_parameter_set", false, wrong_parameter_set},
    {"malformed_among_good", false, malformed_among_good},
    {"crowd", false, crowd},
    {"killed_during_swap", true, killed_during_swap},
    {"killed_while_counting", true, killed_while_counting},
    {"disk_full", true, disk_full},
    {"file_limit", true, file_limit},
    {"drain", true, drain},
    {"stalled_log", true, stalled_log},
    {"connection_limits", true, connection_limits},
    {"silent_addresses", true, silent_addresses},
    {"handshake_flood", true, handshake_flood},
    {"admin", true, admin_requests},
};

/// A row of the table.
struct outcome {
    std::size_t rounds = 0;
    std::size_t answers = 0;
    std::size_t failures = 0;
    double seconds = 0;
    std::optional<process_figures> first;
    process_figures last;
};

struct soak_options {
    std::string server;
    std::vector<std::string> only;  ///< scenarios; empty: all
    std::string scale = "small";
    double seconds = 0;
    bool tls = false;
    std::size_t growth_mb = 0;
};

/// Nobody is connected any more, no session waits, and descriptors and threads are as many as before.
process_figures settle(const server_process& server, const std::optional<process_figures>& before) {
    const auto end = steady::now() + raw_connection::patience;
    for (;;) {
        const auto now = server.metrics();
        const process_figures figures = server.quiet_figures();
        const bool is_empty =
            sample(now, "tensafe_split_connections") == 0 && sample(now, "tensafe_split_sessions") == 0;
        if (is_empty &&
            (!before || (figures.descriptors == before->descriptors && figures.threads == before->threads))) {
            return figures;
        }
        require(steady::now() < end, "the server after 20 s",
                text_of(sample(now, "tensafe_split_connections")) + " connections, " +
                    text_of(sample(now, "tensafe_split_sessions")) + " sessions, " +
                    text_of(figures.descriptors) + " descriptors, " + text_of(figures.threads) + " threads",
                before ? "0, 0, " + text_of(before->descriptors) + ", " + text_of(before->threads)
                       : std::string("0, 0"));
        std::this_thread::sleep_for(milliseconds(20));
    }
}

class soak {
  public:
    explicit soak(const soak_options& o) : options_(o) {
        fixture_.program = std::filesystem::absolute(o.server);
        std::string folder = (std::filesystem::temp_directory_path() / "split_soak_XXXXXX").string();
        require(::mkdtemp(folder.data()) != nullptr, "temporary folder", "none", "one");
        fixture_.folder = folder;
        fixture_.tls = o.tls;
        if (o.scale == "full") {
            fixture_.amount = {10'000, 20, 10, 300};
        }
        fixture_.kjv = tensafe::io::load_peft(TENSAFE_EXAMPLE_DATA "/tiny_lm/adapter");
        fixture_.qwen = tensafe::io::load_peft(TENSAFE_EXAMPLE_DATA "/qwen_rank32");
    }
    soak(const soak&) = delete;
    soak& operator=(const soak&) = delete;
    ~soak() {
        fixture_.server.reset();
        shared_.reset();
        std::error_code ignored;
        std::filesystem::remove_all(fixture_.folder, ignored);
    }

    /// Whether nothing failed.
    bool run() {
        const auto end = steady::now() + std::chrono::duration<double>(options_.seconds);
        do {
            for (const scenario& each : scenarios) {
                if (options_.only.empty() ||
                    std::find(options_.only.begin(), options_.only.end(), each.name) != options_.only.end()) {
                    run_one(each);
                }
            }
        } while (steady::now() < end);
        if (shared_) {
            attempt("the end", [&] {
                fixture_.server = std::move(shared_);
                fixture_.server->send_signal(SIGTERM);
                require_equal("exit status", fixture_.server->wait(raw_connection::patience), 0);
                check_log(fixture_.server->take_log(), fixture_.secrets);
            });
        }
        if (options_.seconds > 0) {
            print_table();
        }
        return !failed_;
    }

  private:
    template <class Step>
    bool attempt(const char* name, Step step) {
        try {
            step();
            return true;
        } catch (const std::exception& e) {
            failed_ = true;
            std::printf("FAILED %s: %s\n", name, e.what());
            static_cast<void>(std::fflush(stdout));
            if (fixture_.server) {
                constexpr std::size_t most = 2000;
                const std::string log = fixture_.server->take_log();
                std::printf("the end of the server's log:\n%s",
                            log.substr(log.size() - std::min(log.size(), most)).c_str());
            }
            return false;
        }
    }

    /// As much of everything as later comes at once, so that what is kept for good is there before it counts.
    void warm_up() {
        for (int round = 0; round < 2; ++round) {
            at_once(6, [&](std::size_t i) {
                good_client client(fixture_, i % 3 == 0 ? "qwen" : "kjv",
                                   i % 2 == 0 ? split::frame_form::binary : split::frame_form::json);
                for (int k = 0; k < 6; ++k) {
                    client.ask();
                }
            });
        }
        before_ = settle(*fixture_.server, std::nullopt);
    }

    void run_one(const scenario& each) {
        outcome& row = table_[each.name];
        const auto began = steady::now();
        const std::size_t answers_before = fixture_.answers;
        if (each.own_server) {
            shared_ = std::move(fixture_.server);
        } else if (!fixture_.server && shared_) {
            fixture_.server = std::move(shared_);
        }
        std::string done;
        const bool fine = attempt(each.name, [&] {
            if (!each.own_server && !fixture_.server) {
                fixture_.start();
                warm_up();
            }
            done = each.run(fixture_);
            if (!fixture_.server || fixture_.server->id() < 0) {
                return;  // it ended, as it had to
            }
            require_equal("GET /healthz", fixture_.server->http("GET", "/healthz").status, 200);
            const process_figures now = settle(*fixture_.server, each.own_server ? std::nullopt : before_);
            if (!each.own_server) {
                const std::size_t allowed = before_->resident_kb + options_.growth_mb * 1024;
                require(now.resident_kb <= allowed, "resident memory, KB", now.resident_kb,
                        "at most " + text_of(allowed));
            }
            row.first = row.first.value_or(now);
            row.last = now;
            check_log(fixture_.server->take_log(), fixture_.secrets);
        });
        if (each.own_server || !fine) {
            fixture_.server.reset();
            if (!fine && !each.own_server) {
                before_.reset();  // the next one gets a fresh server
            }
        }
        fixture_.secrets.clear();
        if (shared_) {
            fixture_.secrets.add(shared_->admin_token());
            fixture_.server = std::move(shared_);
        } else if (fixture_.server) {
            fixture_.secrets.add(fixture_.server->admin_token());
        }
        const double seconds = std::chrono::duration<double>(steady::now() - began).count();
        ++row.rounds;
        row.answers += fixture_.answers - answers_before;
        row.failures += fine ? 0 : 1;
        row.seconds += seconds;
        if (fine) {
            std::printf("%-22s %6.1f s  %s\n", each.name, seconds, done.c_str());
            static_cast<void>(std::fflush(stdout));
        }
    }

    void print_table() const {
        std::printf("\n%-22s %7s %9s %9s %8s %19s %12s\n", "scenario", "rounds", "answers", "failures",
                    "seconds", "resident KB", "descriptors");
        for (const auto& [name, row] : table_) {
            std::printf("%-22s %7zu %9zu %9zu %8.1f", name.c_str(), row.rounds, row.answers, row.failures,
                        row.seconds);
            if (row.first) {
                std::printf(" %8zu -> %7zu %4zu -> %4zu", row.first->resident_kb, row.last.resident_kb,
                            row.first->descriptors, row.last.descriptors);
            }
            std::printf("\n");
        }
    }

    soak_options options_;
    fixture fixture_;
    std::unique_ptr<server_process> shared_;  ///< while a scenario has its own
    std::optional<process_figures> before_;   ///< of the shared one, after the warm-up
    std::map<std::string, outcome> table_;
    bool failed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Faults against a split_server. docs/split-inference.md");
    soak_options options;
    app.add_option("--server", options.server, "path of split_server")->required()->check(CLI::ExistingFile);
    std::vector<std::string> names;
    for (const scenario& each : scenarios) {
        names.emplace_back(each.name);
    }
    app.add_option("--scenario", options.only, "these only; default: all")->check(CLI::IsMember(names));
    app.add_option("--scale", options.scale, "small: seconds; full: 10,000 requests and minutes")
        ->check(CLI::IsMember({"small", "full"}))
        ->capture_default_str();
    app.add_option("--seconds", options.seconds, "again and again for so long, and a table at the end");
    app.add_flag("--tls", options.tls, "with TLS");
    options.growth_mb = 16;
    app.add_option("--growth-mb", options.growth_mb,
                   "of the server's resident memory after the warm-up, at most")
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    // A peer that is gone is found out by what send returns.
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    try {
        return soak(options).run() ? 0 : 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "split_soak: %s\n", e.what());
        return 1;
    }
}
