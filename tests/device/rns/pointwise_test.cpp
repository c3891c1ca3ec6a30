
#include <doctest/doctest.h>

#include "pointwise_checks.hpp"

using namespace tests;

namespace {

template <class A, class B>
concept can_multiply = requires(host_blocks where, A& a, const B& b) {
    device::multiply(where, a, b);
};
template <class A, class B>
concept can_add = requires(host_blocks where, A& a, const B& b) {
    device::add(where, a, b);
};

}  // namespace

TEST_CASE("operations on stacks give the words of those on polynomials") {
    in_every_order([&](const auto& where) {
        check_stack_operations<long_basis>(where);
        check_stack_operations<short_basis>(where);
    });
}

TEST_CASE("operands are shared and come again as their view says") {
    in_every_order([](const auto& where) {
        check_views<long_basis>(where);
        check_views<short_basis>(where);
    });
}

TEST_CASE("stacks that do not go together are refused") {
    check_stack_shapes(host_blocks());
}

TEST_CASE("an operation on a stack is one launch") {
    std::size_t launches = 0;
    const host_blocks where(thread_order::forward, &launches);
    device::poly_stack<long_basis, rns::evaluation_form, host_blocks::space> stack(5);
    device::multiply(where, stack, stack);
    CHECK(launches == 1);
}

TEST_CASE("stacks of different forms or chains do not mix") {
    using space = host_blocks::space;
    using values = device::poly_stack<short_basis, rns::evaluation_form, space>;
    using coefficients = device::poly_stack<short_basis, rns::coefficient_form, space>;
    using fewer = device::poly_stack<rns::prefix<short_basis, 1>, rns::evaluation_form, space>;
    CHECK(can_multiply<values, values>);
    CHECK(!can_multiply<values, coefficients>);
    CHECK(!can_multiply<coefficients, coefficients>);
    CHECK(!can_multiply<values, fewer>);
    CHECK(can_add<coefficients, coefficients>);
    CHECK(!can_add<values, coefficients>);
    CHECK(!can_add<values, fewer>);
}
