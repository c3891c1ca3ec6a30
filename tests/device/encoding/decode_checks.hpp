#pragma once

#include <tensafe/ckks/trace.hpp>
#include <tensafe/device/encoding/decode.hpp>
#include <tensafe/encoding/slots.hpp>

#include "../device_data.hpp"

namespace tests {

inline std::size_t different_bits(const std::vector<double>& got, std::size_t at,
                                  const std::vector<std::complex<double>>& expected) {
    std::size_t different = 0;
    for (std::size_t j = 0; j < expected.size(); ++j) {
        const double parts[2] = {expected[j].real(), expected[j].imag()};
        for (std::size_t i = 0; i < 2; ++i) {
            different += std::bit_cast<word>(got[at + 2 * j + i]) != std::bit_cast<word>(parts[i]) ? 1U : 0U;
        }
    }
    return different;
}

/// Any sums at all, edges of the residues among them.
template <class P, int Limbs, class Where>
void check_traces(const Where& where) {
    using basis = rns::prefix<typename P::basis, Limbs>;
    constexpr std::size_t outputs = 3;
    const double scale = 0x1p40 / 3;
    random_numbers generator(Limbs);
    for (int log_n = 1; log_n <= 6; ++log_n) {
        CAPTURE(log_n);
        const std::size_t n = std::size_t{1} << log_n;
        const device::folded_slot_tables<basis, typename Where::space> tables(where, log_n);
        std::vector<word> sums;
        std::vector<std::vector<std::complex<double>>> expected;
        for (std::size_t o = 0; o < outputs; ++o) {
            ckks::trace<P, Limbs> f;
            f.log_n = log_n;
            f.scale = scale;
            for (std::size_t i = 0; i < static_cast<std::size_t>(Limbs); ++i) {
                const word q = basis::primes[i];
                f.limbs[i] = memory::secret_buffer<word>(n);
                for (std::size_t k = 0; k < n; ++k) {
                    f.limbs[i][k] = o == 0 ? q - 1 - k % 2 : generator() % q;
                }
                sums.insert(sums.end(), f.limbs[i].begin(), f.limbs[i].end());
            }
            expected.push_back(ckks::decode_trace(std::move(f)));
        }
        const auto device_sums = to_device(where, sums);
        auto slots = poisoned<double>(where, outputs * n);
        device::decode_trace<basis>(where, tables, device_sums.data(), scale, slots.data(), outputs);
        const auto got = to_host(where, slots);
        for (std::size_t o = 0; o < outputs; ++o) {
            CHECK(different_bits(got, o * n, expected[o]) == 0);
        }
    }
}

template <class Basis, class Where>
void check_decode_slots(const Where& where) {
    constexpr std::size_t count = 2;
    const double scale = 0x1p40 / 3;
    random_numbers generator(7);
    std::vector<word> words;
    std::vector<rns::poly<Basis, rns::coefficient_form>> polynomials(count);
    for (auto& p : polynomials) {
        p = generator.poly<rns::poly<Basis, rns::coefficient_form>>();
        words.insert(words.end(), p.words().begin(), p.words().end());
    }
    const auto device_words = to_device(where, words);
    const device::slot_tables<typename Where::space> tables(where, Basis::log_n);
    auto work = poisoned<double>(where, count * Basis::degree);
    auto slots = poisoned<double>(where, count * Basis::degree);
    device::decode_slots<Basis>(where, tables, device_words.data(), scale, work.data(), slots.data(), count);
    const auto got = to_host(where, slots);
    for (std::size_t p = 0; p < count; ++p) {
        std::vector<std::complex<double>> expected(Basis::degree / 2);
        encoding::decode_slots(polynomials[p], scale, std::span(expected));
        CHECK(different_bits(got, p * Basis::degree, expected) == 0);
    }
}

}  // namespace tests
