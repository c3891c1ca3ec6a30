#include <tensafe/io/peft.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include "../../test.hpp"
#include "../../worst.hpp"

using namespace tests;
using tensafe::io::load_peft;
using tensafe::io::safetensors_file;

namespace {

const std::filesystem::path data = std::filesystem::path(TENSAFE_TEST_DATA) / "qwen_rank32";

using packing = lora::replicated_slots<lora::paired_rows, lora::unrescaled_replies>;

double relative_error(std::span<const double> got, std::span<const double> expected) {
    REQUIRE(got.size() == expected.size());
    double difference = 0;
    double size = 0;
    for (std::size_t k = 0; k < got.size(); ++k) {
        difference += (got[k] - expected[k]) * (got[k] - expected[k]);
        size += expected[k] * expected[k];
    }
    return std::sqrt(difference / size);
}

struct result {
    std::size_t tokens = 0;
    double worst = 0;
};

/// A site with its hidden states and the deltas that another program computed.
struct site_data {
    explicit site_data(const std::string& name) {
        static const lora::adapter adapter = load_peft(data);
        static const safetensors_file hidden = safetensors_file::open(data / "hidden_states.safetensors");
        static const safetensors_file expected = safetensors_file::open(data / "expected_delta.safetensors");
        site = adapter.site(name);
        tokens = hidden.read_matrix(name);
        deltas = expected.read_doubles(name);
        REQUIRE(deltas.size() == tokens.rows * site.d_out());
    }
    void compare(result& total, std::size_t token, std::span<const double> delta) const {
        const std::span<const double> expected(deltas.data() + token * site.d_out(), site.d_out());
        total.worst = worse(total.worst, relative_error(delta, expected));
        ++total.tokens;
    }

    lora::adapter_site site;
    lora::matrix tokens;
    std::vector<double> deltas;
};

/// Every token of a site through the classic packing.
template <class P>
result run_slots(const site_data& known) {
    static lora::client<P> client;
    const lora::server<P, packing, lora::reveals_adapter_rows> server(known.site.a);
    typename decltype(server)::workspace work;
    typename decltype(server)::reply_type reply;
    result total;
    for (std::size_t token = 0; token < known.tokens.rows; ++token) {
        const auto query = client.encrypt(server.plan(), known.tokens.row(token));
        server.apply(query.request, work, reply);
        known.compare(total, token, lora::apply_b(known.site, client.decrypt(server.plan(), reply, query)));
    }
    return total;
}

/// Every token of a site through protected tiles.
template <class P, class Protection>
result run_protected(const site_data& known) {
    static lora::client<P> client;
    const lora::adapter_site site = lora::normalize_rows(known.site);
    const lora::server<P, lora::coefficient_tiles<4>, Protection> server(site.a, lora::trusts_clients{});
    const auto nonce = tensafe::random::fresh_nonce();
    auto zeros = server.pool(nonce, client.rerandomization_key(nonce));
    typename decltype(server)::workspace work;
    typename decltype(server)::reply_type reply;
    result total;
    for (std::size_t token = 0; token < known.tokens.rows; ++token) {
        const auto query = client.encrypt(server.plan(), known.tokens.row(token));
        server.apply(query.request, zeros, work, reply);
        known.compare(total, token, lora::apply_b(site, client.decrypt(server.plan(), reply, query)));
    }
    return total;
}

const std::vector<std::string> sites = {
    "self_attn.q_proj",        "self_attn.k_proj",      "self_attn.v_proj",       "self_attn.o_proj",
    "mlp.experts.7.gate_proj", "mlp.experts.7.up_proj", "mlp.experts.7.down_proj"};

}  // namespace

TEST_CASE("every token of every site comes back within 1e-6 of the expected delta from the classic packing") {
    for (const std::string& name : sites) {
        CAPTURE(name);
        const result r = run_slots<ckks::n16384_l4>(site_data(name));
        CAPTURE(r.worst);
        CHECK(r.tokens == 16);
        CHECK(r.worst <= 1e-6);
    }
}

TEST_CASE("every token of every site comes back within what its protected set promises") {
    using average_case = lora::protects_adapter_rows<lora::average_case<6>>;
    using reduced = lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>;
    for (const std::string& name : sites) {
        CAPTURE(name);
        const site_data known(name);
        const result worst_case = run_protected<ckks::private_n4096, lora::protects_adapter_rows<>>(known);
        CHECK(worst_case.tokens == 16);
        CHECK(worst_case.worst <= 5e-4);
        CHECK(run_protected<ckks::quantum_n4096, lora::protects_adapter_rows<>>(known).worst <= 5e-4);
        CHECK(run_protected<ckks::compact_n4096, average_case>(known).worst <= 5e-4);
        CHECK(run_protected<ckks::minimal_n2048, reduced>(known).worst <= 1e-3);
    }
}

TEST_CASE("the test data holds the seven sites and no other") {
    const lora::adapter adapter = load_peft(data);
    CHECK(adapter.sites.size() == 7);
    CHECK(std::all_of(adapter.sites.begin(), adapter.sites.end(),
                      [](const lora::adapter_site& site) { return site.rank() == 32 && site.scale == 2.0; }));
}
