#pragma once

#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/trace.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/column_batched.hpp>
#include <tensafe/lora/packing/interleaved_slots.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>
#include <tensafe/random/generator.hpp>

#include <cmath>
#include <complex>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// A hidden state on its way. The request goes to the server; the scale stays with the client, which needs it
/// to read the reply: it follows from the norm of the state, which nobody else should know.
template <ckks::parameter_set P>
struct query {
    lora::request<P> request;
    double scale = 1;
};

/// The same for a batch: one scale for each hidden state.
template <ckks::parameter_set P>
struct batch_query {
    lora::request<P> request;
    std::vector<double> scales;
};

/// Owns the secret key: encrypts hidden states for servers and decrypts their replies.
///
/// Encryption advances the random generator, so it needs one thread at a time; decryption is const and
/// thread-safe. Exception safety: strong, but for the contents of workspaces and of requests
/// that are written again.
template <ckks::parameter_set P>
class client {
  public:
    /// A hidden state, encoded for one layout: a plaintext for each ciphertext of the request.
    struct encoded_state {
        std::size_t d = 0;
        std::size_t stride = 0;
        std::vector<ckks::plaintext<P, rns::coefficient_form>> inputs;
    };

    /// A fresh secret key.
    client() : key_(generator_) {}

    /// An existing key: ckks::secret_key from a stored seed, for example. Encryption draws from the operating
    /// system unless another generator is given, which only tests should do: a client that encrypts two
    /// hidden states with the same randomness shows their difference.
    explicit client(ckks::secret_key<P> key, random::generator generator = random::generator())
        : generator_(std::move(generator)), key_(std::move(key)) {}

    /// The key with which one server makes encryptions of zero: sent to it once, at the start of a session.
    /// @param server_nonce  fresh, from that server
    ckks::rerandomization_key<P, request_level<P>> rerandomization_key(const random::seed& server_nonce) {
        return ckks::make_rerandomization_key<request_level<P>>(key_, server_nonce, generator_);
    }

    /// Encrypts a hidden state for a server with this layout, at the scale at which it fills the range.
    /// @param h         d entries; a std::vector, array or span will do
    /// @param overflow margin  the scale is divided by it: for another try after range_exceeded_error
    /// @throws shape_error if h.size() != d; parameter_error for a layout that layout::of does not give, or a
    ///         overflow margin below 1; encoding_error if an entry is NaN or infinite (it is named)
    template <class Packing, class Protection>
    query<P> encrypt(const layout<P, Packing, Protection>& l, std::span<const float> h,
                     double overflow_margin = 1) {
        query<P> result;
        encrypt_reals(l, h, overflow_margin, result);
        return result;
    }
    template <class Packing, class Protection>
    query<P> encrypt(const layout<P, Packing, Protection>& l, std::span<const double> h,
                     double overflow_margin = 1) {
        query<P> result;
        encrypt_reals(l, h, overflow_margin, result);
        return result;
    }

    /// The same into a query of an earlier token, whose memory is used again: from the second token on
    /// nothing is allocated.
    template <class Packing, class Protection>
    void encrypt(const layout<P, Packing, Protection>& l, std::span<const float> h, query<P>& result,
                 double overflow_margin = 1) {
        encrypt_reals(l, h, overflow_margin, result);
    }
    template <class Packing, class Protection>
    void encrypt(const layout<P, Packing, Protection>& l, std::span<const double> h, query<P>& result,
                 double overflow_margin = 1) {
        encrypt_reals(l, h, overflow_margin, result);
    }

    /// A*h, rank entries, from the reply to a request that was encrypted at this scale. The warnings of the
    /// other `decrypt` hold here too: answers of a server that is not trusted must never get back to it.
    /// @throws shape_error or format_error if the reply is for another layout or malformed;
    ///         range_exceeded_error if an answer passed a calibrated range
    template <class Packing, class Protection>
    std::vector<double> decrypt(const layout<P, Packing, Protection>& l,
                                const reply<P, Packing, Protection>& r, double scale) const {
        l.check();
        std::vector<double> answers(l.rank);
        decryption_workspace<P> work;
        decrypt(l, r, scale, work, answers);
        return answers;
    }

    /// The same for the query that it answers, so that scales cannot be mixed up.
    template <class Packing, class Protection>
    std::vector<double> decrypt(const layout<P, Packing, Protection>& l,
                                const reply<P, Packing, Protection>& r, const query<P>& q) const {
        return decrypt(l, r, q.scale);
    }

    /// The same, allocating nothing from the second token on.
    /// @param answers  rank entries, to be written
    /// @throws as above; shape_error also unless answers.size() == rank
    template <class Packing, class Protection>
    void decrypt(const layout<P, Packing, Protection>& l, const reply<P, Packing, Protection>& r,
                 double scale, decryption_workspace<P>& work, std::span<double> answers) const {
        check_scale(scale);
        const reply_budget budget = checked_budget(l, r, 1);
        if (answers.size() != l.rank) {
            throw shape_error("client::decrypt: got room for " + std::to_string(answers.size()) +
                              " answers, expected " + std::to_string(l.rank));
        }
        const std::size_t trace = std::size_t{1} << l.subring_log_n();
        if (work.coefficients.size() != l.outputs() * trace) {
            work.coefficients = memory::secret_buffer<double>(l.outputs() * trace, memory::uninitialized);
        }
        for (std::size_t o = 0; o < l.outputs(); ++o) {
            const std::span<double> values = work.coefficients.span().subspan(o * trace, trace);
            if constexpr (Protection::protects) {
                open_output<P>(key_, r.outputs[o], l.subring_log_n(), l.wanted(o), l.reply_bits(budget, o),
                               work, values);
            } else {
                open_output<P>(key_, r.outputs[o], l.subring_log_n(), work, values);
            }
        }
        l.collect(budget, work, scale, answers);
    }

    /// Encrypts up to N hidden states, one in each row.
    /// @throws as above; shape_error also for no rows or more than N
    template <class Protection>
    batch_query<P> encrypt(const layout<P, column_batched, Protection>& l, const matrix& states) {
        l.check();
        states.check("client::encrypt");
        if (states.rows == 0 || states.rows > l.largest_batch) {
            throw shape_error("client::encrypt: got a batch of " + std::to_string(states.rows) +
                              " hidden states, expected 1 to " + std::to_string(l.largest_batch));
        }
        batch_query<P> result{{l.d, l.entries_per_input(), states.rows, generator_.next_seed(), {}}, {}};
        const reply_budget budget = l.budget();
        for (std::size_t t = 0; t < states.rows; ++t) {
            result.scales.push_back(l.message_scale(budget, detail::norm_of_state(states.row(t), l.d)));
        }
        result.request.inputs.resize(l.d);
        const std::span<double> column = work_.reals.span().first(states.rows);
        for (std::size_t j = 0; j < l.d; ++j) {
            for (std::size_t t = 0; t < states.rows; ++t) {
                column[t] = static_cast<double>(states.row(t)[j]) * result.scales[t];
            }
            restore_message();
            encoding::encode_coefficients(column, 1, work_.message);
            memory::wipe(column.data(), column.size_bytes());
            encrypt_message(result.request, j);
        }
        return result;
    }

    /// A*h for each hidden state of the batch, rank entries each.
    /// @throws shape_error or format_error if the reply is for another layout or batch, or malformed
    template <class Protection>
    std::vector<std::vector<double>> decrypt(const layout<P, column_batched, Protection>& l,
                                             const reply<P, column_batched, Protection>& r,
                                             std::span<const double> scales) const {
        if (scales.size() > l.largest_batch) {
            throw shape_error("client::decrypt: got " + std::to_string(scales.size()) +
                              " scales, expected at most " + std::to_string(l.largest_batch));
        }
        for (const double scale : scales) {
            check_scale(scale);
        }
        const reply_budget budget = checked_budget(l, r, scales.size());
        std::vector<std::vector<double>> answers(scales.size(), std::vector<double>(l.rank));
        memory::secret_buffer<double> values(P::degree);
        decryption_workspace<P> work;
        for (std::size_t o = 0; o < l.rank; ++o) {
            if constexpr (Protection::protects) {
                open_output<P>(key_, r.outputs[o], l.subring_log_n(), scales.size(), budget.reply_bits, work,
                               values.span());
            } else {
                open_output<P>(key_, r.outputs[o], l.subring_log_n(), work, values.span());
            }
            for (std::size_t t = 0; t < scales.size(); ++t) {
                answers[t][o] = l.answer(budget, values[t], scales[t]);
            }
        }
        return answers;
    }

    // The rest is for `replicated_slots` with replies of the kind reveals_adapter_rows.

    /// Encodes a hidden state for a server with this layout.
    /// @param h  d entries; a std::vector, array or span will do
    /// @throws shape_error if h.size() != d; parameter_error if the layout is none that slot_layout::of
    /// gives;
    ///         encoding_error if an entry is NaN or infinite (it is named), or
    ///         if the norm of h passes layout.largest_norm(): an answer might not fit the reply's modulus
    template <class Packing>
    encoded_state encode(const slot_layout<P, Packing>& layout, std::span<const float> h) const {
        return encode_reals(layout, h);
    }
    template <class Packing>
    encoded_state encode(const slot_layout<P, Packing>& layout, std::span<const double> h) const {
        return encode_reals(layout, h);
    }

    /// Encrypts an encoded hidden state under the secret key, each ciphertext with fresh randomness.
    slot_request<P> encrypt(encoded_state encoded) {
        slot_request<P> result{encoded.d, encoded.stride, {}};
        for (auto& plaintext : encoded.inputs) {
            result.inputs.push_back(ckks::encrypt(key_, std::move(plaintext), generator_));
        }
        return result;
    }

    /// Both of them.
    template <class Packing>
    slot_request<P> encrypt(const slot_layout<P, Packing>& layout, std::span<const float> h) {
        slot_request<P> result;
        encrypt_slots(layout, h, result);
        return result;
    }
    template <class Packing>
    slot_request<P> encrypt(const slot_layout<P, Packing>& layout, std::span<const double> h) {
        slot_request<P> result;
        encrypt_slots(layout, h, result);
        return result;
    }
    /// The same into a request of an earlier token, whose memory is used again: from the second token on
    /// nothing is allocated.
    template <class Packing>
    void encrypt(const slot_layout<P, Packing>& layout, std::span<const float> h, slot_request<P>& result) {
        encrypt_slots(layout, h, result);
    }
    template <class Packing>
    void encrypt(const slot_layout<P, Packing>& layout, std::span<const double> h, slot_request<P>& result) {
        encrypt_slots(layout, h, result);
    }

    /// First step of `decrypt`: a reply, decrypted and traced to the coefficients that carry the answers.
    template <class Packing>
    using traced_reply = std::vector<ckks::trace<P, Packing::template reply_limbs<P>>>;

    /// @throws shape_error if the reply is for another layout; parameter_error if its scale is not the
    /// packing's
    template <class Packing, class Protection>
    traced_reply<Packing> decrypt_trace(const slot_layout<P, Packing>& layout,
                                        const reply<P, Packing, Protection>& r) const {
        check(layout, r);
        traced_reply<Packing> result;
        for (const auto& product : r.products) {
            result.push_back(
                ckks::decrypt_trace<Packing::template reply_limbs<P>>(key_, product, layout.subring_log_n()));
        }
        return result;
    }

    /// Second step of `decrypt`: A*h, rank entries.
    /// @throws shape_error if the reply was not decrypted for this layout
    template <class Packing, int Limbs>
    std::vector<double> trace(const slot_layout<P, Packing>& layout,
                              std::vector<ckks::trace<P, Limbs>> reply) const {
        check(layout, reply);
        std::vector<double> answers(layout.rank);
        for (std::size_t o = 0; o < reply.size(); ++o) {
            auto sums = ckks::decode_trace(std::move(reply[o]));
            layout.collect(o, sums, answers);
            wipe(sums);
        }
        return answers;
    }

    /// A*h, rank entries: both steps. A server that follows the protocol makes it A*h; another can make it
    /// any linear function of the secret key, so answers of a server that is not trusted must never get back
    /// to it, not even through what the client does next. A reply made for another key, or by another server
    /// of the same shape, is not detected: the answers are noise, or the other server's.
    /// @throws shape_error if the reply is for another layout; parameter_error if its scale is not the
    /// packing's
    template <class Packing, class Protection>
    std::vector<double> decrypt(const slot_layout<P, Packing>& layout,
                                const reply<P, Packing, Protection>& r) const {
        return trace(layout, decrypt_trace(layout, r));
    }

    /// A*h by decrypting and decoding every slot and summing: the long way, with the same result as the
    /// trace.
    template <class Packing, class Protection>
    std::vector<double> decrypt_slots(const slot_layout<P, Packing>& layout,
                                      const reply<P, Packing, Protection>& r) const {
        check(layout, r);
        const std::size_t g = layout.stride;
        std::vector<double> answers(layout.rank);
        for (std::size_t o = 0; o < r.products.size(); ++o) {
            auto slots = ckks::decode_slots(ckks::inverse(ckks::decrypt(key_, r.products[o])));
            std::vector<std::complex<double>> sums(g);
            for (std::size_t j = 0; j < slots.size(); ++j) {
                sums[j % g] += slots[j];
            }
            layout.collect(o, sums, answers);
            wipe(slots);
            wipe(sums);
        }
        return answers;
    }

  private:
    template <class Packing, class Protection, class Real>
    void encrypt_reals(const layout<P, Packing, Protection>& l, std::span<const Real> h,
                       double overflow_margin, query<P>& result) {
        static_assert(
            !std::is_same_v<Packing, column_batched>,
            "client::encrypt: column_batched takes a lora::matrix with one hidden state in each row");
        l.check();
        if (!(overflow_margin >= 1 && overflow_margin <= 0x1p20)) {
            throw parameter_error("client::encrypt: got a overflow margin of " +
                                  std::to_string(overflow_margin) + ", expected 1 to 2^20");
        }
        const double scale = l.message_scale(l.budget(), detail::norm_of_state(h, l.d)) / overflow_margin;
        request<P>& r = result.request;
        r.d = l.d;
        r.block = l.entries_per_input();
        r.tokens = 1;
        r.seed = generator_.next_seed();
        r.inputs.resize(l.inputs());
        result.scale = scale;
        for (std::size_t i = 0; i < l.inputs(); ++i) {
            restore_message();
            l.encode_message(h, i, scale, work_);
            encrypt_message(r, i);
        }
    }

    /// Room for a message: none is left after an exception.
    void restore_message() {
        if (work_.message.words().empty()) {
            work_.message = decltype(work_.message)(memory::uninitialized);
        }
    }

    /// Encrypts the message in the workspace and packs it as input i.
    void encrypt_message(request<P>& r, std::size_t i) {
        using basis = typename traced_product<P>::basis;
        auto c0 = ckks::encrypt_c0(key_, std::move(work_.message), generator_, r.seed,
                                   static_cast<std::uint32_t>(i * static_cast<std::size_t>(basis::limbs)),
                                   work_.encryption);
        r.inputs[i].resize(packed_residues_bytes<P>(P::degree));
        std::span<std::uint8_t> rest = r.inputs[i];
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr int bits = std::bit_width(basis::template prime<I>);
            constexpr std::size_t bytes = memory::packed_bytes(P::degree, bits);
            memory::pack_bits(std::span<const arith::word>(c0.template limb<I>()), bits, rest.first(bytes));
            rest = rest.subspan(bytes);
        });
        work_.message = rns::secret_poly<basis, rns::coefficient_form>(std::move(c0).take());
    }

    static void check_size(std::size_t got, std::size_t wanted, const char* unit) {
        if (got != wanted) {
            throw shape_error("client::decrypt: got a product of " + std::to_string(got) + " " + unit +
                              ", expected " + std::to_string(wanted));
        }
    }
    static void check_scale(double scale) {
        if (!(scale > 0) || !std::isfinite(scale)) {
            throw parameter_error("client::decrypt: got a scale of " + std::to_string(scale) +
                                  ", expected that of the query to which this is the reply");
        }
    }

    template <class Packing, class Protection>
    static reply_budget checked_budget(const layout<P, Packing, Protection>& l,
                                       const reply<P, Packing, Protection>& r, std::size_t tokens) {
        l.check();
        if (r.rank != l.rank || r.d != l.d || r.tokens != tokens || r.outputs.size() != l.outputs()) {
            const auto text = [](std::size_t rank, std::size_t d, std::size_t states, std::size_t outputs) {
                return std::to_string(rank) + " x " + std::to_string(d) + " matrix and " +
                       std::to_string(states) + " hidden states in " + std::to_string(outputs) + " products";
            };
            throw shape_error("client::decrypt: got a reply for a " +
                              text(r.rank, r.d, r.tokens, r.outputs.size()) + ", expected a " +
                              text(l.rank, l.d, tokens, l.outputs()));
        }
        const reply_budget budget = l.budget();
        for (std::size_t o = 0; o < r.outputs.size(); ++o) {
            if constexpr (Protection::protects) {
                const int bits = l.reply_bits(budget, o);
                check_size(r.outputs[o].c0.size(), memory::packed_bytes(l.wanted(o, tokens), bits),
                           "bytes of c0");
                check_size(r.outputs[o].c1.size(), memory::packed_bytes(P::degree, bits), "bytes of c1");
            } else {
                for (const auto& limb : r.outputs[o].c0) {
                    check_size(limb.size(), std::size_t{1} << l.subring_log_n(), "coefficients");
                }
            }
        }
        return budget;
    }

    static void wipe(std::vector<std::complex<double>>& values) noexcept {
        memory::wipe(values.data(), values.size() * sizeof(values[0]));
    }

    template <class Packing, class Real>
    encoded_state encode_reals(const slot_layout<P, Packing>& layout, std::span<const Real> h) const {
        layout.check();
        layout.check_state(h);
        memory::secret_buffer<std::complex<double>> slots(P::slots, memory::uninitialized);
        encoded_state encoded{layout.d, layout.stride, {}};
        for (std::size_t i = 0; i < layout.inputs; ++i) {
            layout.replicate(h, i, slots.span());
            encoded.inputs.push_back(ckks::encode_slots<P>(slots.span()));
        }
        return encoded;
    }

    template <class Packing, class Real>
    void encrypt_slots(const slot_layout<P, Packing>& layout, std::span<const Real> h,
                       slot_request<P>& result) {
        layout.check();
        layout.check_state(h);
        if (work_.slots.empty()) {
            work_.slots = memory::secret_buffer<std::complex<double>>(P::slots, memory::uninitialized);
        }
        result.d = layout.d;
        result.stride = layout.stride;
        result.inputs.resize(layout.inputs);
        for (std::size_t i = 0; i < layout.inputs; ++i) {
            auto& input = result.inputs[i];
            input.seed = generator_.next_seed();
            input.scale = P::scale;
            using form = rns::secret_poly<typename P::basis, rns::coefficient_form>;
            // Empty after an exception.
            form message = input.c0.words().empty() ? form(memory::uninitialized)
                                                    : form(std::move(input.c0).take().classify());
            layout.replicate(h, i, work_.slots.span());
            encoding::encode_slots(work_.slots.span(), P::scale, message, work_.reals.span());
            memory::wipe(work_.slots.data(), work_.slots.span().size_bytes());
            memory::wipe(work_.reals.data(), work_.reals.span().size_bytes());
            input.c0 = rns::poly<typename P::basis, rns::evaluation_form>(
                ckks::encrypt_c0(key_, std::move(message), generator_, input.seed, 0, work_.encryption)
                    .take()
                    .declassify());
        }
    }

    template <class Packing, class Protection>
    static void check(const slot_layout<P, Packing>& layout, const reply<P, Packing, Protection>& r) {
        layout.check();
        if (r.rank != layout.rank || r.d != layout.d || r.products.size() != layout.outputs) {
            const auto text = [](std::size_t rank, std::size_t d, std::size_t outputs) {
                return std::to_string(rank) + " x " + std::to_string(d) + " matrix in " +
                       std::to_string(outputs) + " ciphertexts";
            };
            throw shape_error("client::decrypt: got a reply for a " + text(r.rank, r.d, r.products.size()) +
                              ", expected a " + text(layout.rank, layout.d, layout.outputs));
        }
        constexpr double scale = Packing::template reply_scale<P>;
        for (const auto& product : r.products) {
            if (!(std::fabs(product.scale - scale) <= 1e-12 * scale)) {
                throw parameter_error("client::decrypt: got a ciphertext of scale " +
                                      std::to_string(product.scale) + ", expected " + std::to_string(scale));
            }
        }
    }

    template <class Packing, int Limbs>
    static void check(const slot_layout<P, Packing>& layout,
                      const std::vector<ckks::trace<P, Limbs>>& reply) {
        layout.check();
        if (reply.size() != layout.outputs) {
            throw shape_error("client::trace: got a reply of " + std::to_string(reply.size()) +
                              " ciphertexts, expected " + std::to_string(layout.outputs));
        }
        for (const auto& product : reply) {
            if (product.log_n != layout.subring_log_n()) {
                throw shape_error("client::trace: got a product traced to degree 2^" +
                                  std::to_string(product.log_n) + ", expected 2^" +
                                  std::to_string(layout.subring_log_n()));
            }
        }
    }

    random::generator generator_;
    ckks::secret_key<P> key_;
    message_workspace<P> work_;
};

}  // namespace tensafe::lora
