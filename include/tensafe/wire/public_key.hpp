#pragma once

#include <tensafe/ckks/keys.hpp>
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
#include <string>
#include <utility>
#include <vector>

namespace tensafe::wire {

/// Bytes of the message of a public key: 64, the seed of its uniform half and b.
template <ckks::parameter_set P>
inline constexpr std::size_t public_key_bytes = header_bytes + detail::shape_bytes + checksum_bytes +
                                                random::seed_bytes + rns::packed_bytes<typename P::basis>();

/// A public key as a message. Thread-safe.
/// @throws parameter_error if b is zero modulo a prime: a key that was never filled; std::bad_alloc
template <ckks::parameter_set P>
std::vector<std::uint8_t> write_public_key(const ckks::public_key<P>& key, const envelope& e = {}) {
    constexpr auto what = kind::public_key;
    detail::check_not_zero<parameter_error>(key.b(), "b", name(what));
    constexpr std::size_t body_bytes = public_key_bytes<P> - header_bytes - checksum_bytes;
    std::vector<std::uint8_t> message;
    write_message({what, set_id<P>, 0, e.number, e.group, body_bytes}, message, [&](byte_writer& to) {
        to.number<std::uint32_t>(static_cast<std::uint32_t>(P::max_level));
        to.number<std::uint64_t>(0);
        to.bytes(key.seed().bytes);
        write_polynomial(key.b(), to);
    });
    return message;
}

/// A public key from outside. Memory is taken after level and length were found right. Whoever encrypts under
/// it trusts its sender: any residues make a key. Thread-safe.
/// @throws format_error for malformed bytes, another kind or level, a residue that is not below its prime, or
///         a b that is zero modulo a prime; parameter_error for another set; unsupported_error for another
///         version; std::bad_alloc
template <ckks::parameter_set P>
ckks::public_key<P> read_public_key(std::span<const std::uint8_t> message) {
    byte_reader body = open_message<P>(message, kind::public_key).body;
    detail::read_level(body, P::max_level);
    detail::read_reserved(body);
    body.expect(random::seed_bytes + rns::packed_bytes<typename P::basis>());
    const random::seed seed{body.array<random::seed_bytes>()};
    typename ckks::public_key<P>::form b(memory::uninitialized);
    read_polynomial(body, "b", b);
    detail::check_not_zero<format_error>(b, "b", body.what());
    return {seed, std::move(b)};
}

}  // namespace tensafe::wire
