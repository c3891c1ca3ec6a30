#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/client.hpp>
#include <tensafe/lora/plain.hpp>
#include <tensafe/lora/server.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;
using tensafe::exec::host;
using tensafe::io::load_peft;
using tensafe::io::safetensors_file;

namespace {

const std::filesystem::path data = std::filesystem::path(TENSAFE_TEST_DATA) / "qwen_rank32";

using packing = lora::replicated_slots<lora::paired_rows, lora::unrescaled_replies>;

double relative_error(std::span<const double> got, std::span<const double> wanted) {
    REQUIRE(got.size() == wanted.size());
    double difference = 0;
    double size = 0;
    for (std::size_t k = 0; k < got.size(); ++k) {
        difference += (got[k] - wanted[k]) * (got[k] - wanted[k]);
        size += wanted[k] * wanted[k];
    }
    return std::sqrt(difference / size);
}

struct result {
    std::size_t tokens = 0;
    double worst = 0;
};

/// Every token of a site through encryption, against deltas that another program computed.
template <class P>
result run_site(const std::string& name) {
    static const lora::adapter adapter = load_peft(data);
    static const safetensors_file hidden = safetensors_file::open(data / "hidden_states.safetensors");
    static const safetensors_file expected = safetensors_file::open(data / "expected_delta.safetensors");
    static lora::client<P> client;

    const lora::adapter_site& site = adapter.site(name);
    const lora::matrix tokens = hidden.read_matrix(name);
    const std::vector<double> deltas = expected.read_doubles(name);
    REQUIRE(deltas.size() == tokens.rows * site.d_out());

    const lora::slot_server<P, packing> server(site.a);
    const auto& layout = server.layout();
    typename lora::slot_server<P, packing>::workspace work;
    typename lora::slot_server<P, packing>::reply_type reply;
    result total;
    for (std::size_t token = 0; token < tokens.rows; ++token) {
        server.apply(host{}, client.encrypt(host{}, layout, tokens.row(token)), work, reply);
        const std::vector<double> product = client.decrypt(host{}, layout, reply);
        const std::vector<double> delta = lora::apply_b(site, product);
        const std::span<const double> wanted(deltas.data() + token * site.d_out(), site.d_out());
        total.worst = std::fmax(total.worst, relative_error(delta, wanted));
        ++total.tokens;
    }
    return total;
}

}  // namespace

TEST_CASE("every token of every site comes back within 1e-6 of the expected delta") {
    for (const std::string name :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "mlp.experts.7.gate_proj", "mlp.experts.7.up_proj", "mlp.experts.7.down_proj"}) {
        CAPTURE(name);
        const result r = run_site<ckks::n16384_l4>(name);
        CAPTURE(r.worst);
        CHECK(r.tokens == 16);
        CHECK(r.worst <= 1e-6);
    }
}

TEST_CASE("the test data holds the seven sites and no other") {
    const lora::adapter adapter = load_peft(data);
    CHECK(adapter.sites.size() == 7);
    CHECK(std::all_of(adapter.sites.begin(), adapter.sites.end(),
                      [](const lora::adapter_site& site) { return site.rank() == 32 && site.scale == 2.0; }));
}
