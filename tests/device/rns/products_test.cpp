
#include "products_checks.hpp"

using namespace tests;

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
