// What leaves a client in the clear: clipped, with noise, paid for from a budget. And how little is left.

#include <tensafe/dp.hpp>
#include <tensafe/dp/ledger_file.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/adapter/plain.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace io = tensafe::io;
namespace lora = tensafe::lora;
namespace dp = tensafe::dp;

constexpr double clip_norm = 60;  // of a state; chosen without looking at the states
/// The 2-norm of the errors over that of what was needed, in percent.
template <class Entries>
double error_percent(const Entries& got, const Entries& wanted) {
    const auto square = [](double x, double y) { return (x - y) * (x - y); };
    const double wrong =
        std::inner_product(got.begin(), got.end(), wanted.begin(), 0.0, std::plus<>(), square);
    return 100 * std::sqrt(wrong / std::inner_product(wanted.begin(), wanted.end(), wanted.begin(), 0.0));
}

void release_until_refused(dp::ledger& ledger, const lora::matrix& states) {
    const auto each = dp::gaussian_release::of(ledger.budget_of("alice"), clip_norm, states.columns, 20);
    tensafe::random::generator random;
    std::vector<float> noisy(states.columns);
    std::size_t next = 0;
    try {
        for (;;) {  // 20 in all; a charge is stored once for eight, or for those that are left
            const auto some = std::clamp<std::uint64_t>(ledger.left("alice", each.cost()), 1, 8);
            auto charge = ledger.charge("alice", each.cost(), some);
            while (charge.left() > 0) {
                each(charge, random, states.row(next++ % states.rows), noisy);  // and send it
            }
        }
    } catch (const tensafe::budget_error& refusal) {
        std::printf("%zu states with noise %.0f, then: %s\n\n", next, each.deviation(), refusal.what());
    }
}

void show_one_state(dp::privacy_budget budget, const lora::adapter_site& site, std::vector<float> h) {
    std::puts(
        "for comparison, one state with budgets of its own:\n  epsilon   noise per entry   error of the "
        "state   error of its LoRA delta");
    tensafe::random::generator random;
    auto noisy = h;
    for (const double epsilon : {0.5, 2.0, 8.0, 32.0, 128.0}) {
        const auto release = dp::gaussian_release::of({epsilon, budget.delta}, clip_norm, h.size());
        auto charge = dp::ledger({epsilon, budget.delta}).charge("alice", release.cost());  // no file
        release(charge, random, h, noisy);
        std::printf("%9.1f %17.1f %18.0f %% %23.0f %%\n", epsilon, release.deviation(),
                    error_percent(noisy, h),
                    error_percent(lora::plain_delta(site, noisy), lora::plain_delta(site, h)));
    }
}

/// Each device has a ledger of its own, and releases one short vector once: the rows of A times its state.
void show_averages(dp::privacy_budget budget, const lora::matrix& a, const lora::matrix& states) {
    const auto release = dp::gaussian_release::of(budget, 4, a.rows);
    lora::matrix products(states.rows, a.rows);
    for (std::size_t i = 0; i < products.values.size(); ++i) {
        const auto h = states.row(i / a.rows);
        products.values[i] = std::inner_product(h.begin(), h.end(), a.row(i % a.rows).begin(), 0.0F);
    }
    std::printf("\nthe average of A h, %zu entries, over devices with such a budget for one each:\n", a.rows);
    tensafe::random::generator random;
    std::vector<float> noisy(a.rows), exact(a.rows), average(a.rows);
    for (std::size_t device = 1; device <= 100'000; ++device) {
        const auto product = products.row(device % states.rows);
        auto charge = dp::ledger(budget).charge("its owner", release.cost());
        release(charge, random, product, noisy);
        std::transform(exact.begin(), exact.end(), product.begin(), exact.begin(), std::plus<>());
        std::transform(average.begin(), average.end(), noisy.begin(), average.begin(), std::plus<>());
        if (device == 1 || device == 100 || device == 10'000 || device == 100'000) {
            std::printf("  %7zu devices: error %.0f %%\n", device, error_percent(average, exact));
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    dp::privacy_budget budget{8, 1e-5};
    std::string file;
    bool is_new = false;
    CLI::App app("Releases hidden states with differential privacy until a budget is used up");
    app.add_option("--epsilon", budget.epsilon, "Of alice's budget")->capture_default_str();
    app.add_option("--ledger", file, "Remembers what was spent; without it, this run is forgotten");
    app.add_flag("--new", is_new, "Make that ledger: the first time, and never again");
    CLI11_PARSE(app, argc, argv);
    try {
        const auto missing = is_new ? dp::missing_ledger::start_empty : dp::missing_ledger::refuse;
        auto store = file.empty() ? nullptr : std::make_unique<dp::ledger_file>(file, missing);
        dp::ledger ledger(budget, std::move(store));
        const std::string data = TENSAFE_EXAMPLE_DATA "/qwen_rank32";
        const lora::adapter adapter = io::load_peft(data);
        const lora::matrix states =
            io::safetensors_file::open(data + "/hidden_states.safetensors").read_matrix("self_attn.q_proj");
        release_until_refused(ledger, states);
        show_one_state(budget, adapter.site("q_proj"), {states.row(0).begin(), states.row(0).end()});
        show_averages(budget, adapter.site("q_proj").a, states);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "private_release: %s\n", error.what());
        return 1;
    }
}
