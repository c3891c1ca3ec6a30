#pragma once

#include <tensafe/rns/limb.hpp>
#include <tensafe/rns/poly.hpp>

#include <algorithm>

namespace tensafe::rns {

/// Returns round(p / q_last) modulo the shorter chain, with p taken in (-Q/2, Q/2): exact rounding of every
/// coefficient. One inverse NTT of the dropped limb, one forward NTT for each that stays. Allocates.
template <class Basis, class Space, class R>
requires(Basis::limbs >= 2) poly<prefix<Basis, Basis::limbs - 1>, evaluation_form, Space, R> rescale(
    const poly<Basis, evaluation_form, Space, R>& p) {
    constexpr int last = Basis::limbs - 1;
    constexpr arith::word dropped = Basis::template prime<last>;
    using shorter = prefix<Basis, last>;
    memory::buffer<arith::word, Space, R> remainder(Basis::degree, memory::uninitialized);
    std::copy_n(p.template limb<last>().data(), Basis::degree, remainder.data());
    ntt::inverse(shared_plan<Basis::log_n, dropped>(), remainder.span());
    // Shifting by half makes the remainder centred: r + half is in [0, q_last) exactly when r is in its upper
    // half.
    constexpr arith::word half = dropped / 2;
    limb::add_constant(modulus_of<dropped>(dropped), remainder.span(), remainder.span(), half);
    poly<shorter, evaluation_form, Space, R> result(memory::uninitialized);
    for_each_limb<shorter>([&]<int I>() {
        constexpr arith::word q = Basis::template prime<I>;
        constexpr auto policy = fixed_arithmetic<q>;
        constexpr auto inverse_of_dropped = policy.prepare(arith::inverse_mod(dropped % q, q));
        const auto out = result.template limb<I>();
        limb::reduce_shifted(policy, out, remainder.span(), half % q);
        ntt::forward(shared_plan<Basis::log_n, q>(), out);
        limb::scale_difference(policy, out, p.template limb<I>(), out, inverse_of_dropped);
    });
    return result;
}
template <class Basis, class Form, class Space, class R>
requires(Basis::limbs < 2) void rescale(  // no level left: start from a longer modulus chain
    const poly<Basis, Form, Space, R>&) = delete;

}  // namespace tensafe::rns
