// Which adapter a query goes to, and what each client used of it: a keyword gate on the client, a meter on
// the server.

#include <tensafe/core/error.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/serving/meter.hpp>
#include <tensafe/serving/meter_json.hpp>
#include <tensafe/serving/prometheus.hpp>
#include <tensafe/serving/router.hpp>
#include <tensafe/tensafe.hpp>

#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace {

namespace lora = tensafe::lora;
namespace serving = tensafe::serving;
using params = tensafe::ckks::private_n4096;

/// What the server has of one adapter and this client: the packed rows, and encryptions of zero.
struct served {
    served(const lora::matrix& a, lora::client<params>& client)
        : server(a),
          nonce(tensafe::random::fresh_seed()),
          zeros(server.pool(nonce, client.rerandomization_key(nonce))) {}

    lora::server<params> server;
    tensafe::random::seed nonce;
    lora::rerandomization_pool<params> zeros;
};

serving::router published_gate() {
    return serving::router(serving::keyword_gate(
        {{"banking", {"bank", "deposit", "loan", "mortgage", "credit", "savings", "checking"}, false},
         {"investment", {"invest", "portfolio", "stock", "bond", "etf", "dividend", "market"}, false},
         {"shared_attention", {}, true}},
        "shared_attention"));
}

void run() {
    const std::string data = TENSAFE_EXAMPLE_DATA "/qwen_rank32";
    const lora::adapter adapter = tensafe::io::load_peft(data);
    const lora::matrix states = tensafe::io::safetensors_file::open(data + "/hidden_states.safetensors")
                                    .read_matrix("self_attn.q_proj");
    // Two sites of the example adapter stand in for the adapters of three trades.
    const std::map<std::string, lora::adapter_site, std::less<>> sites = {
        {"banking", lora::normalize_rows(adapter.site("gate_proj"))},
        {"shared_attention", lora::normalize_rows(adapter.site("q_proj"))}};

    lora::client<params> client;
    std::map<std::string, served, std::less<>> loaded;  // "investment" is not
    for (const auto& [name, site] : sites) {
        loaded.try_emplace(name, site.a, client);
    }

    const serving::router router = published_gate();  // on the client: it reads the text
    serving::meter meter;                             // on the server: it sees names and sizes
    std::size_t token = 0;
    for (const char* const text : {"What does a MORTGAGE cost, and a loan?", "Is a bond safer than a stock?",
                                   "Tell me a joke.", "The vagabond went to the supermarket."}) {
        const serving::routed to =
            router.route(text, [&](std::string_view name) { return loaded.find(name) != loaded.end(); });
        std::printf("%-40s -> %s", text, to.adapter.c_str());
        for (const std::string& keyword : to.keywords) {
            std::printf(" +%s", keyword.c_str());
        }
        std::printf("%s\n", to.adapter == to.chosen ? "" : (" instead of " + to.chosen).c_str());

        served& chosen = loaded.at(to.adapter);
        const auto& plan = chosen.server.plan();
        const auto h = states.row(token++);
        const auto query = client.encrypt(chosen.server.plan(), h);
        const auto reply = chosen.server.apply(query.request, chosen.zeros);
        meter.record(to.adapter, token % 2 == 0 ? "ann" : "bob",
                     serving::usage_of(query.request, reply, plan));
        const lora::adapter_site& site = sites.at(to.adapter);
        const auto delta = lora::apply_b(site, client.decrypt(chosen.server.plan(), reply, query));
        const auto precision = tensafe::ckks::measure_precision(lora::plain_delta(site, h), delta);
        std::printf("    %zu entries, relative error %.1e\n", delta.size(), precision.relative_error);
    }

    // A request that is no request: counted as refused, and nothing that it says is believed.
    lora::request<params> broken;
    broken.d = 1'000'000;
    served& banking = loaded.at("banking");
    try {
        static_cast<void>(banking.server.apply(broken, banking.zeros));
    } catch (const tensafe::error& e) {
        meter.record("banking", "eve", serving::refused_usage_of(broken));
        std::printf("refused: %s\n", e.what());
    }

    const std::string json = tensafe::serving::meter_json(meter.snapshot(), 2);
    std::printf("\nas JSON:\n%s\n", json.c_str());
    std::printf("\nfor Prometheus, without the clients' names:\n%s",
                serving::prometheus_text(meter.snapshot(), serving::metric_labels::adapter).c_str());

    serving::meter after_restart;
    after_restart.merge(tensafe::serving::read_meter_json(json));
    std::printf("\nafter a restart the counters are %s\n",
                after_restart.snapshot() == meter.snapshot() ? "the same" : "different");
}

}  // namespace

int main() {
    try {
        run();
        return 0;
    } catch (const tensafe::error& e) {
        std::fprintf(stderr, "routing_and_metering: %s\n", e.what());
        return 1;
    }
}
