#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/rns/basis.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tensafe::device {

/// The largest subring to which kernels trace: 2^6 coefficients, two for each thread of a warp.
inline constexpr int most_subring_log_n = 6;

/// A factor with its quotient, as arith::shoup has it.
struct alignas(16) trace_factor {
    word value;
    word quotient;
};

/// Tables with which kernels take evaluation forms of a subring of degree n = 2^log_n to coefficients, all
/// limbs: those of its inverse transform. Immutable; outlives what was launched with it.
template <class Basis, class Space>
class trace_tables {
  public:
    /// Makes the tables for subrings of degree 2^log_n and waits until they are uploaded.
    /// @param of_block_sums  divides by N, for sums over blocks of N/n values of the ring; else by n
    /// @throws parameter_error unless log_n is in [0, 6] and below the ring's
    template <class Where>
    trace_tables(const Where& where, int log_n, bool of_block_sums = true) : log_n_(log_n) {
        require<parameter_error>(
            log_n >= 0 && log_n <= most_subring_log_n && log_n <= Basis::log_n - (of_block_sums ? 1 : 0),
            {"device::trace_tables: log_n: got ", log_n, ", expected 0 to ", most_subring_log_n,
             " for a ring of degree 2^", Basis::log_n});
        const std::size_t n = std::size_t{1} << log_n;
        std::vector<trace_factor> factors;
        rns::for_each_limb<Basis>([&]<int I>() {
            constexpr word q = Basis::template prime<I>;
            // Entry 0 is free in such tables: 1/n of the transform, times n/N of the sums.
            const word divisor = of_block_sums ? Basis::degree : n;
            const auto scale = rns::fixed_arithmetic<q>.prepare(arith::inverse_mod(divisor % q, q));
            factors.push_back({scale.value, scale.quotient});
            for (std::size_t i = 1; i < n; ++i) {
                const auto& w = rns::shared_subring_plan<Basis::log_n, q>(log_n).inverse_factors()[i];
                factors.push_back({w.value, w.quotient});
            }
        });
        factors_ = uploaded(where, factors);
    }

    int log_n() const noexcept { return log_n_; }
    const trace_factor* factors() const noexcept { return factors_.data(); }  ///< [limb][2^log_n]

  private:
    int log_n_;
    memory::buffer<trace_factor, Space> factors_;
};

/// Does one butterfly of the inverse transform of n block sums modulo q, in place: number `index` < n/2 of
/// the stage that joins halves of 2^log_half words, log_half = 0, 1, ... in turn. Bit-reversed order in,
/// natural order out. Words in [0, q), before and after.
/// @param factors  those of the limb
template <word Q>
TENSAFE_HD_INLINE void fold_butterfly(word* words, const trace_factor* factors, std::uint32_t index,
                                      std::uint32_t log_half, std::uint32_t n) noexcept {
    using modulus = arith::fixed_modulus<Q>;
    constexpr arith::shoup<modulus> policy{};
    const std::uint32_t block = index >> log_half;
    const std::uint32_t half = std::uint32_t{1} << log_half;
    const std::uint32_t at = 2 * half * block + (index & (half - 1));
    const trace_factor w = factors[(n >> (log_half + 1)) + block];
    const word x = words[at];
    const word y = words[at + half];
    words[at] = arith::subtract_if_not_below(x + y, Q);
    words[at + half] =
        arith::reduce<1>(modulus{}, policy.multiply_word(x + Q - y, {w.value, w.quotient})).value;
}

/// Divides a word, the last step of the inverse transform.
template <word Q>
TENSAFE_HD_INLINE word fold_scale(word x, const trace_factor* factors) noexcept {
    using modulus = arith::fixed_modulus<Q>;
    constexpr arith::shoup<modulus> policy{};
    const trace_factor scale = factors[0];
    return arith::reduce<1>(modulus{}, policy.multiply_word(x, {scale.value, scale.quotient})).value;
}

namespace detail {

/// Calls f<I>(k) for words k < n of each limb I, in a thread block that has a warp for each limb.
template <class Basis, class F>
TENSAFE_HD_INLINE void each_word(int t, std::uint32_t n, const F& f) {
    with_index<Basis::limbs>(t / 32, [&]<int I>() {
        for (auto k = static_cast<std::uint32_t>(t % 32); k < n; k += 32) {
            f.template operator()<I>(k);
        }
    });
}
/// Takes 2^log_n block sums load<I>(k) of each limb to coefficients, but for fold_scale: a warp for each
/// limb.
template <class Basis, class Context, std::size_t Room, class Load>
TENSAFE_HD_INLINE void fold_block_sums(Context& ctx, word (&words)[Basis::limbs][Room],
                                       const trace_factor* factors, std::uint32_t log_n, const Load& load) {
    const std::uint32_t n = std::uint32_t{1} << log_n;
    ctx.each([&](int t) {
        each_word<Basis>(t, n, [&]<int I>(std::uint32_t k) { words[I][k] = load.template operator()<I>(k); });
    });
    // Gentleman-Sande stages: blocks of 2, 4, ... n words.
    for (std::uint32_t log_half = 0; log_half < log_n; ++log_half) {
        ctx.each([&](int t) {
            each_word<Basis>(t, n / 2, [&]<int I>(std::uint32_t k) {
                fold_butterfly<Basis::template prime<I>>(
                    words[I], factors + static_cast<std::uint32_t>(I) * n, k, log_half, n);
            });
        });
    }
}

}  // namespace detail

}  // namespace tensafe::device
