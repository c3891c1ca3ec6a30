#pragma once

#include <tensafe/lora/adapter/adapter.hpp>

#include <string>

namespace examples {

/// The hidden states of a site, one per row: the tensor whose name ends the site's name; random ones if the
/// path is empty.
tensafe::lora::matrix hidden_states(const std::string& path, const tensafe::lora::adapter_site& site);

}  // namespace examples
