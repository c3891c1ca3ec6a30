#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/precision.hpp>
#include <tensafe/ckks/trace.hpp>

#include "fixture.hpp"

namespace {

using namespace fixture;

template <class P, int Level>
ckks::ciphertext<P, Level> encrypt(const ckks::secret_key<P>& key, tensafe::random::generator& source,
                                   const slot_vector& z, double scale) {
    return ckks::expand(ckks::encrypt(key, ckks::encode_slots<P, Level>(z, scale), source));
}

/// Entry r: the sum of the slots r, r + g, r + 2g, ...
slot_vector strided_sums(const slot_vector& z, std::size_t g) {
    slot_vector sums(g);
    for (std::size_t j = 0; j < z.size(); ++j) {
        sums[j % g] += z[j];
    }
    return sums;
}

/// The trace of a ciphertext equals the sums of its decoded slots, noise included, for every subring.
template <int Limbs, class P, int Level>
void check_every_trace(const ckks::secret_key<P>& key, const ckks::ciphertext<P, Level>& c) {
    const slot_vector slots = ckks::decrypt_slots(key, c);
    for (int log_n = 1; log_n <= P::log_n; ++log_n) {
        INFO("Limbs := ", Limbs, ", Level := ", Level, ", log_n := ", log_n);
        const auto trace = ckks::decrypt_trace<Limbs>(key, c, log_n);
        CHECK(trace.log_n == log_n);
        CHECK(trace.scale == c.scale);
        const slot_vector expected = strided_sums(slots, std::size_t{1} << (log_n - 1));
        const auto report = ckks::measure_precision(expected, ckks::decode_trace(trace));
        // Both sides round in double precision only.
        CHECK(report.worst_error <= 1e-12 * static_cast<double>(P::slots));
    }
}

}  // namespace

TEST_CASE("Folding equals decrypting, decoding and summing, for every subring and number of limbs") {
    auto source = generator(1);
    const ckks::secret_key<four_limbs> key(source);
    const slot_vector z = random_slots(four_limbs::slots, 1);
    const auto top = encrypt<four_limbs, 3>(key, source, z, 0x1p40);
    check_every_trace<1>(key, top);
    check_every_trace<2>(key, top);
    check_every_trace<3>(key, top);
    check_every_trace<4>(key, top);
    check_every_trace<1>(key, encrypt<four_limbs, 0>(key, source, z, 0x1p40));
    check_every_trace<2>(key, encrypt<four_limbs, 1>(key, source, z, 0x1p40));
    // A message that needs both limbs.
    check_every_trace<2>(key, encrypt<four_limbs, 2>(key, source, z, 0x1p80));
}

TEST_CASE("Folding does so at full size, and gives the sums of what was encrypted") {
    using P = ckks::n16384_l4;
    tensafe::random::generator source;
    const ckks::secret_key<P> key(source);
    const slot_vector x = random_slots(P::slots, 2);
    const slot_vector w = random_slots(P::slots, 3);
    auto c = encrypt<P, 3>(key, source, x, P::scale);
    ckks::multiply_plain(c, ckks::forward(ckks::encode_slots<P>(w)));
    const slot_vector products = combine(x, w, [](auto a, auto b) { return a * b; });
    for (const int log_n : {1, 4, 5, 9, 14}) {
        CAPTURE(log_n);
        const slot_vector expected = strided_sums(products, std::size_t{1} << (log_n - 1));
        const auto got = ckks::decode_trace(ckks::decrypt_trace<2>(key, c, log_n));
        CHECK(ckks::measure_precision(expected, got).worst_bits() > 20);
    }
}

TEST_CASE("Folding to a degree that no subring of the set has is refused") {
    auto source = generator(3);
    const ckks::secret_key<four_limbs> key(source);
    const auto c = encrypt<four_limbs, 0>(key, source, {}, 0x1p40);
    for (const int log_n : {-1, 0, four_limbs::log_n + 1, 64}) {
        CAPTURE(log_n);
        const std::string message =
            "log_n: got " + std::to_string(log_n) + ", expected 1 to " + std::to_string(four_limbs::log_n);
        CHECK_THROWS_WITH_AS(ckks::decrypt_trace<1>(key, c, log_n), doctest::Contains(message.c_str()),
                             tensafe::parameter_error);
    }
}
