// Measures the service: clients that send one request after the other, each with its own keys and session.
//
//   split_load --server wss://localhost:8443 --trust state/certificate.pem --adapter kjv --clients 1,8,64
//   split_load ... --in-process --adapter-directory examples/data/tiny_lm/adapter      and the overhead of it
//   all

#include <tensafe/core/error.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/model/model_session.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/random/entropy.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "program_options.hpp"
#include "remote_model.hpp"
#include "soak/check.hpp"

namespace {

using namespace split;
namespace lora = tensafe::lora;
using steady = std::chrono::steady_clock;
using milliseconds = std::chrono::duration<double, std::milli>;

struct load_options {
    program_options service;
    std::vector<std::size_t> clients{1};
    double seconds = 5;
    std::size_t rounds = 3;
    std::optional<std::size_t> group;
    bool in_process = false;
    std::string adapter_directory;
    std::string json;
};

/// What one round of some clients took, or the medians of several.
struct figures {
    double tokens_per_second = 0;
    double p50_ms = 0;  ///< of a token
    double p99_ms = 0;
    double bytes_up = 0;  ///< on the wire, for a token
    double bytes_down = 0;
    double reconnections = 0;
    double rate_waits = 0;
};

constexpr std::pair<const char*, double figures::*> medians[] = {
    {"tokens_per_second", &figures::tokens_per_second},
    {"p50_ms", &figures::p50_ms},
    {"p99_ms", &figures::p99_ms},
    {"bytes_up", &figures::bytes_up},
    {"bytes_down", &figures::bytes_down}};
constexpr std::pair<const char*, double figures::*> sums[] = {{"reconnections", &figures::reconnections},
                                                              {"rate_waits", &figures::rate_waits}};

/// A client that sends requests and fetches replies, over a network or not.
struct endpoint {
    std::shared_ptr<lora::model_client<params>> client;
    std::function<void(const std::function<void()>& whole)> token;
    std::function<void(std::size_t group, const lora::request<params>&, remote_model::reply_type&)> carry;
    std::function<remote_model::counts()> counted;
};

endpoint over_network(const program_options& options) {
    const auto remote = std::make_shared<remote_model>(
        options.connector(), client_identity({}), std::make_shared<lora::client<params>>(), options.remote());
    return {remote->client(), [remote](const auto& whole) { remote->with_retry(whole); },
            [remote](std::size_t group, const auto& request, auto& reply) {
                remote->carry(group, request, reply);
            },
            [remote] { return remote->counted(); }};
}

endpoint in_this_process(const lora::model_server<params>& server, const lora::adapter& held) {
    const auto client = std::make_shared<lora::model_client<params>>(server.layout(), held);
    const tensafe::random::seed nonce = tensafe::random::fresh_seed();
    const auto session =
        std::make_shared<lora::model_session<params>>(nonce, client->rerandomization_key(nonce));
    return {client, [](const auto& whole) { whole(); },
            [session, &server](std::size_t group, const auto& request, auto& reply) {
                session->apply(server, group, request, reply);
            },
            [] { return remote_model::counts(); }};
}

/// One client's loop, until `until`; milliseconds of each token are added to `latencies`.
void run_client(const endpoint& at, std::size_t group, const std::vector<float>& h, steady::time_point until,
                std::vector<double>& latencies) {
    lora::query<params> query;
    remote_model::reply_type reply;
    lora::model_client<params>::workspace reading;
    std::vector<double> product;
    while (steady::now() < until) {
        const auto start = steady::now();
        at.token([&] {
            at.client->encrypt(group, h, query);
            at.carry(group, query.request, reply);
            at.client->decrypt(group, reply, query, reading, product);
        });
        latencies.push_back(milliseconds(steady::now() - start).count());
    }
}

figures run_round(const std::vector<endpoint>& clients, std::size_t group, double seconds) {
    const std::vector<float> h = soak::random_state(clients.front().client->layout().at(group).d);
    const auto total = [&] {
        remote_model::counts sum;
        for (const endpoint& client : clients) {
            const auto one = client.counted();
            sum.resumed += one.resumed + one.sessions;
            sum.rate_waits += one.rate_waits;
            sum.wire.up += one.wire.up;
            sum.wire.down += one.wire.down;
        }
        return sum;
    };
    const auto before = total();
    std::vector<std::vector<double>> of_clients(clients.size());
    const auto start = steady::now();
    const auto until =
        start + std::chrono::duration_cast<steady::duration>(std::chrono::duration<double>(seconds));
    soak::at_once(clients.size(),
                  [&](std::size_t c) { run_client(clients[c], group, h, until, of_clients[c]); });
    const double passed = std::chrono::duration<double>(steady::now() - start).count();
    const auto after = total();
    std::vector<double> latencies;
    for (const auto& each : of_clients) {
        latencies.insert(latencies.end(), each.begin(), each.end());
    }
    std::sort(latencies.begin(), latencies.end());
    const auto quantile = [&](double part) {
        const double place = part * static_cast<double>(latencies.size() - 1) + 0.5;
        return latencies.empty() ? 0.0 : latencies[static_cast<std::size_t>(place)];
    };
    const auto tokens = static_cast<double>(std::max<std::size_t>(latencies.size(), 1));
    return {static_cast<double>(latencies.size()) / passed,
            quantile(0.5),
            quantile(0.99),
            static_cast<double>(after.wire.up - before.wire.up) / tokens,
            static_cast<double>(after.wire.down - before.wire.down) / tokens,
            static_cast<double>(after.resumed - before.resumed),
            static_cast<double>(after.rate_waits - before.rate_waits)};
}

figures summary(const std::vector<figures>& rounds) {
    figures result;
    for (const auto& [name, member] : medians) {
        std::vector<double> values;
        for (const figures& round : rounds) {
            values.push_back(round.*member);
        }
        std::sort(values.begin(), values.end());
        const std::size_t n = values.size();
        result.*member = (values[(n - 1) / 2] + values[n / 2]) / 2;
    }
    for (const auto& [name, member] : sums) {
        for (const figures& round : rounds) {
            result.*member += round.*member;
        }
    }
    return result;
}

/// Prints a row of the table. @return it for the report
nlohmann::ordered_json print(const std::string& where, std::size_t clients, const figures& f) {
    std::printf("%-12s %7zu %9.1f %9.3f %9.3f %12.0f %12.0f", where.c_str(), clients, f.tokens_per_second,
                f.p50_ms, f.p99_ms, f.bytes_up, f.bytes_down);
    if (f.reconnections > 0 || f.rate_waits > 0) {
        std::printf("  %.0f reconnections, %.0f waits for the rate limit", f.reconnections, f.rate_waits);
    }
    std::printf("\n");
    std::fflush(stdout);
    nlohmann::ordered_json row{{"where", where}, {"clients", clients}};
    for (const auto& [name, member] : medians) {
        row[name] = f.*member;
    }
    for (const auto& [name, member] : sums) {
        row[name] = f.*member;
    }
    return row;
}

std::size_t largest_group(const lora::model_layout& layout) {
    if (layout.groups.empty()) {
        throw tensafe::shape_error("split_load: the adapter has no site on the server");
    }
    const auto largest = std::max_element(layout.groups.begin(), layout.groups.end(),
                                          [](const auto& a, const auto& b) { return a.d < b.d; });
    return static_cast<std::size_t>(largest - layout.groups.begin());
}

void run(const load_options& options) {
    std::optional<lora::model_server<params>> server;
    lora::adapter held;
    if (options.in_process) {
        const lora::adapter adapter = tensafe::io::load_peft(options.adapter_directory);
        server.emplace(adapter);
        held = lora::client_part(adapter);
    }
    nlohmann::ordered_json report;
    const std::string wire_name = options.service.json_frames ? "wire, json" : "wire, binary";
    for (const std::size_t count : options.clients) {
        std::vector<endpoint> remote;
        std::vector<endpoint> local;
        for (std::size_t c = 0; c < count; ++c) {
            remote.push_back(over_network(options.service));
            if (server) {
                local.push_back(in_this_process(*server, held));
            }
        }
        const lora::model_layout& layout = remote.front().client->layout();
        const std::size_t group = options.group ? *options.group : largest_group(layout);
        const auto& g = layout.at(group);
        if (report.empty()) {
            const lora::token_cost cost = cost_of(layout, group);
            std::printf("group %zu: input %s, %zu rows of A, %zu entries; %zu rounds of %.3g s, medians\n",
                        group, g.input.c_str(), g.rows(layout.mode), g.d, options.rounds, options.seconds);
            std::printf("%-12s %7s %9s %9s %9s %12s %12s\n", "where", "clients", "tokens/s", "p50 ms",
                        "p99 ms", "bytes up", "bytes down");
            std::printf("%-12s %7s %9s %9s %9s %12zu %12zu\n", "cost model", "", "", "", "", cost.bytes_up,
                        cost.bytes_down);
            report["group"] = {{"input", g.input}, {"rows", g.rows(layout.mode)}, {"d", g.d}};
            report["cost_model"] = {{"bytes_up", cost.bytes_up}, {"bytes_down", cost.bytes_down}};
        }
        std::vector<figures> of_wire;
        std::vector<figures> of_process;
        for (std::size_t r = 0; r <= options.rounds; ++r) {  // in turn, so that a slow minute hits both
            // The first warms up memory, caches and clocks, and does not count.
            const double seconds = r == 0 ? std::min(0.3, options.seconds) : options.seconds;
            of_wire.push_back(run_round(remote, group, seconds));
            if (server) {
                of_process.push_back(run_round(local, group, seconds));
            }
        }
        of_wire.erase(of_wire.begin());
        const figures wire = summary(of_wire);
        if (!server) {
            report["rows"].push_back(print(wire_name, count, wire));
            continue;
        }
        of_process.erase(of_process.begin());
        const figures process = summary(of_process);
        report["rows"].push_back(print("in process", count, process));
        report["rows"].push_back(print(wire_name, count, wire));
        const double overhead = wire.p50_ms / process.p50_ms - 1;
        std::printf("%-12s %7zu %8.1f%% of the median latency in process\n", "overhead", count,
                    100 * overhead);
        report["overhead"].push_back({{"clients", count}, {"of_median_latency", overhead}});
    }
    if (!options.json.empty()) {
        std::ofstream out(options.json);
        out << report.dump(2) << "\n";
        out.close();
        if (!out) {
            throw tensafe::io_error("--json " + options.json + ": cannot be written");
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Measures a server of encrypted adapters: tokens a second, latencies, bytes");
    load_options options;
    options.service.add_connection_to(app);
    app.add_option("--clients", options.clients, "at once, as 1,8,64")
        ->delimiter(',')
        ->check(CLI::Range(1, 4096));
    app.add_option("--seconds", options.seconds, "of a round")
        ->capture_default_str()
        ->check(CLI::Range(0.01, 3600.0));
    app.add_option("--rounds", options.rounds)->capture_default_str()->check(CLI::Range(1, 1000));
    app.add_option("--group", options.group, "of the adapter; default: the one with the longest input");
    auto* directory =
        app.add_option("--adapter-directory", options.adapter_directory, "the same adapter, PEFT");
    app.add_flag("--in-process", options.in_process, "measure the same without a network, too")
        ->needs(directory);
    app.add_option("--json", options.json, "file for the figures");
    CLI11_PARSE(app, argc, argv);
    try {
        run(options);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "split_load: %s\n", e.what());
        return 1;
    }
}
