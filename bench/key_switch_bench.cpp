// Rotations and products of ciphertexts at the top level, and what they are made of: transforms of a limb,
// and products of a residue with a pair of the key. And what else is done with those sets.

#include <algorithm>

#include "operations.hpp"

namespace {

namespace ckks = tensafe::ckks;

/// The limit: of each limb as many transforms as a rotation does, one after the other on words that are in
/// cache, and all its products: of the digits with the key, and those that raise digits and divide by P, of
/// few words again and again.
template <class P>
void limit(benchmark::State& state) {
    constexpr std::size_t chain = P::basis::primes.size();
    constexpr std::size_t special = P::special_primes.size();
    constexpr std::size_t per_digit = P::primes_per_digit;
    constexpr std::size_t digits = (chain + per_digit - 1) / per_digit;
    const auto all = ckks::detail::key_limbs<P>();
    auto x = bench::mixed_residues(P::degree, tensafe::arith::word{1} << 39);  // below every prime
    const auto key = bench::mixed_residues(2 * digits * P::degree, tensafe::arith::word{1} << 39);
    tensafe::memory::buffer<tensafe::arith::word> scratch(P::degree);
    tensafe::memory::buffer<tensafe::arith::word> sums(2 * P::degree);
    const std::vector<const tensafe::arith::word*> rows(std::max(digits, per_digit + special), x.data());
    const tensafe::rns::limb::pair_sums pairs{{sums.span().first(P::degree), sums.span().subspan(P::degree)},
                                              rows.data(),
                                              digits,
                                              key.data(),
                                              digits};
    const auto convert = [&](const auto& limb, std::size_t sources) {
        constexpr std::size_t chunk = 512;
        for (std::size_t k = 0; k < P::degree; k += chunk) {
            limb.sum_multiples(scratch.span().first(chunk), rows.data(), x.span().first(sources), 1);
        }
    };
    for (auto _ : state) {
        for (std::size_t m = 0; m < all.size(); ++m) {
            std::copy(x.begin(), x.end(), scratch.begin());
            for (std::size_t i = 0; i < digits + 2; ++i) {
                all[m]->forward(scratch.span());
            }
            all[m]->sum_pairs(pairs);
            for (std::size_t first = 0; first < chain; first += per_digit) {
                if (m < first || m >= first + per_digit) {
                    convert(*all[m], std::min(per_digit, chain - first));
                }
            }
            for (std::size_t half = 0; half < (m < chain ? 2 : 0); ++half) {
                convert(*all[m], special);
            }
        }
        benchmark::DoNotOptimize(sums.data());
    }
}

#define TENSAFE_BENCH_DEEP_SETS(f)                                    \
    BENCHMARK(f<ckks::n8192_depth2>)->Unit(benchmark::kMicrosecond);  \
    BENCHMARK(f<ckks::n16384_depth5>)->Unit(benchmark::kMicrosecond); \
    BENCHMARK(f<ckks::n32768_depth10>)->Unit(benchmark::kMicrosecond)
BENCHMARK(bench::rotate<ckks::n4096_depth0>)->Unit(benchmark::kMicrosecond);
TENSAFE_BENCH_DEEP_SETS(bench::rotate);
TENSAFE_BENCH_DEEP_SETS(bench::multiply_rescale);
TENSAFE_BENCH_DEEP_SETS(bench::multiply_plain);
TENSAFE_BENCH_DEEP_SETS(bench::encode_encrypt);
TENSAFE_BENCH_DEEP_SETS(bench::decrypt_decode);
BENCHMARK(limit<ckks::n4096_depth0>)->Unit(benchmark::kMicrosecond);
TENSAFE_BENCH_DEEP_SETS(limit);

}  // namespace
