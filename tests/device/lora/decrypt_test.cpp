
#include "decrypt_checks.hpp"

using namespace tests;

TEST_CASE("kernels decrypt replies to the host's values, bit for bit") {
    in_every_order([](const auto& where) { reply_checks::check_shapes(where); });
}

TEST_CASE("opening refuses wide traces and replies that are not aligned; no tokens take no launch") {
    std::size_t launches = 0;
    const host_blocks where(thread_order::forward, &launches);
    reply_checks::check_refusals(where);
    device::decrypt_replies<ckks::minimal_n2048>(where, nullptr, 16, nullptr, 1, 0, nullptr, nullptr, 2,
                                                 nullptr);
    CHECK(launches == 0);
}
