#pragma once

#include <tensafe/device/lora/block_server.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include "../../random_values.hpp"
#include "../../sides.hpp"
#include "../device_data.hpp"

// Blocks of tokens on a device against lora::server with the same keys and seeds.

namespace tests::block_checks {

/// Small rings of one and two limbs, with primes of other widths than those of named sets.
using one_limb = ckks::parameters<10, ckks::limb_bits<60>, 20, ckks::insecure_for_tests>;
using two_limbs = small;

/// A server on the host and one on the device, two clients, and a block of the same seeds at both servers for
/// each session.
template <ckks::parameter_set P, class Protection, class Where>
struct both_sides {
    using host_server = lora::server<P, lora::token_blocks, Protection>;
    using device_server = device::server<P, Where, lora::token_blocks, Protection>;

    struct session {
        lora::client_block<P, Protection> of_client;
        lora::server_block<P> on_host;
        device::server_block<P, Where> on_device;
        lora::block_reply from_host;
        lora::block_reply from_device;
        std::size_t next = 0;
    };

    Where where;
    lora::matrix a;
    host_server server;
    std::array<tests::sides<P>, 2> clients;
    device_server on_device;
    typename host_server::workspace host_work;
    typename device_server::preparation ahead;
    typename device_server::workspace online;
    std::vector<session> sessions;

    both_sides(const Where& w, std::size_t tokens, std::size_t rank, std::size_t d, std::size_t most_blocks,
               std::size_t most_tokens)
        : where(w),
          a(random_matrix(rank, d, 5)),
          server(a, tokens, lora::trusts_clients()),
          clients{tests::sides<P>(1, server.plan().subring_log_n()),
                  tests::sides<P>(2, server.plan().subring_log_n())},
          on_device(where, a, tokens, lora::trusts_clients(), 2, numbered_generator(99)),
          ahead(on_device, most_blocks),
          online(on_device, most_tokens) {
        host_work.generator = numbered_generator(99);
        for (std::uint32_t k = 0; k < 2; ++k) {
            const auto& c = clients[k];
            CHECK(on_device.add_client(where, c.server_nonce, c.open, numbered_generator(c.number + 3)) == k);
        }
    }

    /// A block for each of these clients, in one batch; replaces earlier ones.
    template <class Run = run_directly>
    void prepare(const std::vector<std::uint32_t>& client_of, Run&& run = {}) {
        const std::size_t earlier = sessions.size();
        std::vector<lora::block_request> requests;
        std::vector<device::asked_block> asked;
        for (const std::uint32_t client : client_of) {
            sessions.push_back({clients[client].client.prepare(server.plan()), {}, {}, {}, {}});
            requests.push_back(sessions.back().of_client.request());
        }
        for (std::size_t s = 0; s < client_of.size(); ++s) {
            asked.push_back({&requests[s], client_of[s]});
        }
        on_device.stage(ahead, asked);
        run(where, 1000 + asked.size(), [&](const Where& w) { on_device.prepare(w, ahead); });
        where.wait();
        for (std::size_t s = 0; s < client_of.size(); ++s) {
            session& of = sessions[earlier + s];
            server.prepare(requests[s], clients[client_of[s]].pool, host_work, of.on_host, of.from_host);
            on_device.take(where, ahead, s, of.on_device, of.from_device);
            clients[client_of[s]].client.accept(of.of_client, of.from_device);
        }
    }

    struct batch {
        std::vector<std::vector<float>> states;
        std::vector<lora::token_query> queries;
        std::vector<device::block_token<P, Where>> tokens;
        std::vector<session*> of;
    };
    /// So many tokens, of all sessions in turn, each at its next position.
    batch tokens(std::size_t count) {
        batch result;
        result.queries.resize(count);
        for (std::size_t k = 0; k < count; ++k) {
            session& s = sessions[k % sessions.size()];
            result.states.push_back(random_state(server.plan().d(), 100 * s.next + k));
            s.of_client.encrypt(result.states.back(), result.queries[k]);
            ++s.next;
            result.tokens.push_back({&s.on_device, &result.queries[k].request});
            result.of.push_back(&s);
        }
        return result;
    }

    template <class Run = run_directly>
    void answer(const batch& of, Run&& run = {}) {
        on_device.stage(online, of.tokens);
        run(where, of.tokens.size(), [&](const Where& w) { on_device.answer(w, online); });
        where.wait();
    }
};

/// Blocks and answers equal the host's, byte for byte; answers are A*h. Batches of so many tokens.
template <ckks::parameter_set P, class Protection, class Where, class Run = run_directly>
void check_blocks(const Where& where, std::size_t tokens, std::size_t rank, std::size_t d,
                  const std::vector<std::size_t>& batches, Run run = {}) {
    INFO("blocks of ", tokens, " tokens, ", rank, " x ", d);
    const std::size_t most = *std::max_element(batches.begin(), batches.end());
    both_sides<P, Protection, Where> sides(where, tokens, rank, d, 3, most);
    sides.prepare({1, 0, 1}, run);
    sides.prepare({0}, run);  // through the same memory
    for (const auto& s : sides.sessions) {
        CHECK(s.from_device.rank == rank);
        CHECK(s.from_device.d == d);
        CHECK(s.from_device.tokens == tokens);
        CHECK(s.from_device.c1 == s.from_host.c1);
        CHECK(s.on_device.left() == tokens);
    }
    for (const std::size_t count : batches) {
        CAPTURE(count);
        const auto batch = sides.tokens(count);
        sides.answer(batch, run);
        sides.on_device.check(sides.online);
        for (std::size_t k = 0; k < count; ++k) {
            CAPTURE(k);
            auto& s = *batch.of[k];
            lora::token_reply expected;
            lora::token_reply got;
            sides.server.answer(s.on_host, batch.queries[k].request, sides.host_work, expected);
            sides.on_device.reply(sides.online, k, got);
            CHECK(got.c0 == expected.c0);
            CHECK(got.rank == rank);
            CHECK(got.d == d);
            CHECK(got.position == batch.queries[k].request.position);
            CHECK(!s.on_device.is_open(got.position));
            std::vector<double> answers(rank);
            s.of_client.decrypt(got, batch.queries[k], answers);
            const std::vector<double> exact = product(sides.a, batch.states[k]);
            const double usual =
                sides.server.layout().row_norm * norm(batch.states[k]) / std::sqrt(static_cast<double>(d));
            for (std::size_t r = 0; r < rank; ++r) {
                CHECK(std::fabs(answers[r] - exact[r]) < 5e-2 * usual);
            }
        }
    }
}

/// A batch that cannot be answered as a whole uses up no position, with the host's words.
template <ckks::parameter_set P, class Protection, class Where>
void check_refusals(const Where& where) {
    both_sides<P, Protection, Where> sides(where, 4, 3, 37, 2, 3);
    sides.prepare({0, 1});
    auto batch = sides.tokens(3);  // positions 0, 0, 1
    auto& first = sides.sessions[0];
    const auto refused = [&](const auto& tokens) {
        const std::size_t left = first.on_device.left();
        std::string host;
        std::string device;
        std::vector<lora::block_token<P>> of_host;
        lora::token_reply reply;
        for (const auto& t : tokens) {
            auto& s = t.block == &first.on_device ? first : sides.sessions[1];
            of_host.push_back({&s.on_host, t.request, &reply});
        }
        host = tests::refusal<error>(
            [&] { sides.server.answer(std::span<const lora::block_token<P>>(of_host), sides.host_work); });
        device = tests::refusal<error>([&] { sides.on_device.stage(sides.online, tokens); });
        CHECK(device == host);
        CHECK(device.starts_with("server::answer: "));
        CHECK(first.on_device.left() == left);
        CHECK_THROWS_AS(sides.on_device.answer(where, sides.online), error);
    };
    auto tokens = batch.tokens;
    tokens[2] = tokens[0];  // twice
    refused(tokens);
    lora::token_request changed = *batch.tokens[2].request;
    tokens[2].request = &changed;
    changed.position = 4;
    refused(tokens);
    changed.position = 1;
    changed.d = 36;
    refused(tokens);
    changed.d = 37;
    changed.c0.pop_back();
    refused(tokens);

    sides.answer(batch);
    sides.on_device.check(sides.online);
    CHECK(first.on_device.left() == 2);
    for (std::size_t k = 0; k < 3; ++k) {  // the host's, too
        lora::token_reply reply;
        sides.server.answer(batch.of[k]->on_host, batch.queries[k].request, sides.host_work, reply);
    }
    refused(batch.tokens);  // answered already
    device::server_block<P, Where> moved = std::move(first.on_device);
    CHECK_THROWS_AS(sides.on_device.stage(sides.online, batch.tokens), error);
    first.on_device = std::move(moved);

    // Blocks, servers and workspaces of another server; no tokens, and too many.
    both_sides<P, Protection, Where> others(where, 4, 3, 37, 1, 1);
    others.prepare({0});
    const auto of_other = others.tokens(1);
    CHECK_THROWS_AS(sides.on_device.stage(sides.online, of_other.tokens), parameter_error);
    CHECK_THROWS_AS(others.on_device.stage(sides.online, of_other.tokens), shape_error);
    CHECK_THROWS_AS(others.on_device.answer(where, sides.online), shape_error);
    CHECK_THROWS_AS(others.on_device.prepare(where, sides.ahead), shape_error);
    CHECK_THROWS_AS(sides.on_device.stage(sides.online, std::span<const device::block_token<P, Where>>()),
                    shape_error);
    CHECK_THROWS_AS(others.on_device.stage(others.online, batch.tokens), shape_error);

    const lora::block_request wrong{36, 4, numbered_seed(1)};
    const lora::block_request right{37, 4, numbered_seed(1)};
    const auto stage = [&](const lora::block_request& request, std::uint32_t client, std::size_t count = 1) {
        sides.on_device.stage(sides.ahead, std::vector<device::asked_block>(count, {&request, client}));
    };
    CHECK_THROWS_AS(stage(wrong, 0), shape_error);
    CHECK_THROWS_AS(stage(right, 2), parameter_error);
    CHECK_THROWS_AS(stage(right, 0, 0), shape_error);
    CHECK_THROWS_AS(stage(right, 0, 3), shape_error);
    CHECK_THROWS_AS(sides.on_device.prepare(where, sides.ahead), error);
    stage(right, 0);
    lora::block_reply reply;
    CHECK_THROWS_AS(sides.on_device.take(where, sides.ahead, 0, moved, reply), error);  // not prepared yet
    sides.on_device.prepare(where, sides.ahead);
    where.wait();
    CHECK_THROWS_AS(sides.on_device.take(where, sides.ahead, 1, moved, reply), shape_error);
    sides.on_device.take(where, sides.ahead, 0, moved, reply);
    CHECK(moved.left() == 4);
    CHECK_THROWS_AS(sides.on_device.take(where, sides.ahead, 0, moved, reply), error);
    CHECK(moved.left() == 4);

    using device_server = typename decltype(sides)::device_server;
    CHECK_THROWS_AS(device_server(where, sides.a, 128, lora::trusts_clients()), parameter_error);
    CHECK_THROWS_AS(device_server(where, sides.a, 1, lora::trusts_clients()), shape_error);
}

/// What holds no residues spoils its own reply only. Work that is enqueued again gives zeros.
template <ckks::parameter_set P, class Protection, class Where, class Run = run_directly>
void check_spoilt_work(const Where& where, Run run = {}) {
    both_sides<P, Protection, Where> sides(where, 4, 3, 37, 2, 2);
    const auto& of_device = sides.on_device;
    sides.prepare({0, 1}, run);
    auto batch = sides.tokens(2);
    std::fill_n(batch.queries[0].request.c0.end() - 8, 8, std::uint8_t{0xff});  // of the last limb
    sides.answer(batch, run);
    CHECK_THROWS_AS(of_device.check(sides.online), format_error);
    CHECK(of_device.status(sides.online)[0] == std::uint32_t{1}
                                                   << (lora::traced_product<P>::basis::limbs - 1));
    CHECK(of_device.status(sides.online)[1] == 0);
    lora::token_reply reply;
    lora::token_reply expected;
    CHECK_THROWS_AS(of_device.reply(sides.online, 0, reply), format_error);
    CHECK(!sides.sessions[0].on_device.is_open(0));
    sides.server.answer(sides.sessions[1].on_host, batch.queries[1].request, sides.host_work, expected);
    of_device.reply(sides.online, 1, reply);
    CHECK(reply.c0 == expected.c0);
    CHECK_THROWS_AS(of_device.reply(sides.online, 2, reply), shape_error);

    const auto again = [&] {
        run(where, 2, [&](const Where& w) { of_device.answer(w, sides.online); });
        where.wait();
        CHECK(of_device.status(sides.online)[1] == device::status_stale);
        CHECK_THROWS_AS(of_device.reply(sides.online, 1, reply), error);
    };
    again();
    batch = sides.tokens(2);
    of_device.stage(sides.online, batch.tokens);
    CHECK_THROWS_AS(of_device.check(sides.online), error);  // not answered yet
    run(where, 2, [&](const Where& w) { of_device.answer(w, sides.online); });
    where.wait();
    of_device.check(sides.online);
    again();

    const lora::block_request request{37, 4, numbered_seed(1)};
    const std::vector<device::asked_block> asked(2, {&request, 0});
    sides.on_device.stage(sides.ahead, asked);
    for (int time = 0; time < 2; ++time) {
        run(where, 1002, [&](const Where& w) { of_device.prepare(w, sides.ahead); });
        where.wait();
    }
    device::server_block<P, Where> block;
    lora::block_reply of_block;
    CHECK_THROWS_AS(of_device.take(where, sides.ahead, 0, block, of_block), error);
    CHECK(block.tokens() == 0);
}

/// Launches of prepare and answer.
template <ckks::parameter_set P, class Protection, class Where>
std::array<std::size_t, 2> launches_of_blocks(const Where& where, const std::size_t& launches) {
    both_sides<P, Protection, Where> sides(where, 8, 3, 100, 2, 4);
    const std::size_t start = launches;
    sides.prepare({0, 1});
    const std::size_t prepared = launches;
    sides.answer(sides.tokens(4));
    return {prepared - start, launches - prepared};
}

}  // namespace tests::block_checks
