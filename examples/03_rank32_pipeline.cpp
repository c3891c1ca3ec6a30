// An encrypted rank-32 LoRA token, from files to a delta:
//
//   1. read a PEFT adapter and hidden states from disk,
//   2. the server packs A into plaintext polynomials, once,
//   3. for each token the client encrypts h, the server multiplies, the client decrypts A*h and applies B,
//   4. compare with plaintext LoRA.
//
// Steps 2 and 3 stand in common/pipeline.cpp.

#include <tensafe/io/peft.hpp>

#include <cstdio>
#include <exception>

#include "common/arguments.hpp"
#include "common/hidden_states.hpp"
#include "common/pipeline.hpp"

int main(int argc, char** argv) {
    examples::arguments args(examples::set_name);
    if (const auto status = examples::parse(argc, argv, "Applies a LoRA adapter to encrypted hidden states",
                                            examples::adapter_options::as_it_is, args)) {
        return *status;
    }
    try {
        // The loader checks everything in the files before it trusts it; errors say what was wrong and where.
        const tensafe::lora::adapter adapter = tensafe::io::load_peft(args.adapter);
        // A site is one module of the model with its A, B and scale; any unambiguous end of its name will do.
        const tensafe::lora::adapter_site& site = adapter.site(args.site);
        const tensafe::lora::matrix hidden = examples::hidden_states(args.hidden, site);
        const examples::report result = examples::run(site, hidden, args);
        result.print();
        return result.within_tolerance ? 0 : 1;
    } catch (const examples::usage_error& e) {
        std::fprintf(stderr, "rank32_pipeline: %s\n", e.what());
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "rank32_pipeline: %s\n", e.what());
        return 1;
    }
}
