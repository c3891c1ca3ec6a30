// Differential privacy at the client by back-end and d: the noise alone, clipping alone, and a whole release
// with a charge that is paid for already. What a ledger in a file costs on top is forcing it to the device,
// for each charge and not for each release.

#include <tensafe/dp/clip.hpp>
#include <tensafe/dp/gaussian_release.hpp>
#include <tensafe/dp/ledger.hpp>
#include <tensafe/dp/sample_discrete_gaussian.hpp>
#include <tensafe/exec/backend.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common.hpp"

namespace {

namespace exec = tensafe::exec;
namespace dp = tensafe::dp;
namespace random = tensafe::random;

std::vector<float> hidden_state(std::size_t d) {
    std::vector<float> h(d);
    for (std::size_t i = 0; i < d; ++i) {
        h[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    }
    return h;
}

void noise(benchmark::State& state, exec::backend backend) {
    const bench::forced_backend forced(backend);
    const random::seed seed = random::fresh_seed();
    std::vector<std::int64_t> out(static_cast<std::size_t>(state.range(0)));
    for (auto _ : state) {
        dp::sample_discrete_gaussian(seed, random::stream_domain::privacy_noise, 0, out);
        benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(state.iterations() * state.range(0));
}

void clip(benchmark::State& state) {
    const std::vector<float> h = hidden_state(static_cast<std::size_t>(state.range(0)));
    std::vector<std::int64_t> out(h.size());
    for (auto _ : state) {
        dp::clip_to_grid(h, 0x1p-30, std::int64_t{1} << 31, out);
        benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(state.iterations() * state.range(0));
}

void release(benchmark::State& state, exec::backend backend) {
    const bench::forced_backend forced(backend);
    const std::vector<float> h = hidden_state(static_cast<std::size_t>(state.range(0)));
    std::vector<float> out(h.size());
    const dp::gaussian_release with_noise(1, 20, h.size());
    dp::ledger ledger({1e12, 0.5});
    dp::release_charge charge = ledger.charge("bench", with_noise.cost(), 100'000'000);
    random::generator generator;
    for (auto _ : state) {
        with_noise(charge, generator, h, out);
        benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(state.iterations() * state.range(0));
}

benchmark::internal::Benchmark* add(const std::string& name, exec::backend backend,
                                    void (*f)(benchmark::State&, exec::backend)) {
    return benchmark::RegisterBenchmark((name + '/' + std::string(exec::name(backend))).c_str(), f, backend)
        ->Unit(benchmark::kMicrosecond)
        ->ArgName("d");
}

BENCHMARK(clip)->Unit(benchmark::kMicrosecond)->ArgName("d")->Arg(2048)->Arg(16384);

[[maybe_unused]] const bool registered = [] {
    for (const exec::backend backend : exec::all_backends) {
        if (exec::is_supported(backend)) {
            add("noise", backend, noise)->Arg(2048)->Arg(16384);
            add("release", backend, release)->Arg(2048)->Arg(16384);
        }
    }
    return true;
}();

}  // namespace
