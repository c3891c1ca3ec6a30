#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <numbers>
#include <span>
#include <string>
#include <type_traits>

namespace tensafe::lora {

/// How many rows of A one complex slot serves: two, as real and imaginary part (h is real), or one.
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
/// Replies of this packing let whoever decrypts them compute A from h: they are of the kind
/// `reveals_adapter_rows`.
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

/// Where everything stands when a rank x d matrix is packed: public, and all that a client needs to know of a
/// server. A plain value type.
template <ckks::parameter_set P, class Packing>
struct slot_layout {
    std::size_t rank = 0;     ///< rows of A
    std::size_t d = 0;        ///< entries of h
    std::size_t inputs = 0;   ///< ciphertexts of a request: ceil(d / slots)
    std::size_t outputs = 0;  ///< ciphertexts of a reply
    std::size_t stride = 0;   ///< slots from one entry of a row to the next: a power of two
    double row_norm = 0;      ///< at least the Euclidean norm of every row of A

    friend bool operator==(const slot_layout&, const slot_layout&) = default;

    /// The one layout for a matrix of this shape whose rows have at most this norm.
    /// @throws shape_error if rank or d is 0; parameter_error if row_norm is not in [0, largest_row_norm()]
    static slot_layout of(std::size_t rank, std::size_t d, double row_norm) {
        if (rank == 0 || d == 0) {
            throw shape_error("slot_layout: got a " + std::to_string(rank) + " x " + std::to_string(d) +
                              " matrix, expected at least one row and one column");
        }
        if (!(row_norm >= 0 && row_norm <= largest_row_norm())) {
            throw parameter_error("slot_layout: got " + std::to_string(row_norm) +
                                  " for the largest norm of a row, expected a number from 0 to " +
                                  std::to_string(largest_row_norm()) + " with this parameter set");
        }
        return shape_of(rank, d, row_norm);
    }

    /// The same without the checks: for rank, d >= 1.
    static constexpr slot_layout shape_of(std::size_t rank, std::size_t d, double row_norm) noexcept {
        slot_layout layout{rank, d, 1, 1, 1, row_norm};
        const std::size_t wanted = ceil_divide(rank, Packing::rows_per_slot);
        if (d <= P::slots) {
            const std::size_t fit = std::bit_floor(P::slots / d);
            layout.stride = wanted >= fit ? fit : std::bit_ceil(wanted);
        } else {
            layout.inputs = ceil_divide(d, P::slots);
        }
        layout.outputs = ceil_divide(wanted, layout.stride);
        return layout;
    }

    /// Checks a layout that came from somebody else.
    /// @throws shape_error or parameter_error unless it is what `of` gives for its rank, d and row_norm
    void check() const {
        if (*this != of(rank, d, row_norm)) {
            throw parameter_error("slot_layout: got " + std::to_string(inputs) + " inputs, " +
                                  std::to_string(outputs) + " outputs and stride " + std::to_string(stride) +
                                  ", which is not the layout of a " + std::to_string(rank) + " x " +
                                  std::to_string(d) + " matrix");
        }
    }

    /// Entries of h that one input ciphertext carries.
    constexpr std::size_t entries_per_input() const noexcept { return P::slots / stride; }
    /// log2 of the degree of the ring that replies trace to: 2g.
    constexpr int subring_log_n() const noexcept { return std::countr_zero(stride) + 1; }

    /// The noise of an answer stays within its reserve, a 64th of the room, for rows up to this norm.
    static double largest_row_norm() noexcept {
        constexpr auto degree = static_cast<double>(P::degree);
        // Worst case: rounding of both halves of a rescaled ciphertext, summed over the slots of an answer.
        const double rescaling = Packing::rescales ? degree * (degree + 1) / (4 * P::scale) : 0;
        // Encryption error and rounding of h: 21 + 1/2 for each coefficient, seen through a pair of rows.
        const double encryption = std::numbers::sqrt2 * 21.5 * degree / P::scale;
        return (room() / 64 - rescaling) / encryption;
    }

    /// Largest Euclidean norm of h with which no answer can pass the primes that hold replies: by
    /// Cauchy-Schwarz |A_r h| <= row_norm * |h|, a pair of rows makes sqrt(2) of that, encoding lengthens a
    /// row by less than N / weight_scale, and a 64th of the room is left for noise (docs/design/lora.md).
    double largest_norm() const noexcept {
        const double rounding = static_cast<double>(P::degree) / Packing::template weight_scale<P>();
        return room() * (63.0 / 64) / std::numbers::sqrt2 / (row_norm + rounding);
    }

    /// Refuses a hidden state that cannot be encrypted for this layout.
    /// @throws shape_error unless h.size() == d; encoding_error, naming the entry, for NaN and infinity, or
    /// if
    ///         the norm passes largest_norm()
    template <class Real>
    void check_state(std::span<const Real> h) const {
        if (h.size() != d) {
            throw shape_error("client::encode: got a hidden state of " + std::to_string(h.size()) +
                              " entries, expected " + std::to_string(d));
        }
        double sum = 0;
        for (const Real x : h) {
            sum += static_cast<double>(x) * static_cast<double>(x);
        }
        if (!std::isfinite(sum)) {
            for (std::size_t t = 0; t < h.size(); ++t) {
                const double x = static_cast<double>(h[t]);
                if (!std::isfinite(x)) {
                    throw encoding_error(
                        "client::encode: entry " + std::to_string(t) + " of the hidden state is " +
                        (std::isnan(x) ? "not a number" : "infinite") + ", expected a finite number");
                }
            }
        }
        if (!(std::sqrt(sum) <= largest_norm())) {
            throw encoding_error("client::encode: the norm of the hidden state passes " +
                                 std::to_string(largest_norm()) +
                                 ", the largest for which every answer fits the reply's modulus with rows of "
                                 "norm " +
                                 std::to_string(row_norm));
        }
    }

    /// Slots of input i for the hidden state h: slot r + g*t holds h[i * entries_per_input() + t], zero
    /// beyond d.
    /// @pre h.size() == d, slots.size() == P::slots
    template <class Real>
    void replicate(std::span<const Real> h, std::size_t i,
                   std::span<std::complex<double>> slots) const noexcept {
        const std::size_t first = i * entries_per_input();
        for (std::size_t t = 0; t < entries_per_input(); ++t) {
            const double x = first + t < d ? static_cast<double>(h[first + t]) : 0.0;
            for (std::size_t r = 0; r < stride; ++r) {
                slots[r + stride * t] = x;
            }
        }
    }

    /// The row of A at interleaved position r of output o, as real (part 0) or imaginary part (part 1); >=
    /// rank: none.
    std::size_t row(std::size_t o, std::size_t r, std::size_t part) const noexcept {
        return (o * Packing::rows_per_slot + part) * stride + r;
    }

    /// Slots of the plaintext of output o that meets input i.  @pre slots.size() == P::slots
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

    /// Row sums of output o to their places among the answers.
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

  private:
    static constexpr std::size_t ceil_divide(std::size_t a, std::size_t b) noexcept {
        return a / b + (a % b != 0 ? 1 : 0);
    }

    /// The largest magnitude, in units of an answer, that the limbs used for decryption hold.
    static double room() noexcept {
        using basis = rns::prefix<typename P::basis, Packing::template reply_limbs<P>>;
        return std::exp2(basis::log2_modulus() - 1) / Packing::template reply_scale<P>;
    }
};

}  // namespace tensafe::lora
