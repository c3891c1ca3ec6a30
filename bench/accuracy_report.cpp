// Relative error of deltas, worst and typical, for every site of an adapter and three protected parameter
// sets: hidden states with normal entries, of which 0, 1 or 8 are fifty times as large. Fails if a token is
// off by more than its set promises.
//   accuracy_report DIRECTORY [tokens for each site, 1000]

#include <tensafe/io/peft.hpp>
#include <tensafe/tensafe.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <vector>

namespace {

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;

std::vector<float> hidden_state(std::size_t d, int outliers, std::mt19937_64& engine) {
    std::normal_distribution<float> normal;
    std::vector<float> h(d);
    std::generate(h.begin(), h.end(), [&] { return normal(engine); });
    std::uniform_int_distribution<std::size_t> place(0, d - 1);
    for (int i = 0; i < outliers; ++i) {
        h[place(engine)] *= 50;
    }
    return h;
}

double relative_error(const std::vector<double>& wanted, const std::vector<double>& got) {
    double errors = 0;
    double squares = 0;
    for (std::size_t k = 0; k < wanted.size(); ++k) {
        errors += (got[k] - wanted[k]) * (got[k] - wanted[k]);
        squares += wanted[k] * wanted[k];
    }
    return std::sqrt(errors / squares);
}

/// The worst error over all sites.
template <class P, class Protection>
double report(const char* name, const lora::adapter& adapter, int tokens) {
    std::printf("%s\n  %-44s %8s %12s %12s %12s\n", name, "site", "outliers", "median", "worst", "predicted");
    double worst_of_all = 0;
    int sent_again = 0;
    for (const lora::adapter_site& original : adapter.sites) {
        const lora::adapter_site site = lora::normalize_rows(original);
        const lora::server<P, lora::coefficient_tiles<4>, Protection> server(site.a);
        lora::client<P> client;
        const auto nonce = tensafe::random::fresh_nonce();
        auto zeros = server.pool(nonce, client.rerandomization_key(nonce));
        typename decltype(server)::workspace work;
        typename decltype(server)::reply_type reply;
        for (const int outliers : {0, 1, 8}) {
            std::mt19937_64 engine(static_cast<unsigned>(outliers) + 1);
            std::vector<double> errors;
            for (int token = 0; token < tokens; ++token) {
                const std::vector<float> h = hidden_state(site.d_in(), outliers, engine);
                std::vector<double> product;
                for (double overflow_margin = 1; product.empty(); overflow_margin *= 2) {
                    const auto query = client.encrypt(server.plan(), h, overflow_margin);
                    server.apply(query.request, zeros, work, reply);
                    try {
                        product = client.decrypt(server.plan(), reply, query);
                    } catch (const tensafe::range_exceeded_error&) {
                        ++sent_again;
                    }
                }
                errors.push_back(
                    relative_error(lora::plain_delta(original, h), lora::apply_b(site, product)));
            }
            std::sort(errors.begin(), errors.end());
            std::printf("  %-44s %8d %12.2e %12.2e %12.2e\n", site.name.c_str(), outliers,
                        errors[errors.size() / 2], errors.back(), server.layout().budget().relative_error);
            std::fflush(stdout);
            worst_of_all = std::fmax(worst_of_all, errors.back());
        }
    }
    std::printf("  worst of all: %.2e; sent again: %d\n\n", worst_of_all, sent_again);
    return worst_of_all;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2 || argc > 3) {
        std::fprintf(stderr, "usage: accuracy_report DIRECTORY [tokens]\n");
        return 2;
    }
    try {
        using compact = lora::protects_adapter_rows<lora::average_case<6>>;
        using minimal = lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>;
        const lora::adapter adapter = tensafe::io::load_peft(argv[1]);
        const int tokens = argc == 3 ? std::max(1, std::atoi(argv[2])) : 1000;
        bool kept = report<ckks::private_n4096, lora::protects_adapter_rows<>>("private_n4096, worst-case",
                                                                               adapter, tokens) <= 5e-4;
        kept &=
            report<ckks::compact_n4096, compact>("compact_n4096, average_case<6>", adapter, tokens) <= 5e-4;
        kept &= report<ckks::minimal_n2048, minimal>("minimal_n2048, average_case<5>, reduced precision",
                                                     adapter, tokens) <= 1e-3;
        std::printf("%s\n",
                    kept ? "every token kept its set's promise" : "A TOKEN WAS OFF BY MORE THAN PROMISED");
        return kept ? 0 : 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "accuracy_report: %s\n", e.what());
        return 1;
    }
}
