#pragma once

// The program of the README with options: the parameter set is the one that pipeline.cpp is compiled for, and
// everything else is chosen when it runs. CMake names the set.

#include <tensafe/lora/adapter/adapter.hpp>

#include "arguments.hpp"
#include "report.hpp"

namespace examples {

extern const char* const set_name;

/// Sends tokens through the encrypted adapter and compares each result with plaintext LoRA.
/// @throws usage_error for options that do not go together
report run(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
           const arguments& args);

}  // namespace examples
