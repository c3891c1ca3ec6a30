#pragma once

#include <tensafe/device/lora/slots.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include "../../random_values.hpp"
#include "../../sides.hpp"
#include "../device_data.hpp"

// The classic token on a device against lora::client and lora::server with the same keys and seeds.

namespace tests::slot_token_checks {

/// Requests, replies and answers of a batch of two clients equal the host's; answers are A*h.
template <ckks::parameter_set P, class Where>
void check_tokens(const Where& where, std::size_t rank, std::size_t d) {
    using packing = lora::replicated_slots<>;
    using bare = lora::reveals_adapter_rows;
    const lora::matrix a = random_matrix(rank, d, 3);
    const lora::server<P, packing, bare> host_server(a);
    const auto& plan = host_server.plan();
    const auto& layout = plan.layout();
    const ckks::secret_key<P> first(numbered_seed(1));
    const ckks::secret_key<P> second(numbered_seed(2));
    const std::vector<const ckks::secret_key<P>*> keys{&first, &second};
    device::client<P, Where, packing, bare> client(where, layout, keys, numbered_generator(9));
    const device::server<P, Where, packing, bare> server(where, a);
    typename decltype(client)::workspace client_work(client, 2);
    typename decltype(server)::workspace server_work(server, 2);
    device::slot_request_batch<P, Where> requests(layout, 2);
    auto replies = server.replies_for(2);

    const std::vector<float> states = random_state(2 * d, 11);
    client.stage(client_work, states);
    client.encrypt(where, client_work, requests);
    server.apply(where, requests, server_work, replies);
    client.decrypt(where, replies, client_work);
    where.wait();
    std::vector<double> answers(2 * rank);
    client.collect(client_work, answers);

    std::vector<arith::word> c0(2 * layout.inputs() * device::words_of_poly<typename P::basis>);
    where.download(requests.c0(), std::span<arith::word>(c0));
    where.wait();
    for (std::size_t t = 0; t < 2; ++t) {
        CAPTURE(t);
        random::generator generator(numbered_seed(9));
        for (std::size_t i = 0; i < 2 * t * layout.inputs(); ++i) {
            static_cast<void>(generator.next_seed());
        }
        lora::client<P> host_client(ckks::secret_key<P>(numbered_seed(static_cast<std::uint8_t>(1 + t))),
                                    std::move(generator));
        const std::span<const float> h = std::span<const float>(states).subspan(t * d, d);
        const auto query = host_client.encrypt(plan, h);
        const auto& request = query.request;
        for (std::size_t i = 0; i < layout.inputs(); ++i) {
            const auto words = request.inputs[i].c0.words();
            CHECK(std::equal(
                words.begin(), words.end(),
                c0.begin() + static_cast<std::ptrdiff_t>((t * layout.inputs() + i) * words.size())));
        }
        const auto reply = host_server.apply(request);
        for (std::size_t o = 0; o < layout.outputs(); ++o) {
            CAPTURE(o);
            const auto product = device::download(where, replies, t * layout.outputs() + o);
            CHECK(product.c0 == reply.outputs[o].c0);
            CHECK(product.c1 == reply.outputs[o].c1);
        }
        const auto expected = host_client.decrypt(plan, reply, query);
        const auto exact = product(a, std::vector<float>(h.begin(), h.end()));
        for (std::size_t r = 0; r < rank; ++r) {
            CHECK(answers[t * rank + r] == expected[r]);
            CHECK(std::fabs(answers[t * rank + r] - exact[r]) < 1e-5);
        }
    }

    // Requests go both ways between host and device.
    const auto first_request = requests.get(where, 0, d, layout.entries_per_input());
    requests.put(where, 1, first_request);
    CHECK(requests.get(where, 1, d, layout.entries_per_input()).inputs[0].c0 == first_request.inputs[0].c0);
    auto malformed = first_request;
    malformed.inputs[0].c0.template limb<1>()[5] = P::basis::template prime<1>;
    CHECK_THROWS_AS(requests.put(where, 1, malformed), format_error);
    CHECK_THROWS_AS(requests.put(where, 2, first_request), shape_error);

    // States on the device: the same requests; what cannot be encrypted is marked, and nothing of it goes
    // out.
    for (const float bad : {0.0F, 1e22F, 3e38F, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
        CAPTURE(bad);
        std::vector<float> changed = states;
        changed[d + 3] = bad;
        const auto there = tests::to_device(where, changed);
        client.stage_on_device(client_work, there.data(), 2);
        client.encrypt(where, client_work, requests);
        server.apply(where, requests, server_work, replies);
        client.decrypt(where, replies, client_work);
        where.wait();
        const auto sent = requests.get(where, 1, d, layout.entries_per_input());
        if (bad == 0) {
            client.collect(client_work, answers);
            const auto exact = product(
                a, std::vector<float>(changed.begin() + static_cast<std::ptrdiff_t>(d), changed.end()));
            CHECK(std::fabs(answers[rank] - exact[0]) < 1e-5);
        } else {
            std::fill(answers.begin(), answers.end(), 0.0);
            CHECK_THROWS_AS(client.collect(client_work, answers), encoding_error);
            // The other token's answers stand.
            const auto exact = product(
                a, std::vector<float>(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(d)));
            CHECK(std::fabs(answers[0] - exact[0]) < 1e-5);
            CHECK(std::isnan(answers[rank]));
            for (const auto& input : sent.inputs) {
                const auto words = input.c0.words();
                CHECK(std::all_of(words.begin(), words.end(), [](arith::word w) { return w == 0; }));
            }
        }
    }

    client.stage(client_work, states);
    client.encrypt(where, client_work, requests);
    client.encrypt(where, client_work, requests);  // without staging
    where.download(requests.c0(), std::span<arith::word>(c0));
    where.wait();
    CHECK(c0 == std::vector<arith::word>(c0.size()));
}

}  // namespace tests::slot_token_checks
