#pragma once

#include <tensafe/ckks/plaintext.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/real.hpp>
#include <tensafe/encoding/slot_transform.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/layout.hpp>
#include <tensafe/lora/packing/messages.hpp>

#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <numbers>
#include <span>
#include <type_traits>

namespace tensafe::lora {

/// The number of rows of A that one complex slot serves: two, as real and imaginary part (h is real), or one.
struct paired_rows {
    static constexpr std::size_t rows_per_slot = 2;
};
struct single_rows {
    static constexpr std::size_t rows_per_slot = 1;
};

/// Whether the server divides each product by its last prime before it replies (one level, scale kept) or not
/// (no NTT at all on the server; the reply's scale is the square).
struct rescaled_replies {};
struct unrescaled_replies {};

/// The classic zero-rotation layout: h replicated in the slots, several rows of A in one plaintext, the sum
/// over a row's slots taken after decryption. Rows are *interleaved*: slot r + g*t holds h[t] in the input
/// and entry t of row r in the plaintext, so that a row's sum depends on 2g coefficients only and the trace
/// applies.
///
/// Replies of `reveals_adapter_rows` are whole ciphertexts, and requests then use the whole chain: whoever
/// decrypts them and knows h computes A. Protected ones have the 2g coefficients of each product alone.
template <class Rows = paired_rows, class Replies = unrescaled_replies>
struct replicated_slots {
    static constexpr std::size_t rows_per_slot = Rows::rows_per_slot;
    static constexpr bool rescales = std::is_same_v<Replies, rescaled_replies>;

    /// The level of a reply, and the scale of the plaintexts that makes it.
    template <ckks::parameter_set P>
    static constexpr int reply_level = rescales ? P::max_level - 1 : P::max_level;
    template <ckks::parameter_set P>
    static constexpr double weight_scale() noexcept {
        if constexpr (rescales) {
            return P::template rescale_factor<P::max_level>;
        } else {
            return P::scale;
        }
    }
    template <ckks::parameter_set P>
    static constexpr double reply_scale = rescales ? P::scale : P::scale* P::scale;

    /// Bits that the limbs used for decryption leave above the reply's scale.
    static constexpr int headroom_bits = 18;
    /// The fewest limbs that hold a reply: the client decrypts modulo these primes and ignores the others.
    template <ckks::parameter_set P>
    static constexpr int reply_limbs = [] {
        const double wanted = reply_scale<P> * static_cast<double>(1U << (headroom_bits + 1));
        double modulus = 1;
        int limbs = 0;
        while (limbs <= reply_level<P> && modulus < wanted * (1 - 0x1p-10)) {
            modulus *= static_cast<double>(P::basis::primes[static_cast<std::size_t>(limbs)]);
            ++limbs;
        }
        return limbs;
    }();
};

namespace detail {

/// The places of the rows of a rank x d matrix and of the entries of h in slots.
template <ckks::parameter_set P, class Packing>
struct slot_geometry {
    std::size_t rank = 0;
    std::size_t d = 0;
    std::size_t inputs = 1;   ///< ciphertexts of a request: ceil(d / slots)
    std::size_t outputs = 1;  ///< products of a reply
    std::size_t stride = 1;   ///< slots from one entry of a row to the next: a power of two

    /// @pre rank, d >= 1
    constexpr slot_geometry(std::size_t rows, std::size_t columns) noexcept : rank(rows), d(columns) {
        const std::size_t positions = ceil_divide(rank, Packing::rows_per_slot);
        if (d <= P::slots) {
            const std::size_t fit = std::bit_floor(P::slots / d);
            stride = positions >= fit ? fit : std::bit_ceil(positions);
        } else {
            inputs = ceil_divide(d, P::slots);
        }
        outputs = ceil_divide(positions, stride);
    }

    /// Entries of h that one input ciphertext carries.
    constexpr std::size_t entries_per_input() const noexcept { return P::slots / stride; }

    /// Replicates h in the slots of input i: slot r + g*t holds h[i * entries_per_input() + t], 0 beyond d.
    /// @pre h.size() == d, slots.size() == P::slots
    /// @param kept  the mask of detail::masked_norm
    template <class Real>
    void replicate(std::span<const Real> h, std::size_t i, std::uint64_t kept,
                   std::span<std::complex<double>> slots) const noexcept {
        const std::size_t first = i * entries_per_input();
        for (std::size_t t = 0; t < entries_per_input(); ++t) {
            const double x = first + t < d ? masked(static_cast<double>(h[first + t]), kept) : 0.0;
            for (std::size_t r = 0; r < stride; ++r) {
                slots[r + stride * t] = x;
            }
        }
    }

    /// The row of A at interleaved position r of output o, as real (0) or imaginary part (1); >= rank: none.
    std::size_t row(std::size_t o, std::size_t r, std::size_t part) const noexcept {
        return (o * Packing::rows_per_slot + part) * stride + r;
    }

    /// Fills the slots of the plaintext of output o that meets input i.  @pre slots.size() == P::slots
    void fill(const matrix& a, std::size_t o, std::size_t i, std::span<std::complex<double>> slots) const {
        const std::size_t first = i * entries_per_input();
        const auto entry = [&](std::size_t row, std::size_t t) {
            return row < rank && first + t < d ? static_cast<double>(a.row(row)[first + t]) : 0.0;
        };
        for (std::size_t r = 0; r < stride; ++r) {
            for (std::size_t t = 0; t < entries_per_input(); ++t) {
                const double imaginary = Packing::rows_per_slot == 2 ? entry(row(o, r, 1), t) : 0.0;
                slots[r + stride * t] = {entry(row(o, r, 0), t), imaginary};
            }
        }
    }

    /// Puts the row sums of output o in their places among the answers.
    void collect(std::size_t o, std::span<const std::complex<double>> sums,
                 std::span<double> answers) const noexcept {
        for (std::size_t part = 0; part < Packing::rows_per_slot; ++part) {
            for (std::size_t r = 0; r < sums.size(); ++r) {
                const std::size_t at = row(o, r, part);
                if (at < answers.size()) {
                    answers[at] = part == 0 ? sums[r].real() : sums[r].imag();
                }
            }
        }
    }
};

/// The members that both layouts of replicated slots share.
template <class Layout, ckks::parameter_set P, class Packing>
struct slot_layout : layout_base<Layout> {
    constexpr slot_geometry<P, Packing> slots() const noexcept { return {this->rank, this->d}; }
    constexpr std::size_t inputs() const noexcept { return slots().inputs; }
    constexpr std::size_t outputs() const noexcept { return slots().outputs; }
    constexpr std::size_t entries_per_input() const noexcept { return slots().entries_per_input(); }
    /// The degree, as a power of two, of the ring that replies trace to: 2 * stride.
    constexpr int subring_log_n() const noexcept { return std::countr_zero(slots().stride) + 1; }

  protected:
    /// Encodes input i of the request for h.
    template <class Real, class Message>
    void encode_slots(std::span<const Real> h, std::size_t i, double scale, std::uint64_t kept,
                      message_workspace<P>& work, Message& message) const {
        const auto values = make_room(work.slots, P::slots);
        slots().replicate(h, i, kept, values);
        encoding::encode_slots(values, scale, message, work.reals.span());
        memory::wipe(values.data(), values.size_bytes());
        memory::wipe(work.reals.data(), work.reals.span().size_bytes());
    }
};

}  // namespace detail

template <ckks::parameter_set P, class Rows, class Replies, class Range, class Precision>
struct layout<P, replicated_slots<Rows, Replies>, protects_adapter_rows<Range, Precision>>
    : detail::slot_layout<layout<P, replicated_slots<Rows, Replies>, protects_adapter_rows<Range, Precision>>,
                          P, replicated_slots<Rows, Replies>> {
    static_assert(
        !Range::can_overflow,
        "lora::replicated_slots: average-case ranges are for coefficient_tiles; use lora::worst_case");
    static_assert(
        !replicated_slots<Rows, Replies>::rescales,
        "lora::replicated_slots: protected replies are switched to a small modulus, not rescaled; use "
        "lora::unrescaled_replies");
    using protection = protects_adapter_rows<Range, Precision>;
    static constexpr int level = request_level<P>;

    constexpr reply_geometry geometry() const noexcept {
        const auto s = this->slots();
        const auto trace = static_cast<double>(2 * s.stride);
        return {this->rank,
                this->d,
                static_cast<double>(Rows::rows_per_slot * s.stride),
                static_cast<double>(s.inputs * P::degree),
                square_root(trace),
                0};
    }
    /// The budget of replies of this layout.  @throws parameter_error as budget_for
    constexpr reply_budget budget() const { return budget_for<P, protection>(geometry()); }
    /// The coefficients of c0 that travel in output o.
    constexpr std::size_t targets(std::size_t) const noexcept { return 2 * this->slots().stride; }

    ckks::plaintext<P, rns::coefficient_form, level> encode_weights(const matrix& a,
                                                                    const reply_budget& budget, std::size_t o,
                                                                    std::size_t i) const {
        memory::secret_buffer<std::complex<double>> values(P::slots);
        this->slots().fill(a, o, i, values.span());
        // Slots of norm `row_norm` become coefficients of norm `weight_norm`.
        const double scale = (this->row_norm > 0 ? budget.weight_norm / this->row_norm : 1) *
                             std::sqrt(static_cast<double>(P::degree) / 2);
        return ckks::encode_slots<P, level>(values.span(), scale);
    }

    /// The scale of the slots of h for which no target coefficient passes the range.
    double message_scale(const reply_budget& budget, double state_norm) const noexcept {
        return detail::scale_for(largest_state(budget), state_norm);
    }

    /// Encodes input i of the request for h into work.message.
    template <class Real>
    void encode_message(std::span<const Real> h, std::size_t i, double scale, std::uint64_t kept,
                        message_workspace<P>& work) const {
        this->encode_slots(h, i, scale, kept, work, work.message);
    }

    /// Collects A*h from the target coefficients of all outputs, 2 * stride for each. None is more than a
    /// ninth above the largest that Cauchy-Schwarz allows for the state times its overflow margin: a server
    /// that cheats could make it many times as large.
    void collect(const reply_budget& budget, decryption_workspace<P>& work, double scale,
                 std::span<double> answers) const {
        const auto s = this->slots();
        const auto values = detail::make_room(work.slots, s.stride);
        // After the transform, within which integers stay above 2^-612: at most nine roots, multiples of
        // 2^-68, are multiplied with one. What is below 1 then is rounding. A matrix that is 0 has the
        // row_norm 0, and its answers are 0 rather than the flood.
        const double unit = static_cast<double>(P::degree / (2 * s.stride)) * this->row_norm /
                            (budget.weight_norm * std::sqrt(static_cast<double>(P::degree) / 2) * scale);
        for (std::size_t o = 0; o < s.outputs; ++o) {
            const std::span<double> of_output =
                work.coefficients.span().subspan(o * 2 * s.stride, 2 * s.stride);
            encoding::shared_slot_transform(this->subring_log_n()).to_slots(of_output, values);
            s.collect(o, values, answers);
        }
        const double bound = this->row_norm * (largest_state(budget) / scale) / 0.9;
        for (double& x : answers) {
            x = detail::clamped(flushed(x, 1) * unit, bound);
        }
    }

  private:
    /// The norm of the longest scaled state for which no target coefficient passes the range: each is a mean
    /// of rotated sums, below rows_per_slot^(1/2) * stride * 2/N of the largest.
    double largest_state(const reply_budget& budget) const noexcept {
        const auto n = static_cast<double>(P::degree);
        const auto g = static_cast<double>(this->slots().stride);
        return budget.range /
               (2 * g / n * std::sqrt(static_cast<double>(Rows::rows_per_slot) * n / 2) * budget.longest_row);
    }
};

/// The numbers that follow from the layout of replies that show A.
struct bare_slot_budget {
    /// The largest Euclidean norm of h with which no answer can pass the primes that hold replies: by
    /// Cauchy-Schwarz |A_r h| <= row_norm * |h|, a pair of rows makes sqrt(2) of that, encoding lengthens a
    /// row by less than N / weight_scale, and a 64th of the room is left for noise (docs/design/lora.md).
    double largest_norm = 0;
    static constexpr int noise_bits = 0;  ///< answers are decrypted as exactly as CKKS does
};

/// The reply of whole ciphertexts.
template <ckks::parameter_set P, class Rows, class Replies>
struct reply<P, replicated_slots<Rows, Replies>, reveals_adapter_rows>
    : reply_of<ckks::ciphertext<P, replicated_slots<Rows, Replies>::template reply_level<P>>> {
    static constexpr int level = replicated_slots<Rows, Replies>::template reply_level<P>;

    std::size_t bytes() const noexcept {
        return message_overhead_bytes +
               this->outputs.size() *
                   (sizeof(double) + 2 * rns::packed_bytes<typename P::template basis_at<level>>());
    }
};

/// The layout of replies that show A, for measurements and for adapters that are no secret.
template <ckks::parameter_set P, class Rows, class Replies>
struct layout<P, replicated_slots<Rows, Replies>, reveals_adapter_rows>
    : detail::slot_layout<layout<P, replicated_slots<Rows, Replies>, reveals_adapter_rows>, P,
                          replicated_slots<Rows, Replies>> {
    using packing = replicated_slots<Rows, Replies>;
    static constexpr int level = P::max_level;

    /// The budget of replies of this layout.  @throws parameter_error if row_norm passes largest_row_norm()
    bare_slot_budget budget() const {
        require<parameter_error>(
            this->row_norm <= largest_row_norm(),
            {"layout: got ", this->row_norm, " for the largest norm of a row, expected a number from 0 to ",
             largest_row_norm(), " with this parameter set"});
        const double rounding = static_cast<double>(P::degree) / packing::template weight_scale<P>();
        return {room() * (63.0 / 64) / std::numbers::sqrt2 / (this->row_norm + rounding)};
    }

    /// The largest row norm with which the noise of an answer stays within its reserve, a 64th of the room.
    static double largest_row_norm() noexcept {
        constexpr auto degree = static_cast<double>(P::degree);
        // Worst case: rounding of both halves of a rescaled ciphertext, summed over the slots of an answer.
        const double rescaling = packing::rescales ? degree * (degree + 1) / (4 * P::scale) : 0;
        // Encryption error and rounding of h: 21 + 1/2 for each coefficient, seen through a pair of rows.
        const double encryption = std::numbers::sqrt2 * 21.5 * degree / P::scale;
        return (room() / 64 - rescaling) / encryption;
    }

    ckks::plaintext<P, rns::coefficient_form> encode_weights(const matrix& a, const bare_slot_budget&,
                                                             std::size_t o, std::size_t i) const {
        memory::secret_buffer<std::complex<double>> values(P::slots);
        this->slots().fill(a, o, i, values.span());
        return ckks::encode_slots<P>(values.span(), packing::template weight_scale<P>());
    }

    /// The scale of messages, equal for all states.  @throws encoding_error if the norm passes largest_norm
    static double message_scale(const bare_slot_budget& budget, double state_norm) {
        require<encoding_error>(state_norm <= budget.largest_norm,
                                {"client::encrypt: the norm of the hidden state passes ", budget.largest_norm,
                                 ", the largest for which every answer fits the reply's modulus"});
        return P::scale;
    }

    /// Encodes input i of the request for h.
    template <class Real, class Message>
    void encode_message(std::span<const Real> h, std::size_t i, double scale, std::uint64_t kept,
                        message_workspace<P>& work, Message& message) const {
        this->encode_slots(h, i, scale, kept, work, message);
    }

  private:
    /// The largest magnitude, in units of an answer, that the limbs used for decryption hold.
    static double room() noexcept {
        using basis = rns::prefix<typename P::basis, packing::template reply_limbs<P>>;
        return std::exp2(basis::log2_modulus() - 1) / packing::template reply_scale<P>;
    }
};

}  // namespace tensafe::lora
