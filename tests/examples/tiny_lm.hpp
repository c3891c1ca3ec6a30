#pragma once

// What tests of the tiny language model and of studies on it share.

#include <tensafe/interop/torch_safetensors.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <torch/torch.h>

#include <filesystem>
#include <string_view>

#include "../../examples/tiny_lm/transformer.hpp"
#include "../test.hpp"

namespace tests {

using namespace examples::tiny_lm;

inline const std::filesystem::path tiny_lm_data = TENSAFE_EXAMPLE_DATA "/tiny_lm";

/// As committed, and on one thread.
struct committed {
    language_model model;
    lora::adapter adapter = tensafe::io::load_peft(tiny_lm_data / "adapter");

    committed() {
        at::set_num_threads(1);
        tensafe::interop::load_parameters(
            model, tensafe::io::safetensors_file::open(tiny_lm_data / "base.safetensors"));
    }
};

/// Small and with random weights.
inline const model_shape small_shape{32, 2, 4, 48, 8};

inline double largest_difference(const at::Tensor& x, const at::Tensor& y) {
    DOCTEST_REQUIRE(x.sizes() == y.sizes());
    return (x - y).abs().max().item<double>();
}

// Acts 14, 10 to 14: in a block that training leaves out.
inline constexpr std::string_view verses_unseen =
    "Said with a loud voice, Stand upright on thy feet. And he leaped and walked.\n"
    "And when the people saw what Paul had done, they lifted up their voices, saying in the speech of "
    "Lycaonia, The gods are come down to us in the likeness of men.\n"
    "And they called Barnabas, Jupiter; and Paul, Mercurius, because he was the chief speaker.\n"
    "Then the priest of Jupiter, which was before their city, brought oxen and garlands unto the gates, "
    "and would have done sacrifice with the people.\n"
    "Which when the apostles, Barnabas and Paul, heard of, they rent their clothes, and ran in among the "
    "people, crying out,\n";

}  // namespace tests
