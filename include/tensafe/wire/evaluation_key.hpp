#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/ckks/evaluation_key.hpp>
#include <tensafe/ckks/multiply.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/ckks/rotate.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/ciphertext.hpp>
#include <tensafe/wire/message.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Keys for products and rotations: half of each, for a seed stands for the other half. Whoever computes with
// keys from outside trusts their sender: any residues make a key.

namespace tensafe::wire {

namespace detail {

/// The bytes of an evaluation key in a message: the seed of its uniform halves, and b of each digit.
template <ckks::parameter_set P, int Level>
inline constexpr std::size_t evaluation_key_bytes =
    random::seed_bytes + rns::packed_bytes<typename ckks::evaluation_key<P, Level>::basis>() *
                             ckks::evaluation_key<P, Level>::digits;

/// @param which  what errors say before "b of digit 0"
/// @throws parameter_error if b is 0 modulo a prime
template <ckks::parameter_set P, int Level>
void write_evaluation_key(byte_writer& to, kind what, std::string_view which,
                          const ckks::evaluation_key<P, Level>& key) {
    to.bytes(key.seed().bytes);
    for (std::size_t d = 0; d < key.digits; ++d) {
        const auto b = key.b(d);
        check_not_zero<parameter_error>(b, text_of({which, "b of digit ", d}), name(what));
        write_polynomial(b, to);
    }
}

/// Reads what write_evaluation_key wrote.  @throws format_error as read_limb, and if b is 0 modulo a prime
template <ckks::parameter_set P, int Level>
ckks::evaluation_key<P, Level> read_evaluation_key(byte_reader& body, std::string_view which) {
    using key = ckks::evaluation_key<P, Level>;
    const random::seed seed{body.array<random::seed_bytes>()};
    std::vector<typename key::polynomial> b;
    b.reserve(key::digits);
    for (std::size_t d = 0; d < key::digits; ++d) {
        const std::string name = text_of({which, "b of digit ", d});
        b.push_back(read_polynomial<typename key::basis>(body, name));
        check_not_zero<format_error>(b.back(), name, body.what());
    }
    return {seed, b};
}

}  // namespace detail

/// The bytes of the message of a relinearization key: 64, the seed of its uniform halves, and b of each
/// digit.
template <ckks::parameter_set P, int Level = P::max_level>
inline constexpr std::size_t relinearization_key_bytes =
    detail::frame_bytes + detail::shape_bytes + detail::evaluation_key_bytes<P, Level>;

/// Writes a relinearization key as a message.
/// @throws parameter_error if b is 0 modulo a prime: a key that was never filled
template <ckks::parameter_set P, int Level>
std::vector<std::uint8_t> write_relinearization_key(const ckks::relinearization_key<P, Level>& key,
                                                    const envelope& e = {}) {
    constexpr kind what = kind::relinearization_key;
    return detail::write_at_level<P>(
        what, relinearization_key_bytes<P, Level>, Level, 0, e,
        [&](byte_writer& to) { detail::write_evaluation_key(to, what, "", key.key()); });
}

/// Reads a relinearization key from outside.
/// @throws as open_frame; format_error also for a b that is 0 modulo a prime
template <ckks::parameter_set P, int Level = P::max_level>
ckks::relinearization_key<P, Level> read_relinearization_key(std::span<const std::uint8_t> message) {
    byte_reader body = detail::open_polynomials<P>(message, kind::relinearization_key,
                                                   relinearization_key_bytes<P, Level>, Level);
    return ckks::relinearization_key<P, Level>(detail::read_evaluation_key<P, Level>(body, ""));
}

/// The bytes of the message of Galois keys: 68, and of each key 36, the exponent and the seed of its uniform
/// halves, and b of each digit.
template <ckks::parameter_set P, int Level, class... Lists>
inline constexpr std::size_t galois_keys_bytes =
    detail::frame_bytes + detail::shape_bytes + sizeof(std::uint32_t) +
    (sizeof(std::uint32_t) +
     detail::evaluation_key_bytes<P, Level>)*ckks::galois_keys_at<P, Level, Lists...>::count;

/// Writes Galois keys as a message.
/// @throws as write_relinearization_key
template <ckks::parameter_set P, int Level, class... Lists>
std::vector<std::uint8_t> write_galois_keys(const ckks::galois_keys_at<P, Level, Lists...>& keys,
                                            const envelope& e = {}) {
    constexpr kind what = kind::galois_keys;
    return detail::write_at_level<P>(
        what, galois_keys_bytes<P, Level, Lists...>, Level, 0, e, [&](byte_writer& to) {
            to.number<std::uint32_t>(static_cast<std::uint32_t>(keys.count));
            for (const auto& [move, key] : keys.keys()) {
                to.number<std::uint32_t>(static_cast<std::uint32_t>(move.exponent()));
                detail::write_evaluation_key(to, what, ckks::detail::key_name<P>(move.exponent()) + ", ",
                                             key);
            }
        });
}

/// Reads Galois keys from outside: those that the lists ask for, in their order, and no others.
/// @throws as read_relinearization_key; format_error also for another number of keys or another exponent
template <ckks::parameter_set P, int Level, class... Lists>
ckks::galois_keys_at<P, Level, Lists...> read_galois_keys(std::span<const std::uint8_t> message) {
    using keys = ckks::galois_keys_at<P, Level, Lists...>;
    byte_reader body = detail::open_at_level<P>(message, kind::galois_keys, Level);
    const auto count = body.number<std::uint32_t>();
    require<format_error>(count == keys::count,
                          {body.what(), ": got ", count, " keys, expected ", keys::count});
    body.expect(count * (sizeof(std::uint32_t) + detail::evaluation_key_bytes<P, Level>));
    return keys([&](arith::word exponent) {
        const auto got = body.number<std::uint32_t>();
        const std::string expected = ckks::detail::key_name<P>(exponent);
        if (got != exponent) {
            throw format_error(text_of({body.what(), ": got the key of ", ckks::detail::key_name<P>(got),
                                        ", expected that of ", expected}));
        }
        return detail::read_evaluation_key<P, Level>(body, expected + ", ");
    });
}

}  // namespace tensafe::wire
