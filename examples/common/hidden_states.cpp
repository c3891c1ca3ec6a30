#include "hidden_states.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/io/safetensors.hpp>

#include <algorithm>
#include <cstdio>
#include <random>

namespace examples {

tensafe::lora::matrix hidden_states(const std::string& path, const tensafe::lora::adapter_site& site) {
    if (path.empty()) {
        std::printf("no hidden states given: random ones, normal entries\n\n");
        tensafe::lora::matrix states(16, site.d_in());
        std::mt19937_64 engine(1);
        std::normal_distribution<float> normal;
        std::generate(states.values.begin(), states.values.end(), [&] { return normal(engine); });
        return states;
    }
    const auto file = tensafe::io::safetensors_file::open(path);
    std::string names;
    for (const auto& tensor : file.tensors()) {
        if (site.name == tensor.name || site.name.ends_with("." + tensor.name)) {
            tensafe::lora::matrix states = file.read_matrix(tensor.name);
            if (states.rows == 0 || states.columns != site.d_in()) {
                throw tensafe::format_error(path + ": tensor " + tensor.name + " is " +
                                            std::to_string(states.rows) + " x " +
                                            std::to_string(states.columns) + ", expected rows of " +
                                            std::to_string(site.d_in()) + " entries for site " + site.name);
            }
            return states;
        }
        names += "\n  " + tensor.name;
    }
    throw tensafe::format_error(path + ": no tensor for site " + site.name + "; the file has:" + names);
}

}  // namespace examples
