#include <tensafe/device/exec/host_blocks.hpp>

#include "bits_checks.hpp"

using tensafe::exec::host_blocks;
using tensafe::exec::thread_order;

TEST_CASE("blocks pack and unpack residues as the host does and report those that are too large") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        block_bits_checks::checksum_bits(host_blocks(order));
    }
}

TEST_CASE("a whole stack takes one launch, an empty one none") {
    using basis = tensafe::ckks::minimal_n2048::basis;
    std::size_t launches = 0;
    const host_blocks where(thread_order::forward, &launches);
    std::vector<tensafe::arith::word> words(basis::degree);
    std::vector<std::uint8_t> bytes(tensafe::wire::residue_bytes<basis>);
    tensafe::wire::pack_blocks<basis>(where, words.data(), 1, bytes.data());
    CHECK(launches == 1);
    tensafe::wire::pack_blocks<basis>(where, words.data(), 0, bytes.data());
    tensafe::wire::unpack_blocks<basis>(where, bytes.data(), 0, words.data(), nullptr, 1);
    CHECK(launches == 1);
}
