// The tiny language model as WebAssembly, for worker.js: it stops at each input that an adapter may change.
#include <tensafe/io/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../../examples/tiny_lm/character_model.hpp"
#include "../../examples/tiny_lm/characters.hpp"
#include "../client/exports.hpp"

namespace {

using namespace examples::tiny_lm;
using namespace exported;

std::unique_ptr<character_model> model;

character_model& loaded() {
    tensafe::require<tensafe::parameter_error>(model != nullptr, {"tiny_lm: got no weights yet"});
    return *model;
}

}  // namespace

/// Argument: the bytes of base.safetensors.
TENSAFE_EXPORT(load) int load() {
    return guarded([] {
        model = std::make_unique<character_model>(
            tensafe::io::safetensors_file::parse(std::as_bytes(std::span(argument)), "base.safetensors"));
    });
}

TENSAFE_EXPORT(clear) int clear() {
    return guarded([] { loaded().clear(); });
}

/// Argument: a text that is added: newlines and printable ASCII, a character or more.
TENSAFE_EXPORT(begin) int begin() {
    return guarded([] {
        tensafe::require<tensafe::parameter_error>(!argument.empty(),
                                                   {"tiny_lm: got an empty text, expected a character or more"});
        loaded().begin(tokens_of(std::string(argument.begin(), argument.end())));
    });
}

/// Shows the names of the linears that wait for an adapter, a line each; nothing: all positions are done.
TENSAFE_EXPORT(sites) int sites() {
    return guarded([] {
        std::string names;
        for (const std::string& name : loaded().sites()) {
            names += (names.empty() ? "" : "\n") + name;
        }
        show(names);
    });
}

/// Shows their inputs, position by position.
TENSAFE_EXPORT(inputs) int inputs() {
    return guarded([] { show(std::as_bytes(loaded().inputs())); });
}

/// Argument: what an adapter adds to the first one's outputs, position by position, then to the next one's; nothing: no
/// adapter.
TENSAFE_EXPORT(resume) int resume() {
    return guarded([] {
        std::vector<std::span<const float>> deltas;
        const std::span<const float> all = numbers<float>();
        const std::size_t sites = loaded().sites().size();
        tensafe::require<tensafe::shape_error>(
            sites != 0 && all.size() % sites == 0,
            {"tiny_lm: got ", all.size(), " floats, expected as many for each of ", sites, " linears"});
        for (std::size_t s = 0; !all.empty() && s < sites; ++s) {
            deltas.push_back(
                all.subspan(s * (all.size() / sites), all.size() / sites));  // which have one d_out
        }
        loaded().resume(deltas);
    });
}

/// The code of the likeliest next character, when all positions are done.
TENSAFE_EXPORT(likeliest) int likeliest() {
    return character_of(loaded().likeliest());
}
