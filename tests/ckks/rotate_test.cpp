#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/precision.hpp>
#include <tensafe/ckks/rotate.hpp>

#include "../backends.hpp"
#include "fixture.hpp"
#include "key_switching_sets.hpp"

using namespace tests;

namespace {

using namespace fixture;

slot_vector rotated(const slot_vector& z, long long step) {
    slot_vector result(z.size());
    const auto n = static_cast<long long>(z.size());
    for (long long j = 0; j < n; ++j) {
        result[static_cast<std::size_t>(j)] = z[static_cast<std::size_t>(((j + step) % n + n) % n)];
    }
    return result;
}

template <class P, class... Lists>
struct client {
    tensafe::random::generator source = generator(1);
    ckks::secret_key<P> key{source};
    ckks::galois_keys<P, Lists...> galois{key, source};

    template <int Level = P::max_level>
    ckks::ciphertext<P, Level> encrypt(const slot_vector& z) {
        return ckks::expand(ckks::encrypt(key, ckks::encode_slots<P, Level>(z), source));
    }
};

template <class C, class Ciphertext>
double bits(const C& c, const slot_vector& expected, const Ciphertext& got) {
    return ckks::measure_precision(expected, ckks::decrypt_slots(c.key, got)).worst_bits();
}

}  // namespace

TEST_CASE_TEMPLATE("a rotation moves all slots to the left, one to the right is negative", P,
                   KEY_SWITCHING_SETS) {
    client<P, ckks::rotations<1, -1, 5>, ckks::conjugation> c;
    const slot_vector z = random_slots(P::slots, 1);
    const auto a = c.encrypt(z);
    const auto left = ckks::rotate<1>(a, c.galois);
    CHECK(left.scale == a.scale);
    CHECK(bits(c, rotated(z, 1), left) > 18);
    CHECK(bits(c, rotated(z, -1), ckks::rotate<-1>(a, c.galois)) > 18);
    CHECK(bits(c, rotated(z, 5), ckks::rotate(a, 5, c.galois)) > 18);
    CHECK(bits(c, rotated(z, 6), ckks::rotate<1>(ckks::rotate<5>(a, c.galois), c.galois)) > 18);
    CHECK(ckks::rotate<0>(a, c.galois).c0 == a.c0);
    CHECK(ckks::rotate(a, static_cast<long long>(P::slots), c.galois).c1 == a.c1);
    // A whole turn less one to the right.
    CHECK(ckks::rotate(a, 1 - static_cast<long long>(P::slots), c.galois).c1 == left.c1);
    slot_vector conjugates = z;
    for (auto& slot : conjugates) {
        slot = std::conj(slot);
    }
    CHECK(bits(c, conjugates, ckks::conjugate(a, c.galois)) > 18);
}

TEST_CASE("rotations work at every level, with keys for the top one") {
    using P = three_a_digit;
    client<P, ckks::rotations<2>> c;
    const slot_vector z = random_slots(P::slots, 2);
    CHECK(bits(c, rotated(z, 2), ckks::rotate<2>(c.encrypt<3>(z), c.galois)) > 18);
    CHECK(bits(c, rotated(z, 2), ckks::rotate<2>(c.encrypt<2>(z), c.galois)) > 18);
    CHECK(bits(c, rotated(z, 2), ckks::rotate<2>(c.encrypt<0>(z), c.galois)) > 18);
}

TEST_CASE_TEMPLATE("rotations of a hoisted ciphertext are those of the ciphertext, bit for bit", P,
                   KEY_SWITCHING_SETS) {
    client<P, ckks::rotations<1, -7>, ckks::conjugation> c;
    const auto check = [&](const auto& a) {
        const auto hoisted = ckks::hoist(a, c.galois);
        const auto same = [](const auto& x, const auto& y) {
            CHECK(x.c0 == y.c0);
            CHECK(x.c1 == y.c1);
            CHECK(x.scale == y.scale);
        };
        same(ckks::rotate<1>(hoisted, c.galois), ckks::rotate<1>(a, c.galois));
        same(ckks::rotate<-7>(hoisted, c.galois), ckks::rotate<-7>(a, c.galois));
        same(ckks::rotate(hoisted, -7, c.galois), ckks::rotate(a, -7, c.galois));
        same(ckks::rotate<0>(hoisted, c.galois), a);
        same(ckks::rotate(hoisted, 0, c.galois), a);
        same(ckks::conjugate(hoisted, c.galois), ckks::conjugate(a, c.galois));
        CHECK_THROWS_AS(static_cast<void>(ckks::rotate(hoisted, 3, c.galois)), parameter_error);
    };
    check(c.encrypt(random_slots(P::slots, 5)));
    check(c.template encrypt<1>(random_slots(P::slots, 6)));
}

TEST_CASE("an inner sum leaves the sum of all slots in each, or of those a stride apart") {
    using P = one_a_digit;
    client<P, ckks::inner_sum_rotations<P>> c;
    const slot_vector z = random_slots(P::slots, 3, 1.0 / static_cast<double>(P::slots));
    const auto total = std::accumulate(z.begin(), z.end(), std::complex<double>());
    CHECK(bits(c, slot_vector(P::slots, total), ckks::inner_sum(c.encrypt(z), c.galois)) > 14);
    slot_vector of_four(P::slots);
    for (std::size_t j = 0; j < P::slots; ++j) {
        for (std::size_t k = 0; k < 64; k += 16) {
            of_four[j] += z[(j + k) % P::slots];
        }
    }
    CHECK(bits(c, of_four, ckks::inner_sum<16, 64>(c.encrypt(z), c.galois)) > 18);
    CHECK(bits(c, z, ckks::inner_sum<16, 16>(c.encrypt(z), c.galois)) > 18);
    CHECK(std::is_same_v<ckks::inner_sum_rotations<P, 16, 64>, ckks::rotations<16, 32>>);
}

TEST_CASE("a step without a key is refused, and those with one are listed") {
    client<one_a_digit, ckks::rotations<1, 4, -1, 4>> c;
    const auto a = c.encrypt(random_slots(one_a_digit::slots, 4));
    CHECK(std::vector<std::size_t>(c.galois.steps().begin(), c.galois.steps().end()) ==
          std::vector<std::size_t>{1, 4, 511});
    CHECK(refusal<parameter_error>([&] { static_cast<void>(ckks::rotate(a, -3, c.galois)); }) ==
          "rotate: got a step of -3, expected one with a key: 1, 4, -1");
}
