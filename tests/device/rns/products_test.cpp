#include <tensafe/device/exec/host_blocks.hpp>

#include "products_checks.hpp"

using tensafe::exec::host_blocks;
using tensafe::exec::thread_order;

TEST_CASE("products of a batch are the sums of their terms, whatever the order of threads") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        block_products_checks::check_products(host_blocks(order));
    }
}

TEST_CASE("products without terms or with a strange number of blocks are refused") {
    block_products_checks::check_refusals(host_blocks());
}

TEST_CASE("sums of c0 are as coarse as a busy device allows, and as fine as asked for") {
    using basis = tensafe::ckks::private_n4096::basis;
    CHECK(tensafe::rns::product_blocks<basis>(1, 8, 4) == 128);
    CHECK(tensafe::rns::product_blocks<basis>(64, 8, 4) == 32);
    CHECK(tensafe::rns::product_blocks<basis>(512, 8, 4) == 16);
    CHECK(tensafe::rns::product_blocks<basis>(512, 8, 64) == 64);
    CHECK(tensafe::rns::product_blocks<basis>(1, 1, 4096) == 4096);
}

TEST_CASE("all products take one launch") {
    std::size_t launches = 0;
    block_products_checks::check_shape<block_products_checks::mixed>(
        host_blocks(thread_order::forward, &launches), {3, 2, 5, 2, true, true});
    CHECK(launches == 1);
}
