#pragma once

#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/rns/poly.hpp>
#include <tensafe/wire/ciphertext.hpp>
#include <tensafe/wire/message.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::wire {

/// The bytes of the message of a public key: 64, the seed of its uniform half and b.
template <ckks::parameter_set P>
inline constexpr std::size_t public_key_bytes = detail::polynomials_bytes<typename P::basis>(1, 1);

/// Writes a public key as a message.
/// @throws parameter_error if b is 0 modulo a prime: a key that was never filled
template <ckks::parameter_set P>
std::vector<std::uint8_t> write_public_key(const ckks::public_key<P>& key, const envelope& e = {}) {
    detail::check_not_zero<parameter_error>(key.b(), "b", name(kind::public_key));
    return detail::write_polynomials<P>(kind::public_key, public_key_bytes<P>, P::max_level, 0, e, key.seed(),
                                        key.b());
}

/// Reads a public key from outside. Whoever encrypts under it trusts its sender: any residues make a key.
/// @throws as open_frame; format_error also for a b that is 0 modulo a prime
template <ckks::parameter_set P>
ckks::public_key<P> read_public_key(std::span<const std::uint8_t> message) {
    byte_reader body =
        detail::open_polynomials<P>(message, kind::public_key, public_key_bytes<P>, P::max_level);
    const random::seed seed{body.array<random::seed_bytes>()};
    auto b = detail::read_polynomial<typename P::basis>(body, "b");
    detail::check_not_zero<format_error>(b, "b", body.what());
    return {seed, std::move(b)};
}

/// The bytes of the message of a re-randomization key: 64, two nonces and b.
template <ckks::parameter_set P, int Level>
inline constexpr std::size_t rerandomization_key_bytes =
    detail::polynomials_bytes<typename P::template basis_at<Level>>(2, 1);

/// Writes a re-randomization key as a message.
/// @throws as write_public_key
template <ckks::parameter_set P, int Level>
std::vector<std::uint8_t> write_rerandomization_key(const ckks::rerandomization_key<P, Level>& key,
                                                    const envelope& e = {}) {
    detail::check_not_zero<parameter_error>(key.b, "b", name(kind::rerandomization_key));
    return detail::write_polynomials<P>(kind::rerandomization_key, rerandomization_key_bytes<P, Level>, Level,
                                        0, e, key.client_nonce, key.server_nonce, key.b);
}

/// Reads a re-randomization key from outside. Whether it was made for this session's nonce is for
/// ckks::rerandomization_pool to say.
/// @throws as read_public_key
template <ckks::parameter_set P, int Level>
ckks::rerandomization_key<P, Level> read_rerandomization_key(std::span<const std::uint8_t> message) {
    byte_reader body = detail::open_polynomials<P>(message, kind::rerandomization_key,
                                                   rerandomization_key_bytes<P, Level>, Level);
    const random::seed client_nonce{body.array<random::seed_bytes>()};
    const random::seed server_nonce{body.array<random::seed_bytes>()};
    auto b = detail::read_polynomial<typename P::template basis_at<Level>>(body, "b");
    detail::check_not_zero<format_error>(b, "b", body.what());
    return {client_nonce, std::move(b), server_nonce};
}

}  // namespace tensafe::wire
