#pragma once

#include <tensafe/lora/adapter/adapter.hpp>

#include <string>

#include "arguments.hpp"
#include "report.hpp"

namespace examples {

/// The hidden states of a site, one per row: the tensor whose name ends the site's name; random ones if the
/// path is empty.
tensafe::lora::matrix hidden_states(const std::string& path, const tensafe::lora::adapter_site& site);

/// Sends tokens through the encrypted adapter and compares each result with plaintext LoRA.
report run(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
           const arguments& args);

}  // namespace examples
