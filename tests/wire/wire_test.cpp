#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>
#include <tensafe/wire/wire.hpp>

#include "../random_values.hpp"
#include "../test.hpp"

using namespace tests;

// Whole tokens over bytes: client, request as bytes, server, reply as bytes, client.

namespace {

constexpr std::size_t d = 300;

}  // namespace

TEST_CASE("what is decrypted after a way over the wire is what is decrypted without, bit for bit") {
    const lora::server<small> s(random_matrix(6, d, 1));
    lora::client<small> client;
    const auto nonce = tensafe::random::fresh_nonce();
    const auto key = client.rerandomization_key(nonce);
    // The same floods and zeros each time: two answers to one request are then equal.
    const auto answer = [&](const lora::request<small>& r) {
        lora::server<small>::workspace work;
        work.generator = tensafe::random::generator(tensafe::random::seed{{1}});
        lora::rerandomization_pool<small> zeros(nonce, key, s.layout().subring_log_n(),
                                                tensafe::random::generator(tensafe::random::seed{{2}}));
        lora::server<small>::reply_type reply;
        s.apply(r, zeros, work, reply);
        return reply;
    };
    const std::vector<float> h = random_state(d, 2);
    const auto q = client.encrypt(s.plan(), h);
    const auto arrived = wire::read_request(
        wire::write_request<lora::coefficient_tiles<4>, lora::protects_adapter_rows<>>(q.request), s.plan());
    const auto returned = wire::read_reply(wire::write_reply(answer(arrived)), s.plan());
    CHECK(client.decrypt(s.plan(), returned, q) == client.decrypt(s.plan(), answer(q.request), q));
}
