#pragma once

#include <tensafe/lora/packing/coefficient_tiles.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>

namespace tensafe::lora {

/// The packing of blocks of tokens, as many as the layout says. A ciphertext has room for T hidden states, T
/// the next power of two: N/T entries of each, in coefficients, state after state; and a plaintext holds so
/// many entries of one row of A, reversed. Row times state t stands in coefficient t * N/T of the product;
/// products of several ciphertexts are added up: docs/design/lora.md.
///
/// No other state reaches that coefficient, so the others need not be known: c1 of all replies is computed
/// and sent before the first state exists, and each state then costs d residues up and an answer for each row
/// down.
struct token_blocks {};

template <ckks::parameter_set P, class Protection>
struct layout<P, token_blocks, Protection> : detail::layout_base<layout<P, token_blocks, Protection>> {
    static_assert(Protection::protects, "lora::token_blocks: replies of blocks are protected");
    using row_layout = layout<P, coefficient_tiles<1>, Protection>;
    static constexpr int level = request_level<P>;
    static constexpr bool can_overflow = row_layout::can_overflow;

    using detail::layout_base<layout>::rank;
    using detail::layout_base<layout>::d;
    using detail::layout_base<layout>::row_norm;
    std::size_t tokens = 32;  ///< tokens in a block: from 2 to N

    /// Makes a checked layout.  @throws as check
    static layout of(std::size_t rank, std::size_t d, double row_norm, std::size_t tokens) {
        layout result{{rank, d, row_norm}, tokens};
        result.check();
        return result;
    }
    /// Checks shape, norm, tokens and budget.  @throws shape_error or parameter_error
    constexpr void check() const {
        detail::check_shape(rank, d, row_norm);
        static_cast<void>(budget());
    }
    friend bool operator==(const layout&, const layout&) = default;

    /// The entries of each hidden state in one ciphertext.
    constexpr std::size_t entries_per_input() const noexcept { return P::degree / std::bit_ceil(tokens); }
    /// The ciphertexts of a block.
    constexpr std::size_t inputs() const noexcept { return detail::ceil_divide(d, entries_per_input()); }
    /// The products of a block, those of checksum rows included: one for each row.
    constexpr std::size_t outputs() const noexcept { return rows().outputs(); }
    constexpr int subring_log_n() const noexcept { return std::countr_zero(std::bit_ceil(tokens)); }
    static constexpr reply_geometry geometry(std::size_t rank, std::size_t d) noexcept {
        return {rank, d, 1, static_cast<double>(d), 1, row_layout::checks(rank)};
    }
    /// The budget of a block's replies.
    /// @throws shape_error for tokens that no block has; parameter_error as budget_for, or for primes with
    ///         which integers of A or hidden states overflow
    constexpr reply_budget budget() const {
        require<shape_error>(tokens >= 2 && tokens <= P::degree,
                             {"layout: got blocks of ", tokens, " tokens, expected 2 to N = ", P::degree});
        const detail::budget_result result = compute_budget(rank, d);
        return detail::checked_budget<P>(result, rank, d);
    }
    static constexpr detail::budget_result compute_budget(std::size_t rank, std::size_t d) {
        using basis = typename P::template basis_at<request_level<P>>;
        auto result = detail::compute_budget<P, Protection>(geometry(rank, d));
        if (result.problem == nullptr &&
            *std::min_element(basis::primes.begin(), basis::primes.end()) <= arith::word{1} << 28) {
            result.problem = "blocks of tokens need primes above 2^28";
        } else if (result.problem == nullptr &&
                   (detail::checksum_norm * result.budget.longest_row >= 0x1p27 ||
                    result.budget.range >= 0x1p112 * result.budget.longest_row)) {
            result.problem =
                "blocks of tokens take integers of A below 2^27 and of hidden states below 2^112";
        }
        return result;
    }
    /// The coefficients of c0 that travel of output o, over the block.
    constexpr std::size_t targets(std::size_t) const noexcept { return tokens; }
    constexpr int reply_bits(const reply_budget& budget, std::size_t o) const noexcept {
        return rows().reply_bits(budget, o);
    }
    constexpr int noise_bits(const reply_budget& budget, std::size_t o) const noexcept {
        return rows().noise_bits(budget, o);
    }

    /// The layout of the rows one by one, which does not depend on blocks.
    constexpr row_layout rows() const noexcept { return {rank, d, row_norm}; }
};

}  // namespace tensafe::lora
