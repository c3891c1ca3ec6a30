// What leaves a client outside encryption: hidden states, clipped and with Gaussian noise, paid for from a
// budget that a file remembers. And the honest truth about how much is left of them.

#include <tensafe/core/error.hpp>
#include <tensafe/io/ledger_file.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/plain.hpp>
#include <tensafe/privacy/gaussian_release.hpp>
#include <tensafe/privacy/ledger.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace {

namespace io = tensafe::io;
namespace lora = tensafe::lora;
namespace privacy = tensafe::privacy;

/// The 2-norm of the errors over that of what was wanted, in percent.
double error_percent(const std::vector<double>& got, const std::vector<double>& wanted) {
    double errors = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        errors += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    }
    return 100 * std::sqrt(errors / std::inner_product(wanted.begin(), wanted.end(), wanted.begin(), 0.0));
}

void release_until_refused(privacy::privacy_budget budget, double clip, const std::string& file,
                           const lora::matrix& states) {
    const auto each = privacy::gaussian_release::of({budget.epsilon / 8, budget.delta}, clip, states.columns);
    tensafe::random::generator random;
    std::vector<float> noisy(states.columns);
    std::size_t released = 0;
    try {
        privacy::ledger ledger(budget, std::make_unique<io::ledger_file>(file));
        for (;;) {
            privacy::release_grant grant = ledger.charge("alice", each.cost(), 8);  // stored once for eight
            for (; grant.left() > 0; ++released) {
                each(grant, random, states.row(released % states.rows), noisy);  // and send it
            }
        }
    } catch (const tensafe::budget_error& refusal) {
        std::printf("released %zu hidden states, noise %.0f on each entry, then refused:\n  %s\n", released,
                    each.deviation(), refusal.what());
    }
    const auto spent = io::ledger_file(file).load().principals.at("alice");  // as after a restart
    std::printf("the file says: alice has spent %llu releases, together epsilon %.2f at delta %g\n\n",
                spent.releases + 0ULL, spent.epsilon(budget.delta), budget.delta);
}

void show_one_state(privacy::privacy_budget budget, double clip, const lora::adapter_site& site,
                    std::span<const float> h) {
    std::printf(
        "one state of %zu entries, its LoRA delta, and the releases that the whole budget allows:\n\n"
        "  epsilon   noise per entry   error of the state   error of the delta   releases\n",
        h.size());
    tensafe::random::generator random;
    std::vector<float> noisy(h.size());
    for (const double epsilon : {0.5, 2.0, 8.0, 32.0, 128.0}) {
        const auto release = privacy::gaussian_release::of({epsilon, budget.delta}, clip, h.size());
        privacy::ledger only_here({epsilon * 1.001, budget.delta});  // no file: for this comparison
        privacy::release_grant grant = only_here.charge("alice", release.cost());
        release(grant, random, h, noisy);
        std::printf("  %7.1f %17.1f %18.0f %% %18.0f %% %10llu\n", epsilon, release.deviation(),
                    error_percent({noisy.begin(), noisy.end()}, {h.begin(), h.end()}),
                    error_percent(lora::plain_delta(site, noisy), lora::plain_delta(site, h)),
                    privacy::ledger(budget).left("alice", release.cost()) + 0ULL);
    }
}

/// Each device has a ledger of its own, and releases one short vector once: the rows of A times its state.
void show_averages(privacy::privacy_budget budget, const lora::matrix& a, const lora::matrix& states) {
    const auto release = privacy::gaussian_release::of(budget, 4, a.rows);
    lora::matrix products(states.rows, a.rows);
    for (std::size_t i = 0; i < products.values.size(); ++i) {
        const auto h = states.row(i / a.rows), row = a.row(i % a.rows);
        products.values[i] = std::inner_product(h.begin(), h.end(), row.begin(), 0.0F);
    }
    tensafe::random::generator random;
    std::vector<double> exact(a.rows), average(a.rows);
    std::vector<float> noisy(a.rows);
    std::printf("\nthe average of A h, %zu entries, over devices with such a budget for one each:\n", a.rows);
    for (std::size_t device = 1; device <= 100'000; ++device) {
        const auto product = products.row(device % states.rows);
        privacy::release_grant grant = privacy::ledger(budget).charge("its owner", release.cost());
        release(grant, random, product, noisy);
        std::transform(exact.begin(), exact.end(), product.begin(), exact.begin(), std::plus<>());
        std::transform(average.begin(), average.end(), noisy.begin(), average.begin(), std::plus<>());
        if (device == 1 || device == 100 || device == 10'000 || device == 100'000) {
            std::printf("  %7zu devices: error %.0f %%\n", device, error_percent(average, exact));
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    privacy::privacy_budget budget{8, 1e-5};
    double clip = 60;
    std::string file;
    CLI::App app("Releases hidden states with differential privacy until a budget is used up");
    app.add_option("--epsilon", budget.epsilon, "Of alice's budget")->capture_default_str();
    app.add_option("--delta", budget.delta, "Of alice's budget")->capture_default_str();
    app.add_option("--clip", clip, "The largest norm of a state that is released")->capture_default_str();
    app.add_option("--ledger", file, "Remembers what was spent; else a file that goes away");
    CLI11_PARSE(app, argc, argv);
    std::string folder = (std::filesystem::temp_directory_path() / "tensafe-private-XXXXXX").string();
    try {
        const bool passing = file.empty() && ::mkdtemp(folder.data()) != nullptr;
        const std::string data = TENSAFE_EXAMPLE_DATA "/qwen_rank32";
        const lora::adapter adapter = io::load_peft(data);
        const lora::adapter_site& site = adapter.site("q_proj");
        const lora::matrix states =
            io::safetensors_file::open(data + "/hidden_states.safetensors").read_matrix("self_attn.q_proj");
        release_until_refused(budget, clip, passing ? folder + "/ledger" : file, states);
        if (passing) {
            std::filesystem::remove_all(folder);
        }
        show_one_state(budget, clip, site, states.row(0));
        show_averages(budget, site.a, states);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "private_release: %s\n", error.what());
        return 1;
    }
}
