#pragma once

#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/fold.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/messages.hpp>
#include <tensafe/lora/replicated_slots.hpp>
#include <tensafe/random/generator.hpp>

#include <cmath>
#include <complex>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// Owns the secret key: encrypts hidden states for servers and decrypts their replies.
///
/// Encryption advances the random generator, so it needs one thread at a time; decryption is const and
/// thread-safe. Exception safety: strong.
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

    /// Encodes a hidden state for a server with this layout.
    /// @param h  d entries; a std::vector, array or span will do
    /// @throws shape_error if h.size() != d; parameter_error if the layout is none that slot_layout::of
    /// gives;
    ///         encoding_error if an entry is NaN or infinite (it is named), or
    ///         if the norm of h passes layout.largest_norm(): an answer might not fit the reply's modulus
    template <class Packing>
    encoded_state encode(exec::host where, const slot_layout<P, Packing>& layout,
                         std::span<const float> h) const {
        return encode_reals(where, layout, h);
    }
    template <class Packing>
    encoded_state encode(exec::host where, const slot_layout<P, Packing>& layout,
                         std::span<const double> h) const {
        return encode_reals(where, layout, h);
    }

    /// Encrypts an encoded hidden state under the secret key, each ciphertext with fresh randomness.
    request<P> encrypt(exec::host where, encoded_state encoded) {
        request<P> result{encoded.d, encoded.stride, {}};
        for (auto& plaintext : encoded.inputs) {
            result.inputs.push_back(ckks::encrypt(where, key_, std::move(plaintext), generator_));
        }
        return result;
    }

    /// Both of them.
    template <class Packing>
    request<P> encrypt(exec::host where, const slot_layout<P, Packing>& layout, std::span<const float> h) {
        return encrypt(where, encode(where, layout, h));
    }
    template <class Packing>
    request<P> encrypt(exec::host where, const slot_layout<P, Packing>& layout, std::span<const double> h) {
        return encrypt(where, encode(where, layout, h));
    }

    /// First step of `decrypt`: a reply, decrypted and folded to the coefficients that carry the answers.
    template <class Packing>
    using folded_reply = std::vector<ckks::folded<P, Packing::template reply_limbs<P>>>;

    /// @throws shape_error if the reply is for another layout; parameter_error if its scale is not the
    /// packing's
    template <class Packing, class Protection>
    folded_reply<Packing> decrypt_folded(exec::host where, const slot_layout<P, Packing>& layout,
                                         const reply<P, Packing, Protection>& r) const {
        check(layout, r);
        folded_reply<Packing> result;
        for (const auto& product : r.products) {
            result.push_back(ckks::decrypt_folded<Packing::template reply_limbs<P>>(where, key_, product,
                                                                                    layout.fold_log_n()));
        }
        return result;
    }

    /// Second step of `decrypt`: A*h, rank entries.
    /// @throws shape_error if the reply was not decrypted for this layout
    template <class Packing, int Limbs>
    std::vector<double> fold(exec::host where, const slot_layout<P, Packing>& layout,
                             std::vector<ckks::folded<P, Limbs>> reply) const {
        check(layout, reply);
        std::vector<double> answers(layout.rank);
        for (std::size_t o = 0; o < reply.size(); ++o) {
            auto sums = ckks::decode_folded(where, std::move(reply[o]));
            collect(layout, o, sums, answers);
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
    std::vector<double> decrypt(exec::host where, const slot_layout<P, Packing>& layout,
                                const reply<P, Packing, Protection>& r) const {
        return fold(where, layout, decrypt_folded(where, layout, r));
    }

    /// A*h by decrypting and decoding every slot and summing: the long way, with the same result as the fold.
    template <class Packing, class Protection>
    std::vector<double> decrypt_slots(exec::host where, const slot_layout<P, Packing>& layout,
                                      const reply<P, Packing, Protection>& r) const {
        check(layout, r);
        const std::size_t g = layout.stride;
        std::vector<double> answers(layout.rank);
        for (std::size_t o = 0; o < r.products.size(); ++o) {
            auto slots =
                ckks::decode_slots(where, ckks::inverse(where, ckks::decrypt(where, key_, r.products[o])));
            std::vector<std::complex<double>> sums(g);
            for (std::size_t j = 0; j < slots.size(); ++j) {
                sums[j % g] += slots[j];
            }
            collect(layout, o, sums, answers);
            wipe(slots);
            wipe(sums);
        }
        return answers;
    }

  private:
    static void wipe(std::vector<std::complex<double>>& values) noexcept {
        memory::wipe(values.data(), values.size() * sizeof(values[0]));
    }

    template <class Packing, class Real>
    encoded_state encode_reals(exec::host where, const slot_layout<P, Packing>& layout,
                               std::span<const Real> h) const {
        check(layout, h);
        memory::secret_buffer<std::complex<double>> slots(P::slots, memory::uninitialized);
        encoded_state encoded{layout.d, layout.stride, {}};
        for (std::size_t i = 0; i < layout.inputs; ++i) {
            layout.replicate(h, i, slots.span());
            encoded.inputs.push_back(ckks::encode_slots<P>(where, slots.span()));
        }
        return encoded;
    }

    template <class Packing, class Real>
    static void check(const slot_layout<P, Packing>& layout, std::span<const Real> h) {
        layout.check();
        if (h.size() != layout.d) {
            throw shape_error("client::encode: got a hidden state of " + std::to_string(h.size()) +
                              " entries, wanted " + std::to_string(layout.d));
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
                        (std::isnan(x) ? "not a number" : "infinite") + ", wanted a finite number");
                }
            }
        }
        if (!(std::sqrt(sum) <= layout.largest_norm())) {
            throw encoding_error(
                "client::encode: the norm of the hidden state passes " +
                std::to_string(layout.largest_norm()) +
                ", the largest for which every answer fits the reply's modulus with rows of norm " +
                std::to_string(layout.row_norm));
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
                              ", wanted a " + text(layout.rank, layout.d, layout.outputs));
        }
        constexpr double scale = Packing::template reply_scale<P>;
        for (const auto& product : r.products) {
            if (!(std::fabs(product.scale - scale) <= 1e-12 * scale)) {
                throw parameter_error("client::decrypt: got a ciphertext of scale " +
                                      std::to_string(product.scale) + ", wanted " + std::to_string(scale));
            }
        }
    }

    template <class Packing, int Limbs>
    static void check(const slot_layout<P, Packing>& layout,
                      const std::vector<ckks::folded<P, Limbs>>& reply) {
        layout.check();
        if (reply.size() != layout.outputs) {
            throw shape_error("client::fold: got a reply of " + std::to_string(reply.size()) +
                              " ciphertexts, wanted " + std::to_string(layout.outputs));
        }
        for (const auto& product : reply) {
            if (product.log_n != layout.fold_log_n()) {
                throw shape_error("client::fold: got a product folded to degree 2^" +
                                  std::to_string(product.log_n) + ", wanted 2^" +
                                  std::to_string(layout.fold_log_n()));
            }
        }
    }

    /// Row sums of output o to their places.
    template <class Packing>
    static void collect(const slot_layout<P, Packing>& layout, std::size_t o,
                        std::span<const std::complex<double>> sums, std::span<double> answers) noexcept {
        for (std::size_t part = 0; part < Packing::rows_per_slot; ++part) {
            for (std::size_t r = 0; r < sums.size(); ++r) {
                const std::size_t row = layout.row(o, r, part);
                if (row < answers.size()) {
                    answers[row] = part == 0 ? sums[r].real() : sums[r].imag();
                }
            }
        }
    }

    random::generator generator_;
    ckks::secret_key<P> key_;
};

}  // namespace tensafe::lora
