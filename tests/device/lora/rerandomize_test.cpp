
#include "rerandomize_checks.hpp"

using namespace tests;

namespace {
constexpr thread_order orders[] = {thread_order::forward, thread_order::reverse, thread_order::shuffled};
}

TEST_CASE("replies that kernels re-randomize and pack are the host's, byte for byte") {
    for (const auto order : orders) {
        rerandomize_checks::check_private(host_blocks(order));
        rerandomize_checks::check_shapes(host_blocks(order));
    }
}

TEST_CASE("hiding refuses empty batches, narrow strides and wide traces") {
    rerandomize_checks::check_refusals(host_blocks());
}

TEST_CASE("small integers load as residues") {
    using basis = ckks::minimal_n2048::basis;
    constexpr auto q = basis::prime<0>;
    std::vector<std::int8_t> values(2 * basis::degree);
    values[basis::degree + 6] = -1;
    values[basis::degree + 7] = 21;
    const device::load_small<basis> load{values.data()};
    CHECK(load.pair<0>(1, 6).first == q - 1);
    CHECK(load.pair<0>(1, 6).second == 21);
    CHECK(load.pair<0>(0, 6).first == 0);
}
