#pragma once

// The one source of what tests draw: the same in each run.

#include <tensafe/random/seed.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace tests {

/// Draws of one seed: random words, as the standard library's distributions take them, and what tests make of
/// them.
class random_numbers : public std::mt19937_64 {
  public:
    using std::mt19937_64::mt19937_64;

    double uniform(double low, double high) {
        return std::uniform_real_distribution<double>(low, high)(*this);
    }
    /// Below q; of some ten of them one is 0 and one q - 1, the ends of the range.
    std::uint64_t residue(std::uint64_t q) {
        const std::uint64_t draw = (*this)();
        return draw % 7 == 0 ? 0 : draw % 11 == 0 ? q - 1 : (draw >> 1) % q;
    }

    /// `count` results of draw().
    template <class Draw>
    auto many(std::size_t count, Draw draw) {
        std::vector<decltype(draw())> values(count);
        for (auto& x : values) {
            x = draw();
        }
        return values;
    }
    std::vector<double> uniforms(std::size_t count, double low = -1, double high = 1) {
        return many(count, [&] { return uniform(low, high); });
    }
    template <class Real>
    std::vector<Real> normals(std::size_t count, Real deviation = 1) {
        std::normal_distribution<Real> normal(0, deviation);
        return many(count, [&] { return normal(*this); });
    }
    std::vector<std::uint64_t> residues(std::size_t count, std::uint64_t q) {
        return many(count, [&] { return residue(q); });
    }
    /// A polynomial of such residues.
    template <class Poly>
    Poly poly() {
        Poly p;
        [&]<int... I>(std::integer_sequence<int, I...>) {
            (..., std::generate(p.template limb<I>().begin(), p.template limb<I>().end(),
                                [&] { return residue(Poly::basis_type::template prime<I>); }));
        }
        (std::make_integer_sequence<int, Poly::basis_type::limbs>());
        return p;
    }
    std::vector<std::uint8_t> bytes(std::size_t count) {
        return many(count, [&] { return static_cast<std::uint8_t>((*this)()); });
    }
};

/// The seed of that number.
inline tensafe::random::seed numbered_seed(std::uint64_t number) {
    tensafe::random::seed result;
    for (std::size_t i = 0; i < 8; ++i) {
        result.bytes[i] = static_cast<std::uint8_t>(number >> (8 * i));
    }
    return result;
}

}  // namespace tests
