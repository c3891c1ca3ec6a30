// Encrypted LoRA on a GPU, client and server: a batch of hidden states, recorded as a graph the first time
// and replayed after that. examples/common/device_path.hpp has the steps.
//   cuda_lora [folder]     of an adapter and its hidden_states.safetensors

#include <tensafe/core/error.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/stream.cuh>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/tensafe.cuh>

#include <cstddef>
#include <cstdio>
#include <string>

#include "../common/device_path.hpp"

int main(int argc, char** argv) {
    namespace device = tensafe::device;
    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
        std::fprintf(stderr, "cuda_lora: got '%s', expected the folder of an adapter or nothing\n",
                     argv[argc - 1]);
        return 2;
    }
    try {
        const std::string data = argc == 2 ? argv[1] : TENSAFE_EXAMPLE_DATA "/qwen_rank32";
        const auto adapter = tensafe::io::load_peft(data);
        const auto site = tensafe::lora::normalize_rows(adapter.site("q_proj"));
        const auto hidden = tensafe::io::safetensors_file::open(data + "/hidden_states.safetensors")
                                .read_matrix("self_attn.q_proj");
        if (device::device_count() == 0) {
            std::puts("no device");
            return 0;
        }
        const device::stream stream;
        const device::cuda where = stream.where();
        // Recorded anew for each number of tokens; here there is one.
        device::graph_cache<std::size_t> graphs;
        const double worst = examples::encrypted_batch(
            where, site, hidden, [&](auto&& enqueue) { graphs.run(where, hidden.rows, enqueue); });
        std::printf("%zu tokens, twice: relative error %.2e against plaintext LoRA (worst token)\n",
                    hidden.rows, worst);
        return worst < 5e-4 ? 0 : 1;
    } catch (const tensafe::error& e) {
        std::fprintf(stderr, "cuda_lora: %s\n", e.what());
        return 1;
    }
}
