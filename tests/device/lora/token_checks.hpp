#pragma once

#include <tensafe/device/lora/client.hpp>
#include <tensafe/device/lora/server.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include "../../random_values.hpp"
#include "../../sides.hpp"
#include "../device_data.hpp"

// Whole tokens on a device against lora::client and lora::server with the same keys and seeds.

namespace tests::token_checks {

/// The generator of a seed after so many seeds.
inline random::generator generator_after(const random::seed& start, std::size_t drawn) {
    random::generator generator(start);
    for (std::size_t i = 0; i < drawn; ++i) {
        static_cast<void>(generator.next_seed());
    }
    return generator;
}

/// Two clients with their keys on the host, a server there, and the same two sides on the device.
template <ckks::parameter_set P, int Rows, class Protection, class Where>
struct both_sides {
    using packing = lora::coefficient_tiles<Rows>;
    using host_server = lora::server<P, packing, Protection>;
    using device_client = device::client<P, Where, packing, Protection>;
    using device_server = device::server<P, Where, packing, Protection>;

    Where where;
    lora::matrix a;
    host_server server;
    std::array<tests::sides<P>, 2> clients;
    device_client client;
    device_server on_device;

    both_sides(const Where& w, std::size_t rank, std::size_t d)
        : where(w),
          a(random_matrix(rank, d, 5)),
          server(a),
          clients{tests::sides<P>(1, server.layout().subring_log_n()),
                  tests::sides<P>(2, server.layout().subring_log_n())},
          client(where, server.layout(), std::vector{&clients[0].key, &clients[1].key},
                 numbered_generator(40)),
          on_device(where, a, 2, numbered_generator(99)) {
        for (std::uint32_t k = 0; k < 2; ++k) {
            const auto& c = clients[k];
            CHECK(on_device.add_client(where, c.server_nonce, c.open, numbered_generator(c.number + 3)) == k);
        }
    }
};

/// Requests, replies and answers of a batch of two clients equal the host's, byte for byte and bit for bit;
/// answers are A*h.
template <ckks::parameter_set P, int Rows, class Protection, class Where, class Run = run_directly>
void check_tokens(const Where& where, std::size_t rank, std::size_t d, Run run = {}) {
    both_sides<P, Rows, Protection, Where> sides(where, rank, d);
    const auto& layout = sides.server.layout();
    typename decltype(sides.client)::workspace client_work(sides.client, 3);
    typename decltype(sides.on_device)::workspace server_work(sides.on_device, 3);
    device::request_batch<P, Where> requests(layout, 3);
    typename decltype(sides.on_device)::replies replies(layout, 3);

    // Batches of different sizes through the same memory, one of them again.
    std::size_t drawn = 0;  // seeds of clients
    lora::server_workspace<P> host_work;
    host_work.generator = numbered_generator(99);
    for (const std::vector<std::uint32_t>& client_of :
         {std::vector<std::uint32_t>{1, 0, 1}, {0, 1}, {0, 0, 1}}) {
        const std::size_t tokens = client_of.size();
        const std::vector<float> states = random_state(tokens * d, 100 + drawn);
        sides.client.stage(client_work, states, client_of);
        sides.on_device.stage(server_work, client_of);
        requests.set_tokens(tokens);  // a replay would not
        replies.set_tokens(tokens);
        run(where, tokens, [&](const Where& w) {
            sides.client.encrypt(w, client_work, requests);
            sides.on_device.apply(w, requests, server_work, replies);
            sides.client.decrypt(w, replies, client_work);
        });
        where.wait();
        sides.on_device.check(server_work);
        std::vector<double> answers(tokens * rank);
        sides.client.collect(client_work, answers);

        for (std::size_t t = 0; t < tokens; ++t) {
            CAPTURE(t);
            // The host's client with the same key, and the seeds in the order in which they were drawn.
            const std::span<const float> h = std::span<const float>(states).subspan(t * d, d);
            lora::client<P> host_client(
                ckks::secret_key<P>(numbered_seed(sides.clients[client_of[t]].number + 1)),
                generator_after(numbered_seed(40), drawn));
            drawn += 1 + layout.inputs();
            const auto query = host_client.encrypt(sides.server.plan(), h);
            const auto request = requests.get(where, t);
            CHECK(request.seed == query.request.seed);
            CHECK(request.inputs == query.request.inputs);

            typename decltype(sides.server)::reply_type reply;
            sides.server.apply(query.request, sides.clients[client_of[t]].pool, host_work, reply);
            const auto of_device = replies.get(where, t);
            REQUIRE(of_device.outputs.size() == reply.outputs.size());
            for (std::size_t o = 0; o < reply.outputs.size(); ++o) {
                CAPTURE(o);
                CHECK(of_device.outputs[o].c0 == reply.outputs[o].c0);
                CHECK(of_device.outputs[o].c1 == reply.outputs[o].c1);
            }
            const auto expected = host_client.decrypt(sides.server.plan(), reply, query);
            const std::vector<double> got(answers.begin() + static_cast<std::ptrdiff_t>(t * rank),
                                          answers.begin() + static_cast<std::ptrdiff_t>((t + 1) * rank));
            CHECK(got == expected);

            const std::vector<double> exact = product(sides.a, std::vector<float>(h.begin(), h.end()));
            const double usual = layout.row_norm * norm(h) / std::sqrt(static_cast<double>(d));
            for (std::size_t r = 0; r < rank; ++r) {
                CHECK(std::fabs(got[r] - exact[r]) < 5e-3 * usual);
            }
        }
    }
}

/// Hidden states on the device give the same requests and answers as on the host; what is no number is
/// reported and not sent.
template <ckks::parameter_set P, int Rows, class Protection, class Where>
void check_states_on_device(const Where& where, std::size_t rank, std::size_t d) {
    both_sides<P, Rows, Protection, Where> on_host(where, rank, d);
    both_sides<P, Rows, Protection, Where> on_device(where, rank, d);
    const auto& layout = on_host.server.layout();
    const std::vector<float> states = random_state(2 * d, 7);
    device::request_batch<P, Where> from_host(layout, 2);
    device::request_batch<P, Where> from_device(layout, 2);
    typename decltype(on_host.client)::workspace host_work(on_host.client, 2);
    typename decltype(on_device.client)::workspace device_work(on_device.client, 2);

    const std::vector<std::uint32_t> client_of{0, 1};
    on_host.client.stage(host_work, states, client_of, 2.0);
    on_host.client.encrypt(where, host_work, from_host);
    auto there = tests::to_device(where, states);
    on_device.client.stage_on_device(device_work, there.data(), 2, client_of, 2.0);
    on_device.client.encrypt(where, device_work, from_device);
    where.wait();
    on_device.client.check(where, device_work);
    for (std::size_t t = 0; t < 2; ++t) {
        CHECK(from_device.get(where, t).inputs == from_host.get(where, t).inputs);
    }

    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<float> broken = states;
        broken[d + d / 2] = bad;
        there = tests::to_device(where, broken);
        on_device.client.stage_on_device(device_work, there.data(), 2, client_of);
        on_device.client.encrypt(where, device_work, from_device);
        where.wait();
        CHECK_THROWS_AS(on_device.client.check(where, device_work), encoding_error);
        CHECK(on_device.client.status(device_work)[0] == 0);
        CHECK(on_device.client.status(device_work)[1] == device::status_not_finite);
        for (const auto& input : from_device.get(where, 1).inputs) {
            CHECK(input == std::vector<std::uint8_t>(input.size()));
        }
        CHECK(from_device.get(where, 0).inputs.front() != from_device.get(where, 1).inputs.front());
    }
}

/// Work that is enqueued again without staging leaves nothing but zeros, and is reported.
template <ckks::parameter_set P, int Rows, class Protection, class Where, class Run = run_directly>
void check_stale_work(const Where& where, std::size_t rank, std::size_t d, Run run = {}) {
    both_sides<P, Rows, Protection, Where> sides(where, rank, d);
    const auto& layout = sides.server.layout();
    typename decltype(sides.client)::workspace client_work(sides.client, 1);
    typename decltype(sides.on_device)::workspace server_work(sides.on_device, 1);
    device::request_batch<P, Where> requests(layout, 1);
    typename decltype(sides.on_device)::replies replies(layout, 1);
    const std::vector<float> h = random_state(d, 8);
    const std::uint32_t number = 0;
    const std::span<const std::uint32_t> client_of(&number, 1);

    const auto encrypt = [&](const Where& w) { sides.client.encrypt(w, client_work, requests); };
    const auto apply = [&](const Where& w) { sides.on_device.apply(w, requests, server_work, replies); };
    const auto erased = [](const std::vector<std::uint8_t>& bytes) {
        return bytes == std::vector<std::uint8_t>(bytes.size());
    };
    sides.client.stage(client_work, h, client_of);
    run(where, 0, encrypt);
    where.wait();
    const auto request = requests.get(where, 0);
    sides.on_device.stage(server_work, client_of);
    run(where, 1, apply);
    where.wait();
    CHECK_NOTHROW(sides.on_device.check(server_work));
    CHECK(!erased(replies.get(where, 0).outputs[0].c1));

    run(where, 1, apply);
    where.wait();
    CHECK_THROWS_AS(sides.on_device.check(server_work), error);
    for (const auto& output : replies.get(where, 0).outputs) {
        CHECK(erased(output.c0));
        CHECK(erased(output.c1));
    }
    // Both sides notice that nothing came.
    lora::client<P> host_client(ckks::secret_key<P>(numbered_seed(sides.clients[0].number + 1)));
    CHECK_THROWS_AS(host_client.decrypt(sides.server.plan(), replies.get(where, 0), lora::query<P>{{}, 1.0}),
                    format_error);
    sides.client.decrypt(where, replies, client_work);
    where.wait();
    std::vector<double> answers(rank);
    CHECK_THROWS_AS(sides.client.collect(client_work, answers), format_error);
    CHECK(std::isnan(answers[0]));

    run(where, 0, encrypt);
    where.wait();
    CHECK_THROWS_AS(sides.client.check(where, client_work), error);
    for (std::size_t i = 0; i < request.inputs.size(); ++i) {
        CHECK(erased(requests.get(where, 0).inputs[i]));
        CHECK(!erased(request.inputs[i]));
    }

    // What was recorded for one token does not answer two, nor states elsewhere.
    const std::vector<float> two = random_state(2 * d, 9);
    const std::vector<std::uint32_t> both_clients{0, 1};
    typename decltype(sides.client)::workspace roomy(sides.client, 2);
    device::request_batch<P, Where> two_requests(layout, 2);
    const auto encrypt_roomy = [&](const Where& w) { sides.client.encrypt(w, roomy, two_requests); };
    sides.client.stage(roomy, h, client_of);
    run(where, 2, encrypt_roomy);
    where.wait();
    CHECK(!erased(two_requests.get(where, 0).inputs[0]));
    sides.client.stage(roomy, two, both_clients);
    if constexpr (!std::is_same_v<Run, run_directly>) {
        run(where, 2, encrypt_roomy);
        where.wait();
        CHECK(erased(two_requests.get(where, 0).inputs[0]));
        const auto there = tests::to_device(where, h);
        sides.client.stage_on_device(roomy, there.data(), 1, client_of);
        run(where, 2, encrypt_roomy);
        where.wait();
        CHECK(erased(two_requests.get(where, 0).inputs[0]));
    }

    // A staging that fails leaves nothing that could be replayed.
    std::vector<float> broken = h;
    broken.back() = std::numeric_limits<float>::quiet_NaN();
    sides.client.stage(client_work, h, client_of);
    CHECK_THROWS_AS(sides.client.stage(client_work, broken, client_of), encoding_error);
    CHECK_THROWS_AS(sides.client.encrypt(where, client_work, requests), error);
    sides.on_device.stage(server_work, client_of);
    const std::uint32_t nobody = 7;
    CHECK_THROWS_AS(sides.on_device.stage(server_work, std::span(&nobody, 1)), parameter_error);
    CHECK_THROWS_AS(sides.on_device.apply(where, requests, server_work, replies), error);
    CHECK_THROWS_AS(sides.client.stage_on_device(client_work, nullptr, 1, client_of), parameter_error);
}

/// What would read or write beyond memory, or give out an earlier batch's answers, is refused.
template <ckks::parameter_set P, int Rows, class Protection, class Where>
void check_misuse(const Where& where) {
    both_sides<P, Rows, Protection, Where> sides(where, 6, 1500);
    both_sides<P, Rows, Protection, Where> others(where, 2, 500);
    typename decltype(sides.client)::workspace client_work(sides.client, 2);
    typename decltype(sides.on_device)::workspace server_work(sides.on_device, 2);
    typename decltype(sides.client)::workspace small_client_work(others.client, 2);
    typename decltype(sides.on_device)::workspace small_server_work(others.on_device, 2);
    device::request_batch<P, Where> requests(sides.server.layout(), 2);
    typename decltype(sides.on_device)::replies replies(sides.server.layout(), 2);
    typename decltype(sides.on_device)::replies other_replies(others.server.layout(), 2);
    const std::vector<std::uint32_t> client_of{0, 1};
    const std::vector<float> states = random_state(2 * 1500, 3);
    std::vector<double> answers(2 * 6);

    CHECK_THROWS_AS(sides.client.stage(small_client_work, states, client_of), shape_error);
    CHECK_THROWS_AS(sides.on_device.stage(small_server_work, client_of), shape_error);
    CHECK_THROWS_AS(sides.client.stage(client_work, states), parameter_error);  // whose are they?
    CHECK_THROWS_AS(sides.client.encrypt(where, client_work, requests), error);
    CHECK_THROWS_AS(typename decltype(sides.client)::workspace(sides.client, 0), shape_error);
    CHECK_THROWS_AS(typename decltype(sides.on_device)::workspace(sides.on_device, 0), shape_error);
    CHECK_THROWS_AS((device::request_batch<P, Where>(sides.server.layout(), 0)), shape_error);

    sides.client.stage(client_work, states, client_of);
    sides.client.encrypt(where, client_work, requests);
    CHECK_THROWS_AS(sides.on_device.apply(where, requests, server_work, replies), error);
    sides.on_device.stage(server_work, client_of);
    CHECK_THROWS_AS(sides.on_device.check(server_work), error);  // not applied yet
    CHECK_THROWS_AS(sides.on_device.apply(where, requests, server_work, other_replies), shape_error);
    sides.on_device.apply(where, requests, server_work, replies);
    CHECK_THROWS_AS(sides.client.collect(client_work, answers), error);  // not decrypted yet
    sides.client.decrypt(where, replies, client_work);
    where.wait();
    CHECK_NOTHROW(sides.client.collect(client_work, answers));

    sides.client.stage(client_work, states, client_of);
    CHECK_THROWS_AS(sides.client.collect(client_work, answers), error);  // these would be the last batch's
    std::vector<float> broken = states;
    broken[1500 + 7] = std::numeric_limits<float>::infinity();
    CHECK(tests::refusal<encoding_error>([&] {
              sides.client.stage(client_work, broken, client_of);
          }).find("token 1: ") != std::string::npos);
    const std::vector<const ckks::secret_key<P>*> none{nullptr};
    CHECK_THROWS_AS(
        (typename std::remove_cvref_t<decltype(sides.client)>(where, sides.server.layout(), none)),
        parameter_error);
}

/// Launches of encrypt, apply and decrypt.
template <ckks::parameter_set P, int Rows, class Protection, class Where>
std::array<std::size_t, 3> launches_of_token(const Where& where, const std::size_t& launches) {
    both_sides<P, Rows, Protection, Where> sides(where, 2, 500);
    typename decltype(sides.client)::workspace client_work(sides.client, 1);
    typename decltype(sides.on_device)::workspace server_work(sides.on_device, 1);
    device::request_batch<P, Where> requests(sides.server.layout(), 1);
    typename decltype(sides.on_device)::replies replies(sides.server.layout(), 1);
    const std::uint32_t number = 0;
    const std::span<const std::uint32_t> client_of(&number, 1);
    sides.client.stage(client_work, random_state(500, 8), client_of);
    sides.on_device.stage(server_work, client_of);
    const std::size_t start = launches;
    sides.client.encrypt(where, client_work, requests);
    const std::size_t encrypted = launches;
    sides.on_device.apply(where, requests, server_work, replies);
    const std::size_t applied = launches;
    sides.client.decrypt(where, replies, client_work);
    where.wait();
    return {encrypted - start, applied - encrypted, launches - applied};
}

/// A request that holds what is no residue spoils its own reply only.
template <ckks::parameter_set P, int Rows, class Protection, class Where>
void check_malformed_request(const Where& where, std::size_t rank, std::size_t d) {
    both_sides<P, Rows, Protection, Where> sides(where, rank, d);
    const auto& layout = sides.server.layout();
    typename decltype(sides.client)::workspace client_work(sides.client, 2);
    typename decltype(sides.on_device)::workspace server_work(sides.on_device, 2);
    device::request_batch<P, Where> requests(layout, 2);
    typename decltype(sides.on_device)::replies replies(layout, 2);
    const std::vector<float> states = random_state(2 * d, 7);
    const std::vector<std::uint32_t> client_of{0, 1};

    sides.client.stage(client_work, states, client_of);
    sides.client.encrypt(where, client_work, requests);
    auto bad = requests.get(where, 0);
    bad.inputs.back().back() = 0xff;  // the upper bits of the last residue of the last limb
    bad.inputs.back()[bad.inputs.back().size() - 2] = 0xff;
    bad.inputs.back()[bad.inputs.back().size() - 3] = 0xff;
    bad.inputs.back()[bad.inputs.back().size() - 4] = 0xff;
    requests.put(where, 0, bad);
    sides.on_device.stage(server_work, client_of);
    sides.on_device.apply(where, requests, server_work, replies);
    sides.client.decrypt(where, replies, client_work);
    where.wait();
    CHECK_THROWS_AS(sides.on_device.check(server_work), format_error);
    CHECK(sides.on_device.status(server_work)[0] == std::uint32_t{1}
                                                        << (decltype(sides.on_device)::basis::limbs - 1));
    CHECK(sides.on_device.status(server_work)[1] == 0);
    const auto erased = replies.get(where, 0);
    for (const auto& output : erased.outputs) {
        CHECK(output.c1 == std::vector<std::uint8_t>(output.c1.size()));
        CHECK(output.c0 == std::vector<std::uint8_t>(output.c0.size()));
    }
    std::vector<double> answers(2 * rank);
    CHECK_THROWS_AS(sides.client.collect(client_work, answers), format_error);
    CHECK(std::isnan(answers[0]));
    const std::vector<double> exact =
        product(sides.a, std::vector<float>(states.begin() + static_cast<std::ptrdiff_t>(d), states.end()));
    for (std::size_t r = 0; r < rank; ++r) {
        CHECK(std::fabs(answers[rank + r] - exact[r]) < 1e-2);
    }
}

}  // namespace tests::token_checks
