#pragma once

namespace tensafe::ntt {

/// How the log_n stages of a transform are grouped into passes over memory: the first `GlobalStages` stages
/// one at a time over the whole limb (radix-2 passes), the others block by block: each of the 2^GlobalStages
/// blocks runs all its remaining stages, two per pass in registers (radix-4), while it is in cache.
///
/// `split_stages<0>` is all fused; GlobalStages >= log_n is stage by stage. The inverse runs the mirror
/// image. The result does not depend on the schedule.
template <int GlobalStages>
struct split_stages {
    static_assert(GlobalStages >= 0, "split_stages: the number of global stages cannot be negative");
    static constexpr int global_stages = GlobalStages;
};

using all_fused = split_stages<0>;
using stage_by_stage = split_stages<17>;

/// When no schedule is named: that of the active back-end, and all fused in portable code, measured best up
/// to N = 2^17 (docs/benchmarks.md). A schedule that is named runs in portable code.
struct default_schedule : all_fused {};

template <class S>
concept schedule = requires {
    S::global_stages;
};

}  // namespace tensafe::ntt
