#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/rns/poly.hpp>

#include <numbers>

#include "../test.hpp"

/// What the tests of this folder share: small rings, so that they are quick, and reproducible inputs.
namespace fixture {

namespace ckks = tensafe::ckks;
using tests::refusal;

using four_limbs = ckks::parameters<10, ckks::limb_bits<60, 40, 40, 60>, 40, ckks::insecure_for_tests>;
using five_limbs = ckks::parameters<11, ckks::limb_bits<60, 40, 40, 40, 60>, 40, ckks::insecure_for_tests>;

using slot_vector = std::vector<std::complex<double>>;

/// Uniform in the disc of that radius, the first one on its edge.
inline slot_vector random_slots(std::size_t count, std::uint64_t seed, double radius = 1) {
    tests::random_numbers generator(seed);
    slot_vector slots(count);
    for (std::size_t j = 0; j < count; ++j) {
        const double magnitude = j == 0 ? radius : radius * std::sqrt(generator.uniform(0, 1));
        slots[j] = std::polar(magnitude, 2 * std::numbers::pi * generator.uniform(0, 1));
    }
    return slots;
}

slot_vector combine(const slot_vector& a, const slot_vector& b, auto f) {
    slot_vector result(a.size());
    for (std::size_t j = 0; j < a.size(); ++j) {
        result[j] = f(a[j], b[j]);
    }
    return result;
}

/// x modulo q as a number in (-q/2, q/2).
inline std::int64_t centred(tensafe::arith::word x, tensafe::arith::word q) {
    return x > q / 2 ? -static_cast<std::int64_t>(q - x) : static_cast<std::int64_t>(x);
}

/// The signed coefficients of limb 0, which must be those of every limb.
template <class Poly>
std::vector<std::int64_t> small_coefficients(const Poly& p) {
    std::vector<std::int64_t> first;
    tensafe::rns::for_each_limb<typename Poly::basis_type>([&]<int I>() {
        std::vector<std::int64_t> values;
        for (const tensafe::arith::word x : p.template limb<I>()) {
            values.push_back(centred(x, Poly::basis_type::template prime<I>));
        }
        if constexpr (I == 0) {
            first = values;
        }
        CHECK(values == first);
    });
    return first;
}

/// A generator that repeats itself from run to run.
inline tensafe::random::generator generator(std::uint8_t number) {
    return tensafe::random::generator(tests::numbered_seed(number));
}

}  // namespace fixture
