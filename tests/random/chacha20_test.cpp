#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/samplers.hpp>

#include <new>

#include "../backends.hpp"
#include "../test.hpp"
#include "stream_reference.hpp"

namespace {

using namespace tensafe::random;
using namespace tensafe::testing;

/// A stream with any three nonce words.
chacha20_stream stream(const seed& key, std::uint32_t nonce0, std::uint32_t nonce1, std::uint32_t nonce2) {
    return chacha20_stream(key, static_cast<stream_domain>(nonce0), nonce1, nonce2);
}

std::vector<std::uint8_t> bytes_of(const chacha20_stream& from, std::uint64_t first_block,
                                   std::size_t blocks) {
    std::vector<std::uint8_t> out(64 * blocks);
    from.generate(first_block, out);
    return out;
}

std::vector<std::uint8_t> bytes_of_single_blocks(const chacha20_state& state, std::uint32_t first_block,
                                                 std::size_t blocks) {
    std::vector<std::uint8_t> out;
    for (std::size_t i = 0; i < blocks; ++i) {
        std::uint32_t words[16];
        chacha20_block(state.key, first_block + static_cast<std::uint32_t>(i), state.nonce, words);
        for (const std::uint32_t word : words) {
            for (int shift = 0; shift < 32; shift += 8) {
                out.push_back(static_cast<std::uint8_t>(word >> shift));
            }
        }
    }
    return out;
}

#if defined(__OPTIMIZE__) && !defined(TENSAFE_TEST_SANITIZED)  // which lays out the stack in its own way
constexpr std::size_t stack_words = 4096;
constexpr std::uint32_t paint = 0xa5c3'96e1;

__attribute__((noinline)) void paint_stack() {
    volatile std::uint32_t below[stack_words];
    for (std::size_t i = 0; i < stack_words; ++i) {
        below[i] = paint;
    }
    __asm__ volatile("" : : "m"(below));
}
/// What functions that returned left below their caller.
__attribute__((noinline)) void read_stack(std::vector<std::uint32_t>& to) {
    volatile std::uint32_t below[stack_words];
    __asm__ volatile("" : "=m"(below));
    for (std::size_t i = 0; i < stack_words; ++i) {
        to[i] = below[i];
    }
}

/// How many of `left` are among the sorted words.
std::ptrdiff_t words_of(const std::vector<std::uint32_t>& sorted, const std::vector<std::uint32_t>& left) {
    return std::ranges::count_if(
        left, [&](std::uint32_t word) { return std::ranges::binary_search(sorted, word); });
}
#endif

constexpr chacha20_state example_state = {
    {0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c, 0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c},
    {0x09000000, 0x4a000000, 0x00000000}};

/// The key of counting_seed(), with the nonce of lane 5 of `uplink`.
constexpr chacha20_state counting_state = {
    {0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c, 0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c},
    {2, 5, 0}};

constexpr std::array<std::uint32_t, 16> example_block() {
    std::array<std::uint32_t, 16> out{};
    chacha20_block(example_state.key, 1, example_state.nonce, out.data());
    return out;
}
static_assert(example_block()[0] == 0xe4e7f110 && example_block()[15] == 0x4e3c50a2,
              "chacha20_block is a constant expression and gives the block of RFC 8439, 2.3.2");

}  // namespace

TEST_CASE("chacha20_block gives the words of RFC 8439, section 2.3.2") {
    constexpr std::array<std::uint32_t, 16> expected = {
        0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3, 0xc7f4d1c7, 0x0368c033, 0x9aaa2204, 0x4e6cd4c3,
        0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9, 0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
    CHECK(example_block() == expected);
}

TEST_CASE("a stream decrypts the sunscreen message of RFC 8439, section 2.4.2") {
    const std::string message =
        "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        "sunscreen would be it.";
    tests::for_each_backend([&](auto) {
        std::vector<std::uint8_t> text = bytes_of(stream(counting_seed(), 0, 0x4a000000, 0), 1, 2);
        text.resize(message.size());
        for (std::size_t i = 0; i < text.size(); ++i) {
            text[i] ^= static_cast<std::uint8_t>(message[i]);
        }
        CHECK(to_hex(text) ==
              "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0b"
              "f91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d8"
              "07ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
              "5af90bbf74a35be6b40b8eedf2785e42874d");
    });
}

TEST_CASE("a stream gives the five key streams of RFC 8439, appendix A.1") {
    const seed zeros{};
    seed last_one{};
    last_one.bytes[31] = 0x01;
    seed second_ff{};
    second_ff.bytes[1] = 0xff;
    struct known {
        const seed& key;
        std::uint32_t nonce;  ///< its last word
        std::uint32_t block;
        const char* bytes;
    };
    const known streams[]{
        {zeros, 0, 0,
         "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
         "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"},
        {zeros, 0, 1,
         "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
         "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"},
        {last_one, 0, 1,
         "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
         "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"},
        {second_ff, 0, 2,
         "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
         "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096"},
        {zeros, 0x02000000, 0,
         "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
         "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d"},
    };
    tests::for_each_backend([&](auto) {
        for (const known& k : streams) {
            CHECK(to_hex(bytes_of(stream(k.key, 0, 0, k.nonce), k.block, 1)) == k.bytes);
        }
    });
}

TEST_CASE("every back-end gives the bytes of single blocks, whatever the start and the length") {
    constexpr std::uint32_t most = 50;
    for (const std::uint32_t first : {0U, 1U, 2U, 3U, 5U, 7U, 8U, 9U, 0x7ffffffdU, 0xffffffffU - most}) {
        const std::vector<std::uint8_t> expected = bytes_of_single_blocks(example_state, first, most);
        tests::for_each_backend([&](auto) {
            for (std::size_t blocks = 0; blocks <= most; ++blocks) {
                constexpr std::uint8_t untouched = 0xa5;
                // One byte off every alignment, with a margin that must stay as it was.
                std::vector<std::uint8_t> out(64 * blocks + 2, untouched);
                chacha20_bulk(example_state, first, out.data() + 1, blocks);
                CHECK(out.front() == untouched);
                CHECK(out.back() == untouched);
                CHECK(std::equal(out.begin() + 1, out.end() - 1, expected.begin()));
            }
        });
    }
}

#if defined(__OPTIMIZE__) && !defined(TENSAFE_TEST_SANITIZED)
BACKEND_TEST_CASE("neither the key nor a stream, before or after the key is added, stays on the stack") {
    for (const std::size_t blocks : {1U, 4U, 5U, 8U, 9U, 15U, 16U, 24U, 31U, 32U, 40U, 47U, 64U}) {
        std::vector<std::uint8_t> out(64 * blocks);
        std::vector<std::uint32_t> left(stack_words);
        // Twice: the first call of a function may leave the dynamic linker's copies of registers. Other
        // blocks each time: this function's registers may still hold words of those before.
        for (const std::uint32_t part : {0U, 1U}) {
            paint_stack();
            chacha20_bulk(example_state, static_cast<std::uint32_t>(200 * blocks) + 100 * part, out.data(),
                          blocks);
            read_stack(left);
        }
        std::vector<std::uint32_t> secret(std::begin(example_state.key), std::end(example_state.key));
        for (std::size_t i = 0; i < 16 * blocks; ++i) {
            std::uint32_t word = 0;
            std::memcpy(&word, &out[4 * i], sizeof word);
            const std::size_t place = i % 16;
            secret.push_back(word);
            if (place >= 4 && place < 12) {
                secret.push_back(word - example_state.key[place - 4]);
            }
        }
        std::ranges::sort(secret);
        CAPTURE(blocks);
        CHECK(words_of(secret, left) == 0);
    }
}

BACKEND_TEST_CASE("neither the key nor the block stays on the stack where one block is asked for") {
    std::vector<std::uint32_t> left(stack_words);
    std::vector<std::uint32_t> secret(std::begin(counting_state.key), std::end(counting_state.key));
    const auto key = counting_seed();
    for (const std::uint32_t part : {0U, 1U}) {
        paint_stack();
        const auto block = chacha20_stream_block(key, stream_domain::derive, part);
        read_stack(left);
        secret.resize(secret.size() + 16);
        std::memcpy(secret.data() + secret.size() - 16, block.data(), block.size());
    }
    std::ranges::sort(secret);
    CHECK(words_of(secret, left) == 0);
}

BACKEND_TEST_CASE("no errors stay on the stack") {
    std::vector<std::uint32_t> left(stack_words);
    std::vector<std::int8_t> errors(4096);
    const auto key = counting_seed();
    for (const std::uint32_t part : {0U, 1U}) {
        paint_stack();
        tensafe::random::sample_error(key, stream_domain::error, part, errors);
        read_stack(left);
    }
    std::vector<std::uint32_t> secret(errors.size() / 4);
    std::memcpy(secret.data(), errors.data(), errors.size());
    std::erase_if(secret, [](std::uint32_t word) { return word == 0 || word == ~0U; });  // anybody's
    std::ranges::sort(secret);
    CHECK(words_of(secret, left) == 0);
}
#endif

BACKEND_TEST_CASE("the last blocks before the counter's end are reached and not wrapped into") {
    for (const std::size_t blocks : {1U, 3U, 8U, 11U, 16U, 25U, 48U}) {
        const std::uint64_t first = chacha20_stream_blocks - blocks;
        CHECK(bytes_of(chacha20_stream(counting_seed(), stream_domain::uplink, 5), first, blocks) ==
              bytes_of_single_blocks(counting_state, static_cast<std::uint32_t>(first), blocks));
    }
}

TEST_CASE("a stream's parts are the same whether generated together or alone") {
    const chacha20_stream whole(counting_seed(7), stream_domain::uplink, 3);
    tests::for_each_backend([&](auto) {
        const std::vector<std::uint8_t> all = bytes_of(whole, 0, 40);
        for (std::size_t first = 0; first < 40; ++first) {
            for (const std::size_t blocks : {std::size_t{1}, std::size_t{4}, std::size_t{9}, 40 - first}) {
                if (first + blocks <= 40) {
                    const std::vector<std::uint8_t> part = bytes_of(whole, first, blocks);
                    CHECK(std::equal(part.begin(), part.end(), all.data() + 64 * first));
                }
            }
        }
    });
}

TEST_CASE("key, domain, lane and round each change the stream") {
    const std::vector<std::uint8_t> base = bytes_of({counting_seed(), stream_domain::error, 1, 0}, 0, 2);
    CHECK(bytes_of({counting_seed(1), stream_domain::error, 1, 0}, 0, 2) != base);
    CHECK(bytes_of({counting_seed(), stream_domain::zero, 1, 0}, 0, 2) != base);
    CHECK(bytes_of({counting_seed(), stream_domain::error, 2, 0}, 0, 2) != base);
    CHECK(bytes_of({counting_seed(), stream_domain::error, 1, 1}, 0, 2) != base);
    CHECK(bytes_of({counting_seed(), stream_domain::error, 1, 0}, 0, 2) == base);
}

TEST_CASE("a stream's key is gone after its destruction") {
    alignas(chacha20_stream) std::array<unsigned char, sizeof(chacha20_stream)> storage{};
    auto* const object = new (storage.data()) chacha20_stream(counting_seed(1), stream_domain::error, 9, 9);
    object->~chacha20_stream();
    const volatile unsigned char* const left = storage.data();
    for (std::size_t i = 0; i < storage.size(); ++i) {
        CHECK(left[i] == 0);
    }
}

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
