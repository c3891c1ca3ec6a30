// The negacyclic NTT of one limb, in place: by direction, width of the prime, back-end and degree. Then, at
// N = 16384 and in standard C++, what the default is chosen among: schedules and arithmetic policies.
// ns_per_butterfly is the time over N/2 * log2(N).

#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/montgomery.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/ntt/transform.hpp>

#include <string>

#include "common.hpp"

namespace {

namespace arith = tensafe::arith;
namespace exec = tensafe::exec;
namespace ntt = tensafe::ntt;

template <template <class> class Policy, int Bits, class Schedule, bool Forward>
void transform(benchmark::State& state, exec::backend backend) {
    const int log_n = static_cast<int>(state.range(0));
    using modulus = arith::modulus_class<Bits>;
    const modulus q(arith::ntt_prime_below(arith::word{1} << Bits, log_n));
    const bench::forced_backend forced(backend);
    const ntt::plan<Policy<modulus>> plan(Policy<modulus>(q), log_n);
    auto limb = bench::mixed_residues(plan.degree(), q.value());
    for (auto _ : state) {
        if constexpr (Forward) {
            ntt::forward<Schedule>(plan, limb.span());
        } else {
            ntt::inverse<Schedule>(plan, limb.span());
        }
        benchmark::ClobberMemory();
    }
    bench::count_butterflies(state, log_n);
    bench::count_bytes(state, 2 * plan.degree());
}

template <template <class> class Policy, int Bits, class Schedule, bool Forward>
benchmark::internal::Benchmark* add(const std::string& name, exec::backend backend) {
    const std::string full = std::string(Forward ? "ntt/forward/" : "ntt/inverse/") + name;
    return benchmark::RegisterBenchmark(full.c_str(), transform<Policy, Bits, Schedule, Forward>, backend)
        ->ArgName("log_n")
        ->Unit(benchmark::kMicrosecond);
}

template <int Bits>
void add_width() {
    for (const exec::backend backend : exec::all_backends) {
        if (exec::is_supported(backend)) {
            const std::string name = 'q' + std::to_string(Bits) + '/' + std::string(exec::name(backend));
            add<arith::shoup, Bits, ntt::default_schedule, true>(name, backend)->DenseRange(11, 15);
            add<arith::shoup, Bits, ntt::default_schedule, false>(name, backend)->DenseRange(11, 15);
        }
    }
}

template <template <class> class Policy, int Bits, class Schedule = ntt::all_fused>
void add_variant(const std::string& name) {
    add<Policy, Bits, Schedule, true>("variant/" + name, exec::backend::portable)->Arg(14);
    add<Policy, Bits, Schedule, false>("variant/" + name, exec::backend::portable)->Arg(14);
}

[[maybe_unused]] const bool registered = [] {
    add_width<40>();
    add_width<45>();
    add_width<50>();
    add_width<60>();
    add_variant<arith::shoup, 60, ntt::all_fused>("shoup/q60/all_fused");
    add_variant<arith::shoup, 60, ntt::stage_by_stage>("shoup/q60/stage_by_stage");
    add_variant<arith::montgomery, 60>("montgomery/q60");
    add_variant<arith::barrett, 60>("barrett/q60");
    add_variant<arith::fp64, 49>("fp64/q49");
    return true;
}();

}  // namespace
