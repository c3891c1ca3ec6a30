// One server with many adapters: a registry replaces them while tokens flow and keeps within a memory budget,
// a router on the client chooses among them, a meter counts who used what, and one encrypted input serves
// several at once.

#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/serving.hpp>
#include <tensafe/serving/meter_json.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <future>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

namespace lora = tensafe::lora;
namespace serving = tensafe::serving;
using params = tensafe::ckks::private_n4096;
using model = lora::model_server<params>;
const std::string data = TENSAFE_EXAMPLE_DATA "/qwen_rank32";

/// The file's q_proj in four layers, `strength` times as strong.
lora::adapter read_adapter(const std::string& folder, double strength) {
    const lora::adapter from = tensafe::io::load_peft(folder);
    lora::adapter result;
    for (const char* const layer : {"0", "1", "2", "3"}) {
        lora::adapter_site& site = result.sites.emplace_back(from.site("q_proj"));
        site.name = std::string("model.layers.") + layer + ".self_attn.q_proj";
        site.scale *= strength;
    }
    return result;
}

/// A site of random values, for want of more files.
lora::adapter_site random_site(const char* projection, std::size_t d_out, std::size_t rank, double scale) {
    std::mt19937 generator(static_cast<std::mt19937::result_type>(rank + d_out));
    std::normal_distribution<float> values(0.0F, 0.02F);
    lora::adapter_site site{std::string("model.layers.0.self_attn.") + projection, lora::matrix(rank, 2048),
                            lora::matrix(d_out, rank), scale};
    std::ranges::generate(site.a.values, [&] { return values(generator); });
    std::ranges::generate(site.b.values, [&] { return values(generator); });
    return site;
}

/// One client and its session, for all adapters of the server.
struct user {
    /// Sends h through all groups of one version, whatever the registry does meanwhile.
    /// @return  the deltas of all sites, and what they used
    std::vector<std::vector<double>> send(const model& server, const lora::adapter& adapter,
                                          std::span<const float> h, serving::meter& meter,
                                          const std::string& name) {
        // Each version has a B of its own, which a server sends to the client that asks for it the first
        // time.
        lora::model_client<params> client(keys, server.layout(), lora::client_part(adapter));
        std::vector<std::vector<double>> all;
        for (std::size_t group = 0; group < server.layout().groups.size(); ++group) {
            const auto query = client.encrypt(group, h);
            session.apply(server, group, query.request, reply);
            meter.record(name, "ann", serving::usage_of(query.request, reply, server.plan(group).layout()));
            const auto deltas = client.deltas(group, reply, query);
            for (std::size_t site = 0; site < deltas.size(); ++site) {
                const auto& name_of_site = server.layout().groups[group].sites[site].name;
                const auto plain = lora::plain_delta(adapter.site(name_of_site), h);
                worst = std::max(worst, tensafe::ckks::measure_precision(plain, deltas[site]).relative_error);
                all.push_back(deltas[site]);
            }
        }
        return all;
    }

    std::shared_ptr<lora::client<params>> keys = std::make_shared<lora::client<params>>();
    tensafe::random::seed nonce = tensafe::random::fresh_nonce();  // the server draws it
    lora::server_zeros<params> session{nonce, keys->rerandomization_key(nonce)};
    model::decode_server::reply_type reply;
    double worst = 0;  ///< relative error against plaintext LoRA of the version that answered
};

void replace_while_tokens_flow(serving::registry<model>& adapters, user& ann, std::span<const float> h,
                               serving::meter& meter) {
    std::atomic<std::uint64_t> newest = 0;  // the last version that answered
    std::atomic<bool> stop = false;
    const auto tokens = std::async(std::launch::async, [&] {
        while (!stop) {
            const auto adapter = adapters.at("banking");  // one version for the whole token
            ann.send(adapter.model(), adapter.matrices(), h, meter, "banking");
            newest = adapter.version();
        }
    });
    struct stop_at_the_end {
        std::atomic<bool>& stop;
        ~stop_at_the_end() { stop = true; }
    } const guard{stop};
    for (const double strength : {2.0, 3.0}) {
        const auto version = adapters.load("banking", [=] { return read_adapter(data, strength); });
        while (newest < version &&
               tokens.wait_for(std::chrono::milliseconds(1)) == std::future_status::timeout) {
        }
        std::printf("tokens flow, version %d of banking answers\n", static_cast<int>(version));
    }
    try {
        adapters.load("banking", [] { return read_adapter("adapters/no_such_folder", 4); });
    } catch (const tensafe::error& e) {
        std::printf("refused, the old version serves on: %s\n", e.what());
    }
}

void route_and_count(serving::registry<model>& adapters, user& ann, const lora::matrix& states,
                     serving::meter& meter) {
    const serving::router router(serving::keyword_gate(
        {{"banking", {"bank", "deposit", "loan", "mortgage", "credit", "savings"}, false},
         {"investment", {"invest", "portfolio", "stock", "bond", "market"}, false},
         {"shared_attention", {}, true}},
        "shared_attention"));
    const auto loaded = adapters.names();
    std::size_t token = 0;
    for (const char* const text :
         {"What does a MORTGAGE cost, and a loan?", "Is a bond safer than a stock?", "Tell me a joke."}) {
        const serving::routed to = router.route(
            text, [&](std::string_view name) { return std::ranges::find(loaded, name) != loaded.end(); });
        std::printf("%-40s -> %s%s\n", text, to.adapter.c_str(),
                    to.adapter == to.chosen ? "" : (" instead of " + to.chosen).c_str());
        const auto adapter = adapters.at(to.adapter);  // packed again if it was evicted
        ann.send(adapter.model(), adapter.matrices(), states.row(token++), meter, to.adapter);
    }
    for (const auto& entry : adapters.status().entries) {
        std::printf("%-18s version %d, %s\n", entry.name.c_str(), static_cast<int>(entry.version),
                    entry.packed ? "packed" : "evicted: the budget has room for one");
    }
}

/// The adapter of attention for q, k and v, and two experts for q, each with a rank and scale of its own: the
/// server does not see which of them counts.
void serve_a_stack(user& ann, std::span<const float> h, serving::meter& meter) {
    const lora::adapter loaded = tensafe::io::load_peft(data);
    const lora::adapter attention{
        {loaded.site("q_proj"), random_site("k_proj", 512, 32, 2), random_site("v_proj", 512, 32, 2)}};
    const lora::adapter banking{{random_site("q_proj", 4096, 16, 16.0 / 16)}};
    const lora::adapter investment{{random_site("q_proj", 4096, 8, 16.0 / std::sqrt(8.0))}};
    const lora::adapter stacked = lora::stack_adapters(
        {{"shared_attention", attention}, {"banking", banking}, {"investment", investment}});
    const model server(stacked, {});
    serving::meter of_stack;
    const auto deltas = ann.send(server, stacked, h, of_stack, "shared_attention");
    const serving::usage used = of_stack.snapshot().total();
    meter.record("shared_attention", "ann", used);
    for (const char* const expert : {"banking", "investment"}) {
        meter.record(expert, "ann", {.tokens = used.tokens});
    }
    const auto delta_q = lora::sum_of_deltas({{1.0, deltas[0]}, {0.75, deltas[3]}, {0.25, deltas[4]}});
    std::size_t separate = 0;
    for (const lora::adapter_site& site : stacked.sites) {
        separate += lora::cost_of<params, lora::coefficient_tiles<4>>(site.shape()).bytes();
    }
    std::printf(
        "%zu sites in one request: %zu bytes, alone %zu; q_proj gets a sum of three deltas, %zu entries\n",
        deltas.size(), static_cast<std::size_t>(used.bytes_up + used.bytes_down), separate, delta_q.size());
}

int run() {
    const lora::matrix states = tensafe::io::safetensors_file::open(data + "/hidden_states.safetensors")
                                    .read_matrix("self_attn.q_proj");
    const std::size_t bytes = model::bytes_for(read_adapter(data, 1), {});
    const std::size_t budget = bytes + bytes / 2;
    std::printf("an adapter takes %.1f MB packed, the budget is %.1f MB\n", static_cast<double>(bytes) / 1e6,
                static_cast<double>(budget) / 1e6);
    serving::registry<model> adapters({.memory_budget = budget}, serving::pack_with<model>());
    adapters.load("banking", [] { return read_adapter(data, 1); });
    user ann;
    serving::meter meter;  // on the server: it sees names and sizes
    replace_while_tokens_flow(adapters, ann, states.row(0), meter);
    adapters.load("shared_attention", [] { return read_adapter(data, -1); });
    route_and_count(adapters, ann, states, meter);
    serve_a_stack(ann, states.row(0), meter);
    std::printf("relative error %.1e against plaintext LoRA (worst token)\n", ann.worst);

    lora::request<params> broken;  // no request: counted as refused, and nothing that it says is believed
    broken.d = 1'000'000;
    try {
        model::decode_server::reply_type reply;
        const auto adapter = adapters.at("banking");
        ann.session.apply(adapter.model(), 0, broken, reply);
    } catch (const tensafe::error& e) {
        meter.record("banking", "eve", serving::refused_usage_of(broken));
        std::printf("refused: %s\n", e.what());
    }
    std::printf("\n%s",  // for Prometheus, without the clients' names
                serving::prometheus_text(meter.snapshot(), serving::metric_labels::adapter).c_str());
    serving::meter after_restart;
    after_restart.merge(serving::read_meter_json(serving::meter_json(meter.snapshot())));
    std::printf("\nafter a restart the counters are %s\n",
                after_restart.snapshot() == meter.snapshot() ? "the same" : "different");
    return ann.worst < 5e-4 ? 0 : 1;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "serving: %s\n", e.what());
        return 1;
    }
}
