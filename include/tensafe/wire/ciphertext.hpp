#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/memory/packed_bits.hpp>
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
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::wire {

/// Writes residues modulo q: bit_width(q) bits for each, by pack_bits; the last byte is filled with 0.
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
        throw format_error({from.what(), ": ", which, ", limb ", index, ": got a residue ", got,
                            ", expected all below its prime ", q});
    }
}

/// Writes the limbs one after the other, each in bit-reversed order. A secret polynomial does not compile.
/// @throws shape_error unless there is room for rns::packed_bytes<Basis>()
template <class Basis>
void write_polynomial(const rns::poly<Basis, rns::evaluation_form>& p, byte_writer& to) {
    rns::for_each_limb<Basis>(
        [&]<int I>() { write_limb(p.template limb<I>(), Basis::template prime<I>, to); });
}

/// Reads what write_polynomial wrote.  @throws format_error as read_limb: throw p away then
template <class Basis>
void read_polynomial(byte_reader& from, std::string_view which, rns::poly<Basis, rns::evaluation_form>& p) {
    rns::for_each_limb<Basis>(
        [&]<int I>() { read_limb(from, which, I, Basis::template prime<I>, p.template limb<I>()); });
}

/// The first limb that is 0 everywhere; -1 if there is none. Of what is random modulo each prime, as c1 of
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

// The first 12 bytes of bodies that hold polynomials: level and scale, or level and 0.

inline constexpr std::size_t shape_bytes = 12;

/// Checks a scale.  @throws Error unless it is finite and above 0
template <class Error>
void check_scale(double scale, std::string_view what) {
    if (!(std::isfinite(scale) && scale > 0)) {
        throw Error({what, ": scale: got ", shortest_text(scale), ", expected a finite number above 0"});
    }
}

/// Checks a polynomial.  @throws Error if p is 0 modulo one of its primes
template <class Error, class Basis>
void check_not_zero(const rns::poly<Basis, rns::evaluation_form>& p, std::string_view which,
                    std::string_view what) {
    if (const int limb = first_zero_limb(p); limb >= 0) {
        throw Error({what, ": ", which, ", limb ", limb, ": every residue is 0, expected random ones"});
    }
}

/// The bytes of a message with so many seeds and polynomials.
template <class Basis>
inline constexpr std::size_t polynomials_bytes(std::size_t seeds, std::size_t polynomials) noexcept {
    return header_bytes + shape_bytes + seeds * random::seed_bytes +
           polynomials * rns::packed_bytes<Basis>() + checksum_bytes;
}

inline void put(byte_writer& to, const random::seed& seed) {
    to.bytes(seed.bytes);
}
template <class Basis>
void put(byte_writer& to, const rns::poly<Basis, rns::evaluation_form>& p) {
    write_polynomial(p, to);
}

/// Writes a message with level and scale, and what fill(byte_writer&) writes behind them; a scale of 0 is
/// that of a kind without one.
template <ckks::parameter_set P, class Fill>
std::vector<std::uint8_t> write_at_level(kind what, std::size_t bytes, int level, double scale,
                                         const envelope& e, Fill fill) {
    std::vector<std::uint8_t> message;
    write_message({what, set_id<P>, 0, e.number, e.group, bytes - header_bytes - checksum_bytes}, message,
                  [&](byte_writer& to) {
                      to.number<std::uint32_t>(static_cast<std::uint32_t>(level));
                      to.number<double>(scale);
                      fill(to);
                  });
    return message;
}
/// Writes a message with these parts behind level and scale.
template <ckks::parameter_set P, class... Parts>
std::vector<std::uint8_t> write_polynomials(kind what, std::size_t bytes, int level, double scale,
                                            const envelope& e, const Parts&... parts) {
    return write_at_level<P>(what, bytes, level, scale, e, [&](byte_writer& to) { (put(to, parts), ...); });
}

/// Opens a message and returns what is behind level and scale, after they were found right.
/// @param scale  where the scale goes; null for a kind without one
template <ckks::parameter_set P>
byte_reader open_at_level(std::span<const std::uint8_t> message, kind what, int level,
                          double* scale = nullptr) {
    byte_reader body = open_message<P>(message, what).body;
    if (const auto got = body.number<std::uint32_t>(); got != static_cast<std::uint32_t>(level)) {
        throw format_error({body.what(), ": level: got ", got, ", expected ", level});
    }
    if (scale != nullptr) {
        *scale = body.number<double>();
        check_scale<format_error>(*scale, body.what());
    } else if (const auto got = body.number<std::uint64_t>(); got != 0) {
        throw format_error({body.what(), ": bytes 4 to 11 of its body: got ", got, ", expected 0"});
    }
    return body;
}
/// Does so, and checks the length as well.
template <ckks::parameter_set P>
byte_reader open_polynomials(std::span<const std::uint8_t> message, kind what, std::size_t bytes, int level,
                             double* scale = nullptr) {
    byte_reader body = open_at_level<P>(message, what, level, scale);
    body.expect(bytes - header_bytes - shape_bytes - checksum_bytes);
    return body;
}

/// Reads a polynomial.  @throws format_error as the other read_polynomial
template <class Basis>
rns::poly<Basis, rns::evaluation_form> read_polynomial(byte_reader& body, std::string_view which) {
    rns::poly<Basis, rns::evaluation_form> p(memory::uninitialized);
    wire::read_polynomial(body, which, p);
    return p;
}

}  // namespace detail

// What writes and reads the messages of ciphertexts and keys is thread-safe. Writers throw std::bad_alloc
// also, readers what open_frame throws, format_error for another level, another length or a residue that is
// not below its prime, and std::bad_alloc: they take memory after level and length were found right.

/// The bytes of the message of a ciphertext: 64, c0 and c1.
template <ckks::parameter_set P, int Level = P::max_level>
inline constexpr std::size_t ciphertext_bytes =
    detail::polynomials_bytes<typename P::template basis_at<Level>>(0, 2);

/// The bytes of the message of a seeded ciphertext: 64, the seed and c0.
template <ckks::parameter_set P, int Level = P::max_level>
inline constexpr std::size_t seeded_ciphertext_bytes =
    detail::polynomials_bytes<typename P::template basis_at<Level>>(1, 1);

/// Writes a ciphertext as a message.
/// @throws parameter_error unless the scale is finite and above 0, and for a c1 that is 0 modulo a prime
template <ckks::parameter_set P, int Level>
std::vector<std::uint8_t> write_ciphertext(const ckks::ciphertext<P, Level>& c, const envelope& e = {}) {
    detail::check_scale<parameter_error>(c.scale, name(kind::ciphertext));
    detail::check_not_zero<parameter_error>(c.c1, "c1", name(kind::ciphertext));
    return detail::write_polynomials<P>(kind::ciphertext, ciphertext_bytes<P, Level>, Level, c.scale, e, c.c0,
                                        c.c1);
}

/// Reads a ciphertext from outside.
/// @throws as open_frame; format_error also for a scale that is not one, or a c1 that is 0 modulo a prime
template <ckks::parameter_set P, int Level = P::max_level>
ckks::ciphertext<P, Level> read_ciphertext(std::span<const std::uint8_t> message) {
    using basis = typename P::template basis_at<Level>;
    double scale = 0;
    byte_reader body =
        detail::open_polynomials<P>(message, kind::ciphertext, ciphertext_bytes<P, Level>, Level, &scale);
    auto c0 = detail::read_polynomial<basis>(body, "c0");
    auto c1 = detail::read_polynomial<basis>(body, "c1");
    detail::check_not_zero<format_error>(c1, "c1", body.what());
    return {std::move(c0), std::move(c1), scale};
}

/// Writes a fresh encryption as a message of about half the size.
/// @throws parameter_error if the scale is not finite and above 0
template <ckks::parameter_set P, int Level>
std::vector<std::uint8_t> write_seeded_ciphertext(const ckks::seeded_ciphertext<P, Level>& c,
                                                  const envelope& e = {}) {
    detail::check_scale<parameter_error>(c.scale, name(kind::seeded_ciphertext));
    return detail::write_polynomials<P>(kind::seeded_ciphertext, seeded_ciphertext_bytes<P, Level>, Level,
                                        c.scale, e, c.seed, c.c0);
}

/// Reads a seeded ciphertext from outside.
/// @throws as open_frame; format_error also for a scale that is not finite and above 0
template <ckks::parameter_set P, int Level = P::max_level>
ckks::seeded_ciphertext<P, Level> read_seeded_ciphertext(std::span<const std::uint8_t> message) {
    double scale = 0;
    byte_reader body = detail::open_polynomials<P>(message, kind::seeded_ciphertext,
                                                   seeded_ciphertext_bytes<P, Level>, Level, &scale);
    const random::seed seed{body.array<random::seed_bytes>()};
    return {detail::read_polynomial<typename P::template basis_at<Level>>(body, "c0"), seed, scale};
}

}  // namespace tensafe::wire
