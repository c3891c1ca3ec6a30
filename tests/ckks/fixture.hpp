#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/random/generator.hpp>

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "../refusal.hpp"

/// What the tests of this folder share: small rings, so that they are quick, and reproducible inputs.
namespace fixture {

namespace ckks = tensafe::ckks;
using tests::refusal;

using four_limbs = ckks::parameters<10, ckks::limb_bits<60, 40, 40, 60>, 40, ckks::insecure_for_tests>;
using five_limbs = ckks::parameters<11, ckks::limb_bits<60, 40, 40, 40, 60>, 40, ckks::insecure_for_tests>;

using slot_vector = std::vector<std::complex<double>>;

/// Uniform in the disc of that radius, the first one on its edge.
inline slot_vector random_slots(std::size_t count, std::uint64_t seed, double radius = 1) {
    std::mt19937_64 generator(seed);
    std::uniform_real_distribution<double> uniform;
    slot_vector slots(count);
    for (std::size_t j = 0; j < count; ++j) {
        const double magnitude = j == 0 ? radius : radius * std::sqrt(uniform(generator));
        slots[j] = std::polar(magnitude, 2 * std::numbers::pi * uniform(generator));
    }
    return slots;
}

template <class F>
slot_vector combine(const slot_vector& a, const slot_vector& b, F f) {
    slot_vector result(a.size());
    for (std::size_t j = 0; j < a.size(); ++j) {
        result[j] = f(a[j], b[j]);
    }
    return result;
}

/// A generator that repeats itself from run to run.
inline tensafe::random::generator generator(std::uint8_t number) {
    tensafe::random::seed start;
    start.bytes[0] = number;
    return tensafe::random::generator(start);
}

}  // namespace fixture
