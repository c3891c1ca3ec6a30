// Attention and expert adapters on one encrypted input: one request, answers split by site, each with its own
// scale.

#include <tensafe/core/error.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/model/shared_input.hpp>
#include <tensafe/lora/model/stack.hpp>
#include <tensafe/tensafe.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace lora = tensafe::lora;
using params = tensafe::ckks::private_n4096;
constexpr std::size_t d_in = 2048;

/// A site of random values, for want of more files.
lora::adapter_site random_site(const char* projection, std::size_t d_out, std::size_t rank, double scale) {
    std::mt19937 generator(static_cast<std::mt19937::result_type>(rank + d_out));
    std::normal_distribution<float> values(0.0F, 0.02F);
    lora::adapter_site site{std::string("model.layers.0.self_attn.") + projection, lora::matrix(rank, d_in),
                            lora::matrix(d_out, rank), scale};
    std::generate(site.a.values.begin(), site.a.values.end(), [&] { return values(generator); });
    std::generate(site.b.values.begin(), site.b.values.end(), [&] { return values(generator); });
    return site;
}

bool run() {
    const std::string data = TENSAFE_EXAMPLE_DATA "/qwen_rank32";
    const lora::adapter loaded = tensafe::io::load_peft(data);
    const lora::matrix states = tensafe::io::safetensors_file::open(data + "/hidden_states.safetensors")
                                    .read_matrix("self_attn.q_proj");

    // The attention adapter: q from the file, k and v at random; two experts with ranks and scales of their
    // own.
    const lora::adapter attention{
        {loaded.site("q_proj"), random_site("k_proj", 512, 32, 2), random_site("v_proj", 512, 32, 2)}};
    const lora::adapter banking{{random_site("q_proj", 4096, 16, 16.0 / 16)}};
    const lora::adapter investment{{random_site("q_proj", 4096, 8, 16.0 / std::sqrt(8.0))}};
    lora::adapter stacked = lora::stack_adapters(
        {{"shared_attention", attention}, {"banking", banking}, {"investment", investment}});

    std::vector<std::reference_wrapper<const lora::adapter_site>> sites;
    for (lora::adapter_site& site : stacked.sites) {
        if (lora::shared_input(site.name) != "model.layers.0.self_attn.input") {
            std::fprintf(stderr, "%s has another input\n", site.name.c_str());
            return false;
        }
        site = lora::normalize_rows(std::move(site));
        sites.push_back(site);
    }
    const lora::site_stack rows(sites);

    const lora::server<params> server(rows.rows());
    lora::client<params> client;
    const auto nonce = tensafe::random::fresh_seed();
    auto zeros = server.pool(nonce, client.rerandomization_key(nonce));

    const auto h = states.row(0);
    const auto query = client.encrypt(server.plan(), h);
    const auto reply = server.apply(query.request, zeros);
    const auto product = client.decrypt(server.plan(), reply, query);

    // Each site takes its rows of the answer, and its own scale.
    std::vector<std::vector<double>> deltas;
    std::size_t separate = 0;
    double worst = 0;
    std::printf("%-50s %5s %7s %15s\n", "site", "rank", "scale", "relative error");
    for (std::size_t i = 0; i < stacked.sites.size(); ++i) {
        const lora::adapter_site& site = stacked.sites[i];
        deltas.push_back(lora::apply_b(site, rows.part(product, i)));
        const double error =
            tensafe::ckks::measure_precision(lora::plain_delta(site, h), deltas.back()).relative_error;
        std::printf("%-50s %5zu %7.3f %15.1e\n", site.name.c_str(), site.rank(), site.scale, error);
        worst = std::max(worst, error);
        separate += lora::cost_of<params, lora::coefficient_tiles<4>>(site.shape()).bytes();
    }

    // What reaches q_proj: attention as it is, the experts weighted as the model's router says.
    const auto delta_q = lora::sum_of_deltas({{1.0, deltas[0]}, {0.75, deltas[3]}, {0.25, deltas[4]}});
    std::printf("\nq_proj gets the sum of three deltas, %zu entries\n", delta_q.size());

    const std::size_t together = query.request.bytes() + reply.bytes();
    const std::size_t attention_alone =
        lora::cost_of<params, lora::coefficient_tiles<4>>({.rank = 96, .d_in = d_in, .d_out = 0}).bytes();
    std::printf(
        "one request for all %zu sites: %zu bytes; a request for each: %zu bytes, %.1f times as many\n",
        stacked.sites.size(), together, separate,
        static_cast<double>(separate) / static_cast<double>(together));
    std::printf(
        "without the experts: %zu bytes. With them always asked for, the server does not see which are "
        "used\n",
        attention_alone);
    return worst < 5e-4;
}

}  // namespace

int main() {
    try {
        return run() ? 0 : 1;
    } catch (const tensafe::error& e) {
        std::fprintf(stderr, "stacked_adapters: %s\n", e.what());
        return 1;
    }
}
