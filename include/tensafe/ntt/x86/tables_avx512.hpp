#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/ntt/order.hpp>
#include <tensafe/ntt/x86/lanes_avx512.hpp>

#if TENSAFE_X86_64

#include <array>
#include <cstddef>

namespace tensafe::ntt::avx512 {

/// The smallest transform is of degree 2^min_log_n: one pass of eight blocks over leaves.
inline constexpr int min_log_n = 9;

/// The width in bits of the widest prime.
inline constexpr int max_bits = shoup104::max_bits;

inline constexpr int leaf_log_n = 6;
inline constexpr std::size_t leaf_size = std::size_t{1} << leaf_log_n;

/// The stages above the leaves, grouped into passes: eight blocks first, then as many as the rest allows.
struct pass_plan {
    static constexpr int most = 4;

    int count = 0;
    std::array<int, most> log_radix{};

    constexpr explicit pass_plan(int log_n) noexcept {
        int left = log_n - leaf_log_n;
        while (left > 0) {
            const int next = count == 0 ? 3 : left == 4 ? 2 : left < 3 ? left : 3;
            log_radix[static_cast<std::size_t>(count++)] = next;
            left -= next;
        }
    }
};

/// The number of factors of the last inverse pass: its seven times 1/N, the first three without it, 1/N.
inline constexpr std::size_t last_factors = 11;

/// Factors of one direction in the order of their use.
///
/// A pass of 2^r blocks takes 2^r - 1 factors for each block of its first stage. A leaf takes seven for its
/// first three stages, one after the other, and seven vectors for its last three, one lane for each group of
/// eight. The first pass of the inverse direction, which comes last, has `last_factors`.
template <class Factor>
class direction_table {
  public:
    static constexpr std::size_t words = Factor::words;
    /// Words of the seven factors, filled up to a multiple of eight.
    static constexpr std::size_t leaf_head = (7 * words + 7) / 8 * 8;
    static constexpr std::size_t leaf_words = leaf_head + 7 * 8 * words;

    /// @param psi             its inverse for the inverse direction
    /// @param degree_inverse  1/N for the inverse direction, 1 for the forward one
    direction_table(arith::word q, int log_n, arith::word psi, arith::word degree_inverse) {
        // Root m + i is the twiddle of block i among the m blocks of a stage.
        memory::buffer<arith::word> roots(std::size_t{1} << log_n);
        arith::word power = 1;
        for (std::size_t i = 0; i < roots.size(); ++i) {
            roots[bit_reverse(i, log_n)] = power;
            power = arith::multiply_mod(power, psi, q);
        }
        const pass_plan passes(log_n);
        std::size_t size = last_factors * words;
        int stage = 0;
        for (std::size_t p = 0; p < static_cast<std::size_t>(passes.count); ++p) {
            size = (size + 7) / 8 * 8;
            offset_[p] = p == 0 ? 0 : size;
            size += p == 0 ? 0 : ((std::size_t{1} << passes.log_radix[p]) - 1) * words << stage;
            stage += passes.log_radix[p];
        }
        leaves_ = (size + 7) / 8 * 8;
        table_ = memory::buffer<arith::word>(leaves_ + (leaf_words << stage));

        const auto put = [&](std::size_t at, std::size_t step, arith::word w) {
            arith::word factor[words];
            Factor::prepare(w, q, factor);
            for (std::size_t i = 0; i < words; ++i) {
                table_[at + i * step] = factor[i];
            }
        };
        // The factors of `stages` stages below block b of stage s.
        const auto put_tree = [&](std::size_t at, int s, std::size_t b, int stages, arith::word scale) {
            for (int t = 0; t < stages; ++t) {
                for (std::size_t i = 0; i < std::size_t{1} << t; ++i, at += words) {
                    const arith::word w = roots[(std::size_t{1} << (s + t)) + (b << t) + i];
                    put(at, 1, arith::multiply_mod(w, scale, q));
                }
            }
        };
        stage = 0;
        for (std::size_t p = 0; p < static_cast<std::size_t>(passes.count); ++p) {
            const int r = passes.log_radix[p];
            for (std::size_t b = 0; b < std::size_t{1} << stage; ++b) {
                put_tree(offset_[p] + b * ((std::size_t{1} << r) - 1) * words, stage, b, r,
                         p == 0 ? degree_inverse : 1);
            }
            stage += r;
        }
        put_tree(7 * words, 0, 0, 2, 1);
        put(10 * words, 1, degree_inverse);
        for (std::size_t b = 0; b < std::size_t{1} << stage; ++b) {
            const std::size_t leaf = leaves_ + b * leaf_words;
            put_tree(leaf, stage, b, 3, 1);
            std::size_t at = leaf + leaf_head;
            for (int t = 0; t < 3; ++t) {
                for (std::size_t i = 0; i < std::size_t{1} << t; ++i, at += 8 * words) {
                    for (std::size_t lane = 0; lane < 8; ++lane) {
                        put(at + lane, 8, roots[(std::size_t{8} << (stage + t)) + ((8 * b + lane) << t) + i]);
                    }
                }
            }
        }
    }

    const arith::word* pass(std::size_t p) const noexcept { return table_.data() + offset_[p]; }
    const arith::word* leaves() const noexcept { return table_.data() + leaves_; }

  private:
    std::array<std::size_t, pass_plan::most> offset_{};
    std::size_t leaves_ = 0;
    memory::buffer<arith::word> table_;
};

/// The tables of one degree and prime. Immutable; safe to share between threads.
template <class Factor>
struct tables {
    /// @pre  log_n in [9, 17]; psi is a primitive 2N-th root of unity modulo the prime q
    tables(arith::word prime, int log_degree, arith::word psi)
        : q(prime),
          log_n(log_degree),
          forward(q, log_n, psi, 1),
          inverse(q, log_n, arith::inverse_mod(psi, q), arith::inverse_mod(arith::word{1} << log_n, q)) {}

    const arith::word q;
    const int log_n;
    const direction_table<Factor> forward;
    const direction_table<Factor> inverse;
};

}  // namespace tensafe::ntt::avx512

#endif
