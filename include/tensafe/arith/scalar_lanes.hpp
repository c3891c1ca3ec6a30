#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/simd/lanes.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Arithmetic of one residue at a time, with the members that x86/ gives to vectors of them: for bodies whose
/// target has no vectors for a modulus, and for what is behind their last whole vector.
namespace tensafe::arith::scalar {

using words = simd::lanes<word, 1>;

/// Products of residues that can be added up, with one more residue, before `reduce_fully`: their sum stays
/// below 2^(63 + least_bits).
template <arith::modulus M>
inline constexpr std::size_t lazy_terms = (std::size_t{1} << std::min(63 + M::least_bits - 2 * M::bits, 20)) -
                                          1;

/// Sums and differences of residues modulo q.
class sums {
  public:
    using words = scalar::words;

    explicit sums(word q) noexcept : q_(q) {}

    TENSAFE_INLINE words add(const words& a, const words& b) const noexcept {
        return {subtract_if_not_below(a.v + b.v, q_)};
    }
    TENSAFE_INLINE words subtract(const words& a, const words& b) const noexcept {
        return {subtract_if_not_below(a.v + q_ - b.v, q_)};
    }
    /// A signed byte of magnitude below q, added to a residue.
    TENSAFE_INLINE words add_small(const words& a, const std::int8_t* small) const noexcept {
        const auto x = static_cast<std::int64_t>(*small);
        const word lifted = static_cast<word>(x) + (q_ & static_cast<word>(x >> 63));
        return {subtract_if_not_below(a.v + lifted, q_)};
    }
    static TENSAFE_INLINE words spread(word x) noexcept { return {x}; }

  private:
    word q_;
};

/// Whether all words are below q.
class bound_check {
  public:
    using words = scalar::words;

    explicit bound_check(word q) noexcept : q_(q) {}

    TENSAFE_INLINE void take(const words& x) noexcept { below_ &= x.v < q_; }
    TENSAFE_INLINE bool holds() const noexcept { return below_; }

  private:
    word q_;
    bool below_ = true;
};

/// Products of residues.
template <arith::modulus M>
class products : public sums {
  public:
    using operand = words;
    using sum = uint128;
    /// The number of products that add up, with one residue; one product less if each comes with a residue.
    static constexpr std::size_t terms = lazy_terms<M>;
    /// The number of products, each with one residue, whose sum with one more residue stays below 2^128.
    static constexpr std::size_t any_terms = std::size_t{1} << std::min(2 * (64 - M::bits) - 1, 20);

    explicit products(barrett<M> p) noexcept : sums(p.modulus().value()), p_(p) {}

    static TENSAFE_INLINE const operand& as_operand(const words& x) noexcept { return x; }
    TENSAFE_INLINE words multiply(const words& a, const words& b) const noexcept {
        return words{p_.reduce_fully(mul_wide(a.v, b.v))};
    }

    static TENSAFE_INLINE sum zero() noexcept { return 0; }
    /// Adds a * b to s, and a residue if one is given.
    static TENSAFE_INLINE void add_product(sum& s, const words& a, const words& b,
                                           const auto&... residue) noexcept {
        s += (mul_wide(a.v, b.v) + ... + residue.v);
    }
    static TENSAFE_INLINE void add_residue(sum& s, const words& a) noexcept { s += a.v; }
    /// Reduces s to one residue in [0, q).
    TENSAFE_INLINE void normalize(sum& s) const noexcept { s = p_.reduce_fully(s); }
    /// The sum modulo q, in [0, q).
    TENSAFE_INLINE words reduce(const sum& s) const noexcept { return words{p_.reduce_fully(s)}; }
    TENSAFE_INLINE word reduce_any(const sum& s) const noexcept { return p_.reduce_any(s); }

  private:
    barrett<M> p_;
};

/// Products with fixed factors, and other numbers modulo q.
template <arith::modulus M>
class factors : public sums {
  public:
    using factor = typename shoup<M>::factor;

    explicit factors(shoup<M> p) noexcept
        : sums(p.modulus().value()),
          p_(p),
          one_(p.prepare(1)),
          power_(p.prepare((word{1} << 50) % p.modulus().value())) {}

    static TENSAFE_INLINE const factor& prepare(const factor& w) noexcept { return w; }
    TENSAFE_INLINE words scale(const words& x, const factor& w) const noexcept {
        return words{arith::reduce<1>(p_.modulus(), p_.multiply_word(x.v, w)).value};
    }
    /// (a - b) * w modulo q, in [0, q).
    TENSAFE_INLINE words scale_difference(const words& a, const words& b, const factor& w) const noexcept {
        const below<2, M> difference{a.v + p_.modulus().value() - b.v};
        return words{arith::reduce<1>(p_.modulus(), p_.multiply(difference, w)).value};
    }

    /// A double of magnitude below 2^112, rounded to an integer with ties away from zero, modulo q.
    TENSAFE_INLINE words round(const double* from) const noexcept {
        const word q = p_.modulus().value();
        const double magnitude = std::fabs(*from);
        const auto high = static_cast<std::int64_t>(magnitude * 0x1p-50);
        // The double below 1/2: with 1/2 itself, the double below 1/2 would be rounded up to 1.
        const auto low =
            static_cast<std::int64_t>(magnitude - static_cast<double>(high) * 0x1p50 + 0x1.fffffffffffffp-2);
        const auto high_part = p_.multiply_word(static_cast<word>(high), power_);
        const auto low_part = p_.reduce_word(static_cast<word>(low), one_);
        const word r = arith::reduce<1>(p_.modulus(), high_part + low_part).value;
        const word negative = word{0} - static_cast<word>(std::signbit(*from));
        return words{subtract_if_not_below((r ^ negative) - negative + (q & negative), q)};
    }
    /// Returns x - shift modulo q, in [0, q), for any word and shift in [0, q).
    TENSAFE_INLINE words reduce(const words& x, const words& shift) const noexcept {
        return subtract(words{arith::reduce<1>(p_.modulus(), p_.reduce_word(x.v, one_)).value}, shift);
    }

  private:
    shoup<M> p_;
    factor one_;
    factor power_;
};

}  // namespace tensafe::arith::scalar

namespace tensafe::arith {

/// The arithmetic of a target: classes of vectors modulo q, for what is done with them. Without a better one,
/// one residue at a time.
template <class Target>
struct lanes_of {
    using sums = scalar::sums;
    using bound_check = scalar::bound_check;
    template <arith::modulus M>
    using products = scalar::products<M>;
    template <arith::modulus M>
    using factors = scalar::factors<M>;
    template <arith::modulus M>
    using reduction = scalar::factors<M>;
};

/// The arithmetic of a target for the modulus of a policy, or for a modulus.
template <class Arithmetic, class Policy>
TENSAFE_INLINE Arithmetic arithmetic_for(const Policy& p) noexcept {
    if constexpr (arith::modulus<Policy>) {
        return Arithmetic(p.value());
    } else if constexpr (std::is_constructible_v<Arithmetic, Policy>) {
        return Arithmetic(p);
    } else if constexpr (std::is_constructible_v<Arithmetic, typename Policy::modulus_type>) {
        return Arithmetic(p.modulus());
    } else {
        return Arithmetic(p.modulus().value());
    }
}
/// As many residues as the arithmetic works on together.
template <class Arithmetic>
TENSAFE_INLINE auto load(const Arithmetic&, const word* from) noexcept {
    return Arithmetic::words::load(from);
}
/// The same, as operands of products.
template <class Arithmetic>
TENSAFE_INLINE typename Arithmetic::operand load_operand(const Arithmetic& mod, const word* from) noexcept {
    return mod.as_operand(load(mod, from));
}

}  // namespace tensafe::arith
