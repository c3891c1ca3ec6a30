#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/column_batched.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/lora/packing/protection.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>
#include <tensafe/memory/bits.hpp>

#include <cstdint>
#include <vector>

// The small parameter set of the target `wire`, what its readers expect, one ciphertext each, and messages
// for them that nobody encrypted.

namespace fuzz {

using small =
    tensafe::ckks::parameters<10, tensafe::ckks::limb_bits<45, 44>, 30, tensafe::ckks::insecure_for_tests>;
using tiles = tensafe::lora::coefficient_tiles<4>;
using columns = tensafe::lora::column_batched;
using slots = tensafe::lora::replicated_slots<>;
using hidden = tensafe::lora::protects_adapter_rows<>;
using bare = tensafe::lora::reveals_adapter_rows;

inline constexpr int key_level = tensafe::lora::request_level<small>;

inline const auto of_tiles = tensafe::lora::layout<small, tiles, hidden>::of(4, 200, 1);
inline const auto of_bare_tiles = tensafe::lora::layout<small, tiles, bare>::of(4, 200, 1);
inline const auto of_columns = tensafe::lora::layout<small, columns, hidden>::of(1, 1, 1);
inline const auto of_slots = tensafe::lora::slot_layout<small, slots>::of(2, 3, 1);

template <class Layout>
tensafe::lora::request<small> some_request(const Layout& layout) {
    tensafe::lora::request<small> request;
    request.d = layout.d;
    request.block = layout.entries_per_input();
    request.inputs.assign(
        layout.inputs(), std::vector<std::uint8_t>(tensafe::lora::packed_residues_bytes<small>(small::degree),
                                                   std::uint8_t{0x35}));
    return request;
}

template <class Packing>
tensafe::lora::reply<small, Packing, hidden> some_reply(
    const tensafe::lora::layout<small, Packing, hidden>& layout) {
    namespace memory = tensafe::memory;
    namespace wire = tensafe::wire;
    tensafe::lora::reply<small, Packing, hidden> reply;
    reply.rank = layout.rank;
    reply.d = layout.d;
    const auto bits = static_cast<int>(layout.reply_bits(layout.budget(), 0));
    reply.outputs.push_back(
        {std::vector<std::uint8_t>(memory::packed_bytes(layout.wanted(0, 1), bits)),
         std::vector<std::uint8_t>(memory::packed_bytes(small::degree, bits), std::uint8_t{0x35})});
    return reply;
}

}  // namespace fuzz
