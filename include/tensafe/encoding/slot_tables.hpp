#pragma once

#include <tensafe/memory/buffer.hpp>
#include <tensafe/ntt/order.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>

namespace tensafe::encoding::detail {

/// Returns exp(2 pi i * numerator / order), rounded once from long double: at most 0.51 ulp off on x86-64.
/// @pre order is a multiple of 4
inline std::complex<double> root_of_unity(std::size_t numerator, std::size_t order) {
    const std::size_t quarter = order / 4;
    const std::size_t within = numerator % quarter;
    // The argument is folded into the first octant while it is an integer, hence exactly.
    const bool reflected = 2 * within > quarter;
    std::size_t folded = reflected ? quarter - within : within;
    __asm__("" : "+r"(folded));  // clang 19 for WebAssembly crashes over cosines that it knows
    const long double angle = 2 * std::numbers::pi_v<long double> * static_cast<long double>(folded) /
                              static_cast<long double>(order);
    auto cosine = static_cast<double>(std::cos(angle));
    auto sine = static_cast<double>(std::sin(angle));
    if (reflected) {
        std::swap(cosine, sine);
    }
    std::complex<double> root(cosine, sine);
    for (std::size_t turns = numerator / quarter % 4; turns > 0; --turns) {
        root = {-root.imag(), root.real()};
    }
    return root;
}

/// Three-bit numbers with their bits reversed.
inline constexpr std::array<std::size_t, 8> reversed_triple{0, 4, 2, 6, 1, 5, 3, 7};

/// The tables that the stages of the slot transform read, for every back-end: the sizes, the roots of each
/// stage and the bit reversal. Immutable after construction.
class slot_tables {
  public:
    /// The most slots for which the definition itself is evaluated: the block structure of the stages needs
    /// 32.
    static constexpr std::size_t direct_slots = 16;

    explicit slot_tables(int log_slots)
        : log_slots_(log_slots),
          slots_(std::size_t{1} << log_slots),
          first_quarter_(log_slots % 2 == 0 ? 4 : 8) {
        if (is_direct()) {
            fill_direct_roots();
        } else {
            fill_stage_roots();
            fill_middle_reversal();
        }
    }

    std::size_t slots() const noexcept { return slots_; }
    std::size_t degree() const noexcept { return 2 * slots_; }
    bool is_direct() const noexcept { return slots_ <= direct_slots; }

    /// The quarter of the first radix-4 stage that reads a table: 4, or 8 after the radix-2 stage.
    std::size_t first_quarter() const noexcept { return first_quarter_; }
    /// Whether there is the radix-2 stage that merges blocks of four: when log2 of the slots is odd.
    bool has_pairs() const noexcept { return first_quarter_ == 8; }

    /// All powers of zeta; direct sizes only.
    const memory::buffer<std::complex<double>>& direct_roots() const noexcept { return direct_roots_; }

    /// First, second and third power of the root of the stage that merges single coefficients.
    const std::array<std::complex<double>, 3>& start_roots() const noexcept { return start_roots_; }

    /// The four roots of the radix-2 stage: their real parts, then their imaginary parts.
    const double* pair_roots() const noexcept { return pair_roots_.data(); }

    /// The number of neighbouring roots that stand together in the table of a stage.
    static std::size_t group(std::size_t quarter) noexcept { return std::min<std::size_t>(quarter, 8); }

    /// The roots x_j, j < quarter, of the stage that merges blocks of `quarter` slots, `group` at a time: the
    /// real parts of the x_j, their imaginary parts, then the same of x_j^2 and of x_j^3. So a vector of any
    /// width up to the group is one load.
    const double* stage_roots(std::size_t quarter) const noexcept {
        // The stages stand one after the other, and first_quarter + 4 first_quarter + ... + quarter / 4 =
        // (quarter - first_quarter) / 3 slots come before.
        return stage_roots_.data() + 2 * (quarter - first_quarter_);
    }

    /// Reverses the bits of a slot index below its three top and above its two low ones. The entry 2 m is
    /// twice the reversal of one bit less.
    std::size_t reversed_middle(std::size_t middle) const noexcept { return middle_reversal_[middle]; }

  private:
    void fill_direct_roots() {
        direct_roots_ = memory::buffer<std::complex<double>>(4 * slots_);
        for (std::size_t k = 0; k < direct_roots_.size(); ++k) {
            direct_roots_[k] = root_of_unity(k, direct_roots_.size());
        }
    }

    void fill_stage_roots() {
        // Blocks of n slots stand for polynomials on the points exp(2 pi i 5^j / (4 n)), j < n.
        start_roots_ = {root_of_unity(1, 16), root_of_unity(2, 16), root_of_unity(3, 16)};
        for (std::size_t j = 0, point = 1; j < 4; ++j, point = 5 * point % 32) {
            const auto root = root_of_unity(point, 32);
            pair_roots_[j] = root.real();
            pair_roots_[4 + j] = root.imag();
        }
        stage_roots_ = memory::buffer<double>(2 * (slots_ - first_quarter_));
        double* next = stage_roots_.data();
        for (std::size_t quarter = first_quarter_; quarter < slots_; quarter *= 4) {
            const std::size_t order = 16 * quarter;
            const std::size_t width = group(quarter);
            std::size_t point = 1;  // 5^j modulo the order
            for (std::size_t j = 0; j < quarter; j += width, next += 6 * width) {
                for (std::size_t lane = 0; lane < width; ++lane, point = 5 * point % order) {
                    for (std::size_t power = 1; power <= 3; ++power) {
                        const auto root = root_of_unity(power * point, order);
                        next[2 * (power - 1) * width + lane] = root.real();
                        next[(2 * power - 1) * width + lane] = root.imag();
                    }
                }
            }
        }
    }

    void fill_middle_reversal() {
        middle_reversal_ = memory::buffer<std::uint32_t>(slots_ / 32);
        for (std::size_t middle = 0; middle < middle_reversal_.size(); ++middle) {
            middle_reversal_[middle] = static_cast<std::uint32_t>(ntt::bit_reverse(middle, log_slots_ - 5));
        }
    }

    int log_slots_;
    std::size_t slots_;
    std::size_t first_quarter_;
    memory::buffer<std::complex<double>> direct_roots_;
    std::array<std::complex<double>, 3> start_roots_{};
    std::array<double, 8> pair_roots_{};
    memory::buffer<double> stage_roots_;
    memory::buffer<std::uint32_t> middle_reversal_;
};

}  // namespace tensafe::encoding::detail
