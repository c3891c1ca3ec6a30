// Measures the service: clients that ask one call after the other, each with its own keys and session.
//
//   service_load --server wss://localhost:8443 --trust state/certificate.pem --adapter kjv --clients 1,8,64
//   service_load ... --rows 500               calls of 500 hidden states, as of a prompt
//   service_load ... --adapter-directory examples/data/tiny_lm/adapter      without blocks, and the overhead
//   of it all

#include <tensafe/core/error.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/session/client_session.hpp>
#include <tensafe/session/server_session.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../service/program_options.hpp"
#include "../service/remote_model.hpp"
#include "../tests/service/soak/check.hpp"

namespace {

using namespace split;
namespace lora = tensafe::lora;
namespace session = tensafe::session;
using steady = std::chrono::steady_clock;

struct load_options {
    program_options service;
    std::vector<std::size_t> clients{1};
    double seconds = 5;
    std::size_t rounds = 3;
    std::size_t rows = 1;  ///< hidden states of a call
    std::string adapter_directory;
};

/// What one round of some clients took, or the medians of several.
struct figures {
    double tokens_per_second = 0;
    double p50_ms = 0;  ///< of a call
    double p99_ms = 0;
    double bytes_up = 0;  ///< on the wire, for a token
    double bytes_down = 0;
    double reconnections = 0;  ///< summed up
    double rate_waits = 0;
};

/// A client that asks over a network, or a server in this process.
struct endpoint {
    lora::model_layout layout;
    std::function<void(session::call&)> ask;
    std::shared_ptr<remote_model> remote = {};  ///< if it is over a network
};

endpoint over_network(const program_options& options) {
    const auto remote = std::make_shared<remote_model>(
        options.connector(), client_identity({}), std::make_shared<lora::client<params>>(), options.remote());
    return {remote->layout(), [remote](session::call& of) { remote->ask(of); }, remote};
}

using server_session = session::server_session<params, packing, protection>;

endpoint in_this_process(std::shared_ptr<const server_session::model_type> server,
                         const lora::adapter& held) {
    const auto client = std::make_shared<remote_model::client_type>(server->layout(), held);
    const tensafe::random::seed nonce = tensafe::random::fresh_nonce();
    const auto asks = std::make_shared<remote_model::session_type>(client);
    const auto answers =
        std::make_shared<server_session>(std::move(server), nonce, client->rerandomization_key(nonce));
    const auto work = std::make_shared<server_session::workspace>();
    return {client->layout(),
            [=](session::call& of) { session::answer_in_process(*asks, *answers, *work, of, [] {}); }};
}

/// Of sorted values; 0 if there are none. Between two in the middle it is their mean.
double quantile(const std::vector<double>& sorted, double part) {
    if (sorted.empty()) {
        return 0;
    }
    const double place = part * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    return std::lerp(sorted[below], sorted[std::min(below + 1, sorted.size() - 1)],
                     place - static_cast<double>(below));
}

figures run_round(const std::vector<endpoint>& clients, std::size_t group, const load_options& options,
                  double seconds) {
    const std::vector<float> h = soak::random_state(clients.front().layout.at(group).d);
    const auto total = [&] {
        figures sum;
        for (const endpoint& client : clients) {
            const auto one = client.remote ? client.remote->counted() : remote_model::counts();
            sum.bytes_up += static_cast<double>(one.wire.up);
            sum.bytes_down += static_cast<double>(one.wire.down);
            sum.reconnections += static_cast<double>(one.resumed + one.sessions);
            sum.rate_waits += static_cast<double>(one.rate_waits);
        }
        return sum;
    };
    const figures before = total();
    std::vector<std::vector<double>> of_clients(clients.size());
    const auto start = steady::now();
    const auto until = start + std::chrono::duration<double>(seconds);
    soak::at_once(clients.size(), [&](std::size_t c) {
        while (steady::now() < until) {
            const auto before_call = steady::now();
            session::call call(group, options.rows, [&](std::size_t) { return std::span<const float>(h); });
            clients[c].ask(call);
            of_clients[c].push_back(
                std::chrono::duration<double, std::milli>(steady::now() - before_call).count());
        }
    });
    const double passed = std::chrono::duration<double>(steady::now() - start).count();
    const figures after = total();
    std::vector<double> latencies;
    for (const auto& each : of_clients) {
        latencies.insert(latencies.end(), each.begin(), each.end());
    }
    std::sort(latencies.begin(), latencies.end());
    const auto tokens = static_cast<double>(std::max<std::size_t>(latencies.size() * options.rows, 1));
    return {static_cast<double>(latencies.size() * options.rows) / passed,
            quantile(latencies, 0.5),
            quantile(latencies, 0.99),
            (after.bytes_up - before.bytes_up) / tokens,
            (after.bytes_down - before.bytes_down) / tokens,
            after.reconnections - before.reconnections,
            after.rate_waits - before.rate_waits};
}

figures summary(const std::vector<figures>& rounds) {
    figures result;
    for (double figures::*const member : {&figures::tokens_per_second, &figures::p50_ms, &figures::p99_ms,
                                          &figures::bytes_up, &figures::bytes_down}) {
        std::vector<double> values;
        for (const figures& round : rounds) {
            values.push_back(round.*member);
        }
        std::sort(values.begin(), values.end());
        result.*member = quantile(values, 0.5);
    }
    for (const figures& round : rounds) {
        result.reconnections += round.reconnections;
        result.rate_waits += round.rate_waits;
    }
    return result;
}

void print(const std::string& where, std::size_t clients, const figures& f) {
    std::printf("%-12s %7zu %9.1f %9.3f %9.3f %12.0f %12.0f", where.c_str(), clients, f.tokens_per_second,
                f.p50_ms, f.p99_ms, f.bytes_up, f.bytes_down);
    if (f.reconnections > 0 || f.rate_waits > 0) {
        std::printf("  %.0f reconnections, %.0f waits for the rate limit", f.reconnections, f.rate_waits);
    }
    std::printf("\n");
    std::fflush(stdout);
}

void run(load_options options) {
    std::shared_ptr<const server_session::model_type> server;
    lora::adapter held;
    if (!options.adapter_directory.empty()) {
        options.service.tokens_ahead = 1;  // as in process
        const lora::adapter adapter = tensafe::io::load_peft(options.adapter_directory);
        server = std::make_shared<const server_session::model_type>(adapter);
        held = lora::client_part(adapter);
    }
    struct side {
        std::string name;
        std::vector<endpoint> clients = {};
        std::vector<figures> rounds = {};
    };
    for (const std::size_t count : options.clients) {
        side wire{options.service.json_frames ? "wire, json" : "wire, binary"};
        side process{"in process"};
        for (std::size_t c = 0; c < count; ++c) {
            wire.clients.push_back(over_network(options.service));
            if (server) {
                process.clients.push_back(in_this_process(server, held));
            }
        }
        const lora::model_layout& layout = wire.clients.front().layout;
        if (layout.groups.empty()) {
            throw tensafe::shape_error("service_load: the adapter has no site on the server");
        }
        const auto largest = std::ranges::max_element(layout.groups, {}, &lora::model_layout::group::d);
        const auto group = static_cast<std::size_t>(largest - layout.groups.begin());
        if (&count == &options.clients.front()) {
            const auto& g = layout.at(group);
            const std::size_t tokens = std::max<std::size_t>(layout.tokens_ahead, 1);  // whole blocks
            const auto cost = wire.clients.front().remote->forecast(group, tokens);
            std::printf("group %zu: input %s, %zu rows of A, %zu entries; %zu rounds of %.3g s, medians\n",
                        group, g.input.c_str(), g.rows(layout.mode), g.d, options.rounds, options.seconds);
            std::printf("%-12s %7s %9s %9s %9s %12s %12s\n", "where", "clients", "tokens/s", "p50 ms",
                        "p99 ms", "bytes up", "bytes down");
            std::printf("%-12s %7s %9s %9s %9s %12zu %12zu\n", "cost model", "", "", "", "", cost.up / tokens,
                        cost.down / tokens);
        }
        std::vector<side*> sides;
        for (side* each : {&process, &wire}) {
            if (!each->clients.empty()) {
                sides.push_back(each);
                run_round(each->clients, group, options,
                          std::min(0.3, options.seconds));  // warms up, does not count
            }
        }
        for (std::size_t r = 0; r < options.rounds; ++r) {  // in turn, so that a slow minute hits both
            for (side* each : sides) {
                each->rounds.push_back(run_round(each->clients, group, options, options.seconds));
            }
        }
        for (const side* each : sides) {
            print(each->name, count, summary(each->rounds));
        }
        if (server) {
            std::printf("%-12s %7zu %8.1f%% of the median latency in process\n", "overhead", count,
                        100 * (summary(wire.rounds).p50_ms / summary(process.rounds).p50_ms - 1));
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
    app.add_option("--rows", options.rows, "hidden states of a call, all asked for at once")
        ->capture_default_str()
        ->check(CLI::Range(1, 1'000'000));
    app.add_option("--adapter-directory", options.adapter_directory,
                   "the same adapter, PEFT: measure it without a network, too, and no blocks");
    CLI11_PARSE(app, argc, argv);
    try {
        run(options);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "service_load: %s\n", e.what());
        return 1;
    }
}
