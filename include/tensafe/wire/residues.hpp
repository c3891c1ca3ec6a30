#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/memory/bits.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/poly.hpp>
#include <tensafe/wire/bytes.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

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

}  // namespace tensafe::wire
