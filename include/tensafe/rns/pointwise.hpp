#pragma once

#include <tensafe/rns/limb.hpp>
#include <tensafe/rns/poly.hpp>

#include <algorithm>

namespace tensafe::rns {

// Operations entry by entry, on host memory. Sums and differences work in either form, products in evaluation
// form only. All are noexcept, without allocation (level_reduce aside), O(limbs * N).

/// Adds polynomials: a += b.
template <class Basis, class Form, class Space, class R, class S>
void add(poly<Basis, Form, Space, R>& a, const poly<Basis, Form, Space, S>& b) noexcept {
    for_each_limb<Basis>([&]<int I>() {
        const auto m = modulus_of<Basis::template prime<I>>(Basis::template prime<I>);
        limb::add(m, a.template limb<I>(), a.template limb<I>(), b.template limb<I>());
    });
}

/// Subtracts polynomials: a -= b.
template <class Basis, class Form, class Space, class R, class S>
void subtract(poly<Basis, Form, Space, R>& a, const poly<Basis, Form, Space, S>& b) noexcept {
    for_each_limb<Basis>([&]<int I>() {
        const auto m = modulus_of<Basis::template prime<I>>(Basis::template prime<I>);
        limb::subtract(m, a.template limb<I>(), a.template limb<I>(), b.template limb<I>());
    });
}

/// Multiplies polynomials: out = a * b; `out` may be one of the factors.
template <class Basis, class Space, class R, class S, class T>
void multiply(poly<Basis, evaluation_form, Space, R>& out, const poly<Basis, evaluation_form, Space, S>& a,
              const poly<Basis, evaluation_form, Space, T>& b) noexcept {
    for_each_limb<Basis>([&]<int I>() {
        limb::multiply(variable_arithmetic<Basis::template prime<I>>, out.template limb<I>(),
                       a.template limb<I>(), b.template limb<I>());
    });
}
template <class Basis, class E, class F, class G, class Space, class R, class S, class T>
void multiply(poly<Basis, E, Space, R>& out, const poly<Basis, F, Space, S>& a,
              const poly<Basis, G, Space, T>& b) =
    delete;  // products need evaluation form: call forward() first

/// Adds a product of polynomials: accumulator += a * b.
template <class Basis, class Space, class R, class S, class T>
void multiply_accumulate(poly<Basis, evaluation_form, Space, R>& accumulator,
                         const poly<Basis, evaluation_form, Space, S>& a,
                         const poly<Basis, evaluation_form, Space, T>& b) noexcept {
    for_each_limb<Basis>([&]<int I>() {
        limb::multiply_add(variable_arithmetic<Basis::template prime<I>>, accumulator.template limb<I>(),
                           a.template limb<I>(), b.template limb<I>(), accumulator.template limb<I>());
    });
}

/// Copies the first limbs: the same polynomial modulo a divisor of Q.
template <int Limbs, class Basis, class Form, class Space, class R>
poly<prefix<Basis, Limbs>, Form, Space, R> level_reduce(const poly<Basis, Form, Space, R>& p) {
    static_assert(Limbs >= 1, "rns::level_reduce: at least one limb must stay");
    poly<prefix<Basis, Limbs>, Form, Space, R> result(memory::uninitialized);
    for_each_limb<prefix<Basis, Limbs>>([&]<int I>() {
        std::copy_n(p.template limb<I>().data(), Basis::degree, result.template limb<I>().data());
    });
    return result;
}

}  // namespace tensafe::rns
