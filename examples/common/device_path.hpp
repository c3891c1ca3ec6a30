#pragma once

#include <tensafe/ckks/precision.hpp>
#include <tensafe/device/lora/client.hpp>
#include <tensafe/device/lora/server.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/plain.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace examples {

namespace lora = tensafe::lora;
namespace ckks = tensafe::ckks;
namespace device = tensafe::device;

/// Sends all hidden states through the adapter as one batch, with client and server where `where` says.
/// @param run  run(f) does f(where), or records it as a graph and replays that
/// @returns  the worst relative error against plaintext LoRA
template <class Where, class Run>
double encrypted_batch(const Where& where, const lora::adapter_site& site, const lora::matrix& hidden,
                       Run run) {
    using params = ckks::private_n4096;
    const std::size_t tokens = hidden.rows;

    // Once: the server packs A and copies it to the device; the client does so with its key.
    device::server<params, Where> server(where, site.a);
    const ckks::secret_key<params> key(tensafe::random::fresh_seed());
    const std::array<const ckks::secret_key<params>*, 1> keys{&key};
    device::client<params, Where> client(where, server.layout(), keys);

    // Once per session: the server's nonce goes to the client, its re-randomization key comes back.
    const auto nonce = tensafe::random::fresh_nonce();
    const std::uint32_t number =
        server.add_client(where, nonce, device::make_rerandomization_key(key, nonce));

    // Once per stream: memory for batches of this size.
    typename decltype(client)::workspace client_work(client, tokens);
    typename decltype(server)::workspace server_work(server, tokens);
    typename decltype(client)::requests requests(server.layout(), tokens);
    typename decltype(server)::replies replies(server.layout(), tokens);
    std::vector<double> products(tokens * site.rank());
    const std::vector<std::uint32_t> client_of(tokens, number);

    double worst = 0;
    for (int batch = 0; batch < 2; ++batch) {
        // Each batch: fresh randomness on the host, then work that only enqueues.
        client.stage(client_work, hidden.values);
        server.stage(server_work, client_of);
        run([&](const Where& w) {
            client.encrypt(w, client_work, requests);
            server.apply(w, requests, server_work, replies);
            client.decrypt(w, replies, client_work);
        });
        where.wait();
        server.check(server_work);
        client.collect(client_work, products);

        for (std::size_t t = 0; t < tokens; ++t) {
            const auto product = std::span<const double>(products).subspan(t * site.rank(), site.rank());
            const auto delta = lora::apply_b(site, product);
            const auto plain = lora::plain_delta(site, hidden.row(t));
            worst = std::max(worst, ckks::measure_precision(plain, delta).relative_error);
        }
    }
    return worst;
}

}  // namespace examples
