#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/wire/evaluation_key.hpp>

#include "../ckks/fixture.hpp"
#include "../ckks/key_switching_sets.hpp"
#include "sample_messages.hpp"

using namespace tests;

namespace {

using namespace sample_messages;
using tensafe::arith::word;
using namespace wire_fixture;

// A whole key, in memory, has 16 N bytes for each digit and limb: a message has b alone, and no unused bits.
static_assert(wire::relinearization_key_bytes<switching> == 64 + 32 + 2 * (1024 * (45 + 44 + 46) / 8));
static_assert(wire::relinearization_key_bytes<switching, 0> == 64 + 32 + 1024 * (45 + 46) / 8);
static_assert(wire::galois_keys_bytes<switching, 0, ckks::rotations<1, -1, 1, 512>, ckks::conjugation> ==
              68 + 3 * (36 + 1024 * (45 + 46) / 8));
static_assert(wire::galois_keys_bytes<switching, 1, ckks::rotations<0>> == 68);
static_assert(2 * wire::relinearization_key_bytes<ckks::n16384_depth5> < 2 * 9 * 16 * 16384);

using galois_lists = ckks::galois_keys_at<switching, 0, ckks::rotations<1>, ckks::conjugation>;
galois_lists read_galois_keys(const bytes& message) {
    return wire::read_galois_keys<switching, 0, ckks::rotations<1>, ckks::conjugation>(message);
}

std::string why_relinearization_key_refused(const bytes& message) {
    return refusal<format_error>([&] { wire::read_relinearization_key<switching>(resealed(message)); });
}
std::string why_galois_keys_refused(const bytes& message) {
    return refusal<format_error>([&] { read_galois_keys(resealed(message)); });
}

/// A message whose first residues from this byte on are `value`, of so many bits.
bytes with_residues(bytes message, std::size_t at, word value, int bits) {
    const std::vector<word> residues(8, value);
    tensafe::memory::pack_bits(std::span<const word>(residues), bits,
                               std::span(message).subspan(at, static_cast<std::size_t>(bits)));
    return message;
}

/// Keys that a secret made, those that their messages made, and ciphertexts for them.
template <class Set, int Level>
struct sent {
    using lists = ckks::galois_keys_at<Set, Level, ckks::rotations<3, -1>, ckks::conjugation>;

    random::generator generator = fixture::generator(1);
    ckks::secret_key<Set> secret{generator};
    ckks::relinearization_key<Set, Level> relinearization{secret, generator};
    lists galois{secret, generator};
    bytes relinearization_message = wire::write_relinearization_key(relinearization, {5, 6});
    bytes galois_message = wire::write_galois_keys(galois, {7, 8});
    ckks::relinearization_key<Set, Level> relinearization_read =
        wire::read_relinearization_key<Set, Level>(relinearization_message);
    lists galois_read =
        wire::read_galois_keys<Set, Level, ckks::rotations<3, -1>, ckks::conjugation>(galois_message);
    ckks::ciphertext<Set, Level> c = ckks::expand(ckks::encrypt(
        secret, ckks::encode_slots<Set, Level>(fixture::random_slots(Set::slots, 2), 0x1p20), generator));
};

template <class Set, int Level>
void check_there_and_back() {
    CAPTURE(Level);
    const sent<Set, Level> of;
    CHECK(of.relinearization_message.size() == wire::relinearization_key_bytes<Set, Level>);
    CHECK(has_header<Set>(of.relinearization_message, wire::kind::relinearization_key, 5, 6));
    CHECK(same(of.relinearization_read.key(), of.relinearization.key()));
    CHECK(wire::write_relinearization_key(of.relinearization_read, {5, 6}) == of.relinearization_message);
    CHECK(has_header<Set>(of.galois_message, wire::kind::galois_keys, 7, 8));
    REQUIRE(of.galois_read.keys().size() == 3);
    for (std::size_t k = 0; k < 3; ++k) {
        CHECK(of.galois_read.keys()[k].move.exponent() == of.galois.keys()[k].move.exponent());
        CHECK(same(of.galois_read.keys()[k].key, of.galois.keys()[k].key));
    }
    CHECK(wire::write_galois_keys(of.galois_read, {7, 8}) == of.galois_message);

    const auto equal = [](const auto& a, const auto& b) { return a.c0 == b.c0 && a.c1 == b.c1; };
    const auto square = ckks::square(of.c);
    CHECK(equal(ckks::relinearize(square, of.relinearization_read),
                ckks::relinearize(square, of.relinearization)));
    CHECK(equal(ckks::rotate<3>(of.c, of.galois_read), ckks::rotate<3>(of.c, of.galois)));
    CHECK(equal(ckks::rotate<-1>(of.c, of.galois_read), ckks::rotate<-1>(of.c, of.galois)));
    CHECK(equal(ckks::conjugate(of.c, of.galois_read), ckks::conjugate(of.c, of.galois)));
}

}  // namespace

TEST_CASE_TEMPLATE("keys come back as they were, and compute the same, bit for bit", Set,
                   KEY_SWITCHING_SETS) {
    check_there_and_back<Set, Set::max_level>();
    check_there_and_back<Set, 1>();
}

TEST_CASE("a body of another length is refused, though the checksums fit") {
    every_truncation_is_refused(wire::write_relinearization_key(relinearization_key()),
                                [](const bytes& m) { wire::read_relinearization_key<switching>(m); });
    every_truncation_is_refused(wire::write_galois_keys(galois_keys()), read_galois_keys);
}

TEST_CASE("a relinearization key that is malformed is refused") {
    const bytes good = wire::write_relinearization_key(relinearization_key());
    CHECK(why_relinearization_key_refused(with_number(good, 48, std::uint32_t{0})) ==
          "relinearization key: level: got 0, expected 1");
    CHECK(why_relinearization_key_refused(with_number(good, 52, std::uint64_t{3})) ==
          "relinearization key: bytes 4 to 11 of its body: got 3, expected 0");
    CHECK(refusal<format_error>([&] { wire::read_relinearization_key<switching, 0>(good); }) ==
          "relinearization key: level: got 1, expected 0");
    CHECK(why_relinearization_key_refused(with_size(good, good.size() - 1)) ==
          "relinearization key: got 34591 more bytes, expected 34592");
    CHECK(refusal<format_error>([&] { read_galois_keys(good); }) ==
          "message: got a relinearization key, expected a set of Galois keys");
    CHECK(contains(
        refusal<parameter_error>([&] { wire::read_relinearization_key<fixture::one_a_digit>(good); }),
        "relinearization key: parameter set: got an unknown parameter set"));
    // b of the first digit, its last limb, and of the second digit, its first one.
    constexpr std::size_t first = 92;
    constexpr std::size_t last_limb = first + 128 * (45 + 44);
    constexpr std::size_t second = last_limb + 128 * 46;
    constexpr word special = switching::special_primes[0];
    CHECK(why_relinearization_key_refused(with_residues(good, last_limb, special, 46)) ==
          "relinearization key: b of digit 0, limb 2: got a residue 70368744067073, expected all below its "
          "prime 70368744067073");
    CHECK(takes([](const bytes& m) { wire::read_relinearization_key<switching>(m); },
                resealed(with_residues(good, last_limb, special - 1, 46))) == 1);
    CHECK(why_relinearization_key_refused(with_residues(good, second, switching::basis::prime<0>, 45)) ==
          "relinearization key: b of digit 1, limb 0: got a residue 35184372060161, expected all below its "
          "prime 35184372060161");
    bytes message = good;
    std::fill_n(message.begin() + last_limb, 128 * 46, std::uint8_t{0});
    CHECK(why_relinearization_key_refused(message) ==
          "relinearization key: b of digit 0, limb 2: every residue is 0, expected random ones");
}

TEST_CASE("Galois keys other than those of the lists, in their order, are refused") {
    const bytes good = wire::write_galois_keys(galois_keys());
    const auto refused = [&](auto read) { return refusal<format_error>([&] { read(good); }); };
    CHECK(refused(wire::read_galois_keys<switching, 0, ckks::rotations<1>>) ==
          "set of Galois keys: got 2 keys, expected 1");
    CHECK(refused(wire::read_galois_keys<switching, 0, ckks::rotations<1, 2>, ckks::conjugation>) ==
          "set of Galois keys: got 2 keys, expected 3");
    CHECK(refused(wire::read_galois_keys<switching, 0, ckks::rotations<2>, ckks::conjugation>) ==
          "set of Galois keys: got the key of the rotation by 1, expected that of the rotation by 2");
    CHECK(refused(wire::read_galois_keys<switching, 0, ckks::rotations<1, 2>>) ==
          "set of Galois keys: got the key of the conjugation, expected that of the rotation by 2");
    CHECK(refused(wire::read_galois_keys<switching, 1, ckks::rotations<1>, ckks::conjugation>) ==
          "set of Galois keys: level: got 0, expected 1");
    CHECK(why_galois_keys_refused(with_number(good, 60, std::uint32_t{0xFFFFFFFF})) ==
          "set of Galois keys: got 4294967295 keys, expected 2");
    CHECK(why_galois_keys_refused(with_size(good, good.size() + 1)) ==
          "set of Galois keys: got 23369 more bytes, expected 23368");
    // The second key: its exponent, and b, whose first limb is not below its prime.
    constexpr std::size_t second = 64 + 36 + 128 * (45 + 46);
    CHECK(why_galois_keys_refused(with_number(good, second, std::uint32_t{5})) ==
          "set of Galois keys: got the key of the rotation by 1, expected that of the conjugation");
    CHECK(why_galois_keys_refused(with_residues(good, second + 36, switching::basis::prime<0>, 45)) ==
          "set of Galois keys: the conjugation, b of digit 0, limb 0: got a residue 35184372060161, expected "
          "all below "
          "its prime 35184372060161");
    bytes message = good;
    std::fill(message.begin() + second + 36, message.end(), std::uint8_t{0});
    CHECK(why_galois_keys_refused(message) ==
          "set of Galois keys: the conjugation, b of digit 0, limb 0: every residue is 0, expected random "
          "ones");
}

TEST_CASE("a list of whole turns has a message without keys") {
    const ckks::galois_keys_at<switching, 1, ckks::rotations<0, 512>> none(
        [](word) -> ckks::evaluation_key<switching, 1> { throw std::logic_error("there is no key"); });
    const bytes message = wire::write_galois_keys(none);
    CHECK(message.size() == 68);
    CHECK(wire::read_galois_keys<switching, 1, ckks::rotations<0>>(message).keys().empty());
}

TEST_CASE("a key that was never filled is not written, and one of another number of digits not made") {
    using key = ckks::evaluation_key<switching, 1>;
    std::vector<key::polynomial> b(2);
    b[0] = polynomial_of<key::basis>(1);
    const auto refused = [](auto write) { return refusal<parameter_error>(write); };
    CHECK(refused([&] {
              wire::write_relinearization_key(ckks::relinearization_key<switching, 1>({counting_seed(1), b}));
          }) == "relinearization key: b of digit 1, limb 0: every residue is 0, expected random ones");
    CHECK(refused([&] {
              wire::write_galois_keys(ckks::galois_keys_at<switching, 1, ckks::rotations<2>>(
                  [&](word) { return key(counting_seed(1), b); }));
          }) ==
          "set of Galois keys: the rotation by 2, b of digit 1, limb 0: every residue is 0, expected random "
          "ones");
    b.pop_back();
    CHECK(refusal<shape_error>([&] { key(counting_seed(1), b); }) ==
          "evaluation_key: got 1 polynomials b, expected one a digit: 2");
}
