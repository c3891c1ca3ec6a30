#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/modulus.hpp>
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/ckks/ciphertext.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/rns/poly_stack.hpp>

#include <cstddef>
#include <cstdint>

namespace tensafe::device {

namespace detail {

template <class Basis>
struct load_decrypted {
    stack_view c0;
    stack_view c1;
    stack_view key;

    template <int I>
    TENSAFE_HD_INLINE word_pair pair(std::size_t polynomial, std::size_t k) const {
        constexpr std::size_t start = static_cast<std::size_t>(I) * Basis::degree;
        const auto p = static_cast<std::uint32_t>(polynomial);
        return detail::apply_to_pairs<Basis::template prime<I>, pointwise::multiply_add>(
            load_pair(c1.polynomial(p) + start + k), load_pair(key.polynomial(p) + start + k),
            load_pair(c0.polynomial(p) + start + k));
    }
};

/// One thread block: some whole sums of c0 + c1*s over 2^log_block neighbours, of one limb of one ciphertext.
/// Each sum has 2^log_group threads, neighbours too, which add up in shared memory.
template <class Basis>
struct fold_kernel {
    static constexpr int threads = 256;
    static constexpr int log_threads = 8;
    struct shared_type {
        word sums[threads];
    };

    word* out;  ///< [polynomial][limb][sum]
    stack_view c0;
    stack_view c1;
    stack_view key;
    std::uint32_t sums;  ///< sums of a limb
    std::uint32_t blocks_per_polynomial;
    int log_block;  ///< at least 1: words are read in pairs
    int log_group;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::uint32_t polynomial = ctx.block().x / blocks_per_polynomial;
        const std::uint32_t first_sum = ctx.block().x % blocks_per_polynomial
                                        << static_cast<unsigned>(log_threads - log_group);
        with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            constexpr word q = Basis::template prime<I>;
            constexpr std::size_t start = static_cast<std::size_t>(I) * Basis::degree;
            const word* const from_c0 = c0.polynomial(polynomial) + start;
            const word* const from_c1 = c1.polynomial(polynomial) + start;
            const word* const from_key = key.polynomial(polynomial) + start;
            const std::uint32_t pairs = 1U << static_cast<unsigned>(log_block - 1 - log_group);
            const std::uint32_t group = 1U << static_cast<unsigned>(log_group);
            ctx.each([&](int t) {
                const auto thread = static_cast<std::uint32_t>(t);
                const std::uint32_t sum = first_sum + (thread >> static_cast<unsigned>(log_group));
                word total = 0;
                if (sum < sums) {
                    const std::size_t k =
                        (std::size_t{sum} << static_cast<unsigned>(log_block)) + 2 * (thread & (group - 1));
                    total = products<q>(from_c0 + k, from_c1 + k, from_key + k, 2 * group, pairs);
                }
                ctx.shared().sums[t] = total;
            });
            for (std::uint32_t half = group / 2; half != 0; half /= 2) {
                ctx.each([&](int t) {
                    if ((static_cast<std::uint32_t>(t) & (group - 1)) < half) {
                        word& mine = ctx.shared().sums[t];
                        mine = arith::subtract_if_not_below(
                            mine + ctx.shared().sums[t + static_cast<int>(half)], q);
                    }
                });
            }
            ctx.last([&](int t) {
                const auto thread = static_cast<std::uint32_t>(t);
                const std::uint32_t sum = first_sum + thread;
                if (thread < static_cast<std::uint32_t>(threads) / group && sum < sums) {
                    out[limb_of<Basis, I>(polynomial) * sums + sum] = ctx.shared().sums[thread * group];
                }
            });
        });
    }

    /// The most pairs of a thread: four as long as its block has neighbours for a whole group, more where the
    /// block is longer than all threads read at four each.
    static constexpr std::uint32_t most_pairs =
        Basis::degree / 4 > 4 * static_cast<std::size_t>(threads)
            ? static_cast<std::uint32_t>(Basis::degree / 4 / static_cast<std::size_t>(threads))
            : 4;

    /// The sum of c0 + c1*s over `pairs` pairs of words, `stride` words apart, modulo Q.
    template <word Q>
    TENSAFE_HD_INLINE static word products(const word* c0, const word* c1, const word* key,
                                           std::uint32_t stride, std::uint32_t pairs) {
        constexpr arith::barrett<arith::fixed_modulus<Q>> policy{};
        constexpr int bits = arith::fixed_modulus<Q>::bits;
        // Each term adds less than q^2 + q <= 2^(2*bits): this many pairs fit 128 bits, with room for what is
        // carried over.
        constexpr std::uint32_t pairs_at_once =
            bits > 57 ? 1U << static_cast<unsigned>(2 * (64 - bits) - 2) : 4096U;
        if constexpr (most_pairs <= pairs_at_once) {
            const arith::uint128 sum = lazy_products(0, c0, c1, key, 0, pairs, stride);
            if constexpr (arith::uint128{2 * most_pairs} << bits <= arith::uint128{1} << 63) {
                return policy.reduce_fully(sum);
            } else {
                return policy.reduce_any(sum);
            }
        } else {
            word total = 0;
            for (std::uint32_t done = 0; done < pairs; done += pairs_at_once) {
                const std::uint32_t end = done + pairs_at_once < pairs ? done + pairs_at_once : pairs;
                total = policy.reduce_any(lazy_products(total, c0, c1, key, done, end, stride));
            }
            return total;
        }
    }

    TENSAFE_HD_INLINE static arith::uint128 lazy_products(arith::uint128 sum, const word* c0, const word* c1,
                                                          const word* key, std::uint32_t first,
                                                          std::uint32_t end, std::uint32_t stride) {
        for (std::uint32_t i = first; i < end; ++i) {
            const std::size_t k = std::size_t{i} * stride;
            const word_pair x = load_pair(c1 + k);
            const word_pair s = load_pair(key + k);
            const word_pair y = load_pair(c0 + k);
            sum += arith::mul_wide(x.first, s.first) + y.first;
            sum += arith::mul_wide(x.second, s.second) + y.second;
        }
        return sum;
    }
};

}  // namespace detail

/// Computes c0 + c1*s of many ciphertexts, in evaluation form, modulo the first `Limbs` primes: the words
/// that ckks::decrypt gives. One launch.
/// @param c0, c1  ciphertext p of the launch, in evaluation form
/// @param out     [ciphertext][limb][N], secret; may be where c0 or c1 is, if these have `Limbs` limbs
/// @throws shape_error unless there are as many ciphertexts for each key
template <int Limbs, ckks::parameter_set P, class Where>
void decrypt(const Where& where, const secret_keys<P, typename Where::space>& keys, const stack_view& c0,
             const stack_view& c1, std::size_t ciphertexts, word* out) {
    using basis = rns::prefix<typename P::basis, Limbs>;
    apply_pointwise<basis>(where, pointwise::multiply_add{}, ciphertexts, out, words_of_poly<basis>, c1,
                           keys.shared_by(ciphertexts), c0);
}

/// Decrypts to coefficient form: the inverse transform, with c0 + c1*s in front of it.
/// @param out  [ciphertext][limb][N], secret; 16-byte aligned, none of the operands
/// @throws shape_error unless there are as many ciphertexts for each key
template <int Limbs, class Schedule = schedule::tuned, ckks::parameter_set P, class Where>
void decrypt_to_coefficients(const Where& where,
                             const plan<rns::prefix<typename P::basis, Limbs>, typename Where::space>& plan,
                             const secret_keys<P, typename Where::space>& keys, const stack_view& c0,
                             const stack_view& c1, std::size_t ciphertexts, word* out) {
    using basis = rns::prefix<typename P::basis, Limbs>;
    const stack_view key = keys.shared_by(ciphertexts);
    if (ciphertexts != 0) {
        inverse<basis, Schedule>(where, plan, detail::load_decrypted<basis>{c0, c1, key},
                                 store_words<basis>{out}, ciphertexts, out);
    }
}

/// Decrypts many ciphertexts modulo their first `Limbs` primes and traces them to degree 2^log_n: the words
/// that ckks::decrypt_trace gives. One launch; each word of a ciphertext is read once.
/// @param sums  [ciphertext][limb][2^log_n], secret
/// @throws parameter_error unless 1 <= log_n <= P::log_n; shape_error unless each key has as many ciphertexts
template <int Limbs, ckks::parameter_set P, class Where>
void decrypt_trace(const Where& where, const secret_keys<P, typename Where::space>& keys,
                   const stack_view& c0, const stack_view& c1, std::size_t ciphertexts, int log_n,
                   word* sums) {
    using basis = rns::prefix<typename P::basis, Limbs>;
    using kernel = detail::fold_kernel<basis>;
    require<parameter_error>(log_n >= 1 && log_n <= P::log_n,
                             {"device::decrypt_trace: log_n: got ", log_n, ", expected 1 to ", P::log_n});
    if (log_n == P::log_n) {  // sums of one term
        decrypt<Limbs>(where, keys, c0, c1, ciphertexts, sums);
        return;
    }
    const stack_view key = keys.shared_by(ciphertexts);
    const int log_block = P::log_n - log_n;
    // Four pairs of words a thread where that makes whole sums; more threads than a thread block has, it has
    // not.
    const int log_group = log_block < 3                         ? 0
                          : log_block - 3 < kernel::log_threads ? log_block - 3
                                                                : kernel::log_threads;
    const std::uint32_t count = 1U << static_cast<unsigned>(log_n);
    const std::uint32_t blocks =
        blocks_for(count, std::size_t{1} << static_cast<unsigned>(kernel::log_threads - log_group));
    const std::uint32_t grid = detail::checked_grid("device::decrypt_trace", ciphertexts, blocks);
    if (grid != 0) {
        where.launch(kernel{sums, c0, c1, key, count, blocks, log_block, log_group},
                     grid_shape{grid, static_cast<std::uint32_t>(Limbs), 1});
    }
}

}  // namespace tensafe::device
