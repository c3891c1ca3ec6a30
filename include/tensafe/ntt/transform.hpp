#pragma once

#include <tensafe/core/portable.hpp>
#include <tensafe/ntt/butterfly.hpp>
#include <tensafe/ntt/plan.hpp>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <span>

namespace tensafe::ntt {

/// Groups the log_n stages of a transform into passes over memory: the first `GlobalStages` one at a
/// time over the whole limb, the others block by block, two per pass in registers (radix-4), while the block
/// is in cache. The inverse runs the mirror image. The result does not depend on the schedule.
template <int GlobalStages>
struct split_stages {
    static_assert(GlobalStages >= 0, "split_stages: the number of global stages cannot be negative");
    static constexpr int global_stages = GlobalStages;
};

using all_fused = split_stages<0>;
using stage_by_stage = split_stages<17>;

/// The schedule when none is named: that of the active back-end, and all stages fused in portable code,
/// measured best up to N = 2^17 (docs/benchmarks.md). A schedule that is named runs in portable code.
struct default_schedule : all_fused {};

template <class S>
concept schedule = requires {
    S::global_stages;
};

/// Portable passes over one limb. Between them every entry is a bit pattern of the policy's representation
/// below Bound*q; the bound is a template argument, so the compiler places the reductions:
/// docs/design/ntt.md.
template <arith::modular_policy Policy>
class host_passes {
  public:
    using word = arith::word;
    using factor = typename Policy::factor;

    explicit host_passes(const plan<Policy>& p) noexcept : plan_(p), policy_(p.policy()), one_(p.one()) {}

    template <int GlobalStages>
    void forward(word* data) const noexcept {
        const int log_n = plan_.log_n();
        const int global = std::min(GlobalStages, log_n);
        enter(data);
        for (int stage = 0; stage < global; ++stage) {
            forward_stage(data, stage, 0, std::size_t{1} << stage);
        }
        if (global < log_n) {
            for (std::size_t block = 0; block < std::size_t{1} << global; ++block) {
                forward_block(data, global, block);
            }
        }
        leave(data);
    }

    template <int GlobalStages>
    void inverse(word* data) const noexcept {
        const int log_n = plan_.log_n();
        const int global = std::min(GlobalStages, log_n);
        enter(data);
        if (global < log_n) {
            for (std::size_t block = 0; block < std::size_t{1} << global; ++block) {
                inverse_block(data, global, block);
            }
        }
        for (int stage = global - 1; stage >= 0; --stage) {
            inverse_stage(data, stage, 0, std::size_t{1} << stage);
        }
        leave(data);
    }

  private:
    static constexpr unsigned product = Policy::product_bound;
    static constexpr unsigned capacity = Policy::max_multiple;
    /// The multiple of q that each radix-4 pass adds to the bound.
    static constexpr unsigned step = 2 * product;
    /// The most that a transform adds to the bound, as a multiple of q. Primes with room for it never reduce
    /// on the way: all passes share one instantiation, at the bound that holds for the last.
    static constexpr unsigned largest_bound = step + product * static_cast<unsigned>(max_log_n);
    static constexpr bool never_reduces = largest_bound + step <= capacity;
    static constexpr unsigned start_bound = never_reduces ? largest_bound : std::min(step, capacity);
    /// The largest bound in an inverse transform that never reduces: each stage doubles the bound of the
    /// sums, from 1 for canonical entries (and from a product's bound of at most 3 after the first): proved
    /// in docs/design/ntt.md.
    static constexpr unsigned largest_inverse_bound = 1U << max_log_n;
    static constexpr bool inverse_never_reduces = 4 * largest_inverse_bound <= capacity;
    /// Bound at the start of the inverse and wherever it changes radix: the sum of four entries fits.
    static constexpr unsigned inverse_start_bound =
        inverse_never_reduces ? largest_inverse_bound : std::clamp(capacity / 4, 1U, 4U);

    template <unsigned K>
    residue<Policy, K> load(const word* data) const noexcept {
        return {bit_cast<typename Policy::representation>(*data)};
    }
    /// Stores x below Bound*q. Where nothing is ever reduced, Bound is not that of the pass which stores the
    /// entry but the largest that any entry reaches, whatever the schedule.
    template <unsigned Bound, unsigned K>
    void store(word* data, residue<Policy, K> x) const noexcept {
        if constexpr ((never_reduces && Bound == largest_bound) ||
                      (inverse_never_reduces && Bound == largest_inverse_bound)) {
            *data = bit_cast<word>(x.value);
        } else if constexpr (K > 4 * Bound && K > product) {
            // More than two conditional subtractions: a multiplication by one is cheaper.
            store<Bound>(data, times_one(x));
        } else {
            *data = bit_cast<word>(arith::reduce<Bound>(policy_.modulus(), x).value);
        }
    }
    template <unsigned K>
    auto times_one(residue<Policy, K> x) const noexcept {
        if constexpr (requires { policy_.reduce_word(x.value, one_); }) {
            return policy_.reduce_word(x.value, one_);
        } else {
            return policy_.multiply(x, one_);
        }
    }

    /// Converts stored words to the policy's representation; nothing to do for the integer policies.
    void enter(word* data) const noexcept {
        if constexpr (!std::same_as<typename Policy::representation, word>) {
            for (std::size_t i = 0; i < plan_.degree(); ++i) {
                data[i] = bit_cast<word>(Policy::from_word(data[i]));
            }
        }
    }
    void leave(word* data) const noexcept {
        if constexpr (!std::same_as<typename Policy::representation, word>) {
            for (std::size_t i = 0; i < plan_.degree(); ++i) {
                data[i] = Policy::to_word(bit_cast<typename Policy::representation>(data[i]));
            }
        }
    }

    // ---- forward ----

    /// The bound of x before two stages: brought down when the sums would not fit.
    static constexpr unsigned bound_before(unsigned k) noexcept {
        return k + step <= capacity ? k : start_bound;
    }
    /// The bound after a radix-4 pass on entries below k*q.
    static constexpr unsigned bound_after(unsigned k) noexcept {
        return never_reduces ? start_bound : std::min(bound_before(k) + step, capacity);
    }

    /// One forward stage on blocks [first, last) of its 2^stage blocks.
    template <unsigned K, unsigned Bound>
    void forward_radix2(word* data, int stage, std::size_t first, std::size_t last) const noexcept {
        const std::size_t half = plan_.degree() >> (stage + 1);
        const factor* factors = plan_.forward_factors() + (std::size_t{1} << stage);
        for (std::size_t block = first; block < last; ++block) {
            const factor w = factors[block];
            word* x = data + block * 2 * half;
            word* y = x + half;
            for (std::size_t j = 0; j < half; ++j) {
                const auto out = forward_butterfly(policy_, load<K>(x + j), load<K>(y + j), w);
                store<Bound>(x + j, out.first);
                store<Bound>(y + j, out.second);
            }
        }
    }

    /// One forward stage on blocks [first, last) of its 2^stage blocks, at the bound that holds between
    /// stages; the last stage leaves residues.
    void forward_stage(word* data, int stage, std::size_t first, std::size_t last) const noexcept {
        if (stage + 1 == plan_.log_n()) {
            forward_radix2<start_bound, 1>(data, stage, first, last);
        } else {
            forward_radix2<start_bound, start_bound>(data, stage, first, last);
        }
    }

    /// All forward stages from `stage` on of one of its 2^stage blocks.
    void forward_block(word* data, int stage, std::size_t block) const noexcept {
        const int stages = plan_.log_n() - stage;
        const int odd = stages % 2;
        if (odd == 1) {
            forward_stage(data, stage, block, block + 1);
        }
        if (stages > 1) {
            forward_radix4_passes<start_bound>(data, stage + odd, block << odd, (block + 1) << odd);
        }
    }

    template <unsigned K>
    void forward_radix4_passes(word* data, int stage, std::size_t first, std::size_t last) const noexcept {
        if (stage + 2 == plan_.log_n()) {
            for (std::size_t block = first; block < last; ++block) {
                forward_radix4<K, 1>(data + 4 * block, 1, stage, block);
            }
            return;
        }
        const std::size_t quarter = plan_.degree() >> (stage + 2);
        for (std::size_t block = first; block < last; ++block) {
            forward_radix4<K, bound_after(K)>(data + 4 * quarter * block, quarter, stage, block);
        }
        forward_radix4_passes<bound_after(K)>(data, stage + 2, 4 * first, 4 * last);
    }

    /// Forward stages `stage` and stage + 1 on the four quarters of one of the 2^stage blocks.
    template <unsigned K, unsigned Bound>
    TENSAFE_INLINE void forward_radix4(word* data, std::size_t quarter, int stage,
                                       std::size_t block) const noexcept {
        const std::size_t blocks = std::size_t{1} << stage;
        const factor w1 = plan_.forward_factors()[blocks + block];
        const factor w2 = plan_.forward_factors()[2 * (blocks + block)];
        const factor w3 = plan_.forward_factors()[2 * (blocks + block) + 1];
        word* x0 = data;
        word* x1 = x0 + quarter;
        word* x2 = x1 + quarter;
        word* x3 = x2 + quarter;
        for (std::size_t j = 0; j < quarter; ++j) {
            const auto y0 = arith::reduce<bound_before(K)>(policy_.modulus(), load<K>(x0 + j));
            const auto y1 = arith::reduce<bound_before(K)>(policy_.modulus(), load<K>(x1 + j));
            const auto a = forward_butterfly(policy_, y0, load<K>(x2 + j), w1);
            const auto b = forward_butterfly(policy_, y1, load<K>(x3 + j), w1);
            const auto c = forward_butterfly(policy_, a.first, b.first, w2);
            const auto d = forward_butterfly(policy_, a.second, b.second, w3);
            store<Bound>(x0 + j, c.first);
            store<Bound>(x1 + j, c.second);
            store<Bound>(x2 + j, d.first);
            store<Bound>(x3 + j, d.second);
        }
    }

    // ---- inverse ----

    /// The bound after a radix-4 pass on entries below K: four times as much where the next pass can take it.
    static constexpr unsigned bound_after_inverse(unsigned k) noexcept {
        return 16 * k <= capacity && !inverse_never_reduces ? 4 * k : k;
    }

    /// All inverse stages down to `stage` of one of its 2^stage blocks.
    void inverse_block(word* data, int stage, std::size_t block) const noexcept {
        const int stages = plan_.log_n() - stage;
        const int odd = stages % 2;
        if (stages > 1) {
            inverse_radix4_passes<inverse_start_bound>(data, plan_.log_n() - 2, stage + odd, block << odd,
                                                       (block + 1) << odd);
        }
        if (odd == 1) {
            inverse_stage(data, stage, block, block + 1);
        }
    }

    /// Inverse radix-4 passes from `stage` down to `top`, on the blocks inside [first, last) of stage `top`.
    template <unsigned K>
    void inverse_radix4_passes(word* data, int stage, int top, std::size_t first,
                               std::size_t last) const noexcept {
        if (stage == 0) {
            inverse_radix4<K, 1, true>(data, plan_.degree() / 4, 0, 0);
            return;
        }
        if (stage == top) {
            inverse_radix4_range<K, inverse_start_bound>(data, stage, first, last);
            return;
        }
        const int depth = stage - top;
        inverse_radix4_range<K, bound_after_inverse(K)>(data, stage, first << depth, last << depth);
        inverse_radix4_passes<bound_after_inverse(K)>(data, stage - 2, top, first, last);
    }

    /// Inverse stages stage + 1 and `stage` of blocks [first, last) of the 2^stage blocks.
    template <unsigned K, unsigned Bound>
    void inverse_radix4_range(word* data, int stage, std::size_t first, std::size_t last) const noexcept {
        const std::size_t quarter = plan_.degree() >> (stage + 2);
        if (quarter == 1) {
            for (std::size_t block = first; block < last; ++block) {
                inverse_radix4<K, Bound, false>(data + 4 * block, 1, stage, block);
            }
        } else {
            for (std::size_t block = first; block < last; ++block) {
                inverse_radix4<K, Bound, false>(data + 4 * quarter * block, quarter, stage, block);
            }
        }
    }

    /// Inverse stages stage + 1 and `stage` on the four quarters of one of the 2^stage blocks. With 1/N
    /// folded into the last ones, three of the four outputs get it with a twiddle.
    template <unsigned K, unsigned Bound, bool Last>
    TENSAFE_INLINE void inverse_radix4(word* data, std::size_t quarter, int stage,
                                       std::size_t block) const noexcept {
        const std::size_t node = (std::size_t{1} << stage) + block;
        const factor w1 = plan_.inverse_factors()[node];
        const factor first_w1 = Last ? plan_.scaled_inverse_factor(1) : w1;
        const factor w2 = Last ? plan_.scaled_inverse_factor(2) : plan_.inverse_factors()[2 * node];
        const factor w3 = Last ? plan_.scaled_inverse_factor(3) : plan_.inverse_factors()[2 * node + 1];
        const factor scale = plan_.degree_inverse();
        word* x0 = data;
        word* x1 = x0 + quarter;
        word* x2 = x1 + quarter;
        word* x3 = x2 + quarter;
        for (std::size_t j = 0; j < quarter; ++j) {
            const auto a = inverse_butterfly<Policy, K>(policy_, load<K>(x0 + j), load<K>(x1 + j), w2);
            const auto b = inverse_butterfly<Policy, K>(policy_, load<K>(x2 + j), load<K>(x3 + j), w3);
            const auto c = inverse_butterfly(policy_, a.first, b.first, first_w1);
            const auto d = inverse_butterfly(policy_, a.second, b.second, w1);
            if constexpr (Last) {
                store<Bound>(x0 + j, policy_.multiply(c.first, scale));
            } else {
                store<Bound>(x0 + j, c.first);
            }
            store<Bound>(x1 + j, d.first);
            store<Bound>(x2 + j, c.second);
            store<Bound>(x3 + j, d.second);
        }
    }

    /// One inverse stage on blocks [first, last) of its 2^stage blocks.
    void inverse_stage(word* data, int stage, std::size_t first, std::size_t last) const noexcept {
        if (stage == 0) {
            inverse_radix2<true>(data, stage, first, last);
        } else {
            inverse_radix2<false>(data, stage, first, last);
        }
    }
    template <bool Last>
    void inverse_radix2(word* data, int stage, std::size_t first, std::size_t last) const noexcept {
        constexpr unsigned k = inverse_start_bound;
        constexpr unsigned bound = Last ? 1 : k;
        const factor scale = plan_.degree_inverse();
        const std::size_t half = plan_.degree() >> (stage + 1);
        const factor* factors = plan_.inverse_factors() + (std::size_t{1} << stage);
        for (std::size_t block = first; block < last; ++block) {
            const factor w = Last ? plan_.scaled_inverse_factor(1) : factors[block];
            word* x = data + block * 2 * half;
            word* y = x + half;
            for (std::size_t j = 0; j < half; ++j) {
                const auto out = inverse_butterfly<Policy, k>(policy_, load<k>(x + j), load<k>(y + j), w);
                if constexpr (Last) {
                    store<bound>(x + j, policy_.multiply(out.first, scale));
                } else {
                    store<bound>(x + j, out.first);
                }
                store<bound>(y + j, out.second);
            }
        }
    }

    const plan<Policy>& plan_;
    const Policy policy_;
    const factor one_;
};

/// Forward negacyclic NTT, in place; no allocation. N/2 * log2(N) butterflies after Harvey, "Faster
/// arithmetic for number-theoretic transforms" (2014). Thread-safe for distinct limbs.
///
/// By the active back-end (exec/backend.hpp) unless a schedule is named: AVX-512 for primes below 2^60 and N
/// >= 512, AVX2 for all of them and N >= `1 << avx2::min_log_n`, portable code for the rest. All give the
/// same residues.
/// @pre  limb.size() == N, natural order, each value in [0, q)
/// @post bit-reversed order, each value in [0, q)
template <schedule Schedule = default_schedule, class Policy>
void forward(const plan<Policy>& p, std::span<arith::word> limb) noexcept {
    TENSAFE_PRECONDITION(limb.size() == p.degree());
    if constexpr (std::same_as<Schedule, default_schedule>) {
        if (p.vector_tables().template transform<direction::forward>(limb.data(), limb.data())) {
            return;
        }
    }
    host_passes<Policy>(p).template forward<Schedule::global_stages>(limb.data());
}

/// Inverse negacyclic NTT, in place; no allocation. 1/N is folded into the last pass.
/// @pre  limb.size() == N, bit-reversed order, each value in [0, q)
/// @post natural order, each value in [0, q)
template <schedule Schedule = default_schedule, class Policy>
void inverse(const plan<Policy>& p, std::span<arith::word> limb) noexcept {
    TENSAFE_PRECONDITION(limb.size() == p.degree());
    if constexpr (std::same_as<Schedule, default_schedule>) {
        if (p.vector_tables().template transform<direction::inverse>(limb.data(), limb.data())) {
            return;
        }
    }
    host_passes<Policy>(p).template inverse<Schedule::global_stages>(limb.data());
}

}  // namespace tensafe::ntt
