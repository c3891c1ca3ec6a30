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
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/random/entropy.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "program_options.hpp"
#include "remote_model.hpp"

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

/// What one round of some clients took.
struct measurement {
    std::vector<double> latencies;  ///< ms of each token, sorted
    double seconds = 0;
    double bytes_up = 0;  ///< on the wire, for a token
    double bytes_down = 0;
    std::uint64_t reconnections = 0;
    std::uint64_t rate_waits = 0;

    double tokens_per_second() const { return static_cast<double>(latencies.size()) / seconds; }
    double quantile(double part) const {
        if (latencies.empty()) {
            return 0;
        }
        const auto place = static_cast<std::size_t>(part * static_cast<double>(latencies.size() - 1) + 0.5);
        return latencies[place];
    }
};

/// Sends requests and fetches replies, over a network or not.
class endpoint {
  public:
    virtual ~endpoint() = default;
    virtual lora::model_client<params>& client() = 0;
    virtual void token(const std::function<void()>& whole) = 0;
    virtual void carry(std::size_t group, const lora::request<params>& request,
                       remote_model::reply_type& reply) = 0;
    virtual remote_model::counts counted() const { return {}; }
};

class over_network final : public endpoint {
  public:
    explicit over_network(const program_options& options)
        : remote_(options.connector(), client_identity({}), std::make_shared<lora::client<params>>(),
                  options.remote()) {}

    lora::model_client<params>& client() override { return *remote_.client(); }
    void token(const std::function<void()>& whole) override { remote_.with_retry(whole); }
    void carry(std::size_t group, const lora::request<params>& request,
               remote_model::reply_type& reply) override {
        remote_.carry(group, request, reply);
    }
    remote_model::counts counted() const override { return remote_.counted(); }

  private:
    remote_model remote_;
};

class in_this_process final : public endpoint {
  public:
    in_this_process(const lora::model_server<params>& server, const lora::adapter& held)
        : server_(server),
          client_(server.layout(), held),
          nonce_(tensafe::random::fresh_seed()),
          session_(nonce_, client_.rerandomization_key(nonce_)) {}

    lora::model_client<params>& client() override { return client_; }
    void token(const std::function<void()>& whole) override { whole(); }
    void carry(std::size_t group, const lora::request<params>& request,
               remote_model::reply_type& reply) override {
        session_.apply(server_, group, request, reply);
    }

  private:
    const lora::model_server<params>& server_;
    lora::model_client<params> client_;
    tensafe::random::seed nonce_;
    lora::model_session<params> session_;
};

std::vector<float> random_state(std::size_t d) {
    std::mt19937 generator(std::random_device{}());
    std::normal_distribution<float> normal;
    std::vector<float> h(d);
    std::generate(h.begin(), h.end(), [&] { return normal(generator); });
    return h;
}

/// One client's loop, until `until`; milliseconds of each token are added to `latencies`.
void run_client(endpoint& at, std::size_t group, const std::vector<float>& h, steady::time_point until,
                std::vector<double>& latencies) {
    lora::query<params> query;
    remote_model::reply_type reply;
    lora::model_client<params>::workspace reading;
    std::vector<double> product;
    while (steady::now() < until) {
        const auto start = steady::now();
        at.token([&] {
            at.client().encrypt(group, h, query);
            at.carry(group, query.request, reply);
            at.client().decrypt(group, reply, query, reading, product);
        });
        latencies.push_back(milliseconds(steady::now() - start).count());
    }
}

measurement run_round(std::vector<std::unique_ptr<endpoint>>& clients, std::size_t group, double seconds) {
    std::vector<std::vector<double>> latencies(clients.size());
    const std::vector<float> h = random_state(clients.front()->client().layout().at(group).d);
    const auto total = [&] {
        remote_model::counts sum;
        for (const auto& client : clients) {
            const auto one = client->counted();
            sum.replies += one.replies;
            sum.resumed += one.resumed + one.sessions;
            sum.rate_waits += one.rate_waits;
            sum.wire.up += one.wire.up;
            sum.wire.down += one.wire.down;
        }
        return sum;
    };
    const auto before = total();
    std::mutex mutex;
    std::exception_ptr failure;
    const auto start = steady::now();
    const auto until =
        start + std::chrono::duration_cast<steady::duration>(std::chrono::duration<double>(seconds));
    {
        std::vector<std::jthread> threads;
        for (std::size_t c = 0; c < clients.size(); ++c) {
            threads.emplace_back([&, c] {
                try {
                    run_client(*clients[c], group, h, until, latencies[c]);
                } catch (...) {
                    const std::lock_guard lock(mutex);
                    failure = std::current_exception();
                }
            });
        }
    }
    measurement result;
    result.seconds = std::chrono::duration<double>(steady::now() - start).count();
    if (failure) {
        std::rethrow_exception(failure);
    }
    for (const auto& of_client : latencies) {
        result.latencies.insert(result.latencies.end(), of_client.begin(), of_client.end());
    }
    std::sort(result.latencies.begin(), result.latencies.end());
    const auto after = total();
    const auto tokens = static_cast<double>(std::max<std::size_t>(result.latencies.size(), 1));
    result.bytes_up = static_cast<double>(after.wire.up - before.wire.up) / tokens;
    result.bytes_down = static_cast<double>(after.wire.down - before.wire.down) / tokens;
    result.reconnections = after.resumed - before.resumed;
    result.rate_waits = after.rate_waits - before.rate_waits;
    return result;
}

template <class Of>
double median(const std::vector<measurement>& rounds, Of of) {
    std::vector<double> values;
    for (const auto& round : rounds) {
        values.push_back(of(round));
    }
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct row {
    std::string where;
    std::size_t clients = 0;
    double tokens_per_second = 0;
    double p50 = 0;
    double p99 = 0;
    double bytes_up = 0;
    double bytes_down = 0;
    double reconnections = 0;
    double rate_waits = 0;

    row(std::string name, std::size_t count, const std::vector<measurement>& rounds)
        : where(std::move(name)),
          clients(count),
          tokens_per_second(median(rounds, [](const auto& m) { return m.tokens_per_second(); })),
          p50(median(rounds, [](const auto& m) { return m.quantile(0.5); })),
          p99(median(rounds, [](const auto& m) { return m.quantile(0.99); })),
          bytes_up(median(rounds, [](const auto& m) { return m.bytes_up; })),
          bytes_down(median(rounds, [](const auto& m) { return m.bytes_down; })) {
        for (const auto& m : rounds) {
            reconnections += static_cast<double>(m.reconnections);
            rate_waits += static_cast<double>(m.rate_waits);
        }
    }
};

void print(const row& r) {
    std::printf("%-12s %7zu %9.1f %9.3f %9.3f %12.0f %12.0f", r.where.c_str(), r.clients, r.tokens_per_second,
                r.p50, r.p99, r.bytes_up, r.bytes_down);
    if (r.reconnections > 0 || r.rate_waits > 0) {
        std::printf("  %.0f reconnections, %.0f waits for the rate limit", r.reconnections, r.rate_waits);
    }
    std::printf("\n");
    std::fflush(stdout);
}

nlohmann::ordered_json to_json(const row& r) {
    return {{"where", r.where},
            {"clients", r.clients},
            {"tokens_per_second", r.tokens_per_second},
            {"p50_ms", r.p50},
            {"p99_ms", r.p99},
            {"bytes_up", r.bytes_up},
            {"bytes_down", r.bytes_down},
            {"reconnections", r.reconnections},
            {"rate_waits", r.rate_waits}};
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
    std::vector<row> rows;
    nlohmann::ordered_json report;
    const std::string wire_name = options.service.json_frames ? "wire, json" : "wire, binary";
    std::optional<lora::token_cost> cost;
    for (const std::size_t count : options.clients) {
        std::vector<std::unique_ptr<endpoint>> remote;
        std::vector<std::unique_ptr<endpoint>> local;
        for (std::size_t c = 0; c < count; ++c) {
            remote.push_back(std::make_unique<over_network>(options.service));
            if (server) {
                local.push_back(std::make_unique<in_this_process>(*server, held));
            }
        }
        const lora::model_layout& layout = remote.front()->client().layout();
        const std::size_t group = options.group ? *options.group : largest_group(layout);
        const auto& g = layout.at(group);
        if (!cost) {
            cost = lora::cost_of<params, packing, protection>(
                lora::site_shape{g.rows(layout.mode), g.d, g.sites.front().d_out}, lora::mode::client_held_b);
            std::printf("group %zu: input %s, %zu rows of A, %zu entries; %zu rounds of %.3g s, medians\n",
                        group, g.input.c_str(), g.rows(layout.mode), g.d, options.rounds, options.seconds);
            std::printf("%-12s %7s %9s %9s %9s %12s %12s\n", "where", "clients", "tokens/s", "p50 ms",
                        "p99 ms", "bytes up", "bytes down");
            std::printf("%-12s %7s %9s %9s %9s %12zu %12zu\n", "cost model", "", "", "", "", cost->bytes_up,
                        cost->bytes_down);
            report["group"] = {{"input", g.input}, {"rows", g.rows(layout.mode)}, {"d", g.d}};
            report["cost_model"] = {{"bytes_up", cost->bytes_up}, {"bytes_down", cost->bytes_down}};
        }
        run_round(remote, group, std::min(0.3, options.seconds));  // memory, caches, clocks
        if (server) {
            run_round(local, group, std::min(0.3, options.seconds));
        }
        std::vector<measurement> of_wire;
        std::vector<measurement> of_process;
        for (std::size_t r = 0; r < options.rounds; ++r) {  // in turn, so that a slow minute hits both
            of_wire.push_back(run_round(remote, group, options.seconds));
            if (server) {
                of_process.push_back(run_round(local, group, options.seconds));
            }
        }
        if (server) {
            rows.emplace_back("in process", count, of_process);
            print(rows.back());
        }
        rows.emplace_back(wire_name, count, of_wire);
        print(rows.back());
        if (server) {
            const row& process = rows[rows.size() - 2];
            const double overhead = rows.back().p50 / process.p50 - 1;
            std::printf("%-12s %7zu %8.1f%% of the median latency in process\n", "overhead", count,
                        100 * overhead);
            report["overhead"].push_back({{"clients", count}, {"of_median_latency", overhead}});
        }
    }
    for (const row& r : rows) {
        report["rows"].push_back(to_json(r));
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
