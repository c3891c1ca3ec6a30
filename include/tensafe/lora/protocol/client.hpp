#pragma once

#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/trace.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/client_block.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>
#include <tensafe/lora/protocol/toeplitz_row.hpp>
#include <tensafe/random/generator.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// Owns the secret key: encrypts hidden states for servers and decrypts their replies.
///
/// Encryption advances the random generator, so it needs one thread at a time; decryption is const and
/// thread-safe. Exception safety: strong, except that workspaces and queries may be half written.
template <ckks::parameter_set P>
class client {
    template <class Packing, class Protection>
    using query_for = typename packing_plan<P, Packing, Protection>::query_type;

  public:
    /// Makes a client with a fresh secret key.
    TENSAFE_COMPILED_MEMBER client() : key_(generator_) {}

    /// Makes a client with an existing key. Only tests should give another generator than the operating
    /// system's: two hidden states encrypted with the same randomness show their difference.
    explicit client(ckks::secret_key<P> key, random::generator generator = random::generator())
        : generator_(std::move(generator)), key_(std::move(key)) {}

    /// Makes the key for one server's encryptions of zero: sent once a session, for its fresh nonce.
    TENSAFE_COMPILED_MEMBER ckks::rerandomization_key<P, request_level<P>> rerandomization_key(
        const random::seed& server_nonce) {
        return ckks::make_rerandomization_key<request_level<P>>(key_, server_nonce, generator_);
    }

    /// Encrypts a hidden state of plan.d() entries, at the scale at which it fills the range.
    /// @param overflow_margin  the scale is divided by it: for another try after range_exceeded_error
    /// @throws shape_error if h has another size; parameter_error for an overflow margin below 1;
    ///         encoding_error, naming the entry, for NaN and infinity, and for bare replicated slots if the
    ///         norm of h passes the budget's largest_norm
    template <class Packing, class Protection, hidden_state State>
    TENSAFE_COMPILED_MEMBER query_for<Packing, Protection> encrypt(
        const packing_plan<P, Packing, Protection>& plan, const State& h, double overflow_margin = 1) {
        query_for<Packing, Protection> result;
        encrypt(plan, h, result, overflow_margin);
        return result;
    }
    /// Encrypts into a query of an earlier token: from the second one on nothing is allocated.
    /// @throws as the encrypt that returns its query
    template <class Packing, class Protection, hidden_state State>
    TENSAFE_COMPILED_MEMBER void encrypt(const packing_plan<P, Packing, Protection>& plan, const State& h,
                                         query_for<Packing, Protection>& result, double overflow_margin = 1) {
        if (!encrypt_or_zeros(plan, h, result, overflow_margin)) {
            detail::refuse_state(detail::view_of_state(h));
        }
    }

    /// Encrypts like encrypt, but a state with NaN, infinity or a norm beyond double is no error: 0 is
    /// encrypted, in the same time, and the answers will be 0. To go on with, and to tell the user, where the
    /// server must not see that its answers led to such a state (docs/security.md, "Malicious servers").
    /// @return  whether h was encrypted
    /// @throws as encrypt, but for such a state
    template <class Packing, class Protection, hidden_state State>
    TENSAFE_COMPILED_MEMBER bool encrypt_or_zeros(const packing_plan<P, Packing, Protection>& plan,
                                                  const State& h, query_for<Packing, Protection>& result,
                                                  double overflow_margin = 1) {
        static_assert(!std::is_same_v<Packing, token_blocks>,
                      "client::encrypt: for token_blocks prepare a client_block, and encrypt with it");
        detail::check_overflow_margin(overflow_margin);
        const auto state = detail::view_of_state(h);
        const detail::masked_norm of_state(state, plan.d());
        result.scale = plan.layout().message_scale(plan.budget(), of_state.norm);
        auto& r = result.request;
        r.d = plan.d();
        r.block = plan.entries_per_input();
        r.inputs.resize(plan.inputs());
        if constexpr (std::remove_cvref_t<decltype(plan)>::whole_ciphertexts) {
            const auto hedging = generator_.hedge(state, plan_numbers(plan, P::scale), key_.identity());
            for (std::size_t i = 0; i < plan.inputs(); ++i) {
                encrypt_on_whole_chain(plan, state, i, of_state.kept, r.inputs[i]);
            }
        } else {
            result.scale /= overflow_margin;
            const auto hedging = generator_.hedge(state, plan_numbers(plan, result.scale), key_.identity());
            r.seed = generator_.next_nonce();
            for (std::size_t i = 0; i < plan.inputs(); ++i) {
                restore_message();
                plan.layout().encode_message(state, i, result.scale, of_state.kept, work_);
                encrypt_message(r, i);
            }
        }
        return of_state.kept != 0;
    }

    /// Prepares a block of tokens: draws the masks of all positions. Its request goes to the server.
    /// @param factors  of the entries of all its hidden states, d of them, or none: see column_exponents
    template <class Protection>
    client_block<P, Protection> prepare(const packing_plan<P, token_blocks, Protection>& plan,
                                        std::span<const double> factors = {}) {
        using basis = typename traced_product<P>::basis;
        const std::size_t tokens = plan.layout().tokens;
        const std::size_t columns = plan.entries_per_input();
        client_block<P, Protection> block(plan, factors);
        const auto hedging = generator_.hedge(plan_numbers(plan, 0), key_.identity());
        block.request_.seed = generator_.next_nonce();
        memory::secret_buffer<arith::word> product(P::degree, memory::uninitialized);
        memory::secret_buffer<arith::word> errors(P::degree, memory::uninitialized);
        for (std::size_t i = 0; i < plan.inputs(); ++i) {
            random::seed error_seed = generator_.next_seed();
            const memory::wipe_guard guard(error_seed);
            const std::span<std::int8_t> error = work_.encryption.error.span();
            random::sample_error(error_seed, random::stream_domain::error, 0, error);
            const std::size_t count = std::min(columns, plan.d() - i * columns);
            rns::for_each_limb<basis>([&]<int I>() {
                constexpr arith::word q = basis::template prime<I>;
                constexpr auto m = rns::modulus_of<q>(q);
                random::sample_uniform<q>(
                    block.request_.seed, random::stream_domain::uplink,
                    static_cast<std::uint32_t>(i * static_cast<std::size_t>(basis::limbs) + I),
                    work_.encryption.c1.span());
                rns::limb::multiply(rns::variable_arithmetic<q>, product.span(), work_.encryption.c1.span(),
                                    key_.value().template limb<I>());
                ntt::inverse(rns::shared_plan<P::log_n, q>(), product.span());
                rns::limb::set_small(m, errors.span(), error);
                for (std::size_t t = 0; t < tokens; ++t) {
                    rns::limb::subtract(m, block.masks_[I].span().subspan(t * plan.d() + i * columns, count),
                                        errors.span().subspan(t * columns, count),
                                        product.span().subspan(t * columns, count));
                }
            });
            memory::wipe(error.data(), error.size());
        }
        return block;
    }
    /// Takes in the server's part of a block, or some of its outputs, in any order: once it has all, replies
    /// can be read.
    /// @throws shape_error or format_error if the reply is for another layout or malformed
    template <class Protection>
    void accept(client_block<P, Protection>& block, const block_reply& r) const {
        const auto& plan = block.plan();
        const std::size_t tokens = plan.layout().tokens;
        require<shape_error>(
            r.rank == plan.rank() && r.d == plan.d() && r.tokens == tokens && r.first < plan.outputs() &&
                r.c1.size() <= plan.outputs() - r.first,
            {"client::accept: got the block of a ", r.rank, " x ", r.d, " matrix and ", r.tokens,
             " hidden states in ", r.c1.size(), " products from ", r.first, " on, expected a ", plan.rank(),
             " x ", plan.d(), " matrix and ", tokens, " hidden states in ", plan.outputs(), " products"});
        for (std::size_t k = 0; k < r.c1.size(); ++k) {
            check_count("client::accept: got a product of ", r.c1[k].size(), " bytes of c1, expected ",
                        plan.c1_bytes(r.first + k));
        }
        if (block.products_.empty()) {
            block.products_ = memory::secret_buffer<arith::word>(plan.outputs() * tokens);
        }
        memory::secret_buffer<arith::word> of_output(tokens);
        decryption_workspace<P> work;
        for (std::size_t k = 0; k < r.c1.size(); ++k) {
            const std::size_t o = r.first + k;
            detail::multiply_by_key<P>(key_, row_, r.c1[k], plan.reply_bits(o), plan.subring_log_n(), work,
                                       of_output.span());
            for (std::size_t t = 0; t < tokens; ++t) {
                block.products_[t * plan.outputs() + o] = of_output[t];
            }
            block.is_missing_[o] = 0;
        }
    }

    /// Decrypts A*h, rank entries, from the reply to this query, if the server follows the protocol. Another
    /// can make it any linear function of the secret key: answers of a server that is not trusted must never
    /// get back to it, not even through what the client does next. A reply for another key, query or server
    /// of the same shape is not detected: the answers are noise, or the other server's.
    ///
    /// Answers are rounded to their real precision, but for whole ciphertexts (replicated slots of
    /// reveals_adapter_rows): who has those, or exact answers, and their replies, computes the key.
    /// @throws shape_error or format_error if the reply is for another layout or malformed; parameter_error
    ///         for a query without its scale; range_exceeded_error if an answer passed an average-case range
    template <class Packing, class Protection>
    TENSAFE_COMPILED_MEMBER std::vector<double> decrypt(const packing_plan<P, Packing, Protection>& plan,
                                                        const reply<P, Packing, Protection>& r,
                                                        const query_for<Packing, Protection>& q) const {
        std::vector<double> answers(plan.rank());
        decryption_workspace<P> work;
        decrypt(plan, r, q, work, answers);
        return answers;
    }
    /// Decrypts into `answers`; allocates nothing from the second token on.
    /// @param answers  rank entries, to be written
    /// @throws as the decrypt that returns its answers; shape_error also unless answers has this size
    template <class Packing, class Protection>
    TENSAFE_COMPILED_MEMBER void decrypt(const packing_plan<P, Packing, Protection>& plan,
                                         const reply<P, Packing, Protection>& r,
                                         const query_for<Packing, Protection>& q,
                                         decryption_workspace<P>& work, std::span<double> answers) const {
        decrypt_rounded(plan, r, q, work, answers, [&](std::size_t o) { return plan.noise_bits(o); });
    }

    /// Decrypts with all bits of the noise, a tenth more precisely. **About 2 N answers and their replies,
    /// which the server and everybody on the line have, are the secret key**: only the client may see what
    /// comes of these.
    /// @throws as decrypt
    template <class Packing, class Protection>
    void decrypt_exposing_key(const packing_plan<P, Packing, Protection>& plan,
                              const reply<P, Packing, Protection>& r, const query_for<Packing, Protection>& q,
                              decryption_workspace<P>& work, std::span<double> answers) const {
        decrypt_rounded(plan, r, q, work, answers, [](std::size_t) { return 0; });
    }

  private:
    template <class Packing, class Protection, class NoiseBits>
    void decrypt_rounded(const packing_plan<P, Packing, Protection>& plan,
                         const reply<P, Packing, Protection>& r, const query_for<Packing, Protection>& q,
                         decryption_workspace<P>& work, std::span<double> answers,
                         NoiseBits noise_bits) const {
        detail::check_scale(q.scale);
        check(plan, r);
        check_count("client::decrypt: got room for ", answers.size(), " answers, expected ", plan.rank());
        if constexpr (std::remove_cvref_t<decltype(plan)>::whole_ciphertexts) {
            constexpr int limbs = Packing::template reply_limbs<P>;
            for (std::size_t o = 0; o < plan.outputs(); ++o) {
                auto sums =
                    ckks::decode_trace(ckks::decrypt_trace<limbs>(key_, r.outputs[o], plan.subring_log_n()));
                plan.layout().slots().collect(o, sums, answers);
                memory::wipe(sums.data(), sums.size() * sizeof(sums[0]));
            }
        } else {
            const std::span<double> values =
                detail::make_room(work.coefficients, plan.outputs() * plan.subring_degree());
            for (std::size_t o = 0; o < plan.outputs(); ++o) {
                open(plan, r, o, noise_bits(o), work,
                     values.subspan(o * plan.subring_degree(), plan.subring_degree()));
            }
            plan.layout().collect(plan.budget(), work, q.scale, answers);
        }
    }

    /// The numbers beside the state on which a message depends.
    template <class Plan>
    static std::array<double, 3> plan_numbers(const Plan& plan, double scale) noexcept {
        return {static_cast<double>(plan.d()), static_cast<double>(plan.entries_per_input()), scale};
    }

    /// Makes room for a message: none is left after an exception.
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
        detail::for_packed_limbs<P>(std::span(r.inputs[i]), P::degree, [&]<int I>(auto bytes, int bits) {
            memory::pack_bits(std::span<const arith::word>(c0.template limb<I>()), bits, bytes);
        });
        work_.message = rns::secret_poly<basis, rns::coefficient_form>(std::move(c0).take());
    }

    /// Encrypts input i as a fresh seeded ciphertext of all limbs, in the memory of an earlier one.
    template <class Plan, class Real>
    void encrypt_on_whole_chain(const Plan& plan, std::span<const Real> h, std::size_t i, std::uint64_t kept,
                                ckks::seeded_ciphertext<P>& input) {
        using form = rns::secret_poly<typename P::basis, rns::coefficient_form>;
        input.seed = generator_.next_nonce();
        input.scale = P::scale;
        // Empty after an exception.
        form message = input.c0.words().empty() ? form(memory::uninitialized)
                                                : form(std::move(input.c0).take().classify());
        plan.layout().encode_message(h, i, P::scale, kept, work_, message);
        input.c0 = rns::poly<typename P::basis, rns::evaluation_form>(
            ckks::encrypt_c0(key_, std::move(message), generator_, input.seed, 0, work_.encryption)
                .take()
                .declassify());
    }

    /// Writes the target coefficients of output o to `values`.
    template <class Plan>
    void open(const Plan& plan, const typename Plan::reply_type& r, std::size_t o, int noise_bits,
              decryption_workspace<P>& work, std::span<double> values) const {
        if constexpr (requires { r.outputs[o].c0.front().span(); }) {
            decrypt_output<P>(key_, r.outputs[o], plan.subring_log_n(), noise_bits, work, values);
        } else {
            decrypt_output<P>(key_, row_, r.outputs[o], plan.subring_log_n(), plan.targets(o),
                              plan.reply_bits(o), noise_bits, work, values);
        }
    }

    template <class Packing, class Protection>
    static void check(const packing_plan<P, Packing, Protection>& plan,
                      const reply<P, Packing, Protection>& r) {
        require<shape_error>(r.rank == plan.rank() && r.d == plan.d() && r.outputs.size() == plan.outputs(),
                             {"client::decrypt: got a reply for a ", r.rank, " x ", r.d, " matrix in ",
                              r.outputs.size(), " products, expected a ", plan.rank(), " x ", plan.d(),
                              " matrix in ", plan.outputs(), " products"});
        for (std::size_t o = 0; o < r.outputs.size(); ++o) {
            const auto& output = r.outputs[o];
            if constexpr (std::remove_cvref_t<decltype(plan)>::whole_ciphertexts) {
                constexpr double scale = Packing::template reply_scale<P>;
                require<parameter_error>(
                    std::fabs(output.scale - scale) <= 1e-12 * scale,
                    {"client::decrypt: got a ciphertext of scale ", output.scale, ", expected ", scale});
            } else if constexpr (Protection::protects) {
                check_count("client::decrypt: got a product of ", output.c0.size(), " bytes of c0, expected ",
                            plan.c0_bytes(o));
                check_count("client::decrypt: got a product of ", output.c1.size(), " bytes of c1, expected ",
                            plan.c1_bytes(o));
            } else {
                for (const auto& limb : output.c0) {
                    check_count("client::decrypt: got a product of ", limb.size(), " coefficients, expected ",
                                plan.subring_degree());
                }
            }
        }
    }

    random::generator generator_;
    ckks::secret_key<P> key_;
    toeplitz_row row_{key_.coefficients()};
    message_workspace<P> work_;
};

}  // namespace tensafe::lora
