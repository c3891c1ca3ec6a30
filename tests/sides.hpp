#pragma once

// Both sides of a session in one process, for tests: the client with its key, and what a server has of it.

#include <tensafe/lora/protocol/block_server.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include "random_numbers.hpp"
#include "small_sets.hpp"

namespace tests {

using namespace tensafe;

inline random::generator numbered_generator(std::uint64_t number) {
    return random::generator(numbered_seed(number));
}

inline std::uint64_t unknown_number() {
    return std::uint64_t{std::random_device()()} << 16;
}

/// A client with its pool of zeros at one server. Sides of one number repeat each other bit by bit; without a
/// number, nobody knows it.
template <ckks::parameter_set P>
struct sides {
    using rerandomization_key = ckks::rerandomization_key<P, lora::request_level<P>>;

    explicit sides(int subring_log_n) : sides(unknown_number(), subring_log_n) {}
    sides(std::uint64_t session_number, int subring_log_n)
        : number(16 * session_number),
          server_nonce(numbered_seed(number)),
          key(numbered_seed(number + 1)),
          client(ckks::secret_key<P>(numbered_seed(number + 1)), numbered_generator(number + 2)),
          open(client.rerandomization_key(server_nonce)),
          pool(server_nonce, open, subring_log_n, numbered_generator(number + 3)) {
        work.generator = numbered_generator(number + 4);
    }

    std::uint64_t number;
    random::seed server_nonce;
    ckks::secret_key<P> key;  ///< the client's, to decrypt what it would not
    lora::client<P> client;
    rerandomization_key open;
    lora::rerandomization_pool<P> pool;
    lora::server_workspace<P> work;
};

/// A client's block and a server's part of it. Two of one number are copies, as of a machine that was
/// restored twice: the same masks, the same encryptions of zero, the same secrets of floods.
template <ckks::parameter_set P, class Protection = lora::protects_adapter_rows<>>
struct block_sides : sides<P> {
    using server_type = lora::server<P, lora::token_blocks, Protection>;
    using client_block = lora::client_block<P, Protection>;

    explicit block_sides(const server_type& of) : block_sides(of, unknown_number()) {}
    block_sides(const server_type& of, std::uint64_t session_number)
        : sides<P>(session_number, of.plan().subring_log_n()),
          server(of),
          of_client(this->client.prepare(of.plan())) {
        work.generator = numbered_generator(this->number + 5);
        server.prepare(of_client.request(), this->pool, work, of_server, ahead);
        this->client.accept(of_client, ahead);
    }
    lora::token_query encrypt(const std::vector<float>& h, double overflow_margin = 1) {
        lora::token_query query;
        of_client.encrypt(h, query, overflow_margin);
        return query;
    }
    lora::token_reply answer(const lora::token_request& r) {
        lora::token_reply reply;
        server.answer(of_server, r, work, reply);
        return reply;
    }
    /// What the client reads, rounded as it does.
    std::vector<double> decrypt(const lora::token_query& query, const lora::token_reply& reply) {
        std::vector<double> answers(server.plan().rank());
        of_client.decrypt(reply, query, answers);
        return answers;
    }
    /// The same with every bit of noise, in units of the reply.
    std::vector<std::int32_t> exact(const lora::token_reply& reply) const {
        const auto& plan = server.plan();
        const int bits = plan.reply_bits(0);
        std::vector<std::uint32_t> c0(plan.rank());
        std::vector<std::uint32_t> c1(P::degree);
        tensafe::memory::unpack_bits(std::span<const std::uint8_t>(reply.c0), bits, std::span(c0));
        std::vector<std::int32_t> result;
        for (std::size_t r = 0; r < plan.rank(); ++r) {
            tensafe::memory::unpack_bits(std::span<const std::uint8_t>(ahead.c1[r]), bits, std::span(c1));
            const auto sum =
                c0[r] + static_cast<std::uint32_t>(
                            lora::toeplitz_row(this->key.coefficients())
                                .coefficient_of_product(std::span<const std::uint32_t>(c1),
                                                        reply.position * plan.entries_per_input()));
            result.push_back(static_cast<std::int32_t>(sum << (32 - bits)) >> (32 - bits));
        }
        return result;
    }

    const server_type& server;
    client_block of_client;
    lora::server_block<P> of_server;
    lora::block_workspace<P> work;
    lora::block_reply ahead;  ///< sent before the first token
};

}  // namespace tests
