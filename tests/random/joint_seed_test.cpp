#include <tensafe/random/chacha20.hpp>

#include "../test.hpp"
#include "stream_reference.hpp"

namespace {

using namespace tensafe::random;
using namespace tensafe::testing;

}  // namespace

TEST_CASE("the joint seed is that of the page") {
    CHECK(static_cast<int>(stream_domain::joint_nonce) == 8);
    CHECK(to_hex(joint_seed(counting_seed(0x00), counting_seed(0x20)).bytes) ==
          "9530a456cdf5e0715914fa131f7052d9a1b4a8bb719081a9ec1cf80987e7acad");
}

TEST_CASE("the joint seed is the XOR of the two lanes, byte by byte") {
    for (const std::uint8_t number : {std::uint8_t{1}, std::uint8_t{77}, std::uint8_t{200}}) {
        const seed client = counting_seed(number);
        const seed server = counting_seed(static_cast<std::uint8_t>(number + 13));
        const seed joint = joint_seed(client, server);
        for (std::size_t i = 0; i < joint.bytes.size(); ++i) {
            CHECK(joint.bytes[i] == (stream_byte(client, stream_domain::joint_nonce, 0, 0, i) ^
                                     stream_byte(server, stream_domain::joint_nonce, 1, 0, i)));
        }
    }
}

TEST_CASE("every bit of either nonce changes the joint seed") {
    const seed client = counting_seed(3);
    const seed server = counting_seed(90);
    const seed joint = joint_seed(client, server);
    for (std::size_t bit = 0; bit < 256; ++bit) {
        const auto flipped = [&](seed nonce) {
            nonce.bytes[bit / 8] = static_cast<std::uint8_t>(nonce.bytes[bit / 8] ^ (1U << (bit % 8)));
            return nonce;
        };
        CAPTURE(bit);
        CHECK(!(joint_seed(flipped(client), server) == joint));
        CHECK(!(joint_seed(client, flipped(server)) == joint));
    }
}

TEST_CASE("equal nonces do not cancel, and exchanging the parties gives another seed") {
    const seed one = counting_seed(5);
    const seed other = counting_seed(6);
    CHECK(!(joint_seed(one, one) == seed{}));
    CHECK(!(joint_seed(one, one) == joint_seed(other, other)));
    CHECK(!(joint_seed(one, other) == joint_seed(other, one)));
}
