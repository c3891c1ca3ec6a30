#pragma once

#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/lora/packing/layout.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tensafe::lora {

/// Up to N hidden states at once: ciphertext j holds entry j of every one, in coefficients, token by token. A
/// product is a number times a ciphertext, so the server transforms nothing for it. Every coefficient of a
/// reply is an answer. For prefill and offline batches.
struct column_batched {};

template <ckks::parameter_set P, class Protection>
struct layout<P, column_batched, Protection> {
    static_assert(
        !Protection::range::can_overflow,
        "lora::column_batched: average-case ranges are for coefficient_tiles; use lora::worst_case");
    static constexpr int level = request_level<P>;
    static constexpr bool can_overflow = false;
    /// Hidden states in one request, at most.
    static constexpr std::size_t largest_batch = P::degree;

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

    static constexpr std::size_t entries_per_input() noexcept { return 1; }
    constexpr std::size_t inputs() const noexcept { return d; }
    constexpr std::size_t outputs() const noexcept { return rank; }
    static constexpr int subring_log_n() noexcept { return P::log_n; }

    static constexpr reply_geometry geometry(std::size_t rank, std::size_t d) noexcept {
        return {rank, d, 1, static_cast<double>(d), 1, 0};
    }
    /// @throws parameter_error as budget_for
    constexpr reply_budget budget() const { return budget_for<P, Protection>(geometry(rank, d)); }
    /// Coefficients of c0 that travel in output o for a batch of so many tokens.
    static constexpr std::size_t targets(std::size_t, std::size_t tokens = largest_batch) noexcept {
        return tokens;
    }
    constexpr int reply_bits(const reply_budget& budget, std::size_t) const noexcept {
        return budget.reply_bits;
    }

    /// The integer that stands for an entry of A.
    double integer_weight(const reply_budget& budget, double entry) const noexcept {
        return std::round(entry * (row_norm > 0 ? budget.weight_norm / row_norm : 1));
    }

    /// The scale of one hidden state for which none of its answers passes the range.
    double message_scale(const reply_budget& budget, double state_norm) const noexcept {
        return detail::scale_for(budget.range / budget.longest_row, state_norm);
    }

    /// An answer from its coefficient.
    double answer(const reply_budget& budget, double coefficient, double scale) const noexcept {
        return coefficient * row_norm / (budget.weight_norm * scale);
    }

    void check_matrix(const matrix&) const noexcept {}
};

}  // namespace tensafe::lora
