#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/rns/rescale.hpp>
#include <tensafe/rns/rescale.hpp>

#include "pointwise_checks.hpp"

namespace tests {

/// A stack of three against rns::rescale of each.
template <class Basis, class Where>
void check_rescale(const Where& where) {
    using shorter = rns::prefix<Basis, Basis::limbs - 1>;
    const device::rescale_plans<Basis, typename Where::space> plans(where);
    const auto p = random_polys<Basis, rns::evaluation_form>(3, 1);
    host_polys<shorter, rns::evaluation_form> expected;
    for (const auto& one : p) {
        expected.push_back(rns::rescale(one));
    }
    check_stack(where, device::rescale(where, plans, stack_of(where, p)), expected);
}

/// Remainders next to half the dropped prime, where the rounding turns: coefficients, transformed on the
/// host.
template <class Basis, class Where>
void check_rescale_at_ties(const Where& where) {
    using shorter = rns::prefix<Basis, Basis::limbs - 1>;
    constexpr word dropped = Basis::template prime<Basis::limbs - 1>;
    rns::poly<Basis, rns::coefficient_form> p;
    rns::for_each_limb<Basis>([&]<int I>() {
        constexpr word q = Basis::template prime<I>;
        const auto limb = p.template limb<I>();
        const word edges[] = {0,          1, dropped / 2 - 1, dropped / 2, dropped / 2 + 1, dropped / 2 + 2,
                              dropped - 1};
        for (std::size_t k = 0; k < limb.size(); ++k) {
            limb[k] = edges[k % 7] % q;
        }
    });
    const auto values = rns::forward(p);
    const device::rescale_plans<Basis, typename Where::space> plans(where);
    check_stack(
        where,
        device::rescale(where, plans, stack_of(where, host_polys<Basis, rns::evaluation_form>{values})),
        host_polys<shorter, rns::evaluation_form>{rns::rescale(values)});
    // 0 or 1, as half the dropped prime says.
    auto rounded = device::download(
        where,
        device::rescale(where, plans, stack_of(where, host_polys<Basis, rns::evaluation_form>{values})), 0);
    const auto coefficients = rns::inverse(rounded);
    const word turned[] = {0, 0, 0, 0, 1, 1, 1};
    bool right = true;
    rns::for_each_limb<shorter>([&]<int I>() {
        for (std::size_t k = 0; k < Basis::degree; ++k) {
            right &= coefficients.template limb<I>()[k] == turned[k % 7];
        }
    });
    CHECK(right);
}

}  // namespace tests
