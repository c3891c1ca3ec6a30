// The kernels of a GPU, run on the host: the same client and server as examples/device/cuda_lora.cu,
// for machines without a GPU and for debuggers. Slow: the host's own way is lora::client and lora::server.

#include <tensafe/core/error.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/adapter/normalize.hpp>

#include <cstdio>
#include <string>

#include "common/device_path.hpp"

int main() {
    try {
        const std::string data = TENSAFE_EXAMPLE_DATA "/qwen_rank32";
        const auto adapter = tensafe::io::load_peft(data);
        const auto site = tensafe::lora::normalize_rows(adapter.site("q_proj"));
        const auto hidden = tensafe::io::safetensors_file::open(data + "/hidden_states.safetensors")
                                .read_matrix("self_attn.q_proj");
        const tensafe::device::host_blocks where;
        const double worst =
            examples::encrypted_batch(where, site, hidden, [&](auto&& enqueue) { enqueue(where); });
        std::printf("%zu tokens, twice: relative error %.2e against plaintext LoRA (worst token)\n",
                    hidden.rows, worst);
        return worst < 5e-4 ? 0 : 1;
    } catch (const tensafe::error& e) {
        std::fprintf(stderr, "device_lora: %s\n", e.what());
        return 1;
    }
}
