#include <tensafe/wire/wire.hpp>

#include "golden_message.hpp"
#include "sample_messages.hpp"
#include "wire_messages.hpp"

using namespace tests;

// Messages that an earlier writer left in tests/data/wire/v1, which no later one may change. To write them
// anew, which a new version of the format calls for and nothing else: TENSAFE_WRITE_GOLDEN=1 in the
// environment of this test.

namespace {

using namespace sample_messages;

constexpr wire::envelope sample_envelope{0x0102030405060708, 0x0A0B0C0D};

/// The id of `switching`.
constexpr std::uint64_t switching_id = 0x3b5e671217c2213f;

/// A reader that shares nothing with the library's: a bit at a time, after the tables of the page.
class page_reader {
  public:
    explicit page_reader(const bytes& message) : message_(message) {}

    std::uint64_t bits(std::size_t count) {
        std::uint64_t value = 0;
        for (std::size_t j = 0; j < count; ++j, ++at_) {
            value |= std::uint64_t{(message_[at_ / 8] >> (at_ % 8)) & 1U} << j;
        }
        return value;
    }
    std::uint32_t checksum_of(std::size_t from, std::size_t to) const {
        std::uint32_t remainder = 0xFFFFFFFF;
        for (std::size_t bit = 8 * from; bit < 8 * to; ++bit) {
            const bool one = ((message_[bit / 8] >> (bit % 8)) & 1) != 0;
            const bool top = ((remainder & 1) != 0) != one;
            remainder = (remainder >> 1) ^ (top ? 0x82F63B78U : 0U);
        }
        return ~remainder;
    }
    std::size_t byte() const { return at_ / 8; }

  private:
    const bytes& message_;
    std::size_t at_ = 0;
};

/// The header, and the level and scale with which each body begins.
void check_front(page_reader& from, const bytes& message, std::uint64_t what, std::uint64_t scale_bits,
                 std::uint64_t set = 0x95e4394a18967c8b, std::uint64_t level = 1) {
    CHECK(from.bits(32) == 0x45485354);  // TSHE
    CHECK(from.bits(8) == 1);
    CHECK(from.bits(8) == what);
    CHECK(from.bits(16) == 0);
    CHECK(from.bits(64) == set);
    CHECK(from.bits(64) == 0);
    CHECK(from.bits(64) == 0x0102030405060708);
    CHECK(from.bits(64) == message.size() - 52);
    CHECK(from.bits(32) == 0x0A0B0C0D);
    CHECK(from.bits(32) == from.checksum_of(0, 44));
    CHECK(from.bits(32) == level);
    CHECK(from.bits(64) == scale_bits);
}
/// @param widths  of the limbs, in bits
template <class Basis>
void check_part(page_reader& from, const rns::poly<Basis, rns::evaluation_form>& p,
                std::initializer_list<std::size_t> widths = {45, 44}) {
    auto left = p.words();
    bool equal = true;
    for (const std::size_t width : widths) {
        for (std::size_t k = 0; k < 1024; ++k) {
            equal &= from.bits(width) == left[k];
        }
        left = left.subspan(1024);
    }
    CHECK(equal);
    CHECK(left.empty());
}
void check_part(page_reader& from, const random::seed& seed) {
    for (const std::uint8_t byte : seed.bytes) {
        CHECK(from.bits(8) == byte);
    }
}
template <int Level>
void check_part(page_reader& from, const ckks::evaluation_key<switching, Level>& key,
                std::initializer_list<std::size_t> widths) {
    check_part(from, key.seed());
    for (std::size_t d = 0; d <= Level; ++d) {
        check_part(from, key.b(d), widths);
    }
}
void check_end(page_reader& from, const bytes& message) {
    CHECK(from.byte() == message.size() - 4);
    CHECK(from.bits(32) == from.checksum_of(48, message.size() - 4));
}
/// The front, these seeds and polynomials, and the end.
template <class... Parts>
void check_page(const bytes& message, std::uint64_t what, std::uint64_t scale_bits, const Parts&... parts) {
    page_reader from(message);
    check_front(from, message, what, scale_bits);
    (check_part(from, parts), ...);
    check_end(from, message);
}

using namespace wire_fixture;
using wire_messages::protects;
using wire_messages::tiles;
namespace lora = tensafe::lora;

template <class Protection>
const lora::packing_plan<P, tiles, Protection> plan_of_three(3, 200, 1);
const auto blocks = wire_messages::block_plan(6, 300, 32);
const auto many_blocks = wire_messages::block_plan(20, 300, 32);

/// A kept message, read, and written again with an envelope.
struct kept_message {
    const char* name;
    std::function<bytes(const bytes&, const wire::envelope&)> again;
};

template <class Plan>
kept_message kept_reply(const char* name, const Plan& plan) {
    return {name, [plan = &plan](const bytes& m, const wire::envelope& from) {
                return wire::write_reply(wire::read_reply(m, *plan), from);
            }};
}
template <class Read, class Write>
kept_message kept_block(const char* name, Read read, Write write) {
    return {name, [=](const bytes& m, const wire::envelope& from) {
                bytes to;
                write(read(m), from, to);
                return to;
            }};
}

template <class Message>
auto into(auto read) {
    return [=](const bytes& m) {
        Message result;
        read(m, result);
        return result;
    };
}
bytes layout_again(const bytes& m, const wire::envelope& from) {
    return wire::write_model_layout<P, tiles, protects>(wire::read_model_layout<P, tiles, protects>(m), from);
}

const std::vector<kept_message> all_kept = {
    {"public_key",
     [](const bytes& m, const auto& e) { return wire::write_public_key(wire::read_public_key<P>(m), e); }},
    {"zero_key",
     [](const bytes& m, const auto& e) {
         return wire::write_rerandomization_key(wire::read_rerandomization_key<P, 1>(m), e);
     }},
    {"ciphertext",
     [](const bytes& m, const auto& e) { return wire::write_ciphertext(wire::read_ciphertext<P>(m), e); }},
    {"seeded_ciphertext",
     [](const bytes& m, const auto& e) {
         return wire::write_seeded_ciphertext(wire::read_seeded_ciphertext<P>(m), e);
     }},
    {"relinearization_key",
     [](const bytes& m, const auto& e) {
         return wire::write_relinearization_key(wire::read_relinearization_key<switching>(m), e);
     }},
    {"galois_keys",
     [](const bytes& m, const auto& e) {
         return wire::write_galois_keys(
             wire::read_galois_keys<switching, 0, ckks::rotations<1>, ckks::conjugation>(m), e);
     }},
    {"request_tiles4_n1024_d200",
     [](const bytes& m, const auto& e) {
         return wire::write_request<tiles, protects>(
             wire::read_request(m, lora::packing_plan<P, tiles, protects>(6, 200, 1)), e);
     }},
    kept_reply("reply_tiles4_protected_n1024_r3_d200", plan_of_three<protects>),
    kept_reply("reply_tiles4_calibrated5_n1024_r3_d200", plan_of_three<wire_messages::narrow>),
    kept_reply("reply_tiles4_bare_n1024_r3_d200", plan_of_three<wire_messages::bare>),
    {"model_layout_client_held_b", layout_again},
    {"model_layout_blind", layout_again},
    {"held_adapter",
     [](const bytes& m, const auto& e) { return wire::write_whole_adapter(wire::read_held_adapter(m), e); }},
    kept_block(
        "block_request_n1024_d300_t32", [](const bytes& m) { return wire::read_block_request(m, blocks); },
        wire::write_block_request<P, protects>),
    kept_block(
        "block_request_part_n1024_d300_t32",
        [](const bytes& m) { return wire::read_block_request(m, many_blocks); },
        wire::write_block_request<P, protects>),
    kept_block("block_reply_n1024_r6_d300_t32",
               into<lora::block_reply>([](const bytes& m, auto& r) { wire::read_block_reply(m, blocks, r); }),
               wire::write_block_reply<P, protects>),
    kept_block("token_request_n1024_d300_t32", into<lora::token_request>([](const bytes& m, auto& r) {
                   wire::read_token_request(m, blocks, r);
               }),
               wire::write_token_request<P, protects>),
    kept_block("token_reply_n1024_r6_d300_t32", into<lora::token_reply>([](const bytes& m, auto& r) {
                   wire::read_token_reply(m, blocks, 17, r);
               }),
               wire::write_token_reply<P, protects>)};

}  // namespace

TEST_CASE(
    "a message that is cut, lengthened, changed by a bit or of another kind, set or scheme is refused") {
    for (const kept_message& one : all_kept) {
        CAPTURE(one.name);
        std::ifstream file(golden_folder() / (std::string(one.name) + ".bin"), std::ios::binary);
        const bytes good{std::istreambuf_iterator<char>(file), {}};
        // What is taken is written again as the same bytes.
        const auto read = [&](const bytes& m) {
            const bytes again = one.again(m, wire::read_header(m).envelope());
            REQUIRE(again == m);
        };
        every_truncation_is_refused(good, read);
        every_flipped_bit_is_refused(good, read);
        CHECK(read_random_bodies(good, 1, 300, read) > 0);
        for (const std::size_t at : {8U, 16U}) {
            CHECK_THROWS_AS(read(with_number(good, at, get<std::uint64_t>(good, at) + 1)), parameter_error);
        }
        for (std::uint8_t kind = 1; kind < 32; ++kind) {
            CHECK(takes(read, with_number(good, 5, kind)) == (kind == good[5] ? 1 : 0));
        }
    }
}

TEST_CASE("the public key of version 1 is read and written as ever") {
    const auto key = public_key();
    const bytes message = golden("public_key", wire::write_public_key(key, sample_envelope));
    REQUIRE(message.size() == 64 + 32 + 11392);
    const auto read = wire::read_public_key<P>(message);
    CHECK(read.seed() == key.seed());
    CHECK(read.b() == key.b());
    check_page(message, 1, 0, key.seed(), key.b());
}

TEST_CASE("the re-randomization key of version 1 is read and written as ever") {
    const auto key = rerandomization_key<1>();
    const bytes message = golden("zero_key", wire::write_rerandomization_key(key, sample_envelope));
    REQUIRE(message.size() == 64 + 64 + 11392);
    const auto read = wire::read_rerandomization_key<P, 1>(message);
    CHECK(read.client_nonce == key.client_nonce);
    CHECK(read.server_nonce == key.server_nonce);
    CHECK(read.b == key.b);
    check_page(message, 2, 0, key.client_nonce, key.server_nonce, key.b);
}

TEST_CASE("the ciphertext of version 1 is read and written as ever") {
    const auto c = ciphertext<1>();
    const bytes message = golden("ciphertext", wire::write_ciphertext(c, sample_envelope));
    REQUIRE(message.size() == 64 + 2 * 11392);
    const auto read = wire::read_ciphertext<P, 1>(message);
    CHECK(read.c0 == c.c0);
    CHECK(read.c1 == c.c1);
    CHECK(read.scale == 0x1.8p+33);
    check_page(message, 3, 0x4208000000000000, c.c0, c.c1);
}

TEST_CASE("the seeded ciphertext of version 1 is read and written as ever") {
    const auto c = seeded_ciphertext<1>();
    const bytes message = golden("seeded_ciphertext", wire::write_seeded_ciphertext(c, sample_envelope));
    REQUIRE(message.size() == 64 + 32 + 11392);
    const auto read = wire::read_seeded_ciphertext<P, 1>(message);
    CHECK(read.c0 == c.c0);
    CHECK(read.seed == c.seed);
    CHECK(read.scale == 0.125);
    check_page(message, 4, 0x3FC0000000000000, c.seed, c.c0);
}

TEST_CASE("the relinearization key of version 1 is read and written as ever") {
    const auto key = relinearization_key();
    const bytes message =
        golden("relinearization_key", wire::write_relinearization_key(key, sample_envelope));
    REQUIRE(message.size() == 64 + 32 + 2 * 17280);
    const auto read = wire::read_relinearization_key<switching>(message);
    CHECK(same(read.key(), key.key()));
    page_reader from(message);
    check_front(from, message, 5, 0, switching_id);
    check_part(from, key.key(), {45, 44, 46});
    check_end(from, message);
}

TEST_CASE("the Galois keys of version 1 are read and written as ever") {
    const auto keys = galois_keys();
    const bytes message = golden("galois_keys", wire::write_galois_keys(keys, sample_envelope));
    REQUIRE(message.size() == 68 + 2 * (36 + 11648));
    const auto read = wire::read_galois_keys<switching, 0, ckks::rotations<1>, ckks::conjugation>(message);
    page_reader from(message);
    check_front(from, message, 6, 0, switching_id, 0);
    CHECK(from.bits(32) == 2);
    CHECK(from.bits(32) == 5);
    check_part(from, keys.find(1)->key, {45, 46});
    CHECK(same(read.find(1)->key, keys.find(1)->key));
    CHECK(from.bits(32) == 2047);
    check_part(from, keys.of_conjugation().key, {45, 46});
    CHECK(same(read.of_conjugation().key, keys.of_conjugation().key));
    check_end(from, message);
}

TEST_CASE("the header that the page shows is that of the re-randomization key") {
    std::ifstream file(std::string(TENSAFE_TEST_DATA) + "/../../docs/wire-format.md");
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    REQUIRE(!page.empty());
    const bytes message = wire::write_rerandomization_key(rerandomization_key<1>(), sample_envelope);
    std::string lines;
    for (std::size_t i = 0; i < 48; ++i) {
        constexpr char digits[] = "0123456789abcdef";
        lines += digits[message[i] >> 4];
        lines += digits[message[i] & 15];
        lines += i % 16 == 15 ? '\n' : ' ';
    }
    CAPTURE(lines);
    CHECK(contains(page, lines));
}

TEST_CASE("the folder of golden files has those that tests read, and no others") {
    // A file that no test reads any more says nothing; one that is not in version control is lost.
    std::set<std::string> expected;
    for (const kept_message& one : all_kept) {
        expected.insert(one.name);
    }
    std::set<std::string> there;
    for (const auto& entry : std::filesystem::directory_iterator(golden_folder())) {
        CHECK(entry.path().extension() == ".bin");
        there.insert(entry.path().stem());
    }
    CHECK(there == expected);
}
