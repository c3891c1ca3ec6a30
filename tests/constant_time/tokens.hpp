#pragma once

#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include "program.hpp"

namespace tests {

using lora_params = ckks::parameters<10, ckks::limb_bits<45, 45>, 30, ckks::insecure_for_tests>;

/// A whole token: the hidden state, the key and all randomness are secret, messages are public once they are
/// sent.
template <class Packing, class Protection = lora::protects_adapter_rows<>>
void check_token(program& p, const std::string& packing, std::size_t rank) {
    constexpr std::size_t d = 300;
    lora::matrix a(rank, d);
    for (std::size_t i = 0; i < a.values.size(); ++i) {
        a.values[i] = static_cast<float>(i * 37 % 101) / 1000.0F - 0.05F;
    }
    const lora::server<lora_params, Packing, Protection> server(a);
    lora::client<lora_params> client;
    entropy::next_are_public(1);
    const random::seed nonce = random::fresh_nonce();

    entropy::next_are_public(1);
    auto rerandomization_key = client.rerandomization_key(nonce);
    const bool key_reached = all_secret(rerandomization_key.b.words());
    make_public(rerandomization_key.b.words());
    auto zeros = server.pool(nonce, std::move(rerandomization_key));

    lora::query<lora_params> query;
    p.check("lora::client::encrypt_or_zeros, " + packing, [&] {
        bool reached = key_reached;
        std::vector<float> h(d, 0.5F);
        make_secret(h);
        static_cast<void>(client.encrypt_or_zeros(server.plan(), h, query));
        for (auto& input : query.request.inputs) {
            reached &= all_secret(input);
            make_public(input);
        }
        reached &= all_secret(std::span(&query.scale, 1));
        return reached;
    });

    typename decltype(server)::reply_type reply;
    p.check("lora::server::apply, " + packing, [&] {
        reply = server.apply(query.request, zeros);
        bool reached = true;
        for (auto& output : reply.outputs) {
            reached &= all_secret(output.c0) && all_secret(output.c1);
            make_public(output.c0);
            make_public(output.c1);
        }
        return reached;
    });

    p.check("lora::client::decrypt, " + packing,
            [&] { return all_secret(client.decrypt(server.plan(), reply, query)); });
}

using block_weights = lora::detail::block_weights<lora_params, lora::protects_adapter_rows<>>;
const memory::secret_buffer<std::uint32_t>& integers_of(const block_weights& weights);
/// An explicit instantiation may name what is private.
template <auto member>
struct opened {
    friend const memory::secret_buffer<std::uint32_t>& integers_of(const block_weights& weights) {
        return weights.*member;
    }
};
template struct opened<&block_weights::integers_>;

/// A block of tokens: masks and zeros are secret too, and so is A once it is packed.
inline void check_block(program& p, std::size_t tokens, const std::string& name) {
    constexpr std::size_t d = 300;
    constexpr std::size_t rank = 10;
    lora::matrix a(rank, d);
    for (std::size_t i = 0; i < a.values.size(); ++i) {
        a.values[i] = static_cast<float>(i * 37 % 101) / 1000.0F - 0.05F;
    }
    const lora::server<lora_params, lora::token_blocks> server(a, tokens);
    make_secret(integers_of(lora::detail::server_internals::weights(server)));
    lora::client<lora_params> client;
    entropy::next_are_public(1);
    const random::seed nonce = random::fresh_nonce();
    entropy::next_are_public(1);
    auto rerandomization_key = client.rerandomization_key(nonce);
    make_public(rerandomization_key.b.words());
    auto zeros = server.pool(nonce, std::move(rerandomization_key));

    std::optional<lora::client_block<lora_params, lora::protects_adapter_rows<>>> of_client;
    lora::token_query query;
    p.check("lora::client::prepare, " + name, [&] {
        of_client = client.prepare(server.plan());
        make_public(of_client->request().seed.bytes);
        // Of a state that is public its mask alone makes a secret.
        of_client->encrypt(std::vector<float>(d), query);
        return all_secret(query.request.c0);
    });
    p.check("lora::client_block::encrypt_or_zeros, " + name, [&] {
        std::vector<float> h(d, 0.5F);
        make_secret(h);
        static_cast<void>(of_client->encrypt_or_zeros(h, query));
        const bool reached = all_secret(query.request.c0) && all_secret(std::span(&query.scale, 1));
        make_public(query.request.c0);
        return reached;
    });

    lora::server_block<lora_params> of_server;
    lora::block_workspace<lora_params> work;
    lora::block_reply ahead;
    p.check("lora::server::prepare, " + name, [&] {
        server.prepare(of_client->request(), zeros, work, of_server, ahead);
        bool reached = true;
        for (auto& c1 : ahead.c1) {
            reached &= all_secret(c1);
            make_public(c1);
        }
        return reached;
    });
    lora::token_reply reply;
    p.check("lora::server::answer, " + name, [&] {
        server.answer(of_server, query.request, work, reply);
        const bool reached = all_secret(reply.c0);
        make_public(reply.c0);
        return reached;
    });

    std::vector<double> answers(rank);
    p.check("lora::client::accept, " + name, [&] {
        client.accept(*of_client, ahead);
        lora::token_query with_public_scale = query;
        with_public_scale.scale = 1;
        of_client->decrypt(reply, with_public_scale, answers);
        return all_secret(answers);
    });
    p.check("lora::client_block::decrypt, " + name, [&] {
        of_client->decrypt(reply, query, answers);
        return all_secret(answers);
    });
}

/// The 32 target coefficients of the first product are read off a transform, the 8 of the second are inner
/// products with the key; blocks of as many tokens likewise.
inline void check_tokens(program& p) {
    static_assert(8 <= lora::most_inner_products && lora::most_inner_products < 32);
    check_token<lora::coefficient_tiles<32>>(p, "tiles of 32 rows", 40);
    check_token<lora::replicated_slots<>>(p, "slots", 40);
    check_block(p, 32, "blocks of 32 tokens");
    check_block(p, 8, "blocks of 8 tokens");
}

}  // namespace tests
