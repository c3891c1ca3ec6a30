// The encrypted LoRA token of rank32_pipeline, with the adapter first cut to a smaller rank: fewer rows of A
// are fewer products and shorter replies, for an error that is known before anything is encrypted.
//
//   1. read a PEFT adapter and hidden states from disk,
//   2. truncate scale * B * A to the expected rank by its singular values,
//   3. look at what that costs: in the norm, and on hidden states that matter,
//   4. run the encrypted pipeline on what is left.

#include <tensafe/interop/svd.hpp>
#include <tensafe/io/peft.hpp>

#include <cstdio>
#include <exception>

#include "common/arguments.hpp"
#include "common/hidden_states.hpp"
#include "common/pipeline.hpp"

int main(int argc, char** argv) {
    examples::arguments args(examples::set_name);
    if (const auto status =
            examples::parse(argc, argv, "Truncates a LoRA adapter and applies it to encrypted hidden states",
                            examples::adapter_options::truncated, args)) {
        return *status;
    }
    try {
        namespace lora = tensafe::lora;
        const lora::adapter adapter = tensafe::io::load_peft(args.adapter);
        const lora::adapter_site& site = adapter.site(args.site);
        const lora::matrix hidden = examples::hidden_states(args.hidden, site);

        // Eckart-Young: no other adapter of that rank is nearer to the original in the Frobenius norm.
        const tensafe::interop::svd_truncation cut =
            args.variance > 0 ? tensafe::interop::truncate_to_variance(site, args.variance)
                              : tensafe::interop::truncate_to_rank(site, args.rank);
        // A small part of the variance can be a large part of the error: 5 % of it is 22 % of the norm. What
        // counts is the error on activations, so measure it on some.
        const tensafe::interop::activation_report activations =
            tensafe::interop::activation_error(site, cut.site, hidden);
        std::printf("truncation      rank %zu to %zu, %.2f %% of the variance kept\n", site.rank(),
                    cut.site.rank(), 100 * cut.report.variance_kept);
        std::printf("                relative error %.3f in the Frobenius norm\n", cut.report.relative_error);
        std::printf(
            "                relative error of deltas: mean %.3f, worst %.3f over %zu hidden states\n\n",
            activations.mean, activations.worst, hidden.rows);

        // From here on nothing knows of the truncation: the encrypted result is compared with the truncated
        // adapter.
        examples::report result = examples::run(cut.site, hidden, args);
        result.truncation = {{"original_rank", static_cast<double>(site.rank())},
                             {"variance_kept", cut.report.variance_kept},
                             {"relative_error", cut.report.relative_error},
                             {"activation_error_mean", activations.mean},
                             {"activation_error_worst", activations.worst}};
        result.print();
        return result.within_tolerance ? 0 : 1;
    } catch (const examples::usage_error& e) {
        std::fprintf(stderr, "svd_rank16_pipeline: %s\n", e.what());
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "svd_rank16_pipeline: %s\n", e.what());
        return 1;
    }
}
