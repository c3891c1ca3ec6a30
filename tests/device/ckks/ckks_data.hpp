#pragma once

#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/device/rns/poly_stack.hpp>

#include "../device_data.hpp"

namespace tests {

inline random::generator repeating_generator(std::uint8_t number) {
    return random::generator(numbered_seed(number));
}

/// The next seeds of a generator that starts like that one.
inline std::vector<random::seed> seeds_of(std::uint8_t number, std::size_t count) {
    auto source = repeating_generator(number);
    std::vector<random::seed> seeds(count);
    for (auto& seed : seeds) {
        seed = source.next_seed();
    }
    return seeds;
}

/// N real values for each message, the first of them near the ends of what fits.
template <class P>
std::vector<double> random_reals(std::size_t messages, std::uint64_t seed) {
    std::vector<double> reals = random_numbers(seed).uniforms(messages * P::degree);
    reals[0] = 1;
    reals[1] = -1;
    reals[2] = -0.0;
    return reals;
}

template <class P, int Level>
rns::secret_poly<typename P::template basis_at<Level>, rns::coefficient_form> encoded(
    const std::vector<double>& reals, std::size_t message, double scale) {
    return ckks::encode_coefficients<P, Level>(std::span(reals).subspan(message * P::degree, P::degree),
                                               scale)
        .value;
}

/// Polynomial p of a result in the memory of a device, which has the words of limbs * N each.
template <class Basis>
bool equal_words(const std::vector<word>& stack, std::size_t p, std::span<const word> expected) {
    return std::equal(expected.begin(), expected.end(),
                      stack.begin() + static_cast<std::ptrdiff_t>(p * device::words_of_poly<Basis>));
}

}  // namespace tests
