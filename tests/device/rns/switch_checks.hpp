#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/device/rns/rescale.hpp>
#include <tensafe/rns/switch_modulus.hpp>

#include "../device_data.hpp"

namespace tests::switch_checks {

/// Coefficient k of a polynomial with `count` coefficients, [limb][count].
template <class Basis>
struct switch_coefficient {
    const word* residues;
    std::uint32_t* out;
    std::uint32_t count;
    std::uint32_t bits;

    TENSAFE_HOST_DEVICE void operator()(std::uint32_t k) const {
        word shares = 0;
        for (int i = 0; i < Basis::limbs; ++i) {
            device::with_index<Basis::limbs>(
                i, [&]<int I>() { shares += rns::detail::share_of<Basis, I>(residues[I * count + k]); });
        }
        out[k] = device::round_shares(shares, bits);
    }
};

template <class Basis, class Where>
void check_basis(const Where& where) {
    constexpr std::uint32_t count = 150;
    random_numbers random(Basis::primes[0]);
    std::vector<word> words;
    std::array<std::vector<word>, static_cast<std::size_t>(Basis::limbs)> limbs;
    std::array<std::span<const word>, static_cast<std::size_t>(Basis::limbs)> spans;
    for (std::size_t i = 0; i < limbs.size(); ++i) {
        const word q = Basis::primes[i];
        for (std::uint32_t k = 0; k < count; ++k) {
            const word edges[] = {0, 1, q - 1, q / 2, q / 2 + 1};
            limbs[i].push_back(k < 5 ? edges[k] : random() % q);
        }
        words.insert(words.end(), limbs[i].begin(), limbs[i].end());
        spans[i] = limbs[i];
    }
    const auto residues = tests::to_device(where, words);
    for (const int bits : {1, 7, 20, 31, 32}) {
        CAPTURE(bits);
        std::vector<std::uint32_t> expected(count);
        rns::switch_modulus<Basis>(spans, bits, expected);
        auto got = tests::poisoned<std::uint32_t>(where, count);
        for_each_number(
            where, count,
            switch_coefficient<Basis>{residues.data(), got.data(), count, static_cast<std::uint32_t>(bits)});
        CHECK(tests::to_host<std::uint32_t>(where, got) == expected);
    }
}

void check_switch(const auto& where) {
    check_basis<rns::basis<6, arith::ntt_prime_below(word{1} << 41, 6)>>(where);
    check_basis<
        rns::basis<6, arith::ntt_prime_below(word{1} << 45, 6), arith::ntt_prime_below(word{1} << 44, 6)>>(
        where);
    check_basis<
        rns::basis<6, arith::ntt_prime_below(word{1} << 60, 6), arith::ntt_prime_below(word{1} << 40, 6),
                   arith::ntt_prime_below(word{1} << 61, 6)>>(where);
}

}  // namespace tests::switch_checks
