// A Linear layer of a torch model whose LoRA is on a server that never sees the hidden state: the numbers are
// those of Linear + LoRA in one place, within 1e-3. If not, the exit status is 1.

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/interop/torch_lora.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/session/client_session.hpp>
#include <tensafe/session/server_session.hpp>

#include <CLI/CLI.hpp>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <memory>
#include <string>

namespace {

namespace interop = tensafe::interop;
namespace lora = tensafe::lora;
namespace session = tensafe::session;
using params = tensafe::ckks::private_n4096;
constexpr int tokens = 6;

/// What stays in one place otherwise: Linear + scale * B * A.
struct plain_lora {
    torch::nn::Linear layer;
    at::Tensor a, b;
    double scale;

    plain_lora to(at::ScalarType type) const { return {layer, a.to(type), b.to(type), scale}; }
    at::Tensor delta(const at::Tensor& x) const { return scale * x.matmul(a.t()).matmul(b.t()); }
    at::Tensor forward(const at::Tensor& x) { return layer->forward(x) + delta(x); }
};

/// Of a call with all tokens, for one of them.
template <class Call>
double milliseconds(Call call) {
    call();  // the first one allocates
    const std::clock_t start = std::clock();
    call();
    return static_cast<double>(std::clock() - start) * 1e3 / CLOCKS_PER_SEC / tokens;
}

double largest(const at::Tensor& x) {
    return x.abs().max().item<double>();
}

bool run(const std::string& folder, const std::string& name) {
    const lora::adapter loaded = tensafe::io::load_peft(folder);
    const lora::adapter adapter{{loaded.site(name)}};
    const lora::adapter_site& site = adapter.sites.front();

    // The server packs A; the client has the key, and B.
    const auto server = std::make_shared<const lora::model_server<params>>(adapter);
    const auto client =
        std::make_shared<lora::model_client<params>>(server->layout(), lora::client_part(adapter));
    const auto nonce = tensafe::random::fresh_nonce();
    session::server_session<params> theirs(server, nonce, client->rerandomization_key(nonce));
    session::server_session<params>::workspace work;

    // What has the rows of a call answered: here the server of this process, elsewhere your network.
    session::client_session<params> mine(client);
    interop::encrypted_lora<params> encrypted(
        client, [&](session::call& rows) { session::answer_in_process(mine, theirs, work, rows, [] {}); });

    const torch::NoGradGuard no_gradient;
    torch::manual_seed(1);
    torch::nn::Linear layer(static_cast<std::int64_t>(site.d_in()), static_cast<std::int64_t>(site.d_out()));
    const auto delta = [&](const at::Tensor& x) { return encrypted.delta(site.name, x); };
    interop::encrypted_linear module(layer, delta);
    plain_lora plain{layer, interop::as_tensor(site.a), interop::as_tensor(site.b), site.scale};
    std::printf("%s, rank %zu, scale %g\n%s\n\n", site.name.c_str(), site.rank(), site.scale,
                c10::str(module).c_str());

    const at::Tensor x = torch::randn({2, tokens / 2, layer->options.in_features()});
    bool is_same = true;
    std::printf("type      largest delta   off by   of that rounding   plain LoRA off by\n");
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const at::Tensor h = x.to(type);
        const at::Tensor exact = plain.to(at::kDouble).delta(h.to(at::kDouble));
        const double error = largest(encrypted.delta(site.name, h) - exact);
        const double rounding = largest(exact.to(type) - exact);  // a result of this type cannot do better
        std::printf("%-9s %13.4f %8.1e %18.1e %19.1e\n", at::toString(type), largest(exact), error, rounding,
                    largest(plain.to(type).delta(h) - exact));
        is_same = is_same && error - rounding <= 1e-3;
    }
    const double outputs = largest(module.forward(x) - plain.forward(x));
    is_same = is_same && outputs <= 1e-3;
    std::printf("\noutputs of encrypted_linear and of Linear + LoRA are %.1e apart; within 1e-3: %s\n",
                outputs, is_same ? "yes" : "NO");
    std::printf("CPU ms a token: Linear %.2f, with plain LoRA %.2f, with encrypted LoRA %.2f (both sides)\n",
                milliseconds([&] { layer->forward(x); }), milliseconds([&] { plain.forward(x); }),
                milliseconds([&] { module.forward(x); }));
    return is_same;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("A torch Linear with an encrypted LoRA");
    std::string folder = TENSAFE_EXAMPLE_DATA "/qwen_rank32";
    std::string site = "q_proj";
    app.add_option("--adapter", folder, "PEFT directory")->capture_default_str();
    app.add_option("--site", site, "one of its sites, or the end of a name")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    try {
        return run(folder, site) ? 0 : 1;
    } catch (const std::exception& e) {  // tensafe::error, and c10::Error of libtorch
        std::fprintf(stderr, "torch_lora_linear: %s\n", e.what());
        return 1;
    }
}
