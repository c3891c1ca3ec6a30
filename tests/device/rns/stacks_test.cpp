#include <tensafe/ckks/parameters.hpp>

#include "../../test.hpp"
#include "crt_checks.hpp"
#include "products_checks.hpp"
#include "rescale_checks.hpp"
#include "switch_checks.hpp"

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

TEST_CASE("products of a batch are the sums of their terms, whatever the order of threads") {
    in_every_order([](const auto& where) { product_checks::check_products(where); });
}

TEST_CASE("products without terms or with a strange number of sums are refused") {
    product_checks::check_refusals(host_blocks());
}

TEST_CASE("sums of c0 are as coarse as a busy device allows, and as fine as asked for") {
    using basis = ckks::private_n4096::basis;
    CHECK(device::product_sums<basis>(1, 8, 4) == 128);
    CHECK(device::product_sums<basis>(64, 8, 4) == 32);
    CHECK(device::product_sums<basis>(512, 8, 4) == 16);
    CHECK(device::product_sums<basis>(512, 8, 64) == 64);
    CHECK(device::product_sums<basis>(1, 1, 4096) == 4096);
}

TEST_CASE("all products take one launch") {
    std::size_t launches = 0;
    product_checks::check_shape<product_checks::mixed>(host_blocks(thread_order::forward, &launches),
                                                       {3, 2, 5, 2, true, true});
    CHECK(launches == 1);
}

TEST_CASE("rescaling stacks gives the words of rns::rescale") {
    in_every_order([&](const auto& where) {
        check_rescale<ckks::private_n4096::basis>(where);
        check_rescale_at_ties<ckks::private_n4096::basis>(where);
    });
}

TEST_CASE("the dropped prime may be the larger one") {
    const host_blocks where(thread_order::shuffled);
    check_rescale<ckks::n8192_l4::basis>(where);
    check_rescale_at_ties<ckks::n8192_l4::basis>(where);
}

TEST_CASE("the device form of the CRT gives the bits of rns::to_double") {
    in_every_order([&](const auto& where) {
        check_crt<ckks::n16384_l4::basis>(where);
        check_crt<ckks::private_n4096::basis>(where);
        check_crt<ckks::minimal_n2048::basis>(where);
        check_crt<uneven_basis>(where);
    });
}

TEST_CASE("a kernel switches a coefficient to a power of two as the host does") {
    in_every_order([](const auto& where) { switch_checks::check_switch(where); });
}
