#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/rns/poly.hpp>
#include <tensafe/wire/ciphertext_shape.hpp>
#include <tensafe/wire/header.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/residues.hpp>
#include <tensafe/wire/set_id.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::wire {

/// Bytes of the message of a ciphertext: 64, c0 and c1.
template <ckks::parameter_set P, int Level = P::max_level>
inline constexpr std::size_t ciphertext_bytes = header_bytes + detail::shape_bytes + checksum_bytes +
                                                2 * rns::packed_bytes<typename P::template basis_at<Level>>();

/// Bytes of the message of a seeded ciphertext: 64, the seed and c0.
template <ckks::parameter_set P, int Level = P::max_level>
inline constexpr std::size_t seeded_ciphertext_bytes =
    header_bytes + detail::shape_bytes + checksum_bytes + random::seed_bytes +
    rns::packed_bytes<typename P::template basis_at<Level>>();

/// A ciphertext as a message. Thread-safe.
/// @throws parameter_error if the scale is not finite and above 0, or c1 is zero modulo a prime: that would
///         show the message; std::bad_alloc
template <ckks::parameter_set P, int Level>
std::vector<std::uint8_t> write_ciphertext(const ckks::ciphertext<P, Level>& c, const envelope& e = {}) {
    constexpr auto what = kind::ciphertext;
    detail::check_scale<parameter_error>(c.scale, name(what));
    detail::check_not_zero<parameter_error>(c.c1, "c1", name(what));
    constexpr std::size_t body_bytes = ciphertext_bytes<P, Level> - header_bytes - checksum_bytes;
    std::vector<std::uint8_t> message;
    write_message({what, set_id<P>, 0, e.number, e.group, body_bytes}, message, [&](byte_writer& to) {
        to.number<std::uint32_t>(static_cast<std::uint32_t>(Level));
        to.number<double>(c.scale);
        write_polynomial(c.c0, to);
        write_polynomial(c.c1, to);
    });
    return message;
}

/// A ciphertext from outside. Memory is taken after level and length were found right. Thread-safe.
/// @throws format_error for malformed bytes, another kind or level, a scale that is not finite and above 0, a
///         residue that is not below its prime, or a c1 that is zero modulo a prime; parameter_error for
///         another set; unsupported_error for another version; std::bad_alloc
template <ckks::parameter_set P, int Level = P::max_level>
ckks::ciphertext<P, Level> read_ciphertext(std::span<const std::uint8_t> message) {
    using poly = rns::poly<typename P::template basis_at<Level>, rns::evaluation_form>;
    byte_reader body = open_message<P>(message, kind::ciphertext).body;
    detail::read_level(body, Level);
    const auto scale = body.number<double>();
    detail::check_scale<format_error>(scale, body.what());
    body.expect(2 * rns::packed_bytes<typename P::template basis_at<Level>>());
    poly c0(memory::uninitialized);
    poly c1(memory::uninitialized);
    read_polynomial(body, "c0", c0);
    read_polynomial(body, "c1", c1);
    detail::check_not_zero<format_error>(c1, "c1", body.what());
    return {std::move(c0), std::move(c1), scale};
}

/// A fresh encryption as a message of about half the size. Thread-safe.
/// @throws parameter_error if the scale is not finite and above 0; std::bad_alloc
template <ckks::parameter_set P, int Level>
std::vector<std::uint8_t> write_seeded_ciphertext(const ckks::seeded_ciphertext<P, Level>& c,
                                                  const envelope& e = {}) {
    constexpr auto what = kind::seeded_ciphertext;
    detail::check_scale<parameter_error>(c.scale, name(what));
    constexpr std::size_t body_bytes = seeded_ciphertext_bytes<P, Level> - header_bytes - checksum_bytes;
    std::vector<std::uint8_t> message;
    write_message({what, set_id<P>, 0, e.number, e.group, body_bytes}, message, [&](byte_writer& to) {
        to.number<std::uint32_t>(static_cast<std::uint32_t>(Level));
        to.number<double>(c.scale);
        to.bytes(c.seed.bytes);
        write_polynomial(c.c0, to);
    });
    return message;
}

/// A seeded ciphertext from outside. Memory is taken after level and length were found right. Thread-safe.
/// @throws format_error for malformed bytes, another kind or level, a scale that is not finite and above 0,
/// or
///         a residue that is not below its prime; parameter_error for another set; unsupported_error for
///         another version; std::bad_alloc
template <ckks::parameter_set P, int Level = P::max_level>
ckks::seeded_ciphertext<P, Level> read_seeded_ciphertext(std::span<const std::uint8_t> message) {
    using poly = rns::poly<typename P::template basis_at<Level>, rns::evaluation_form>;
    byte_reader body = open_message<P>(message, kind::seeded_ciphertext).body;
    detail::read_level(body, Level);
    const auto scale = body.number<double>();
    detail::check_scale<format_error>(scale, body.what());
    body.expect(random::seed_bytes + rns::packed_bytes<typename P::template basis_at<Level>>());
    const random::seed seed{body.array<random::seed_bytes>()};
    poly c0(memory::uninitialized);
    read_polynomial(body, "c0", c0);
    return {std::move(c0), seed, scale};
}

}  // namespace tensafe::wire
