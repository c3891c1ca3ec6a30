
#include "messages_checks.hpp"

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
