#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/multiply.hpp>
#include <tensafe/ckks/rotate.hpp>
#include <tensafe/ckks/sanitize/rerandomization.hpp>

#include "../small_sets.hpp"
#include "wire_fixture.hpp"

/// What the tests of messages share: one small set, objects that are the same in each run, and checksums that
/// fit what a test has changed.
namespace sample_messages {

namespace ckks = tensafe::ckks;
namespace random = tensafe::random;
namespace rns = tensafe::rns;

using P = tests::small;
using other_scale = tests::small_of_other_scale;
using switching = tests::small_switching;

using bytes = std::vector<std::uint8_t>;
using wire_fixture::put;

/// first, first + 1, ...
inline random::seed counting_seed(std::uint8_t first) {
    random::seed seed;
    for (std::uint8_t& byte : seed.bytes) {
        byte = first++;
    }
    return seed;
}

/// Uniform residues; those of the ends are 0 and q - 1.
template <class Basis>
rns::poly<Basis, rns::evaluation_form> polynomial_of(std::uint8_t number) {
    rns::poly<Basis, rns::evaluation_form> p(tensafe::memory::uninitialized);
    ckks::expand_uniform(counting_seed(number), random::stream_domain::uplink, p);
    rns::for_each_limb<Basis>([&]<int I>() {
        p.template limb<I>().front() = 0;
        p.template limb<I>().back() = Basis::template prime<I> - 1;
    });
    return p;
}
template <int Level>
auto polynomial(std::uint8_t number) {
    return polynomial_of<P::basis_at<Level>>(number);
}

inline ckks::public_key<P> public_key() {
    return {counting_seed(8), polynomial<1>(9)};
}
template <int Level>
ckks::rerandomization_key<P, Level> rerandomization_key() {
    return {counting_seed(1), polynomial<Level>(2), counting_seed(3)};
}
template <int Level>
ckks::ciphertext<P, Level> ciphertext() {
    return {polynomial<Level>(4), polynomial<Level>(5), 0x1.8p+33};
}
template <int Level>
ckks::seeded_ciphertext<P, Level> seeded_ciphertext() {
    return {polynomial<Level>(6), counting_seed(7), 0x1p-3};
}
/// @param number  of its seed; those that follow it are of the polynomials b
template <int Level>
ckks::evaluation_key<switching, Level> evaluation_key(std::uint8_t number) {
    using key = ckks::evaluation_key<switching, Level>;
    std::vector<typename key::polynomial> b;
    for (std::size_t d = 1; d <= key::digits; ++d) {
        b.push_back(polynomial_of<typename key::basis>(static_cast<std::uint8_t>(number + d)));
    }
    return {counting_seed(number), b};
}
inline ckks::relinearization_key<switching, 1> relinearization_key() {
    return ckks::relinearization_key<switching, 1>(evaluation_key<1>(10));
}
/// Those of the exponents 5 and 2047.
inline ckks::galois_keys_at<switching, 0, ckks::rotations<1>, ckks::conjugation> galois_keys() {
    return ckks::galois_keys_at<switching, 0, ckks::rotations<1>, ckks::conjugation>(
        [](tensafe::arith::word exponent) { return evaluation_key<0>(exponent == 5 ? 20 : 30); });
}

template <class Set, int Level>
bool same(const ckks::evaluation_key<Set, Level>& a, const ckks::evaluation_key<Set, Level>& b) {
    return a.seed() == b.seed() && std::equal(a.words().words.begin(), a.words().words.end(),
                                              b.words().words.begin(), b.words().words.end());
}

/// Whether the header of a message is right.
template <class Set = P>
bool has_header(const bytes& message, tensafe::wire::kind what, std::uint64_t number, std::uint32_t group) {
    return tensafe::wire::read_header(message) ==
           tensafe::wire::header{what, tensafe::wire::set_id<Set>, 0, number, group, message.size() - 52};
}

/// Makes both checksums fit, as somebody who changes bytes on purpose does.
inline bytes resealed(bytes message) {
    const std::span<const std::uint8_t> all = message;
    put(message, 44, tensafe::wire::crc32c(all.first(44)));
    put(message, message.size() - 4, tensafe::wire::crc32c(all.subspan(48, all.size() - 52)));
    return message;
}

/// Cut or lengthened to this size, which its header then announces.
inline bytes with_size(bytes message, std::size_t size) {
    message.resize(size);
    put(message, 32, std::uint64_t{size - 52});
    return message;
}

}  // namespace sample_messages
