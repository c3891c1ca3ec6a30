#pragma once

#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/lora/packing/layout.hpp>

#include <cmath>
#include <cstddef>

namespace tensafe::lora {

/// Up to N hidden states at once: ciphertext j holds entry j of every one, in coefficients, token by token. A
/// product is a number times a ciphertext, so the server transforms nothing for it. Every coefficient of a
/// reply is an answer. For prefill and offline batches.
struct column_batched {};

template <ckks::parameter_set P, class Protection>
struct layout<P, column_batched, Protection> : detail::layout_base<layout<P, column_batched, Protection>> {
    static_assert(
        !Protection::range::can_overflow,
        "lora::column_batched: average-case ranges are for coefficient_tiles; use lora::worst_case");
    static constexpr int level = request_level<P>;
    static constexpr std::size_t largest_batch = P::degree;

    using detail::layout_base<layout>::rank;
    using detail::layout_base<layout>::d;
    using detail::layout_base<layout>::row_norm;

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
};

}  // namespace tensafe::lora
