#pragma once

#include <cstddef>
#include <functional>

namespace tensafe::lora {

/// How far packing an adapter has come: `done` of `total` groups are packed; total > 0, and the last call has
/// done == total. Called from the packing thread, after each group. It may throw: packing stops with that
/// exception, and what was packed is released. Empty: nobody asks.
using pack_progress = std::function<void(std::size_t done, std::size_t total)>;

}  // namespace tensafe::lora
