#pragma once

#include <tensafe/rns/poly.hpp>

#include <algorithm>
#include <cstddef>

namespace tensafe::rns {

// Operations entry by entry, in place on their first polynomial. Sums and differences work in either form,
// products in evaluation form only. All are noexcept, without allocation, O(limbs * N).

namespace detail {
/// Applies f(policy, x, y) -> word to the words of two polynomials of one chain, limb by limb.
template <class Basis, class P, class Q, class F>
void combine(P& a, const Q& b, F f) noexcept {
    for_each_limb<Basis>([&]<int I>() {
        const auto policy = variable_arithmetic<Basis::template prime<I>>;
        arith::word* x = a.template limb<I>().data();
        const arith::word* y = b.template limb<I>().data();
        for (std::size_t k = 0; k < Basis::degree; ++k) {
            x[k] = f(policy, x[k], y[k]);
        }
    });
}
}  // namespace detail

/// a += b.
template <class Basis, class Form, class Space, class R, class S>
void add(exec::host, poly<Basis, Form, Space, R>& a, const poly<Basis, Form, Space, S>& b) noexcept {
    detail::combine<Basis>(a, b, [](const auto& policy, arith::word x, arith::word y) {
        return arith::subtract_if_not_below(x + y, policy.modulus().value());
    });
}

/// a -= b.
template <class Basis, class Form, class Space, class R, class S>
void subtract(exec::host, poly<Basis, Form, Space, R>& a, const poly<Basis, Form, Space, S>& b) noexcept {
    detail::combine<Basis>(a, b, [](const auto& policy, arith::word x, arith::word y) {
        const arith::word q = policy.modulus().value();
        return arith::subtract_if_not_below(x + q - y, q);
    });
}

/// a *= b.
template <class Basis, class Space, class R, class S>
void multiply(exec::host, poly<Basis, evaluation_form, Space, R>& a,
              const poly<Basis, evaluation_form, Space, S>& b) noexcept {
    detail::combine<Basis>(a, b, [](const auto& policy, arith::word x, arith::word y) {
        return policy.reduce_fully(arith::mul_wide(x, y));
    });
}
template <class Basis, class F, class G, class Space, class R, class S>
void multiply(exec::host, poly<Basis, F, Space, R>& a, const poly<Basis, G, Space, S>& b) =
    delete;  // products need evaluation form: call forward() first

/// out = a * b.
template <class Basis, class Space, class R, class S, class T>
void multiply_into(exec::host, poly<Basis, evaluation_form, Space, R>& out,
                   const poly<Basis, evaluation_form, Space, S>& a,
                   const poly<Basis, evaluation_form, Space, T>& b) noexcept {
    for_each_limb<Basis>([&]<int I>() {
        const auto policy = variable_arithmetic<Basis::template prime<I>>;
        arith::word* to = out.template limb<I>().data();
        const arith::word* x = a.template limb<I>().data();
        const arith::word* y = b.template limb<I>().data();
        for (std::size_t k = 0; k < Basis::degree; ++k) {
            to[k] = policy.reduce_fully(arith::mul_wide(x[k], y[k]));
        }
    });
}

/// accumulator += a * b.
template <class Basis, class Space, class R, class S, class T>
void multiply_accumulate(exec::host, poly<Basis, evaluation_form, Space, R>& accumulator,
                         const poly<Basis, evaluation_form, Space, S>& a,
                         const poly<Basis, evaluation_form, Space, T>& b) noexcept {
    for_each_limb<Basis>([&]<int I>() {
        const auto policy = variable_arithmetic<Basis::template prime<I>>;
        arith::word* sum = accumulator.template limb<I>().data();
        const arith::word* x = a.template limb<I>().data();
        const arith::word* y = b.template limb<I>().data();
        for (std::size_t k = 0; k < Basis::degree; ++k) {
            sum[k] = policy.reduce_fully(arith::mul_wide(x[k], y[k]) + sum[k]);
        }
    });
}

/// Copies the first limbs: the same polynomial modulo a divisor of Q.
template <int Limbs, class Basis, class Form, class Space, class R>
poly<prefix<Basis, Limbs>, Form, Space, R> level_reduce(exec::host, const poly<Basis, Form, Space, R>& p) {
    static_assert(Limbs >= 1 && Limbs <= Basis::limbs, "rns::level_reduce: a chain can only get shorter");
    poly<prefix<Basis, Limbs>, Form, Space, R> result(memory::uninitialized);
    for_each_limb<prefix<Basis, Limbs>>([&]<int I>() {
        std::copy_n(p.template limb<I>().data(), Basis::degree, result.template limb<I>().data());
    });
    return result;
}

}  // namespace tensafe::rns
