#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/protection.hpp>

#include <cstdint>

// What client and server of this example agree on. Another set or packing is another pair of programs: these
// types decide what the bytes of a message mean, and each message carries their numbers.

namespace split {

using params = tensafe::ckks::private_n4096;
using packing = tensafe::lora::coefficient_tiles<4>;
using protection = tensafe::lora::protects_adapter_rows<>;

/// Of the control messages and their order; docs/service.md. Messages have a version of their own.
inline constexpr std::uint64_t protocol_version = 3;

}  // namespace split
