#include <tensafe/wire/residues.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "../refusal.hpp"
#include "sample_messages.hpp"

namespace {

using namespace sample_messages;
namespace wire = tensafe::wire;
using tensafe::format_error;
using tensafe::arith::word;
using tests::refusal;

using basis = P::basis;
using poly = rns::poly<basis, rns::evaluation_form>;
static_assert(rns::packed_bytes<basis>() == 1024 * (45 + 44) / 8);
static_assert(rns::packed_bytes<P::basis_at<0>>() == 1024 * 45 / 8);

/// Secrets and coefficient form have no bytes.
template <class T>
concept has_bytes = requires(const T& p, wire::byte_writer& to) {
    wire::write_polynomial(p, to);
};
static_assert(has_bytes<poly>);
static_assert(!has_bytes<rns::secret_poly<basis, rns::evaluation_form>>);
static_assert(!has_bytes<rns::poly<basis, rns::coefficient_form>>);

bytes packed(const poly& p) {
    bytes result(rns::packed_bytes<basis>());
    wire::byte_writer to(result, "test");
    wire::write_polynomial(p, to);
    to.finish();
    return result;
}

word bits_at(const bytes& from, std::size_t bit, std::size_t width) {
    word value = 0;
    for (std::size_t j = 0; j < width; ++j) {
        value |= word{(from[(bit + j) / 8] >> ((bit + j) % 8)) & 1U} << j;
    }
    return value;
}

}  // namespace

TEST_CASE("limbs stand one after the other, each with the bits of its prime") {
    const poly p = polynomial<1>(50);
    const bytes written = packed(p);
    const std::size_t second = 1024 * 45 / 8;
    for (std::size_t k = 0; k < 1024; ++k) {
        if (bits_at(written, 45 * k, 45) != p.limb<0>()[k] ||
            bits_at(written, 8 * second + 44 * k, 44) != p.limb<1>()[k]) {
            FAIL_CHECK("residue " << k);
        }
    }
    wire::byte_reader from(written, "test");
    poly back;
    wire::read_polynomial(from, "p", back);
    from.finish();
    CHECK(back == p);
}

TEST_CASE("a residue that is not below its prime is refused wherever it is") {
    for (const std::size_t at : {0U, 1U, 511U, 1023U}) {
        for (const int limb : {0, 1}) {
            const word q = basis::primes[static_cast<std::size_t>(limb)];
            const word top = (word{1} << (limb == 0 ? 45 : 44)) - 1;
            for (const word bad : {q, q + 1, top}) {
                poly p = polynomial<1>(51);
                (limb == 0 ? p.limb<0>() : p.limb<1>())[at] = bad;
                const bytes written = packed(p);
                wire::byte_reader from(written, "re-randomization key");
                poly back;
                CHECK(refusal<format_error>([&] { wire::read_polynomial(from, "b", back); }) ==
                      "re-randomization key: b, limb " + std::to_string(limb) + ": got a residue " +
                          std::to_string(bad) + ", expected all below its prime " + std::to_string(q));
            }
        }
    }
}

TEST_CASE("fewer bytes than a polynomial are refused, and unused bits must be zero") {
    const bytes written = packed(polynomial<1>(52));
    poly back;
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{5759}, std::size_t{5760}, written.size() - 1}) {
        wire::byte_reader from({written.data(), length}, "reply");
        CHECK(refusal<format_error>([&] {
                  wire::read_polynomial(from, "c0", back);
              }).starts_with("reply: got "));
    }
    const std::vector<word> values{1, 2, 4};
    bytes nine_bits(2);
    wire::byte_writer to(nine_bits, "test");
    wire::write_limb(values, 5, to);
    CHECK(nine_bits == bytes{0x11, 0x01});
    std::vector<word> got(3);
    for (const unsigned bit : {0x02U, 0x80U}) {
        const bytes dirty{0x11, static_cast<std::uint8_t>(1U | bit)};
        wire::byte_reader from(dirty, "reply");
        CHECK(refusal<format_error>([&] { wire::read_limb(from, "c0", 0, 5, got); }) ==
              "unpack_bits: the unused bits of the last byte are not zero");
    }
}

TEST_CASE("a limb that is zero everywhere is found, one that is not is not") {
    poly p = polynomial<1>(53);
    CHECK(wire::first_zero_limb(p) == -1);
    std::fill(p.limb<1>().begin(), p.limb<1>().end(), word{0});
    CHECK(wire::first_zero_limb(p) == 1);
    p.limb<1>()[1023] = 1;
    CHECK(wire::first_zero_limb(p) == -1);
    std::fill(p.limb<0>().begin(), p.limb<0>().end(), word{0});
    CHECK(wire::first_zero_limb(p) == 0);
    CHECK(wire::first_zero_limb(poly()) == 0);
}
