#include <tensafe/device/exec/host_blocks.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <cstddef>

#include "pointwise_checks.hpp"

namespace {

using tensafe::exec::host_blocks;
using tensafe::exec::thread_order;
namespace rns = tensafe::rns;

template <class A, class B>
concept can_multiply = requires(host_blocks where, A& a, const B& b) {
    rns::multiply(where, a, b);
};
template <class A, class B>
concept can_add = requires(host_blocks where, A& a, const B& b) {
    rns::add(where, a, b);
};

}  // namespace

TEST_CASE("operations on stacks give the words of those on polynomials") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        const host_blocks where(order);
        tests::check_stack_operations<tests::long_basis>(where);
        tests::check_stack_operations<tests::short_basis>(where);
    }
}

TEST_CASE("operands are shared and come again as their view says") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        tests::check_views<tests::long_basis>(host_blocks(order));
        tests::check_views<tests::short_basis>(host_blocks(order));
    }
}

TEST_CASE("stacks that do not go together are refused") {
    tests::check_stack_shapes(host_blocks());
}

TEST_CASE("an operation on a stack is one launch") {
    std::size_t launches = 0;
    const host_blocks where(thread_order::forward, &launches);
    rns::poly_stack<tests::long_basis, rns::evaluation_form, host_blocks::space> stack(5);
    rns::multiply(where, stack, stack);
    CHECK(launches == 1);
}

TEST_CASE("stacks of different forms or chains do not mix") {
    using space = host_blocks::space;
    using values = rns::poly_stack<tests::short_basis, rns::evaluation_form, space>;
    using coefficients = rns::poly_stack<tests::short_basis, rns::coefficient_form, space>;
    using fewer = rns::poly_stack<rns::prefix<tests::short_basis, 1>, rns::evaluation_form, space>;
    CHECK(can_multiply<values, values>);
    CHECK(!can_multiply<values, coefficients>);
    CHECK(!can_multiply<coefficients, coefficients>);
    CHECK(!can_multiply<values, fewer>);
    CHECK(can_add<coefficients, coefficients>);
    CHECK(!can_add<values, coefficients>);
    CHECK(!can_add<values, fewer>);
}
