#pragma once

#include <tensafe/arith/scalar_lanes.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/arith/x86/fp64_avx2.hpp>
#include <tensafe/arith/x86/residues_avx512.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/simd/lanes.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

/// The loops of limb.hpp: bodies of kernels over the arithmetic of a target. What is left behind the last
/// whole vector is done one residue at a time.
namespace tensafe::rns::limb::detail {

using arith::arithmetic_for;
using arith::lanes_of;
using arith::load;
using arith::load_operand;
using arith::word;

// What is done with each vector: the functions of limb.hpp

struct with_sums {
    template <class Lanes, class M>
    using arithmetic = typename Lanes::sums;
};
struct with_products {
    template <class Lanes, class M>
    using arithmetic = typename Lanes::template products<M>;
};
struct with_factors {
    template <class Lanes, class M>
    using arithmetic = typename Lanes::template factors<M>;
};
struct with_reduction {
    template <class Lanes, class M>
    using arithmetic = typename Lanes::template reduction<M>;
};

struct add : with_sums {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const word* a, const word* b) noexcept {
        return mod.add(load(mod, a + k), load(mod, b + k));
    }
};
struct subtract : with_sums {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const word* a, const word* b) noexcept {
        return mod.subtract(load(mod, a + k), load(mod, b + k));
    }
};
struct add_constant : with_sums {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const word* a, word c) noexcept {
        return mod.add(load(mod, a + k), mod.spread(c));
    }
};
struct add_small : with_sums {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const word* a,
                                  const std::int8_t* small) noexcept {
        return mod.add_small(load(mod, a + k), small + k);
    }
};
struct set_small : with_sums {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const std::int8_t* small) noexcept {
        return mod.add_small(mod.spread(0), small + k);
    }
};
struct multiply : with_products {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const word* a, const word* b) noexcept {
        return mod.multiply(load_operand(mod, a + k), load_operand(mod, b + k));
    }
};
struct multiply_add : with_products {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const word* a, const word* b,
                                  const word* c) noexcept {
        if constexpr (std::same_as<decltype(load(mod, a)), arith::scalar::words>) {
            auto s = mod.zero();
            mod.add_product(s, load(mod, a + k), load(mod, b + k), load(mod, c + k));
            return mod.reduce(s);
        } else {
            return mod.add(mod.multiply(load_operand(mod, a + k), load_operand(mod, b + k)),
                           load(mod, c + k));
        }
    }
};
struct subtract_product : with_products {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const word* a, const word* b,
                                  const word* c) noexcept {
        return mod.subtract(load(mod, c + k),
                            mod.multiply(load_operand(mod, a + k), load_operand(mod, b + k)));
    }
};
struct scale : with_factors {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const word* a, auto w) noexcept {
        return mod.scale(load(mod, a + k), mod.prepare(w));
    }
};
struct scale_difference : with_factors {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const word* a, const word* b,
                                  auto w) noexcept {
        return mod.scale_difference(load(mod, a + k), load(mod, b + k), mod.prepare(w));
    }
};
struct scale_shifted : with_factors {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const word* a, word shift,
                                  auto w) noexcept {
        return mod.scale_difference(load(mod, a + k), mod.spread(shift), mod.prepare(w));
    }
};
struct round_reals : with_reduction {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const double* reals) noexcept {
        return mod.round(reals + k);
    }
};
struct reduce_shifted : with_reduction {
    static TENSAFE_INLINE auto at(const auto& mod, std::size_t k, const word* a, word shift) noexcept {
        return mod.reduce(load(mod, a + k), mod.spread(shift));
    }
};

using one_by_one = lanes_of<simd::scalar>;

/// Sets out[k] = Step::at(k), for whole vectors from number k on. Returns the number behind them.
template <class Step, class Arithmetic, class Policy, class... Args>
TENSAFE_INLINE std::size_t apply_from(std::size_t k, Policy p, std::span<word> out, Args... args) noexcept {
    constexpr std::size_t width = Arithmetic::words::width;
    const auto mod = arithmetic_for<Arithmetic>(p);
    for (; k + width <= out.size(); k += width) {
        Step::at(mod, k, args...).store(&out[k]);
    }
    return k;
}
template <class Target, class Step, class M, class Policy, class... Args>
TENSAFE_INLINE void apply(Policy p, std::span<word> out, Args... args) noexcept {
    using vectors = typename Step::template arithmetic<lanes_of<Target>, M>;
    std::size_t k = 0;
    if constexpr (vectors::words::width > 1) {
        k = apply_from<Step, vectors>(k, p, out, args...);
    }
    apply_from<Step, typename Step::template arithmetic<one_by_one, M>>(k, p, out, args...);
}

/// Whether a and b hold, computed without a branch.
TENSAFE_INLINE bool both(bool a, bool b) noexcept {
    return (static_cast<unsigned>(a) & static_cast<unsigned>(b)) != 0;
}
template <class Check>
TENSAFE_INLINE bool all_below_from(std::size_t& k, word q, std::span<const word> a) noexcept {
    // Two, so that one comparison does not wait for the other.
    Check check(q);
    Check other(q);
    constexpr std::size_t width = Check::words::width;
    for (; k + 2 * width <= a.size(); k += 2 * width) {
        check.take(load(check, &a[k]));
        other.take(load(other, &a[k + width]));
    }
    for (; k + width <= a.size(); k += width) {
        check.take(load(check, &a[k]));
    }
    return both(check.holds(), other.holds());
}
template <class Target>
TENSAFE_INLINE bool all_below(word q, std::span<const word> a) noexcept {
    std::size_t k = 0;
    bool holds = true;
    if constexpr (lanes_of<Target>::bound_check::words::width > 1) {
        holds = all_below_from<typename lanes_of<Target>::bound_check>(k, q, a);
    }
    return both(holds, all_below_from<one_by_one::bound_check>(k, q, a));
}

}  // namespace tensafe::rns::limb::detail
