#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/device/encoding/decode.hpp>
#include <tensafe/rns/crt.hpp>

#include "../device_data.hpp"

namespace tests {

/// A narrow prime before and after wide ones: offsets of several multiples.
using uneven_basis = rns::basis<3, 17, arith::ntt_prime_below(arith::word{1} << 60, 3), 97,
                                arith::ntt_prime_below(arith::word{1} << 50, 3)>;

/// Residues at limb * count + k.
template <class Basis>
struct reconstruct_number {
    const word* residues;
    double* out;
    std::uint32_t count;

    TENSAFE_HOST_DEVICE void operator()(std::uint32_t k) const {
        word of_one[Basis::limbs];
        for (int i = 0; i < Basis::limbs; ++i) {
            of_one[i] = residues[static_cast<std::uint32_t>(i) * count + k];
        }
        out[k] = device::to_double_of<Basis>(of_one);
    }
};

template <class Basis, class Where>
void check_crt(const Where& where) {
    constexpr std::size_t count = 1500;
    constexpr auto limbs = static_cast<std::size_t>(Basis::limbs);
    random_numbers generator(1);
    std::vector<word> residues(limbs * count);
    for (std::size_t i = 0; i < limbs; ++i) {
        const word q = Basis::primes[i];
        const std::array<word, 4> edges{0, 1, (q - 1) / 2, q - 1};
        for (std::size_t k = 0; k < count; ++k) {
            // All combinations of edges first, then small integers of both signs, then anything.
            const auto small = static_cast<std::int64_t>(generator() % 4) - 2;
            residues[i * count + k] =
                k < 256 ? edges[k >> (2 * i) & 3]
                : k < 512
                    ? static_cast<word>((static_cast<std::int64_t>(k) - 384 + static_cast<std::int64_t>(q)) %
                                        static_cast<std::int64_t>(q))
                : k < 700 ? static_cast<word>((static_cast<std::int64_t>(q) / 2 + small)) % q
                          : generator() % q;
        }
    }
    const auto device_residues = to_device(where, residues);
    auto device_out = poisoned<double>(where, count);
    for_each_number(where, count,
                    reconstruct_number<Basis>{device_residues.data(), device_out.data(), count});
    const auto out = to_host(where, device_out);
    std::size_t wrong = 0;
    for (std::size_t k = 0; k < count; ++k) {
        std::array<word, limbs> of_one{};
        for (std::size_t i = 0; i < limbs; ++i) {
            of_one[i] = residues[i * count + k];
        }
        const double expected = rns::to_double<Basis>(of_one);
        wrong += std::bit_cast<word>(out[k]) != std::bit_cast<word>(expected) ? 1U : 0U;
    }
    CHECK(wrong == 0);
}

}  // namespace tests
