#pragma once

#include <tensafe/arith/below.hpp>

#include <concepts>

namespace tensafe::arith {

/// A way to multiply residues by fixed operands modulo one prime: what an NTT needs of its arithmetic.
///
/// `prepare(w)` turns w in [0, q) into a `factor`; `multiply(x, factor)` returns x*w mod q below
/// `product_bound * q` for every x below `max_multiple * q`. `from_word` and `to_word` convert between stored
/// words in [0, q) and the policy's representation. All members are constexpr and noexcept, on device too.
template <class P>
concept modular_policy = requires(const P p, word w, typename P::factor f,
                                  below<1, typename P::modulus_type, typename P::representation> x,
                                  typename P::representation r) {
    requires modulus<typename P::modulus_type>;
    requires P::product_bound >= 1 && P::max_multiple > P::product_bound;
    { p.modulus() }
    noexcept->std::same_as<typename P::modulus_type>;
    { p.prepare(w) }
    noexcept->std::same_as<typename P::factor>;
    { p.multiply(x, f) }
    noexcept->std::same_as<below<P::product_bound, typename P::modulus_type, typename P::representation>>;
    { P::from_word(w) }
    noexcept->std::same_as<typename P::representation>;
    { P::to_word(r) }
    noexcept->std::same_as<word>;
};

/// The representation of the integer policies: stored words are used as they are.
struct word_representation {
    using representation = word;
    TENSAFE_HOST_DEVICE static constexpr word from_word(word x) noexcept { return x; }
    TENSAFE_HOST_DEVICE static constexpr word to_word(word x) noexcept { return x; }
};

}  // namespace tensafe::arith
