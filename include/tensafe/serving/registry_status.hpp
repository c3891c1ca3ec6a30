#pragma once

#include <tensafe/serving/adapter_handle.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tensafe::serving {

/// How much a registry keeps, and whom it tells.
struct registry_options {
    /// Bytes of packed forms that the registry keeps. It evicts the least recently used ones to stay below.
    std::size_t memory_budget = std::numeric_limits<std::size_t>::max();

    /// Progress of what the registry prepares on its own thread: name, groups done, groups in total. Called
    /// from that thread; an exception counts as a failed preparation. Empty: nobody asks.
    std::function<void(const std::string& name, std::size_t done, std::size_t total)> on_preparing = {};
};

/// One adapter of a registry, at the moment of the question.
struct registry_entry {
    std::string name;
    std::uint64_t version = 0;
    availability state = availability::ready;
    std::size_t bytes = 0;    ///< of the packed form: what it takes, or would take if it was not evicted
    std::size_t handles = 0;  ///< of the packed form that the registry keeps
    std::chrono::steady_clock::time_point last_use;  ///< the last find, load or preparation
    std::string failure;                             ///< what the last preparation failed with; else empty
};

/// A registry at the moment of the question.
struct registry_status {
    std::vector<registry_entry> entries;  ///< by name
    std::size_t memory_budget = 0;
    std::size_t bytes_packed = 0;      ///< of the forms that the registry keeps
    std::size_t bytes_packing = 0;     ///< set aside for packings in progress
    std::size_t packings_waiting = 0;  ///< for room, which they get in the order in which they came
    std::size_t bytes_leaving = 0;     ///< of replaced, evicted or unloaded forms that handles still own
};

}  // namespace tensafe::serving
