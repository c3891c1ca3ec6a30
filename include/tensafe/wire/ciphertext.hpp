#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/memory/packed_bits.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/poly.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::wire {

/// Writes residues modulo q: bit_width(q) bits for each, by pack_bits; the last byte is filled with zeros.
/// @pre  each below q
/// @throws shape_error if there is no room
inline void write_limb(std::span<const arith::word> values, arith::word q, byte_writer& to) {
    const int bits = static_cast<int>(std::bit_width(q));
    memory::pack_bits(values, bits, to.take(memory::packed_bytes(values.size(), bits)));
}

/// Reads as many residues modulo q as `values` has room for. After an error some of them are written.
/// @param which  how errors call the polynomial: "c0"
/// @param index  of the limb, for errors
/// @throws format_error if the bytes end before, a residue is not below q or an unused bit is not 0
inline void read_limb(byte_reader& from, std::string_view which, int index, arith::word q,
                      std::span<arith::word> values) {
    const int bits = static_cast<int>(std::bit_width(q));
    if (!memory::unpack_bits_below(from.bytes(memory::packed_bytes(values.size(), bits)), bits, q, values)) {
        const arith::word got =
            *std::find_if(values.begin(), values.end(), [&](arith::word x) { return x >= q; });
        throw format_error(std::string(from.what()) + ": " + std::string(which) + ", limb " +
                           std::to_string(index) + ": got a residue " + std::to_string(got) +
                           ", expected all below its prime " + std::to_string(q));
    }
}

/// Writes the limbs one after the other, each in bit-reversed order. A secret polynomial does not compile.
/// @throws shape_error unless there is room for rns::packed_bytes<Basis>()
template <class Basis>
void write_polynomial(const rns::poly<Basis, rns::evaluation_form>& p, byte_writer& to) {
    rns::for_each_limb<Basis>(
        [&]<int I>() { write_limb(p.template limb<I>(), Basis::template prime<I>, to); });
}

/// What write_polynomial wrote.
/// @param which  how errors call it: "c0"
/// @throws format_error as read_limb; some residues of p may then be out of range, so it must be thrown away
template <class Basis>
void read_polynomial(byte_reader& from, std::string_view which, rns::poly<Basis, rns::evaluation_form>& p) {
    rns::for_each_limb<Basis>(
        [&]<int I>() { read_limb(from, which, I, Basis::template prime<I>, p.template limb<I>()); });
}

/// The first limb that is zero everywhere; -1 if there is none. Of what is random modulo each prime, as c1 of
/// an encryption, that shows memory which was never filled, or an encryption that hides nothing.
template <class Basis>
int first_zero_limb(const rns::poly<Basis, rns::evaluation_form>& p) noexcept {
    int found = -1;
    rns::for_each_limb<Basis>([&]<int I>() {
        const auto limb = p.template limb<I>();
        if (found < 0 && std::all_of(limb.begin(), limb.end(), [](arith::word x) { return x == 0; })) {
            found = I;
        }
    });
    return found;
}

namespace detail {

// The first 12 bytes of bodies that hold polynomials: level and scale, or level and zeros.

inline constexpr std::size_t shape_bytes = 12;

/// @throws format_error unless the level is the expected one
inline void read_level(byte_reader& from, int wanted) {
    if (const auto got = from.number<std::uint32_t>(); got != static_cast<std::uint32_t>(wanted)) {
        throw format_error(std::string(from.what()) + ": level: got " + std::to_string(got) + ", expected " +
                           std::to_string(wanted));
    }
}

/// @throws format_error unless the bytes in the place of a scale are 0
inline void read_reserved(byte_reader& from) {
    if (const auto got = from.number<std::uint64_t>(); got != 0) {
        throw format_error(std::string(from.what()) + ": bytes 4 to 11 of its body: got " +
                           std::to_string(got) + ", expected 0");
    }
}

/// @throws Error unless the scale is one
template <class Error>
void check_scale(double scale, std::string_view what) {
    if (!(std::isfinite(scale) && scale > 0)) {
        throw Error(std::string(what) + ": scale: got " + shortest_text(scale) +
                    ", expected a finite number above 0");
    }
}

/// @throws Error if p is zero modulo one of its primes
template <class Error, class Basis>
void check_not_zero(const rns::poly<Basis, rns::evaluation_form>& p, std::string_view which,
                    std::string_view what) {
    if (const int limb = first_zero_limb(p); limb >= 0) {
        throw Error(std::string(what) + ": " + std::string(which) + ", limb " + std::to_string(limb) +
                    ": every residue is 0, expected random ones");
    }
}

}  // namespace detail

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
