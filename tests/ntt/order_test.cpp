#include <tensafe/ntt/order.hpp>

#include "../test.hpp"

namespace {

using tensafe::ntt::bit_reverse;

TEST_CASE("bit reversal writes the bits of an index backwards") {
    CHECK(bit_reverse(0b0001, 4) == 0b1000);
    CHECK(bit_reverse(0b0110, 4) == 0b0110);
    CHECK(bit_reverse(0b1011, 4) == 0b1101);
    CHECK(bit_reverse(0b10110, 5) == 0b01101);
    CHECK(bit_reverse(1, 17) == std::size_t{1} << 16);
    CHECK(bit_reverse(0, 0) == 0);
    static_assert(bit_reverse(1, 3) == 4);
}

TEST_CASE("bit reversal is a permutation that undoes itself") {
    for (int bits = 0; bits <= 10; ++bits) {
        const std::size_t size = std::size_t{1} << bits;
        std::vector<bool> seen(size);
        for (std::size_t i = 0; i < size; ++i) {
            const std::size_t reversed = bit_reverse(i, bits);
            REQUIRE(reversed < size);
            CHECK_FALSE(seen[reversed]);
            seen[reversed] = true;
            CHECK(bit_reverse(reversed, bits) == i);
        }
    }
}

}  // namespace
