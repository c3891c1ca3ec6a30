#pragma once

#include <tensafe/lora/adapter/adapter.hpp>

#include "report.hpp"

namespace examples {

/// Runs the tokens with the parameter set of that name. One source file each in sets/, two for the long
/// chains: a parameter set is a type, so every one is compiled anew.
using run_function = report(const tensafe::lora::adapter_site&, const tensafe::lora::matrix&,
                            const arguments&);
run_function run_private_n4096;
run_function run_compact_n4096;
run_function run_minimal_n2048;
run_function run_n8192_l4;
run_function run_n16384_l4;
run_function run_n16384_l5;
run_function run_n32768_l4;
run_function run_n32768_l5;

}  // namespace examples
