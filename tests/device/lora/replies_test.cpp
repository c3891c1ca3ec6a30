#include "decrypt_checks.hpp"
#include "messages_checks.hpp"
#include "rerandomize_checks.hpp"
#include "slots_checks.hpp"

using namespace tests;

TEST_CASE("kernels pack and unpack residues as the host does and report those that are too large") {
    in_every_order([](const auto& where) { message_checks::checksum_bits(where); });
}

TEST_CASE("a whole stack takes one launch, an empty one none") {
    using basis = ckks::minimal_n2048::basis;
    std::size_t launches = 0;
    const host_blocks where(thread_order::forward, &launches);
    std::vector<arith::word> words(basis::degree);
    std::vector<std::uint8_t> bytes(device::residue_bytes<basis>);
    device::pack<basis>(where, words.data(), 1, bytes.data());
    CHECK(launches == 1);
    device::pack<basis>(where, words.data(), 0, bytes.data());
    device::unpack<basis>(where, bytes.data(), 0, words.data(), nullptr, 1);
    CHECK(launches == 1);
}

TEST_CASE("replies that kernels re-randomize and pack are the host's, byte for byte") {
    in_every_order([](const auto& where) {
        rerandomize_checks::check_private(where);
        rerandomize_checks::check_shapes(where);
    });
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

TEST_CASE("a classic token of two clients gives the host's requests, replies and answers") {
    // Pairs of rows, one input; and more entries than slots, two inputs.
    slot_token_checks::check_tokens<ckks::n8192_l4>(host_blocks(thread_order::shuffled), 5, 1000);
    slot_token_checks::check_tokens<ckks::n8192_l4>(host_blocks(thread_order::reverse), 3, 5000);
}
