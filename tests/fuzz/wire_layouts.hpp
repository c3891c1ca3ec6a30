#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/lora/coefficient_tiles.hpp>
#include <tensafe/lora/column_batched.hpp>
#include <tensafe/lora/protection.hpp>
#include <tensafe/lora/replicated_slots.hpp>

// The small parameter set of the target `wire`, and what its readers expect: one ciphertext each.

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

}  // namespace fuzz
