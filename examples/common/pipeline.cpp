#include "pipeline.hpp"

#include <tensafe/io/safetensors.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <random>
#include <vector>

#include "token_path.hpp"

namespace examples {

namespace {

/// Sends tokens through the encrypted adapter and compares each result with plaintext LoRA.
template <class P, class Packing>
report run_tokens(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                  const arguments& args) {
    report result(args, site.name, site.rank());
    token_path<P, Packing> path(site);
    progress_bar bar(args.tokens);
    for (std::size_t token = 0; token < args.tokens; ++token) {
        const auto h = hidden.row(token % hidden.rows);
        const std::vector<double> delta = path.run(h, result.watch);
        result.compare(delta, tensafe::lora::plain_delta(site, h));
        bar.advance();
    }
    result.bytes_up = path.bytes_up();
    result.bytes_down = path.bytes_down();
    return result;
}

/// The parameter set is a type: choosing it by name means one instantiation for each name.
template <class P>
report run_with(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                const arguments& args) {
    namespace lora = tensafe::lora;
    if (args.rescale) {
        return run_tokens<P, lora::replicated_slots<lora::paired_rows, lora::rescaled_replies>>(site, hidden,
                                                                                                args);
    }
    return run_tokens<P, lora::replicated_slots<lora::paired_rows>>(site, hidden, args);
}

}  // namespace

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
                                            std::to_string(states.columns) + ", wanted rows of " +
                                            std::to_string(site.d_in()) + " entries for site " + site.name);
            }
            return states;
        }
        names += "\n  " + tensor.name;
    }
    throw tensafe::format_error(path + ": no tensor for site " + site.name + "; the file has:" + names);
}

report run(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
           const arguments& args) {
    namespace ckks = tensafe::ckks;
    if (args.params == "n8192_l4") {
        return run_with<ckks::n8192_l4>(site, hidden, args);
    }
    if (args.params == "n16384_l5") {
        return run_with<ckks::n16384_l5>(site, hidden, args);
    }
    if (args.params == "n32768_l4") {
        return run_with<ckks::n32768_l4>(site, hidden, args);
    }
    if (args.params == "n32768_l5") {
        return run_with<ckks::n32768_l5>(site, hidden, args);
    }
    return run_with<ckks::n16384_l4>(site, hidden, args);
}

}  // namespace examples
