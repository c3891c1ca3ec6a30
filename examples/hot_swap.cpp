// Adapters by name that are replaced while tokens flow: a registry with room for one packed adapter, a thread
// that serves, and an administrator who loads, replaces, gives a wrong path, and runs out of memory budget.

#include <tensafe/core/error.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/serving/registry.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <future>
#include <string>

#include "../service/progress_bar.hpp"
#include "common/registry_user.hpp"

namespace {

namespace lora = tensafe::lora;
namespace serving = tensafe::serving;
using params = tensafe::ckks::private_n4096;
using model = lora::model_server<params>;
const std::string data = TENSAFE_EXAMPLE_DATA "/qwen_rank32";

/// The example's q_proj in 12 layers, `strength` times as strong.
lora::adapter read_adapter(const std::string& folder, double strength) {
    const lora::adapter from = tensafe::io::load_peft(folder);
    lora::adapter result;
    for (int layer = 0; layer < 12; ++layer) {
        lora::adapter_site& site = result.sites.emplace_back(from.site("q_proj"));
        site.name = "model.layers." + std::to_string(layer) + ".self_attn.q_proj";
        site.scale *= strength;
    }
    return result;
}

void show(const serving::registry<model>& adapters) {
    for (const auto& entry : adapters.status().entries) {
        std::printf("  %-8s version %zu, %s\n", entry.name.c_str(), static_cast<std::size_t>(entry.version),
                    entry.packed ? "packed" : "evicted");
    }
}

int run() {
    const auto states = tensafe::io::safetensors_file::open(data + "/hidden_states.safetensors")
                            .read_matrix("self_attn.q_proj");
    const std::size_t bytes = model::bytes_for(read_adapter(data, 1), {});
    const std::size_t budget = bytes + bytes / 2;
    std::printf("an adapter takes %.1f MB packed, the budget is %.1f MB\n", static_cast<double>(bytes) / 1e6,
                static_cast<double>(budget) / 1e6);
    serving::registry<model> adapters({.memory_budget = budget}, serving::pack_with<model>());
    adapters.load(
        "legal", [] { return read_adapter(data, 1); }, examples::progress_bar("packing legal"));

    // One thread serves tokens; this one goes on as administrator.
    examples::registry_user<params> user(states.row(0));
    std::atomic<bool> stop = false;
    std::future<void> serving = std::async(std::launch::async, [&] {
        while (!stop) {
            user.send_token(adapters.at("legal"));
        }
    });
    struct stop_at_the_end {
        std::atomic<bool>& stop;
        ~stop_at_the_end() { stop = true; }
    } const guard{stop};

    for (const double strength : {2.0, 3.0, 4.0}) {
        adapters.load(
            "legal", [=] { return read_adapter(data, strength); },
            examples::progress_bar("replacing legal while tokens flow"));
    }
    try {
        adapters.load("legal", [] { return read_adapter("adapters/no_such_folder", 5); });
    } catch (const tensafe::error& e) {
        std::printf("refused: %s\n", e.what());
    }
    stop = true;
    serving.get();
    user.send_token(adapters.at("legal"));  // what was refused changed nothing

    for (const auto& [version, tokens] : user.tokens()) {
        std::printf("  version %zu answered %d tokens\n", static_cast<std::size_t>(version), tokens);
    }
    std::printf("  relative error %.2e against plaintext LoRA of the same version (worst token)\n",
                user.worst_error());

    // There is room for one: the packed form that was not used for longest goes.
    adapters.load(
        "medical", [] { return read_adapter(data, -1); }, examples::progress_bar("packing medical"));
    std::printf("loaded another adapter:\n");
    show(adapters);
    std::printf("somebody asks for \"legal\", which is packed again from the matrices that were kept:\n");
    adapters.find("legal");
    show(adapters);
    return user.worst_error() < 5e-4 ? 0 : 1;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "hot_swap: %s\n", e.what());
        return 1;
    }
}
