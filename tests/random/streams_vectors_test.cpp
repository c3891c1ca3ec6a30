#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/samplers.hpp>

#include "../backends.hpp"
#include "../test.hpp"
#include "stream_reference.hpp"

// The vectors of docs/design/random-streams.md. They are the format: whoever changes one breaks stored and
// sent data.

namespace {

using namespace tensafe::random;
using namespace tensafe::testing;

constexpr std::size_t count = 4096;

std::string block(std::uint32_t round, std::uint64_t number) {
    std::array<std::uint8_t, 64> out{};
    chacha20_stream(counting_seed(), stream_domain::uplink, 5, round).generate(number, out);
    return to_hex(out);
}

void check_uniform(stream_domain domain, std::uint32_t lane, std::uint64_t q,
                   const std::array<std::uint64_t, 4>& first, std::uint64_t last,
                   std::uint64_t digest_of_all) {
    CAPTURE(q);
    std::vector<std::uint64_t> out(count);
    sample_uniform(counting_seed(), domain, lane, q, out);
    for (std::size_t i = 0; i < first.size(); ++i) {
        CHECK(out[i] == first[i]);
    }
    CHECK(out.back() == last);
    CHECK(digest(out) == digest_of_all);
}

}  // namespace

TEST_CASE("the numbers of the stream domains are those of the page") {
    CHECK(static_cast<int>(stream_domain::public_key) == 1);
    CHECK(static_cast<int>(stream_domain::uplink) == 2);
    CHECK(static_cast<int>(stream_domain::secret_key) == 3);
    CHECK(static_cast<int>(stream_domain::error) == 4);
    CHECK(static_cast<int>(stream_domain::zero) == 5);
    CHECK(static_cast<int>(stream_domain::flood) == 6);
    CHECK(static_cast<int>(stream_domain::derive) == 7);
}

BACKEND_TEST_CASE("the stream's blocks are those of the page") {
    CHECK(block(0, 0) ==
          "f2f03ec0a099aeec554ca740d082a9e728440ab75851a6f3fa6def54f511f5e1"
          "515773d36747ecc3de379ed8a3d2389971be5ca060e5800469479c33a161d013");
    CHECK(block(1, 3) ==
          "291def055222b8f8606b14478eb6bd059a329411cf71cc8acbcf0381c370b678"
          "00241b9c1a5719c18c10c5a73427e17d75a6ca69e3a8bfe4705a0223aedf3de2");
    CHECK(block(0, chacha20_stream_blocks - 1) ==
          "e618901ecf5b90e4073ff00204f108a7588f1b556db8c653735eee639260d5fd"
          "6876caf6c6e9a80149a17b9c64cd600fd724aab431211302215d9d3058a0082a");
}

BACKEND_TEST_CASE("uniform coefficients are those of the page") {
    check_uniform(stream_domain::uplink, 0, (std::uint64_t{1} << 40) - 1572863,
                  {215286878248, 932981524467, 59453700730, 1080417714532}, 427265870878, 0x056fc4bf135ece64);
    check_uniform(stream_domain::uplink, 1, (std::uint64_t{1} << 60) - 98303,
                  {170747362038606699, 852474899769038267, 831833715577128503, 1022832700170854978},
                  11831958394646507, 0x76e6fb7c6a97dc86);
    check_uniform(stream_domain::uplink, 2, (std::uint64_t{1} << 39) + 23,
                  {264309167260, 236802767418, 330340355591, 474467630443}, 301132566445, 0x52598a5910135a1f);
    check_uniform(stream_domain::public_key, 3, 12289, {1262, 6374, 8924, 10591}, 3891, 0xeca145a1405e075d);
    check_uniform(stream_domain::public_key, 4, ~std::uint64_t{0} - 58,
                  {5889288020324685746U, 7088882865257478177U, 10051960471748029221U, 16863261218850516813U},
                  17490436649534306478U, 0x46b6ebe9b63012df);
}

BACKEND_TEST_CASE("errors are those of the page") {
    std::vector<std::int8_t> out(count);
    sample_error(counting_seed(), stream_domain::error, 0, out);
    using values = std::vector<std::int8_t>;
    CHECK(values(out.begin(), out.begin() + 16) ==
          values{-3, 0, 0, 1, 8, 2, 2, -3, 4, 2, -1, 4, -5, 2, 9, 6});
    CHECK(values(out.begin() + 64, out.begin() + 72) == values{1, -7, -2, 2, -2, -1, -3, -2});
    CHECK(values(out.end() - 4, out.end()) == values{-4, -1, 1, 3});
    CHECK(digest(out) == 0xa4f8047b3349c431U);
}

BACKEND_TEST_CASE("ternary coefficients are those of the page") {
    std::vector<std::int8_t> out(count);
    sample_ternary(counting_seed(), stream_domain::secret_key, 0, out);
    using values = std::vector<std::int8_t>;
    CHECK(values(out.begin(), out.begin() + 16) == values{1, 1, 1, 1, 0, 1, 1, 0, -1, 0, 0, 1, 1, -1, 1, -1});
    CHECK(values(out.end() - 4, out.end()) == values{-1, 0, 1, 0});
    CHECK(digest(out) == 0x52abef90ee5723abU);
}

BACKEND_TEST_CASE("derived seeds are those of the page") {
    generator source(counting_seed());
    CHECK(to_hex(source.next_seed().bytes) ==
          "a48c5a127ba7fc7157cf14ab3204138ed7c98fbc53977830fabb3d61fc0bf198");
    CHECK(to_hex(source.next_seed().bytes) ==
          "081e96ed8276bdba95d39d3ca21fedb214001b4b2567acadffbbff3c33edea77");
    CHECK(to_hex(source.next_seed().bytes) ==
          "9788133fdeb67b6a67a2c1ff539d50c645e694624b4e02e01ec4e3295a762f12");
}
