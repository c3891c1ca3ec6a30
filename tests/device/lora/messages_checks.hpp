#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/device/lora/messages.hpp>

#include "../device_data.hpp"

namespace tests::message_checks {

template <class Basis>
constexpr std::size_t limb_at(std::size_t polynomial, std::size_t limb) {
    return (polynomial * static_cast<std::size_t>(Basis::limbs) + limb) * Basis::degree;
}

/// Packed on the host, limb after limb.
template <class Basis>
std::vector<std::uint8_t> packed(const std::vector<word>& words, std::size_t polynomials) {
    std::vector<std::uint8_t> bytes;
    for (std::size_t p = 0; p < polynomials; ++p) {
        for (std::size_t i = 0; i < Basis::primes.size(); ++i) {
            const auto bits = static_cast<int>(std::bit_width(Basis::primes[i]));
            std::vector<std::uint8_t> limb(memory::packed_bytes(Basis::degree, bits));
            memory::pack_bits(std::span<const word>(words).subspan(limb_at<Basis>(p, i), Basis::degree), bits,
                              limb);
            bytes.insert(bytes.end(), limb.begin(), limb.end());
        }
    }
    return bytes;
}

template <class Basis, class Where>
void check_basis(const Where& where) {
    constexpr std::size_t polynomials = 5;
    constexpr std::size_t size = limb_at<Basis>(polynomials, 0);
    CAPTURE(Basis::primes[0]);
    random_numbers random(Basis::primes[0]);
    std::vector<word> words(size);
    for (std::size_t k = 0; k < size; ++k) {
        const word q = Basis::primes[k / Basis::degree % Basis::primes.size()];
        words[k] = k % 37 == 0 ? q - 1 : random() % q;
    }
    const std::vector<std::uint8_t> bytes = packed<Basis>(words, polynomials);
    REQUIRE(bytes.size() == polynomials * device::residue_bytes<Basis>);

    const auto device_words = tests::to_device(where, words);
    auto got_bytes = tests::poisoned<std::uint8_t>(where, bytes.size());
    device::pack<Basis>(where, device_words.data(), polynomials, got_bytes.data());
    CHECK(tests::to_host<std::uint8_t>(where, got_bytes) == bytes);

    const auto device_bytes = tests::to_device(where, bytes);
    auto got_words = tests::poisoned<word>(where, size);
    auto status = tests::to_device(where, std::vector<std::uint32_t>(3));
    device::unpack<Basis>(where, device_bytes.data(), polynomials, got_words.data(), status.data(), 2);
    CHECK(tests::to_host<word>(where, got_words) == words);
    CHECK(tests::to_host<std::uint32_t>(where, status) == std::vector<std::uint32_t>(3));

    // The prime itself in the last limb of polynomial 2, all bits in the first limb of polynomial 4.
    constexpr std::size_t last = Basis::primes.size() - 1;
    std::vector<word> wrong = words;
    wrong[limb_at<Basis>(2, last) + Basis::degree - 1] = Basis::primes[last];
    wrong[limb_at<Basis>(4, 0) + 6] = ~word{0} >> (64 - std::bit_width(Basis::primes[0]));
    const auto wrong_bytes = tests::to_device(where, packed<Basis>(wrong, polynomials));
    device::unpack<Basis>(where, wrong_bytes.data(), polynomials, got_words.data(), status.data(), 2);
    CHECK(tests::to_host<word>(where, got_words) == wrong);
    CHECK(tests::to_host<std::uint32_t>(where, status) ==
          std::vector<std::uint32_t>{0, std::uint32_t{1} << last, 1});
}

void checksum_bits(const auto& where) {
    check_basis<ckks::private_n4096::basis>(where);
    check_basis<ckks::minimal_n2048::basis>(where);
    // Several residues in a word, and nearly a word for each.
    check_basis<
        rns::basis<9, arith::ntt_prime_below(word{1} << 15, 9), arith::ntt_prime_below(word{1} << 61, 9),
                   arith::ntt_prime_below(word{1} << 32, 9)>>(where);
}

}  // namespace tests::message_checks
