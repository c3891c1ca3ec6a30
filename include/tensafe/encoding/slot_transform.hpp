#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/encoding/complex_lanes.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/ntt/order.hpp>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

namespace tensafe::encoding {

/// The canonical embedding of R[X]/(X^N + 1), in double precision, both ways.
///
/// With zeta = exp(i pi / N), slot j (0 <= j < N/2) of a polynomial m is m(zeta^(5^j mod 2N)). The remaining
/// roots are the conjugates of these, so N real coefficients and N/2 complex slots determine each other. No
/// scale, no rounding to integers and no modulus enter here.
///
/// Error, Euclidean norm relative to the exact result, u = 2^-53: at most (2.8 log2(N) + 2) u for N >= 64 and
/// (N + 2) sqrt(N) u below; random inputs show 0.5 to 3 u. Derived in docs/design/encoding.md.
/// Overflow, infinities and NaN spread as in any sum; nothing is checked.
///
/// Cost: 2.1 N log2(N) floating-point operations each way, no allocation; the tables take 8 N bytes.
///
/// Secrets: no branch and no index depends on a value; the one copy kept on the stack is wiped.
///
/// Thread safety: immutable after construction. A moved-from transform may only be assigned to or destroyed.
///
/// Source: the decimation of Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier
/// series" (1965), applied to the points zeta^(5^j) themselves.
class slot_transform {
    friend const slot_transform& shared_slot_transform(int log_n);

  public:
    static constexpr int min_log_n = 1;
    static constexpr int max_log_n = 17;

    /// Builds the tables for N = 2^log_n.
    /// @throws parameter_error unless 1 <= log_n <= 17
    explicit slot_transform(int log_n)
        : log_slots_(checked(log_n) - 1),
          slots_(std::size_t{1} << log_slots_),
          first_quarter_(log_slots_ % 2 == 0 ? 4 : 8) {
        if (is_direct()) {
            fill_direct_roots();
        } else {
            fill_stage_roots();
            fill_middle_reversal();
        }
    }

    /// N, the number of coefficients.
    std::size_t degree() const noexcept { return 2 * slots_; }
    /// N/2, the number of slots.
    std::size_t slots() const noexcept { return slots_; }

    /// Evaluates: slots[j] = sum over k of coefficients[k] * zeta^(5^j k).
    /// @param coefficients N values, natural order
    /// @param slots N/2 values, natural order of powers of 5; also the working space
    /// @pre the two do not overlap
    /// @throws shape_error if a size is not N or N/2; nothing is written then
    void to_slots(std::span<const double> coefficients, std::span<std::complex<double>> slots) const {
        check_sizes("slot_transform::to_slots", coefficients.size(), slots.size());
        // The standard lets an array of std::complex be read and written as pairs of reals.
        double* const work = reinterpret_cast<double*>(slots.data());
        if (is_direct()) {
            evaluate_directly(coefficients.data(), work);
            return;
        }
        gather_and_merge(coefficients.data(), work);
        if (first_quarter_ == 8) {
            merge_pairs(work);
        }
        for (std::size_t quarter = first_quarter_; 4 * quarter < slots_; quarter *= 4) {
            merge_stage(work, quarter);
        }
        merge_and_interleave(work);
    }

    /// Interpolates: the one real polynomial of degree below N with the given slots,
    /// coefficients[k] = 2/N * Re(sum over j of slots[j] * zeta^(-5^j k)).
    /// @param slots N/2 values, natural order of powers of 5
    /// @param coefficients N values, natural order; also the working space
    /// @pre the two do not overlap
    /// @throws shape_error if a size is not N or N/2; nothing is written then
    void to_coefficients(std::span<const std::complex<double>> slots, std::span<double> coefficients) const {
        check_sizes("slot_transform::to_coefficients", coefficients.size(), slots.size());
        const double* const values = reinterpret_cast<const double*>(slots.data());
        double* const work = coefficients.data();
        if (is_direct()) {
            interpolate_directly(values, work);
            return;
        }
        split_interleaved(values, work);
        for (std::size_t quarter = slots_ / 16; quarter >= first_quarter_; quarter /= 4) {
            split_stage(work, quarter);
        }
        if (first_quarter_ == 8) {
            split_pairs(work);
        }
        split_and_scatter(work);
    }

  private:
    /// Two-bit numbers with their bits exchanged.
    static constexpr std::array<std::size_t, 4> reversed_pair{0, 2, 1, 3};
    /// Up to this many slots the definition itself is evaluated: the block structure below needs 32.
    static constexpr std::size_t direct_slots = 16;

    static int checked(int log_n) {
        if (log_n < min_log_n || log_n > max_log_n) {
            throw parameter_error("slot_transform: log_n: got " + std::to_string(log_n) + ", wanted " +
                                  std::to_string(min_log_n) + " to " + std::to_string(max_log_n));
        }
        return log_n;
    }

    template <int log_n>
    static const slot_transform& built_once() {
        static const slot_transform transform(log_n);
        return transform;
    }

    void check_sizes(const char* where, std::size_t coefficients, std::size_t slots) const {
        if (coefficients != degree()) {
            throw shape_error(std::string(where) + ": coefficients: got " + std::to_string(coefficients) +
                              ", wanted " + std::to_string(degree()));
        }
        if (slots != slots_) {
            throw shape_error(std::string(where) + ": slots: got " + std::to_string(slots) + ", wanted " +
                              std::to_string(slots_));
        }
    }

    bool is_direct() const noexcept { return slots_ <= direct_slots; }

    /// The roots of the stage that merges blocks of `quarter` slots. The stages stand one after the other,
    /// and first_quarter + 4 first_quarter + ... + quarter / 4 = (quarter - first_quarter) / 3 slots come
    /// before.
    const detail::root_powers* stage_roots(std::size_t quarter) const noexcept {
        return stage_roots_.data() + (quarter - first_quarter_) / 6;
    }

    // Building the tables

    void fill_direct_roots() {
        direct_roots_ = memory::buffer<std::complex<double>>(4 * slots_);
        for (std::size_t k = 0; k < direct_roots_.size(); ++k) {
            direct_roots_[k] = detail::root_of_unity(k, direct_roots_.size());
        }
    }

    /// exp(2 pi i * first / order) and exp(2 pi i * second / order), each raised to `power`.
    static detail::complex_lanes root_pair(std::size_t order, std::size_t first, std::size_t second,
                                           std::size_t power) {
        const auto a = detail::root_of_unity(power * first, order);
        const auto b = detail::root_of_unity(power * second, order);
        return {detail::lanes{a.real(), b.real()}, detail::lanes{a.imag(), b.imag()}};
    }

    void fill_stage_roots() {
        // Blocks of n slots stand for polynomials on the points exp(2 pi i 5^j / (4 n)), j < n.
        start_roots_ = {root_pair(16, 1, 1, 1), root_pair(16, 1, 1, 2), root_pair(16, 1, 1, 3)};
        pair_roots_ = {root_pair(32, 1, 5, 1), root_pair(32, 25, 125, 1)};
        stage_roots_ = memory::buffer<detail::root_powers>((slots_ - first_quarter_) / 6);
        detail::root_powers* next = stage_roots_.data();
        for (std::size_t quarter = first_quarter_; quarter < slots_; quarter *= 4) {
            const std::size_t order = 16 * quarter;
            std::size_t first = 1;  // 5^j modulo the order
            for (std::size_t j = 0; j < quarter; j += 2) {
                const std::size_t second = 5 * first % order;
                *next++ = {root_pair(order, first, second, 1), root_pair(order, first, second, 2),
                           root_pair(order, first, second, 3)};
                first = 5 * second % order;
            }
        }
    }

    void fill_middle_reversal() {
        middle_reversal_ = memory::buffer<std::uint32_t>(slots_ / 32);
        for (std::size_t middle = 0; middle < middle_reversal_.size(); ++middle) {
            middle_reversal_[middle] = static_cast<std::uint32_t>(ntt::bit_reverse(middle, log_slots_ - 5));
        }
    }

    /// Radix-4 butterflies over one block of 4 * quarter slots, with the roots of that stage in reading
    /// order.
    template <auto read, auto butterfly, auto write>
    TENSAFE_INLINE void pass(const double* from, double* to, std::size_t quarter) const noexcept {
        const detail::root_powers* roots = stage_roots(quarter);
        const std::size_t distance = 2 * quarter;
        for (std::size_t i = 0; i != distance; i += 4, ++roots) {
            const auto out = butterfly(read(from + i), read(from + i + distance),
                                       read(from + i + 2 * distance), read(from + i + 3 * distance), *roots);
            write(to + i, out[0]);
            write(to + i + distance, out[1]);
            write(to + i + 2 * distance, out[2]);
            write(to + i + 3 * distance, out[3]);
        }
    }

    // Coefficients to slots

    void evaluate_directly(const double* coefficients, double* slots) const noexcept {
        const std::size_t mask = direct_roots_.size() - 1;
        std::size_t power_of_five = 1;
        for (std::size_t j = 0; j < slots_; ++j) {
            double re = 0.0;
            double im = 0.0;
            for (std::size_t k = 0; k < degree(); ++k) {
                const std::complex<double>& root = direct_roots_[power_of_five * k & mask];
                re += coefficients[k] * root.real();
                im += coefficients[k] * root.imag();
            }
            slots[2 * j] = re;
            slots[2 * j + 1] = im;
            power_of_five = power_of_five * 5 & mask;
        }
    }

    /// Reads the coefficients in bit-reversed order and merges them four by four; leaves chunks.
    ///
    /// A slot index is cut into three top bits, the middle, and two low bits; one round takes the eight
    /// blocks of four that share a middle, so that whole cache lines are read and written on both sides of
    /// the reversal.
    void gather_and_merge(const double* coefficients, double* work) const noexcept {
        const std::size_t quarter = slots_ / 4;
        for (std::size_t middle = 0; middle < slots_ / 32; ++middle) {
            const double* const from = coefficients + 8 * middle_reversal_[middle];
            double* const to = work + 8 * middle;
            for (std::size_t pair = 0; pair < 4; ++pair) {
                const auto coefficient = [&](std::size_t c) {
                    const double* const re = from + 2 * pair + c * quarter;
                    return detail::complex_lanes{detail::load(re), detail::load(re + slots_)};
                };
                const auto z =
                    detail::sum_of_four(coefficient(0), multiply(coefficient(3), start_roots_.third),
                                        multiply(coefficient(2), start_roots_.second),
                                        multiply(coefficient(1), start_roots_.first));
                // Coefficients 2 pair and 2 pair + 1 of the eight differ in the lowest bit, their blocks in
                // the top one.
                double* const even = to + reversed_pair[pair] * quarter;
                double* const odd = even + slots_;
                detail::store(even, detail::lanes{z[0].re[0], z[1].re[0]});
                detail::store(even + 2, detail::lanes{z[0].im[0], z[1].im[0]});
                detail::store(even + 4, detail::lanes{z[2].re[0], z[3].re[0]});
                detail::store(even + 6, detail::lanes{z[2].im[0], z[3].im[0]});
                detail::store(odd, detail::lanes{z[0].re[1], z[1].re[1]});
                detail::store(odd + 2, detail::lanes{z[0].im[1], z[1].im[1]});
                detail::store(odd + 4, detail::lanes{z[2].re[1], z[3].re[1]});
                detail::store(odd + 6, detail::lanes{z[2].im[1], z[3].im[1]});
            }
        }
    }

    /// Blocks of four to blocks of eight: the one radix-2 stage when log2 of the slots is odd.
    void merge_pairs(double* work) const noexcept {
        for (double* at = work; at != work + 2 * slots_; at += 16) {
            for (std::size_t j = 0; j < 2; ++j) {
                const auto even = detail::load_chunk(at + 4 * j);
                const auto odd = multiply(detail::load_chunk(at + 4 * j + 8), pair_roots_[j]);
                detail::store_chunk(at + 4 * j, even + odd);
                detail::store_chunk(at + 4 * j + 8, even - odd);
            }
        }
    }

    void merge_stage(double* work, std::size_t quarter) const noexcept {
        for (double* at = work; at != work + 2 * slots_; at += 8 * quarter) {
            pass<detail::load_chunk, detail::merge_four, detail::store_chunk>(at, at, quarter);
        }
    }

    /// The last stage; turns chunks into pairs of real and imaginary part on the way.
    void merge_and_interleave(double* work) const noexcept {
        pass<detail::load_chunk, detail::merge_four, detail::store_interleaved>(work, work, slots_ / 4);
    }

    // Slots to coefficients: the same stages backwards

    void interpolate_directly(const double* slots, double* coefficients) const noexcept {
        const std::size_t mask = direct_roots_.size() - 1;
        for (std::size_t k = 0; k < degree(); ++k) {
            double sum = 0.0;
            std::size_t exponent = k;
            for (std::size_t j = 0; j < slots_; ++j) {
                const std::complex<double>& root = direct_roots_[exponent & mask];
                sum += slots[2 * j] * root.real() + slots[2 * j + 1] * root.imag();
                exponent *= 5;
            }
            coefficients[k] = sum / static_cast<double>(slots_);
        }
    }

    /// The last stage backwards; turns pairs of real and imaginary part into chunks on the way.
    void split_interleaved(const double* slots, double* work) const noexcept {
        pass<detail::load_interleaved, detail::split_four, detail::store_chunk>(slots, work, slots_ / 4);
    }

    void split_stage(double* work, std::size_t quarter) const noexcept {
        for (double* at = work; at != work + 2 * slots_; at += 8 * quarter) {
            pass<detail::load_chunk, detail::split_four, detail::store_chunk>(at, at, quarter);
        }
    }

    void split_pairs(double* work) const noexcept {
        for (double* at = work; at != work + 2 * slots_; at += 16) {
            for (std::size_t j = 0; j < 2; ++j) {
                const auto a = detail::load_chunk(at + 4 * j);
                const auto b = detail::load_chunk(at + 4 * j + 8);
                detail::store_chunk(at + 4 * j, a + b);
                detail::store_chunk(at + 4 * j + 8, multiply_conjugate(a - b, pair_roots_[j]));
            }
        }
    }

    /// The first stage backwards, the bit reversal and the division by n, in place.
    ///
    /// Chunks and the final order differ by a permutation of address bits that maps the 64 values with one
    /// middle onto those with the reversed middle, so two such sets change places and nothing else is
    /// disturbed.
    void split_and_scatter(double* work) const noexcept {
        std::array<double, 64> kept;
        const memory::wipe_guard guard(kept);
        const std::size_t row = slots_ / 4;
        for (std::size_t middle = 0; middle < slots_ / 32; ++middle) {
            const std::size_t partner = middle_reversal_[middle];
            if (partner < middle) {
                continue;
            }
            split_set(work + 8 * middle, kept.data(), 8);
            if (partner != middle) {
                split_set(work + 8 * partner, work + 8 * middle, row);
            }
            for (std::size_t r = 0; r < 8; ++r) {
                std::memcpy(work + 8 * partner + r * row, kept.data() + 8 * r, 8 * sizeof(double));
            }
        }
    }

    /// Splits the eight blocks of four that share a middle. Row c of `to` gets the real parts of the eight
    /// coefficients in quarter c of the result, row 4 + c their imaginary parts; rows are `row` values apart.
    void split_set(const double* from, double* to, std::size_t row) const noexcept {
        const detail::lanes factor = detail::lanes{1.0, 1.0} / static_cast<double>(slots_);
        for (std::size_t pair = 0; pair < 4; ++pair) {
            const double* const even = from + reversed_pair[pair] * (slots_ / 4);
            const double* const odd = even + slots_;
            const auto across = [&](std::size_t i) {
                return detail::complex_lanes{detail::lanes{even[i], odd[i]},
                                             detail::lanes{even[i + 2], odd[i + 2]}};
            };
            const auto t = detail::sum_of_four(across(0), across(1), across(4), across(5));
            const std::array<detail::complex_lanes, 4> b{t[0], multiply_conjugate(t[1], start_roots_.first),
                                                         multiply_conjugate(t[2], start_roots_.second),
                                                         multiply_conjugate(t[3], start_roots_.third)};
            for (std::size_t c = 0; c < 4; ++c) {
                detail::store(to + 2 * pair + c * row, b[c].re * factor);
                detail::store(to + 2 * pair + (4 + c) * row, b[c].im * factor);
            }
        }
    }

    int log_slots_;
    std::size_t slots_;
    std::size_t first_quarter_;  ///< quarter of the first radix-4 stage that reads a table
    memory::buffer<std::complex<double>> direct_roots_;  ///< powers of zeta; small sizes only
    detail::root_powers start_roots_{};                  ///< the stage that merges single coefficients
    std::array<detail::complex_lanes, 2> pair_roots_{};  ///< the radix-2 stage
    memory::buffer<detail::root_powers> stage_roots_;    ///< the radix-4 stages, in reading order
    memory::buffer<std::uint32_t> middle_reversal_;      ///< bit reversal of the middle part of a slot index
};

/// The transform for N = 2^log_n that the whole process shares; built on its first use, kept until the
/// process ends. Thread safety: any number of threads may ask at once; one builds, the others wait for it.
/// @throws parameter_error unless 1 <= log_n <= 17
inline const slot_transform& shared_slot_transform(int log_n) {
    using getter = const slot_transform& (*)();
    constexpr int first = slot_transform::min_log_n;
    constexpr std::size_t count = slot_transform::max_log_n - first + 1;
    constexpr auto getters = []<std::size_t... Index>(std::index_sequence<Index...>) {
        return std::array<getter, count>{&slot_transform::built_once<first + static_cast<int>(Index)>...};
    }
    (std::make_index_sequence<count>{});
    return getters[static_cast<std::size_t>(slot_transform::checked(log_n) - first)]();
}

}  // namespace tensafe::encoding
