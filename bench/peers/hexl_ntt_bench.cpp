// The negacyclic NTT of one limb, in place, from and to [0, q): HEXL's and ours, with the same prime and the
// same root. Ours runs with the back-end that the environment variable TENSAFE_BACKEND names, or the best.

#include <algorithm>
#include <cstddef>
#include <hexl/ntt/ntt.hpp>
#include <string>

#include "../common.hpp"
#include "ratios.hpp"

namespace {

namespace arith = tensafe::arith;
namespace ntt = tensafe::ntt;

template <int Bits>
struct setting {
    using policy = arith::shoup<arith::runtime_modulus<Bits>>;

    explicit setting(int degree_log)
        : log_n(degree_log),
          q(arith::ntt_prime_below(arith::word{1} << Bits, log_n)),
          peer(std::size_t{1} << log_n, q),
          plan(policy(arith::runtime_modulus<Bits>(q)), log_n, peer.GetMinimalRootOfUnity()),
          limb(bench::mixed_residues(plan.degree(), q)) {}

    template <bool Forward>
    void run_peer() {
        if constexpr (Forward) {
            peer.ComputeForward(limb.data(), limb.data(), 1, 1);
        } else {
            peer.ComputeInverse(limb.data(), limb.data(), 1, 1);
        }
    }

    template <bool Forward>
    void run_ours() {
        if constexpr (Forward) {
            ntt::forward(plan, limb.span());
        } else {
            ntt::inverse(plan, limb.span());
        }
    }

    int log_n;
    arith::word q;
    intel::hexl::NTT peer;
    ntt::plan<policy> plan;
    tensafe::memory::buffer<arith::word> limb;
};

/// Whether both give the same transform: otherwise their times are not to be compared.
template <int Bits, bool Forward>
bool agree(int log_n) {
    setting<Bits> ours(log_n);
    setting<Bits> theirs(log_n);
    ours.template run_ours<Forward>();
    theirs.template run_peer<Forward>();
    return std::equal(ours.limb.data(), ours.limb.data() + ours.limb.size(), theirs.limb.data());
}

template <int Bits, bool Forward, bool Ours>
void transform(benchmark::State& state, int log_n) {
    setting<Bits> s(log_n);
    if (!agree<Bits, Forward>(log_n)) {
        state.SkipWithError("the results differ");
    }
    for (auto _ : state) {
        if constexpr (Ours) {
            s.template run_ours<Forward>();
        } else {
            s.template run_peer<Forward>();
        }
        benchmark::ClobberMemory();
    }
    bench::count_butterflies(state, log_n);
}

template <int Bits, bool Forward>
void add_width() {
    for (int log_n = 11; log_n <= 15; ++log_n) {
        const std::string job = std::string(Forward ? "ntt/forward/q" : "ntt/inverse/q") +
                                std::to_string(Bits) + "/log_n:" + std::to_string(log_n);
        benchmark::RegisterBenchmark((job + "/tensafe").c_str(), transform<Bits, Forward, true>, log_n)
            ->Unit(benchmark::kMicrosecond);
        benchmark::RegisterBenchmark((job + "/hexl").c_str(), transform<Bits, Forward, false>, log_n)
            ->Unit(benchmark::kMicrosecond);
    }
}

}  // namespace

int main(int argc, char** argv) {
    add_width<40, true>();
    add_width<40, false>();
    add_width<50, true>();
    add_width<50, false>();
    add_width<60, true>();
    add_width<60, false>();
    return bench::run_with_ratios(argc, argv);
}
