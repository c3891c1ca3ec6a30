#include <tensafe/core/macros.hpp>

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

// For assembly_check: functions that leak what is in `words`, and some that do not. Only their assembly is
// looked at.
#define TENSAFE_LOOKED_AT TENSAFE_AVX512 __attribute__((noinline, used))

/// Eight words in a vector, of which the compiler knows nothing else: it would read single ones from memory.
TENSAFE_AVX512 TENSAFE_INLINE __m512i load(const std::uint64_t* words) {
    __m512i x = _mm512_loadu_si512(words);
    __asm__("" : "+v"(x));
    return x;
}

TENSAFE_LOOKED_AT bool planted_branch_on_mask(const std::uint64_t* words, std::uint64_t* out) {
    const __m512i x = load(words);
    if (_mm512_cmpeq_epi64_mask(x, _mm512_setzero_si512()) != 0) {
        return false;
    }
    _mm512_storeu_si512(out, x);
    return true;
}

TENSAFE_LOOKED_AT bool planted_branch_on_lane(const std::uint64_t* words, std::uint64_t* out) {
    const __m512i x = load(words);
    if (_mm_cvtsi128_si64(_mm512_castsi512_si128(x)) > 5) {
        return false;
    }
    _mm512_storeu_si512(out, x);
    return true;
}

TENSAFE_LOOKED_AT void planted_branch_on_reduction(const std::uint64_t* words, std::size_t count,
                                                   std::uint64_t* out) {
    __m512i sum = _mm512_setzero_si512();
    for (std::size_t i = 0; i < count; i += 8) {
        sum = _mm512_add_epi64(sum, load(words + i));
    }
    for (std::uint64_t i = static_cast<std::uint64_t>(_mm512_reduce_add_epi64(sum)); i != 0; i >>= 1) {
        *out = *out * 3 + i;
    }
}

/// What a round finds decides at the top of the next one.
TENSAFE_LOOKED_AT void planted_branch_in_next_round(const std::uint64_t* words, std::size_t count,
                                                    std::uint64_t* out) {
    __mmask8 last = 1;
    for (std::size_t i = 0; i < count; ++i) {
        if (last != 0) {
            *out = *out * 3 + i;
        }
        const __m512i x = load(words + 8 * i);
        last = _mm512_movepi64_mask(x);
        __asm__("" : "+k"(last));
    }
}

TENSAFE_LOOKED_AT bool planted_branch_on_stored_lane(const std::uint64_t* words, std::uint64_t* out) {
    alignas(64) volatile std::uint64_t lanes[8];
    const __m512i x = load(words);
    _mm512_store_si512(const_cast<std::uint64_t*>(lanes), x);
    if (lanes[3] > 5) {
        return false;
    }
    _mm512_storeu_si512(out, x);
    return true;
}

TENSAFE_LOOKED_AT std::uint64_t planted_branch_on_stored_lanes(const std::uint64_t* words) {
    alignas(64) volatile std::uint64_t lanes[8];
    _mm512_store_si512(const_cast<std::uint64_t*>(lanes), load(words));
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < 8; ++i) {
        if (lanes[i] > 5) {
            sum = sum * 3 + i;
        }
    }
    return sum;
}

TENSAFE_LOOKED_AT std::uint64_t planted_index_of_stored_lanes(const std::uint64_t* words,
                                                              const std::uint64_t* table) {
    alignas(64) volatile std::uint64_t lanes[8];
    _mm512_store_si512(const_cast<std::uint64_t*>(lanes), load(words));
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < 8; ++i) {
        sum += table[lanes[i]];
    }
    return sum;
}

TENSAFE_LOOKED_AT __m512i planted_gather(const std::uint64_t* words, const std::uint64_t* table) {
    return _mm512_i64gather_epi64(load(words), table, 8);
}

TENSAFE_LOOKED_AT std::uint64_t planted_index(const std::uint64_t* words, const std::uint64_t* table) {
    const __m512i x = _mm512_add_epi64(load(words), load(words + 8));
    return table[static_cast<std::uint64_t>(_mm_extract_epi64(_mm512_castsi512_si128(x), 1))];
}

TENSAFE_LOOKED_AT std::uint64_t planted_index_of_mask(const std::uint64_t* words,
                                                      const std::uint64_t* table) {
    return table[_mm512_cmplt_epu64_mask(load(words), load(words + 8))];
}

TENSAFE_LOOKED_AT void planted_masked_store(const std::uint64_t* words, std::uint64_t* out) {
    const __m512i x = load(words);
    _mm512_mask_storeu_epi64(out, _mm512_movepi64_mask(x), x);
}

TENSAFE_LOOKED_AT void planted_compress(const std::uint64_t* words, std::uint64_t* out) {
    const __m512i x = load(words);
    _mm512_mask_compressstoreu_epi64(out, _mm512_movepi64_mask(x), x);
}

TENSAFE_LOOKED_AT std::uint64_t planted_division(const std::uint64_t* words) {
    const __m512i x = load(words);
    return 1000003 % (static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm512_castsi512_si128(x))) | 1);
}

/// One word, which by itself might be a pointer, until something is computed of it.
TENSAFE_LOOKED_AT bool planted_branch_on_one_word(const std::uint64_t* words, std::uint64_t* out) {
    __m128i x = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(words));
    __asm__("" : "+v"(x));
    x = _mm_mullo_epi32(x, x);
    if (_mm_cvtsi128_si64(x) > 5) {
        return false;
    }
    _mm512_storeu_si512(out, load(words + 8));
    return true;
}

struct words_elsewhere {
    const std::uint64_t* words;
};

/// As g++ 14 keeps pointers where general registers are scarce.
TENSAFE_LOOKED_AT void innocent_pointer(const words_elsewhere& from, std::uint64_t* out) {
    __m128i kept;
    const std::uint64_t* words = nullptr;
    __asm__("vmovq %1, %0" : "=v"(kept) : "m"(from.words));
    __asm__("vmovq %1, %0" : "=r"(words) : "v"(kept));
    _mm512_storeu_si512(out, load(words));
}

TENSAFE_LOOKED_AT void innocent_selection(const std::uint64_t* words, std::uint64_t* out, std::size_t count) {
    for (std::size_t i = 0; i < count; i += 8) {
        const __m512i x = load(words + i);
        const __mmask8 negative = _mm512_movepi64_mask(x);
        _mm512_storeu_si512(out + i, _mm512_mask_sub_epi64(x, negative, _mm512_setzero_si512(), x));
    }
}

TENSAFE_LOOKED_AT void innocent_tail(const std::uint64_t* words, std::uint64_t* out, std::size_t count) {
    if (count < 8) {
        const auto expected = static_cast<__mmask8>((1U << count) - 1);
        const __m512i x = _mm512_maskz_loadu_epi64(expected, words);
        _mm512_mask_storeu_epi64(out, expected, _mm512_add_epi64(x, x));
    }
}

TENSAFE_LOOKED_AT bool innocent_outcome(const std::uint64_t* words, std::uint64_t q) {
    const __m512i x = load(words);
    return _mm512_cmpge_epu64_mask(x, _mm512_set1_epi64(static_cast<long long>(q))) == 0;
}
