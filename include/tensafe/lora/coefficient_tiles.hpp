#pragma once

#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/lora/layout.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tensafe::lora {

/// h in the coefficients of polynomials, N/Rows entries in each; a plaintext holds `Rows` rows of A,
/// reversed, side by side. The inner product of row k with the block stands in coefficient k * N/Rows of the
/// product, and products of several blocks are added up. No other coefficient is sent. docs/design/lora.md
/// shows that nothing else reaches these positions, wrap-around included.
template <int Rows>
struct coefficient_tiles {
    static_assert(Rows >= 1 && std::has_single_bit(static_cast<unsigned>(Rows)),
                  "lora::coefficient_tiles: the number of rows must be a power of two");
    static constexpr int rows = Rows;
};

namespace detail {

/// Digit k of 1 + r (modulo the number of patterns) in balanced ternary: how row r counts in check row k. For
/// fewer rows than patterns no two rows have the same digits, nor opposite ones.
template <int Digits>
constexpr int check_sign(std::size_t r, int k) noexcept {
    std::size_t patterns = 1;
    for (int i = 1; i < std::min(Digits, 20); ++i) {
        patterns = 3 * patterns + 1;
    }
    std::size_t value = 1 + r % patterns;
    int digit = 0;
    for (int i = 0; i <= k; ++i) {
        digit = static_cast<int>(value % 3);
        value = (value + 1) / 3;
    }
    return digit == 2 ? -1 : digit;
}

}  // namespace detail

template <ckks::parameter_set P, int Rows, class Protection>
struct layout<P, coefficient_tiles<Rows>, Protection> {
    static_assert(static_cast<std::size_t>(Rows) <= P::degree,
                  "lora::coefficient_tiles: there are more rows than coefficients");
    static constexpr int level = request_level<P>;
    static constexpr bool can_wrap = Protection::range::can_wrap;
    /// Hidden states in one request, at most.
    static constexpr std::size_t largest_batch = 1;
    /// Entries of h in one ciphertext.
    static constexpr std::size_t block = P::degree / static_cast<std::size_t>(Rows);
    static constexpr auto rows = static_cast<std::size_t>(Rows);

    std::size_t rank = 0;
    std::size_t d = 0;
    double row_norm = 0;

    friend bool operator==(const layout&, const layout&) = default;

    static layout of(std::size_t rank, std::size_t d, double row_norm) {
        const layout result{rank, d, row_norm};
        result.check();
        return result;
    }
    void check() const {
        detail::check_shape(rank, d, row_norm);
        static_cast<void>(budget());
    }

    static constexpr std::size_t entries_per_input() noexcept { return block; }
    /// Ciphertexts of a request.
    constexpr std::size_t inputs() const noexcept { return detail::ceil_divide(d, block); }
    /// Products in a reply, that of the check rows included.
    constexpr std::size_t outputs() const noexcept { return row_outputs() + (can_wrap ? 1 : 0); }
    /// log2 of the coefficients of a product that count.
    static constexpr int fold_log_n() noexcept { return std::countr_zero(rows); }

    static constexpr reply_geometry geometry(std::size_t rank, std::size_t d) noexcept {
        const auto inputs = static_cast<double>(detail::ceil_divide(d, block));
        return {rank,
                d,
                static_cast<double>(Rows),
                inputs * static_cast<double>(P::degree),
                1,
                rank + (can_wrap ? rows : 0)};
    }
    /// @throws parameter_error as budget_for
    constexpr reply_budget budget() const { return budget_for<P, Protection>(geometry(rank, d)); }

    /// Coefficients of c0 that travel in output o: the first ones of the multiples of N/Rows.
    constexpr std::size_t wanted(std::size_t o, std::size_t = 1) const noexcept {
        return o < row_outputs() ? std::min(rows, rank - o * rows) : rows;
    }
    constexpr std::size_t wanted() const noexcept { return geometry(rank, d).wanted; }
    /// Bits of each coefficient of output o.
    constexpr int reply_bits(const reply_budget& budget, std::size_t o) const noexcept {
        return o < row_outputs() ? budget.reply_bits : budget.check_bits;
    }

    /// The plaintext of output o that meets input i: entry t of the k-th row's block in the coefficient of
    /// X^(k*N/Rows - t), where X^-t = -X^(N-t).
    ckks::plaintext<P, rns::coefficient_form, level> encode_weights(exec::host where, const matrix& a,
                                                                    const reply_budget& budget, std::size_t o,
                                                                    std::size_t i) const {
        std::vector<double> coefficients(P::degree);
        const std::size_t first = i * block;
        const std::size_t count = std::min(block, d - first);
        for (std::size_t k = 0; k < wanted(o); ++k) {
            const auto place = [&](std::size_t t, double x) {
                if (t == 0) {
                    coefficients[k * block] = x;
                } else if (k == 0) {
                    coefficients[P::degree - t] = -x;
                } else {
                    coefficients[k * block - t] = x;
                }
            };
            for (std::size_t t = 0; t < count; ++t) {
                place(t, o < row_outputs() ? static_cast<double>(a.row(o * rows + k)[first + t])
                                           : check_entry(a, budget, k, first + t));
            }
        }
        const double scale = row_norm > 0 ? budget.weight_norm / row_norm : 1;
        return ckks::encode_coefficients<P, level>(where, coefficients, scale);
    }

    /// What cannot be said by the shape alone about a matrix that is to be packed so.
    /// @throws parameter_error if a check row is longer than a row may be
    void check_matrix(const matrix& a, const reply_budget& budget) const {
        if constexpr (can_wrap) {
            for (std::size_t k = 0; k < rows; ++k) {
                double sum = 0;
                for (std::size_t t = 0; t < d; ++t) {
                    const double x = check_entry(a, budget, k, t);
                    sum += x * x;
                }
                if (!(std::sqrt(sum) <= row_norm)) {
                    throw parameter_error(
                        "server: the rows of this matrix are too much alike for a calibrated range: a check "
                        "row has "
                        "the norm " +
                        std::to_string(std::sqrt(sum)) + ", wanted at most " + std::to_string(row_norm) +
                        "; use the range policy lora::rigorous");
                }
            }
        }
    }

    /// The scale of h for which no answer passes the range (rigorous), or none of `factor` times the usual
    /// size (calibrated).
    double message_scale(const reply_budget& budget, double state_norm) const noexcept {
        double norm = budget.range / budget.longest_row;
        if constexpr (can_wrap) {
            norm = std::fmax(norm, std::sqrt(static_cast<double>(d)) * budget.typical / budget.longest_row);
        }
        return detail::scale_for(norm, state_norm);
    }

    /// Input i of the request for h.
    template <class Real>
    ckks::plaintext<P, rns::coefficient_form, level> encode_message(exec::host where, std::span<const Real> h,
                                                                    std::size_t i, double scale) const {
        const std::size_t first = i * block;
        const std::size_t count = std::min(block, d - first);
        memory::secret_buffer<double> coefficients(count, memory::uninitialized);
        std::copy_n(h.begin() + static_cast<std::ptrdiff_t>(first), count, coefficients.begin());
        return ckks::encode_coefficients<P, level>(where, coefficients.span(), scale);
    }

    /// A*h from the wanted coefficients of all outputs, `rows` for each.
    /// @throws range_exceeded_error if check rows show that an answer wrapped around
    std::vector<double> collect(const reply_budget& budget, std::span<const double> coefficients,
                                double scale) const {
        if constexpr (can_wrap) {
            check_range(budget, coefficients);
        }
        std::vector<double> answers(rank);
        const double unit = row_norm / (budget.weight_norm * scale);
        for (std::size_t r = 0; r < rank; ++r) {
            answers[r] = coefficients[r] * unit;
        }
        return answers;
    }

  private:
    constexpr std::size_t row_outputs() const noexcept { return detail::ceil_divide(rank, rows); }

    double check_entry(const matrix& a, const reply_budget& budget, std::size_t k, std::size_t t) const {
        double sum = 0;
        for (std::size_t r = 0; r < rank; ++r) {
            sum += detail::check_sign<Rows>(r, static_cast<int>(k)) * static_cast<double>(a.row(r)[t]);
        }
        return budget.check_weight * sum;
    }

    void check_range(const reply_budget& budget, std::span<const double> coefficients) const {
        const std::span<const double> checks = coefficients.subspan(row_outputs() * rows, rows);
        bool fits = true;
        for (std::size_t k = 0; k < rows; ++k) {
            double sum = 0;
            for (std::size_t r = 0; r < rank; ++r) {
                sum += detail::check_sign<Rows>(r, static_cast<int>(k)) * coefficients[r];
            }
            // A lost multiple of Q moves the sum by check_weight * Q or more.
            fits &=
                std::fabs(budget.check_weight * sum - checks[k]) < budget.check_weight * budget.modulus / 2;
        }
        if (!fits) {
            throw range_exceeded_error("client::decrypt: an answer passed the calibrated range of " +
                                       std::to_string(Protection::range::factor) +
                                       " times its usual size and wrapped around; encrypt this hidden state "
                                       "again with more headroom, or "
                                       "use the range policy lora::rigorous");
        }
    }
};

}  // namespace tensafe::lora
