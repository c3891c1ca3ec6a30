// Blocks of tokens on a device, for the named parameter sets: the kernels that no other unit names.
#include <tensafe/device/lora/block_server.hpp>
#include <tensafe/tensafe.cuh>

#include <array>
#include <cstddef>

namespace {

using namespace tensafe;

template <ckks::parameter_set P, class Protection>
void launch_all(const device::cuda& where, const lora::matrix& a, const random::seed& nonce,
                const ckks::rerandomization_key<P, lora::request_level<P>>& key,
                const lora::block_request& request, const lora::token_request& token) {
    using server_type = device::server<P, device::cuda, lora::token_blocks, Protection>;
    server_type server(where, a, 32);
    const std::array<device::asked_block, 1> asked{{{&request, server.add_client(where, nonce, key)}}};
    typename server_type::preparation ahead(server, 1);
    server.stage(ahead, asked);
    server.prepare(where, ahead);
    where.wait();
    device::server_block<P, device::cuda> block;
    lora::block_reply reply;
    server.take(where, ahead, 0, block, reply);
    typename server_type::workspace online(server, 1);
    const std::array<device::block_token<P, device::cuda>, 1> tokens{{{&block, &token}}};
    server.stage(online, tokens);
    server.answer(where, online);
    where.wait();
    lora::token_reply answer;
    server.reply(online, 0, answer);
}

using private_key = ckks::rerandomization_key<ckks::private_n4096, lora::request_level<ckks::private_n4096>>;
using minimal_key = ckks::rerandomization_key<ckks::minimal_n2048, lora::request_level<ckks::minimal_n2048>>;

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void run_blocks(const device::cuda& where, const lora::matrix& a, const random::seed& nonce,
                const private_key& key, const minimal_key& smaller, const lora::block_request& request,
                const lora::token_request& token);
void run_blocks(const device::cuda& where, const lora::matrix& a, const random::seed& nonce,
                const private_key& key, const minimal_key& smaller, const lora::block_request& request,
                const lora::token_request& token) {
    launch_all<ckks::private_n4096, lora::protects_adapter_rows<>>(where, a, nonce, key, request, token);
    launch_all<ckks::minimal_n2048,
               lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>>(
        where, a, nonce, smaller, request, token);
}
