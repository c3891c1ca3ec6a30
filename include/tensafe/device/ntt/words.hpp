#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>

#include <cstddef>

namespace tensafe::ntt {

/// Two neighbours of a limb: the unit in which block kernels touch memory.
struct alignas(16) word_pair {
    arith::word first;
    arith::word second;
};

/// Where a transform gets its entries: any type with this member gives entries k and k + 1, k even, of a
/// limb, each in [0, q). `polynomial` counts from 0 within the launch.
///
/// This one reads a stack of polynomials, [polynomial][limb][N]; 16-byte aligned.
template <class Basis>
struct load_words {
    const arith::word* words;

    template <int I>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE word_pair pair(std::size_t polynomial, std::size_t k) const {
        const std::size_t limb = polynomial * static_cast<std::size_t>(Basis::limbs) + std::size_t{I};
        return *reinterpret_cast<const word_pair*>(words + (limb << Basis::log_n) + k);
    }
};

/// Where a transform puts its results: the mirror image, values in [0, q). This one writes a stack of
/// polynomials, which may be the one that the same transform reads.
template <class Basis>
struct store_words {
    arith::word* words;

    template <int I>
    TENSAFE_HOST_DEVICE TENSAFE_INLINE void pair(std::size_t polynomial, std::size_t k,
                                                 word_pair values) const {
        const std::size_t limb = polynomial * static_cast<std::size_t>(Basis::limbs) + std::size_t{I};
        *reinterpret_cast<word_pair*>(words + (limb << Basis::log_n) + k) = values;
    }
};

}  // namespace tensafe::ntt
