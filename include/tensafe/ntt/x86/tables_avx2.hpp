#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/ntt/order.hpp>

#if TENSAFE_X86_64

#include <array>
#include <cstddef>

namespace tensafe::ntt::avx2 {

/// The shortest transform is of degree 2^min_log_n: two groups of sixteen.
inline constexpr int min_log_n = 5;
inline constexpr int max_log_n = 17;

/// The last two stages of the forward transform, closer than a vector's lanes, are done on sixteen neighbours
/// at a time: four blocks, transposed.
inline constexpr int group_stages = 2;
inline constexpr std::size_t group_words = 16;

/// A prepared factor: two words, whose meaning is the arithmetic's.
using factor_words = std::array<arith::word, 2>;

/// The factors of one direction. The stages but for the last two broadcast factor m + i, at place m + i. The
/// last two need four in a vector: the three factors of four neighbouring blocks of the last but one stage
/// stand together, lane by lane.
class factor_table {
  public:
    explicit factor_table(std::size_t degree)
        : degree_(degree), nodes_(degree / 2), groups_(degree / group_words * words_per_group) {}

    /// @param index  m + i for block i of the m blocks of a stage
    void set(std::size_t index, const factor_words& factor) noexcept {
        arith::word* to = nodes_.data() + 2 * index;
        std::size_t step = 1;
        if (index >= degree_ / 4) {
            const bool last = index >= degree_ / 2;
            const std::size_t block = last ? (index - degree_ / 2) / 2 : index - degree_ / 4;
            const std::size_t which = last ? 1 + index % 2 : 0;
            to = groups_.data() + block / 4 * words_per_group + 8 * which + block % 4;
            step = 4;
        }
        to[0] = factor[0];
        to[step] = factor[1];
    }

    const arith::word* node(std::size_t index) const noexcept { return nodes_.data() + 2 * index; }
    const arith::word* group(std::size_t index) const noexcept {
        return groups_.data() + index * words_per_group;
    }

  private:
    static constexpr std::size_t words_per_group = 24;

    std::size_t degree_;
    memory::buffer<arith::word> nodes_;
    memory::buffer<arith::word> groups_;
};

/// The level of each pass of two stages, which says how much it reduces: 0 is nothing.
using pass_levels = std::array<int, max_log_n>;

/// Everything that the transforms of one degree modulo one prime need: 4N words, and N modular products or 5N
/// for wide primes. Immutable; safe to share between threads.
///
/// `Arithmetic` prepares factors, and its `bounds` follow the largest entry, as a multiple of q, through the
/// passes. Each pass reduces as little as lets the next one begin.
template <class Arithmetic>
class tables {
  public:
    using bounds_type = typename Arithmetic::bounds;

    /// @pre q is an odd prime of the arithmetic's range, 1 modulo 2N; psi is a primitive 2N-th root of unity;
    ///      log_n in [min_log_n, max_log_n]
    tables(arith::word q, int log_n, arith::word psi)
        : q_(q), log_n_(log_n), bounds_(q), forward_(degree()), inverse_(degree()) {
        TENSAFE_PRECONDITION(log_n >= min_log_n && log_n <= max_log_n);
        const arith::word degree_inverse = arith::inverse_mod(degree(), q);
        const auto set_inverse = [&](std::size_t index, arith::word w) {
            inverse_.set(index, Arithmetic::prepare(w, q));
            if (index < scaled_.size()) {
                scaled_[index] = Arithmetic::prepare(arith::multiply_mod(w, degree_inverse, q), q);
            }
        };
        forward_.set(0, Arithmetic::prepare(1, q));
        set_inverse(0, 1);
        arith::word power = psi;
        for (std::size_t i = 1; i < degree(); ++i) {
            forward_.set(bit_reverse(i, log_n), Arithmetic::prepare(power, q));
            // psi^N = -1.
            set_inverse(bit_reverse(degree() - i, log_n), q - power);
            power = arith::multiply_mod(power, psi, q);
        }
        plan_forward();
        plan_inverse();
    }

    arith::word q() const noexcept { return q_; }
    std::size_t degree() const noexcept { return std::size_t{1} << log_n_; }
    /// The number of stages before the groups.
    int outer_stages() const noexcept { return log_n_ - group_stages; }

    const factor_table& forward_factors() const noexcept { return forward_; }
    const factor_table& inverse_factors() const noexcept { return inverse_; }
    /// Factor 0 is 1/N, and factors 1 to 3 are inverse factors 1 to 3 times 1/N.
    const arith::word* scaled_inverse_factor(std::size_t i) const noexcept { return scaled_[i].data(); }

    /// The level of the forward pass whose first stage this is.
    int forward_level(int stage) const noexcept { return forward_levels_[static_cast<std::size_t>(stage)]; }
    int inverse_level(int stage) const noexcept { return inverse_levels_[static_cast<std::size_t>(stage)]; }
    /// The multiple of q that no entry passes at the end of the forward transform.
    double forward_bound() const noexcept { return forward_bound_; }

  private:
    /// The least level from `least` on that will do.
    template <class Predicate>
    static int least_level(int least, [[maybe_unused]] int highest, Predicate will_do) noexcept {
        int level = least;
        while (!will_do(level)) {
            ++level;
            TENSAFE_PRECONDITION(level <= highest);
        }
        return level;
    }

    void plan_forward() noexcept {
        // The first pass never has to reduce: 1 becomes 3.4 at most, and no limit is below 3.9.
        const int first = outer_stages() % 2 == 1 ? 1 : 2;
        forward_bound_ = first == 1 ? bounds_.forward_stage(1) : bounds_.forward(1, 0);
        for (int stage = first; stage <= outer_stages(); stage += 2) {
            const int level = least_level(0, bounds_type::highest_forward_level, [&](int l) {
                return bounds_.forward(forward_bound_, l) <= bounds_.limit();
            });
            forward_levels_[static_cast<std::size_t>(stage)] = level;
            forward_bound_ = bounds_.forward(forward_bound_, level);
        }
    }

    void plan_inverse() noexcept {
        const int highest = bounds_.highest_inverse_level();
        double bound = 1;
        for (int stage = outer_stages(); stage >= 0; stage -= 2) {
            // The last pass of two stages writes residues, whatever the level.
            const int level = least_level(bounds_.lowest_inverse_level(), highest, [&](int l) {
                return stage == 0 || bounds_.inverse(bounds_.inverse(bound, l), highest) <= bounds_.limit();
            });
            inverse_levels_[static_cast<std::size_t>(stage)] = level;
            bound = bounds_.inverse(bound, level);
        }
    }

    arith::word q_;
    int log_n_;
    bounds_type bounds_;
    factor_table forward_;
    factor_table inverse_;
    std::array<factor_words, 4> scaled_{};
    pass_levels forward_levels_{};
    pass_levels inverse_levels_{};
    double forward_bound_ = 0;
};

}  // namespace tensafe::ntt::avx2

#endif
