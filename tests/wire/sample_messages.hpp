#pragma once

#include <tensafe/ckks/ciphertext.hpp>
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
template <int Level>
rns::poly<P::basis_at<Level>, rns::evaluation_form> polynomial(std::uint8_t number) {
    rns::poly<P::basis_at<Level>, rns::evaluation_form> p(tensafe::memory::uninitialized);
    ckks::expand_uniform(counting_seed(number), random::stream_domain::uplink, p);
    rns::for_each_limb<P::basis_at<Level>>([&]<int I>() {
        p.template limb<I>().front() = 0;
        p.template limb<I>().back() = P::basis::prime<I> - 1;
    });
    return p;
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

/// Whether the header of a message is right.
inline bool has_header(const bytes& message, tensafe::wire::kind what, std::uint64_t number,
                       std::uint32_t group) {
    return tensafe::wire::read_header(message) ==
           tensafe::wire::header{what, tensafe::wire::set_id<P>, 0, number, group, message.size() - 52};
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
