#pragma once

#include <tensafe/lora/packing/plan.hpp>

#include "../small_sets.hpp"

// The small parameter set of the target `wire`, what its readers expect, one ciphertext each, and messages
// for them that nobody encrypted.

namespace fuzz {

using tests::small;
using switching = tests::small_switching;
using tiles = tensafe::lora::coefficient_tiles<4>;
using blocks = tensafe::lora::token_blocks;
using hidden = tensafe::lora::protects_adapter_rows<>;
using bare = tensafe::lora::reveals_adapter_rows;

inline constexpr int key_level = tensafe::lora::request_level<small>;

inline const tensafe::lora::packing_plan<small, tiles, hidden> of_tiles(4, 200, 1);
inline const tensafe::lora::packing_plan<small, tiles, bare> of_bare_tiles(4, 200, 1);
inline const tensafe::lora::packing_plan<small, blocks, hidden> of_blocks(
    tensafe::lora::layout<small, blocks, hidden>::of(1, 1, 1, 2));

tensafe::lora::request<small> some_request(const auto& plan) {
    tensafe::lora::request<small> request;
    request.d = plan.d();
    request.block = plan.entries_per_input();
    request.inputs.assign(
        plan.inputs(), std::vector<std::uint8_t>(tensafe::lora::packed_residues_bytes<small>(small::degree),
                                                 std::uint8_t{0x35}));
    return request;
}

template <class Packing>
tensafe::lora::reply<small, Packing, hidden> some_reply(
    const tensafe::lora::packing_plan<small, Packing, hidden>& plan) {
    tensafe::lora::reply<small, Packing, hidden> reply;
    reply.rank = plan.rank();
    reply.d = plan.d();
    const int bits = plan.reply_bits(0);
    reply.outputs.push_back(
        {std::vector<std::uint8_t>(tensafe::memory::packed_bytes(plan.targets(0), bits)),
         std::vector<std::uint8_t>(tensafe::memory::packed_bytes(small::degree, bits), std::uint8_t{0x35})});
    return reply;
}

inline tensafe::lora::block_reply some_block_reply() {
    const auto& plan = of_blocks;
    tensafe::lora::block_reply reply{plan.rank(), plan.d(), plan.layout().tokens, {}};
    reply.c1.assign(plan.outputs(), std::vector<std::uint8_t>(
                                        tensafe::memory::packed_bytes(small::degree, plan.reply_bits(0)),
                                        std::uint8_t{0x35}));
    return reply;
}
inline tensafe::lora::token_request some_token_request() {
    return {of_blocks.d(), 1, 5,
            std::vector<std::uint8_t>(tensafe::lora::packed_residues_bytes<small>(of_blocks.d()),
                                      std::uint8_t{0x05})};
}
inline tensafe::lora::token_reply some_token_reply() {
    return {of_blocks.rank(), of_blocks.d(), 0,
            std::vector<std::uint8_t>(of_blocks.token_reply_bytes(), std::uint8_t{0x35})};
}

}  // namespace fuzz
