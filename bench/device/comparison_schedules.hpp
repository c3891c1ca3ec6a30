#pragma once

#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/ntt/passes.hpp>
#include <tensafe/device/ntt/plan.hpp>
#include <tensafe/device/ntt/rounds.hpp>
#include <tensafe/device/ntt/transform.hpp>

#include <cstddef>
#include <cstdint>

/// Schedules that go stage by stage: radix 2, one butterfly after the other. They are what those of the
/// library are compared with.
namespace comparison {

using namespace tensafe;
using namespace tensafe::device;
using namespace tensafe::device::detail;

/// Entries between two stages keep one bound, whatever the stage: forward, x is reduced before each
/// butterfly; inverse, sums are reduced after it.
template <class Policy>
inline constexpr int settled_forward = [] {
    int bound = arith::bound_of_q;
    for (int i = 0; i < 64; ++i) {
        const int next = Policy::reduced + Policy::product(bound);
        bound = next > bound ? next : bound;
    }
    return bound;
}();
template <class Policy>
inline constexpr int settled_inverse = [] {
    int bound = arith::bound_of_q;
    for (int i = 0; i < 64; ++i) {
        const int next = Policy::product(2 * bound);
        bound = next > bound ? next : bound;
    }
    return bound;
}();

/// The butterflies on words of unfinished entries.
template <class Policy>
struct settled {
    using representation = typename Policy::representation;
    using forward_value = arith::within<Policy, settled_forward<Policy>>;
    using inverse_value = arith::within<Policy, settled_inverse<Policy>>;

    TENSAFE_HD_INLINE static representation value(word x) noexcept {
        return __builtin_bit_cast(representation, x);
    }
    TENSAFE_HD_INLINE static word bits(representation x) noexcept { return __builtin_bit_cast(word, x); }
    TENSAFE_HD_INLINE static void forward(word& a, word& b, typename Policy::factor w) noexcept {
        const auto x = Policy::reduce(forward_value{value(a)});
        const auto product = Policy::multiply(forward_value{value(b)}, w);
        const forward_value sum{(x + product).value};
        const forward_value difference{(x - product).value};
        a = bits(sum.value);
        b = bits(difference.value);
    }
    TENSAFE_HD_INLINE static void inverse(word& a, word& b, typename Policy::factor w) noexcept {
        const inverse_value x{value(a)};
        const inverse_value y{value(b)};
        a = bits(Policy::reduce(x + y).value);
        b = bits(Policy::multiply(x - y, w).value);
    }
    /// The last stage, with w/N and 1/N.
    TENSAFE_HD_INLINE static void inverse_scaled(word& a, word& b, typename Policy::factor w,
                                                 typename Policy::factor degree_inverse) noexcept {
        const inverse_value x{value(a)};
        const inverse_value y{value(b)};
        a = bits(Policy::multiply(x + y, degree_inverse).value);
        b = bits(Policy::multiply(x - y, w).value);
    }
};

/// Pairs from and to wherever a stage finds and leaves them.
template <int I, class Policy, class Source>
TENSAFE_HD_INLINE word_pair fetch_pair(const Source& source, std::size_t polynomial, std::size_t k) {
    if constexpr (is_unfinished<Source>) {
        return load_pair(source.template limb<I>(polynomial) + k);
    } else {
        const word_pair words = source.template pair<I>(polynomial, k);
        return {__builtin_bit_cast(word, Policy::from_word(words.first).value),
                __builtin_bit_cast(word, Policy::from_word(words.second).value)};
    }
}
template <int I, class Policy, class Sink>
TENSAFE_HD_INLINE void leave_pair(const Sink& sink, std::size_t polynomial, std::size_t k,
                                  word_pair entries) {
    if constexpr (is_unfinished<Sink>) {
        store_pair(sink.template limb<I>(polynomial) + k, entries);
    } else {
        using any = arith::within<Policy, Policy::limit>;
        sink.template pair<I>(polynomial, k,
                              {Policy::canonical(any{settled<Policy>::value(entries.first)}),
                               Policy::canonical(any{settled<Policy>::value(entries.second)})});
    }
}

/// One stage: each thread has two butterflies.
enum class stage_kind { forward, inverse, inverse_scaled };
template <class Basis, stage_kind Kind, class Source, class Sink>
struct one_stage {
    static constexpr int threads = 256;
    static constexpr int log_blocks = Basis::log_n - 10;
    using shared_type = no_shared;

    Source source;
    Sink sink;
    plan_view<Basis> plan;
    int stage;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            const std::size_t polynomial = ctx.block().x >> log_blocks;
            const std::size_t block = ctx.block().x & ((std::uint32_t{1} << log_blocks) - 1);
            ctx.last(
                [&](int t) { butterflies<I>(polynomial, block * threads + static_cast<std::size_t>(t)); });
        });
    }

  private:
    template <int I>
    TENSAFE_HD_INLINE void butterflies(std::size_t polynomial, std::size_t thread) const {
        using policy = arithmetic<Basis::template prime<I>>;
        const int log_half = Basis::log_n - 1 - stage;
        if (log_half > 0) {
            // Neighbours with one factor.
            const std::size_t half = std::size_t{1} << log_half;
            const std::size_t index = 2 * thread >> log_half;
            const std::size_t k = (index << (log_half + 1)) + (2 * thread & (half - 1));
            word_pair x = fetch_pair<I, policy>(source, polynomial, k);
            word_pair y = fetch_pair<I, policy>(source, polynomial, k + half);
            const auto w = factor<I, policy>(index);
            butterfly<I, policy>(x.first, y.first, w);
            butterfly<I, policy>(x.second, y.second, w);
            leave_pair<I, policy>(sink, polynomial, k, x);
            leave_pair<I, policy>(sink, polynomial, k + half, y);
        } else {
            const std::size_t k = 4 * thread;
            word_pair x = fetch_pair<I, policy>(source, polynomial, k);
            word_pair y = fetch_pair<I, policy>(source, polynomial, k + 2);
            butterfly<I, policy>(x.first, x.second, factor<I, policy>(2 * thread));
            butterfly<I, policy>(y.first, y.second, factor<I, policy>(2 * thread + 1));
            leave_pair<I, policy>(sink, polynomial, k, x);
            leave_pair<I, policy>(sink, polynomial, k + 2, y);
        }
    }
    template <int I, class Policy>
    TENSAFE_HD_INLINE typename Policy::factor factor(std::size_t index) const {
        if constexpr (Kind == stage_kind::inverse_scaled) {
            return Policy::factor_at(plan.template scaled_inverse<I>(), 1);
        } else {
            const word* const table =
                Kind == stage_kind::forward ? plan.template forward<I>() : plan.template inverse<I>();
            return Policy::factor_at(table, factor_position<Basis::log_n>(stage, index));
        }
    }
    template <int I, class Policy>
    TENSAFE_HD_INLINE void butterfly(word& a, word& b, typename Policy::factor w) const {
        if constexpr (Kind == stage_kind::forward) {
            settled<Policy>::forward(a, b, w);
        } else if constexpr (Kind == stage_kind::inverse) {
            settled<Policy>::inverse(a, b, w);
        } else {
            settled<Policy>::inverse_scaled(a, b, w, Policy::factor_at(plan.template scaled_inverse<I>(), 0));
        }
    }
};

/// The last eight stages of the forward transform, or the first eight of the inverse, on 256 neighbours.
template <class Basis, bool Forward, class Source, class Sink>
struct eight_stages {
    static constexpr int threads = 256;
    static constexpr int log_blocks = Basis::log_n - 8;
    struct shared_type {
        alignas(16) word words[256];
    };

    Source source;
    Sink sink;
    plan_view<Basis> plan;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() { limb<I>(ctx); });
    }

  private:
    template <int I, class Context>
    TENSAFE_HD_INLINE void limb(Context& ctx) const {
        using policy = arithmetic<Basis::template prime<I>>;
        const std::size_t polynomial = ctx.block().x >> log_blocks;
        const std::size_t block = ctx.block().x & ((std::uint32_t{1} << log_blocks) - 1);
        ctx.each([&](int t) {
            if (t < 128) {
                const std::size_t k = 2 * static_cast<std::size_t>(t);
                *reinterpret_cast<word_pair*>(ctx.shared().words + k) =
                    fetch_pair<I, policy>(source, polynomial, (block << 8) + k);
            }
        });
        for (int i = 0; i < 8; ++i) {
            const int stage = Forward ? i : 7 - i;
            ctx.each([&](int t) {
                if (t < 128) {
                    word* const shared = ctx.shared().words;
                    const auto thread = static_cast<std::size_t>(t);
                    const std::size_t half = std::size_t{128} >> stage;
                    const std::size_t index = thread >> (7 - stage);
                    const std::size_t k = (index << (8 - stage)) + (thread & (half - 1));
                    const word* const table =
                        Forward ? plan.template forward<I>() : plan.template inverse<I>();
                    const auto w = policy::factor_at(
                        table,
                        factor_position<Basis::log_n>(Basis::log_n - 8 + stage, (block << stage) + index));
                    if constexpr (Forward) {
                        settled<policy>::forward(shared[k], shared[k + half], w);
                    } else {
                        settled<policy>::inverse(shared[k], shared[k + half], w);
                    }
                }
            });
        }
        ctx.last([&](int t) {
            if (t < 128) {
                const std::size_t k = 2 * static_cast<std::size_t>(t);
                leave_pair<I, policy>(sink, polynomial, (block << 8) + k, load_pair(ctx.shared().words + k));
            }
        });
    }
};

/// 1/N as a launch of its own.
template <class Basis, class Sink>
struct scale_by_degree {
    static constexpr int threads = 256;
    static constexpr int log_blocks = Basis::log_n - 9;
    using shared_type = no_shared;

    unfinished<Basis> source;
    Sink sink;
    plan_view<Basis> plan;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            using policy = arithmetic<Basis::template prime<I>>;
            using value = typename settled<policy>::inverse_value;
            const std::size_t polynomial = ctx.block().x >> log_blocks;
            const std::size_t block = ctx.block().x & ((std::uint32_t{1} << log_blocks) - 1);
            ctx.last([&](int t) {
                const std::size_t k = (block << 9) + 2 * static_cast<std::size_t>(t);
                const auto w = policy::factor_at(plan.template scaled_inverse<I>(), 0);
                word_pair entries = fetch_pair<I, policy>(source, polynomial, k);
                entries.first = settled<policy>::bits(
                    policy::multiply(value{settled<policy>::value(entries.first)}, w).value);
                entries.second = settled<policy>::bits(
                    policy::multiply(value{settled<policy>::value(entries.second)}, w).value);
                leave_pair<I, policy>(sink, polynomial, k, entries);
            });
        });
    }
};

template <class Basis, stage_kind Kind, class Run, class Source, class Sink>
void launch_stage(const Run& run, const Source& source, const Sink& sink, int number) {
    using kernel = one_stage<Basis, Kind, Source, Sink>;
    run.launch(kernel{source, sink, run.plan, number}, kernel::log_blocks);
}
template <class Basis, bool Forward, class Run, class Source, class Sink>
void launch_eight_stages(const Run& run, const Source& source, const Sink& sink) {
    using kernel = eight_stages<Basis, Forward, Source, Sink>;
    run.launch(kernel{source, sink, run.plan}, kernel::log_blocks);
}

/// A launch for each stage in radix 2, and 1/N as one more: log_n launches forward, log_n + 1 inverse. What a
/// first port to a GPU does; for comparison.
struct unfused : schedule::several_launches {
    template <class Basis, class Run, class Load, class Store>
    static void forward(const Run& run, const Load& load, const Store& store) {
        using kind = stage_kind;
        launch_stage<Basis, kind::forward>(run, load, run.middle, 0);
        for (int stage = 1; stage < Basis::log_n - 1; ++stage) {
            launch_stage<Basis, kind::forward>(run, run.middle, run.middle, stage);
        }
        launch_stage<Basis, kind::forward>(run, run.middle, store, Basis::log_n - 1);
    }
    template <class Basis, class Run, class Load, class Store>
    static void inverse(const Run& run, const Load& load, const Store& store) {
        using kind = stage_kind;
        launch_stage<Basis, kind::inverse>(run, load, run.middle, Basis::log_n - 1);
        for (int stage = Basis::log_n - 2; stage >= 0; --stage) {
            launch_stage<Basis, kind::inverse>(run, run.middle, run.middle, stage);
        }
        using scale = scale_by_degree<Basis, Store>;
        run.launch(scale{run.middle, store, run.plan}, scale::log_blocks);
    }
};

/// A launch for each of the first log_n - 8 stages in radix 2, and one for the last eight, in shared memory:
/// log_n - 7 launches either way; 7 at N = 16384. The published schedule that others are compared with.
struct staged : schedule::several_launches {
    template <class Basis, class Run, class Load, class Store>
    static void forward(const Run& run, const Load& load, const Store& store) {
        using kind = stage_kind;
        launch_stage<Basis, kind::forward>(run, load, run.middle, 0);
        for (int stage = 1; stage < Basis::log_n - 8; ++stage) {
            launch_stage<Basis, kind::forward>(run, run.middle, run.middle, stage);
        }
        launch_eight_stages<Basis, true>(run, run.middle, store);
    }
    template <class Basis, class Run, class Load, class Store>
    static void inverse(const Run& run, const Load& load, const Store& store) {
        using kind = stage_kind;
        launch_eight_stages<Basis, false>(run, load, run.middle);
        for (int stage = Basis::log_n - 9; stage > 0; --stage) {
            launch_stage<Basis, kind::inverse>(run, run.middle, run.middle, stage);
        }
        launch_stage<Basis, kind::inverse_scaled>(run, run.middle, store, 0);
    }
};

}  // namespace comparison
