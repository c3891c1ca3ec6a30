#pragma once

#include <tensafe/core/macros.hpp>

#if TENSAFE_X86_64
#include <immintrin.h>
#endif

#include "sampling.hpp"

namespace tests {

#if TENSAFE_X86_64
/// Whether a coefficient among 32 is 1, by a branch on the mask of a comparison.
TENSAFE_AVX2 inline int some_one_avx2(const std::int8_t* key) {
    static volatile int found = 0;
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(key));
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, _mm256_set1_epi8(1))) != 0) {
        found = 1;
    }
    return found;
}
#endif

/// Operations that leak: what memcheck does not report of these it would not report of the library either.
inline void check_leaks(program& p) {
    std::vector<std::int8_t> key(256);
    random::sample_ternary(secret_seed(), random::stream_domain::secret_key, 0, key);

    p.check("planted branch", [&] {
        static volatile int ones = 0;
        for (const std::int8_t k : key) {
            if (k == 1) {
                ones = ones + 1;
            }
        }
        return true;
    });
    p.check("planted index", [&] {
        static const volatile int table[3] = {5, 7, 11};
        int sum = 0;
        for (const std::int8_t k : key) {
            sum += table[static_cast<std::size_t>(k + 1)];
        }
        return sum >= 0;
    });
    p.check("planted comparison of seeds", [] {
        static volatile int equal = 0;
        if (secret_seed() == secret_seed()) {
            equal = equal + 1;
        }
        return true;
    });
    // A sampler for public seeds: it rejects draws, in the vectors of the back-end.
    p.check("planted secret in a public sampler", [] {
        std::vector<std::uint64_t> out(512);
        random::sample_uniform(secret_seed(), random::stream_domain::uplink, 0, (std::uint64_t{1} << 44) + 1,
                               out);
        return all_secret(out);
    });
#if TENSAFE_X86_64
    if (exec::active_backend() == exec::backend::avx2) {
        p.check("planted mask of a vector", [&] { return some_one_avx2(key.data()) <= 1; });
    }
#endif
}

}  // namespace tests
