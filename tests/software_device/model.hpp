#pragma once

// How long a GPU would take, by what was counted: the largest of what its parts need, and what a launch
// costs. A prediction, never a measurement.

#include "machine.hpp"

namespace software_device {

/// What a thread block needs beside what is counted, as ptxas says.
struct resources {
    double registers = 0;     ///< of a thread
    double instructions = 0;  ///< of the kernel's machine code
};

/// A GPU by its data sheet. A multiprocessor issues four instructions a cycle, each for 32 threads.
struct machine_model {
    const char* name;
    double multiprocessors;
    double gigahertz;
    double double_lanes;  ///< of a multiprocessor, results a cycle; integers and products: 64
    double memory_bytes;  ///< a nanosecond
    double cache_bytes;   ///< of L2, a nanosecond
    double cache_size;    ///< of L2
    double shared_size;   ///< of a multiprocessor, for thread blocks
    double host_bytes;    ///< between host and device, a nanosecond
};

/// Null for a name that is unknown.
const machine_model* find_model(const std::string& name);

struct prediction {
    double microseconds;
    const char* binds;
};

prediction predict_launch(const machine_model& gpu, const launch& what, const counts& count,
                          const resources& needs);
/// A copy within the device, or between host and device.
double predict_copy(const machine_model& gpu, double bytes, bool within);

}  // namespace software_device
