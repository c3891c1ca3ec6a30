#pragma once

#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/encoding/slot_transform.hpp>
#include <tensafe/lora/packing/layout.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>

#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <span>
#include <vector>

namespace tensafe::lora {

/// `replicated_slots` with protected replies: of a product only the 2 * stride coefficients are sent on which
/// the sums over a row's slots depend. The shape of the packing is that of slot_layout.
template <ckks::parameter_set P, class Rows, class Replies, class Range, class Precision>
struct layout<P, replicated_slots<Rows, Replies>, protects_adapter_rows<Range, Precision>> {
    static_assert(!Range::can_wrap,
                  "lora::replicated_slots: calibrated ranges are for coefficient_tiles; use lora::rigorous");
    static_assert(
        !replicated_slots<Rows, Replies>::rescales,
        "lora::replicated_slots: protected replies are switched to a small modulus, not rescaled; use "
        "lora::unrescaled_replies");
    using protection = protects_adapter_rows<Range, Precision>;
    using shape = slot_layout<P, replicated_slots<Rows, Replies>>;
    static constexpr int level = request_level<P>;
    /// Hidden states in one request, at most.
    static constexpr std::size_t largest_batch = 1;

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

    constexpr std::size_t inputs() const noexcept { return slots().inputs; }
    constexpr std::size_t outputs() const noexcept { return slots().outputs; }
    constexpr int subring_log_n() const noexcept { return slots().subring_log_n(); }
    /// Entries of h in one ciphertext.
    constexpr std::size_t entries_per_input() const noexcept { return slots().entries_per_input(); }

    constexpr reply_geometry geometry() const noexcept {
        const shape s = slots();
        const auto trace = static_cast<double>(2 * s.stride);
        return {rank,
                d,
                static_cast<double>(Rows::rows_per_slot * s.stride),
                static_cast<double>(s.inputs * P::degree),
                detail::square_root(trace),
                0};
    }
    /// @throws parameter_error as budget_for
    constexpr reply_budget budget() const { return budget_for<P, protection>(geometry()); }
    /// Coefficients of c0 that travel in output o.
    constexpr std::size_t wanted(std::size_t, std::size_t = 1) const noexcept { return 2 * slots().stride; }
    constexpr int reply_bits(const reply_budget& budget, std::size_t) const noexcept {
        return budget.reply_bits;
    }

    ckks::plaintext<P, rns::coefficient_form, level> encode_weights(const matrix& a,
                                                                    const reply_budget& budget, std::size_t o,
                                                                    std::size_t i) const {
        memory::secret_buffer<std::complex<double>> values(P::slots);
        slots().fill(a, o, i, values.span());
        return ckks::encode_slots<P, level>(values.span(), weight_scale(budget));
    }
    void check_matrix(const matrix&) const noexcept {}

    /// The scale of the slots of h for which no target coefficient passes the range: each is a mean of
    /// rotated sums, below rows_per_slot^(1/2) * stride * 2/N of the largest.
    double message_scale(const reply_budget& budget, double state_norm) const noexcept {
        const auto n = static_cast<double>(P::degree);
        const auto g = static_cast<double>(slots().stride);
        const double coefficient =
            2 * g / n * std::sqrt(static_cast<double>(Rows::rows_per_slot) * n / 2) * budget.longest_row;
        return detail::scale_for(budget.range / coefficient, state_norm);
    }

    /// Input i of the request for h, into work.message.
    template <class Real>
    void encode_message(std::span<const Real> h, std::size_t i, double scale,
                        message_workspace<P>& work) const {
        if (work.slots.empty()) {
            work.slots = memory::secret_buffer<std::complex<double>>(P::slots, memory::uninitialized);
        }
        slots().replicate(h, i, work.slots.span());
        encoding::encode_slots(work.slots.span(), scale, work.message, work.reals.span());
        memory::wipe(work.slots.data(), work.slots.span().size_bytes());
        memory::wipe(work.reals.data(), work.reals.span().size_bytes());
    }

    /// A*h from the target coefficients of all outputs, 2 * stride for each.
    void collect(const reply_budget& budget, decryption_workspace<P>& work, double scale,
                 std::span<double> answers) const {
        const shape s = slots();
        if (work.slots.size() != s.stride) {
            work.slots = memory::secret_buffer<std::complex<double>>(s.stride, memory::uninitialized);
        }
        // A matrix of zeros has the row_norm 0, and its answers are 0 rather than the flood.
        const double unit = static_cast<double>(P::degree / (2 * s.stride)) * row_norm /
                            (budget.weight_norm * std::sqrt(static_cast<double>(P::degree) / 2) * scale);
        for (std::size_t o = 0; o < s.outputs; ++o) {
            const std::span<double> of_output =
                work.coefficients.span().subspan(o * 2 * s.stride, 2 * s.stride);
            for (double& x : of_output) {
                x *= unit;
            }
            encoding::shared_slot_transform(s.subring_log_n()).to_slots(of_output, work.slots.span());
            s.collect(o, work.slots.span(), answers);
        }
    }

  private:
    constexpr shape slots() const noexcept { return shape::shape_of(rank, d, row_norm); }
    /// Slots of norm `row_norm` become coefficients of norm `weight_norm`.
    double weight_scale(const reply_budget& budget) const noexcept {
        return (row_norm > 0 ? budget.weight_norm / row_norm : 1) *
               std::sqrt(static_cast<double>(P::degree) / 2);
    }
};

}  // namespace tensafe::lora
