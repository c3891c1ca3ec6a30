#pragma once

// What tests of the messages of encrypted LoRA share: a small set, messages that no key has made, and the
// ways to break one.

#include <tensafe/wire/checksum.hpp>
#include <tensafe/wire/message.hpp>

#include "../test.hpp"

namespace wire_fixture {

using byte_vector = std::vector<std::uint8_t>;
inline constexpr std::size_t body_begin = tensafe::wire::header_bytes;

template <class T>
void put(byte_vector& message, std::size_t at, T value) {
    REQUIRE(at + sizeof(T) <= message.size());
    std::memcpy(message.data() + at, &value, sizeof(T));
}
template <class T>
T get(const byte_vector& message, std::size_t at) {
    REQUIRE(at + sizeof(T) <= message.size());
    T value{};
    std::memcpy(&value, message.data() + at, sizeof(T));
    return value;
}

/// Makes length and checksums right again, as somebody does who lies on purpose.
inline byte_vector sealed(byte_vector message) {
    using tensafe::wire::crc32c;
    REQUIRE(message.size() >= body_begin + 4);
    const std::size_t body = message.size() - body_begin - 4;
    put<std::uint64_t>(message, 32, body);
    const std::span<const std::uint8_t> all(message);
    put<std::uint32_t>(message, 44, crc32c(all.first(44)));
    put<std::uint32_t>(message, message.size() - 4, crc32c(all.subspan(body_begin, body)));
    return message;
}
/// The same message with another body.
inline byte_vector with_body(byte_vector message, std::span<const std::uint8_t> body) {
    message.resize(body_begin);
    message.insert(message.end(), body.begin(), body.end());
    message.resize(message.size() + 4);
    return sealed(std::move(message));
}
/// The same message with one number of its body or header changed, and right checksums.
template <class T>
byte_vector with_number(byte_vector message, std::size_t at, T value) {
    put<T>(message, at, value);
    return sealed(std::move(message));
}

/// 1 if the message is read, 0 if it is refused.
template <class Read>
std::size_t takes(Read read, const byte_vector& message) {
    // Memory of its own: the sanitizers see a read beyond the end.
    const byte_vector exact(message.begin(), message.end());
    try {
        read(exact);
    } catch (const tensafe::error&) {
        return 0;
    }
    return 1;
}

/// Cuts a message everywhere if it is short, else at many places; and lengthens it.
template <class Read>
void every_truncation_is_refused(const byte_vector& good, Read read) {
    REQUIRE(takes(read, good) == 1);
    std::size_t accepted = 0;
    for (std::size_t size = 0; size < good.size();
         size += std::size_t{size < 400 || size + 100 > good.size() ? 1U : 97U}) {
        const byte_vector cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
        accepted += takes(read, cut);
        if (size >= body_begin + 4) {
            accepted += takes(read, sealed(cut));  // the length is wrong and nothing else is
        }
    }
    byte_vector longer = good;
    longer.push_back(0);
    accepted += takes(read, longer);
    accepted += takes(read, sealed(longer));
    CHECK(accepted == 0);
}

/// Flips every bit of a short message, else every bit of the first bytes and many others.
template <class Read>
void every_flipped_bit_is_refused(const byte_vector& good, Read read) {
    REQUIRE(takes(read, good) == 1);
    std::size_t accepted = 0;
    byte_vector bad = good;
    const std::size_t bits = 8 * good.size();
    for (std::size_t bit = 0; bit < bits; bit += std::size_t{bit < 1600 || bit + 64 > bits ? 1U : 211U}) {
        const auto mask = static_cast<std::uint8_t>(1U << bit % 8);
        bad[bit / 8] ^= mask;
        accepted += takes(read, bad);
        bad[bit / 8] ^= mask;
    }
    CHECK(accepted == 0);
}

/// Bodies that nobody has written, with right checksums: of any length, and good ones with some bytes
/// changed. Whatever is not refused has been read without a look beyond its end, which the sanitizers watch.
/// @returns  how many were read
template <class Read>
std::size_t read_random_bodies(const byte_vector& good, std::uint64_t seed, int count, Read read) {
    tests::random_numbers generator(seed);
    const std::span<const std::uint8_t> good_body =
        std::span(good).subspan(body_begin, good.size() - body_begin - 4);
    std::size_t taken = 0;
    for (int i = 0; i < count; ++i) {
        byte_vector body;
        if (i % 2 == 0) {
            body.resize(generator() % 200);
            std::generate(body.begin(), body.end(), [&] { return static_cast<std::uint8_t>(generator()); });
        } else {
            body.assign(good_body.begin(), good_body.end());
            for (std::uint64_t k = generator() % 4 + 1; k > 0; --k) {
                // Near the front, where the numbers are, as often as elsewhere.
                const std::size_t reach =
                    generator() % 2 == 0 ? std::min<std::size_t>(body.size(), 40) : body.size();
                body[generator() % reach] =
                    static_cast<std::uint8_t>(generator() % 3 == 0 ? 255 : generator());
            }
        }
        taken += takes(read, with_body(good, body));
    }
    return taken;
}

}  // namespace wire_fixture
