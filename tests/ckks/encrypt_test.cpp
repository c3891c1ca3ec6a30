#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/precision.hpp>

#include "fixture.hpp"

using namespace tests;

namespace {

using namespace fixture;

/// The largest magnitude among the noise's coefficients, seen modulo the first prime; and whether the other
/// primes see the same noise.
template <class P, int Level>
std::int64_t largest_noise(const ckks::secret_key<P>& key, const ckks::ciphertext<P, Level>& c,
                           const ckks::plaintext<P, rns::coefficient_form, Level>& message) {
    auto noise = ckks::inverse(ckks::decrypt(key, c)).value;
    rns::subtract(noise, message.value);
    using basis = typename P::template basis_at<Level>;
    std::int64_t largest = 0;
    bool same = true;
    rns::for_each_limb<basis>([&]<int I>() {
        for (std::size_t k = 0; k < P::degree; ++k) {
            const std::int64_t first = centred(noise.template limb<0>()[k], basis::template prime<0>);
            same &= centred(noise.template limb<I>()[k], basis::template prime<I>) == first;
            largest = std::max(largest, std::abs(first));
        }
    });
    CHECK(same);
    return largest;
}

template <int Level, class P>
void check_round_trips(const ckks::secret_key<P>& secret, const ckks::public_key<P>& open,
                       tensafe::random::generator& source) {
    CAPTURE(Level);
    const slot_vector z = random_slots(P::slots, 7);
    const auto message = ckks::encode_slots<P, Level>(z);
    constexpr auto n = static_cast<std::int64_t>(P::degree);

    const auto own = ckks::expand(ckks::encrypt(secret, message, source));
    CHECK(largest_noise(secret, own, message) <= 21);
    CHECK(largest_noise(secret, own, message) >= 5);  // there is noise
    CHECK(ckks::measure_precision(z, ckks::decrypt_slots(secret, own)).worst_bits() > 28);

    const auto theirs = ckks::encrypt(open, message, source);
    CHECK(largest_noise(secret, theirs, message) <= 21 * (2 * n + 1));
    CHECK(largest_noise(secret, theirs, message) > 21);
    CHECK(ckks::measure_precision(z, ckks::decrypt_slots(secret, theirs)).worst_bits() > 24);
}

}  // namespace

TEST_CASE("Both encryptions decrypt to the message at every level, with noise within its bound") {
    auto source = generator(1);
    const ckks::secret_key<four_limbs> secret(source);
    const ckks::public_key<four_limbs> open(secret, source);
    check_round_trips<3>(secret, open, source);
    check_round_trips<2>(secret, open, source);
    check_round_trips<1>(secret, open, source);
    check_round_trips<0>(secret, open, source);
}

TEST_CASE("Both encryptions decrypt to the message at full size") {
    using P = ckks::n16384_l4;
    tensafe::random::generator source;
    const ckks::secret_key<P> secret(source);
    const ckks::public_key<P> open(secret, source);
    const slot_vector z = random_slots(P::slots, 8);
    const auto message = ckks::encode_slots<P>(z);
    const auto own = ckks::expand(ckks::encrypt(secret, message, source));
    CHECK(ckks::measure_precision(z, ckks::decrypt_slots(secret, own)).worst_bits() > 28);
    const auto theirs = ckks::encrypt(open, message, source);
    CHECK(ckks::measure_precision(z, ckks::decrypt_slots(secret, theirs)).worst_bits() > 21);
}

TEST_CASE("Encrypting twice gives ciphertexts that share nothing") {
    auto source = generator(2);
    const ckks::secret_key<four_limbs> secret(source);
    const ckks::public_key<four_limbs> open(secret, source);
    const auto message = ckks::encode_slots<four_limbs>(random_slots(four_limbs::slots, 9));

    const auto a = ckks::encrypt(secret, message, source);
    const auto b = ckks::encrypt(secret, message, source);
    CHECK(!(a.seed == b.seed));
    CHECK(!(a.c0 == b.c0));
    // Not the error alone: c0 - c0' without c1 would be e - e', small.
    CHECK(!(ckks::expand(a).c1 == ckks::expand(b).c1));

    const auto c = ckks::encrypt(open, message, source);
    const auto d = ckks::encrypt(open, message, source);
    CHECK(!(c.c0 == d.c0));
    CHECK(!(c.c1 == d.c1));
    CHECK(!(c.c1 == open.a()));
}

TEST_CASE("The seed in a ciphertext tells nothing of the error: it is not the error's seed") {
    auto source = generator(3);
    const ckks::secret_key<four_limbs> secret(source);
    const auto message = ckks::encode_slots<four_limbs>({});
    const auto c = ckks::encrypt(secret, message, source);
    const auto noise = ckks::inverse(ckks::decrypt(secret, ckks::expand(c)));
    std::vector<std::int8_t> error(four_limbs::degree);
    tensafe::random::sample_error(c.seed, tensafe::random::stream_domain::error, 0, error);
    rns::secret_poly<four_limbs::basis, rns::coefficient_form> from_public_seed;
    ckks::add_small(error, from_public_seed);
    CHECK(!(noise.value == from_public_seed));
}

TEST_CASE("The scale of the message travels with it, and another key reads noise") {
    auto source = generator(4);
    const ckks::secret_key<four_limbs> secret(source);
    const ckks::secret_key<four_limbs> stranger(source);
    const slot_vector z = random_slots(four_limbs::slots, 10);
    const auto seeded = ckks::encrypt(secret, ckks::encode_slots<four_limbs>(z, 0x1p30), source);
    CHECK(seeded.scale == 0x1p30);
    const auto c = ckks::expand(seeded);
    CHECK(ckks::decrypt(secret, c).scale == 0x1p30);
    CHECK(ckks::measure_precision(z, ckks::decrypt_slots(secret, c)).worst_bits() > 18);
    const auto noise = ckks::decrypt_slots(stranger, c);
    CHECK(std::all_of(noise.begin(), noise.end(), [](auto x) { return std::abs(x) > 0x1p100; }));
}

TEST_CASE("A generator in the same state makes the same ciphertext") {
    auto source = generator(5);
    const ckks::secret_key<four_limbs> secret(source);
    const ckks::public_key<four_limbs> open(secret, source);
    const auto message = ckks::encode_slots<four_limbs>(random_slots(four_limbs::slots, 11));
    auto one = generator(6);
    auto same = generator(6);
    const auto a = ckks::encrypt(secret, message, one);
    const auto b = ckks::encrypt(secret, message, same);
    CHECK(a.c0 == b.c0);
    CHECK(a.seed == b.seed);
    const auto c = ckks::encrypt(open, message, one);
    const auto d = ckks::encrypt(open, message, same);
    CHECK(c.c0 == d.c0);
    CHECK(c.c1 == d.c1);
}
