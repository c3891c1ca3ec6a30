#pragma once

#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/core/real.hpp>
#include <tensafe/device/ckks/ciphertext.hpp>
#include <tensafe/device/ckks/decrypt.hpp>
#include <tensafe/device/ckks/encrypt.hpp>
#include <tensafe/device/encoding/decode.hpp>
#include <tensafe/device/encoding/reals.hpp>
#include <tensafe/device/encoding/slot_transform.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/lora/client.hpp>
#include <tensafe/device/lora/server.hpp>
#include <tensafe/device/lora/staging.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/random/samplers.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/device/rns/products.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>
#include <tensafe/random/generator.hpp>

#include <algorithm>
#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace tensafe::device {

/// Requests of the classic layout for several tokens in the memory of a device: lora::requests in turn.
template <ckks::parameter_set P, class Where>
class slot_request_batch : public batch_size {
  public:
    template <class Packing>
    slot_request_batch(const lora::layout<P, Packing, lora::reveals_adapter_rows>& layout,
                       std::size_t largest)
        : batch_size("device::slot_request_batch", largest),
          inputs_(layout.inputs()),
          c0_(largest * inputs_, memory::uninitialized),
          seeds_(largest * inputs_) {}

    std::size_t inputs() const noexcept { return inputs_; }

    // In the memory of Where, for each token and input: c0, and the seed that stands for c1.
    word* c0() noexcept { return c0_.data(); }
    const word* c0() const noexcept { return c0_.data(); }
    random::seed* seeds() noexcept { return seeds_.data(); }
    const random::seed* seeds() const noexcept { return seeds_.data(); }

    /// Takes over a request from a host.
    /// @throws shape_error if it has another shape, or there is no token t; parameter_error for another
    ///         scale; format_error if it holds anything but residues
    void put(const Where& where, std::size_t t, const lora::request<P, ckks::seeded_ciphertext<P>>& r) {
        require<shape_error>(t < tokens_ && r.inputs.size() == inputs_,
                             {"slot_request_batch::put: got token ", t, " of ", tokens_, ", a request of ",
                              r.inputs.size(), " ciphertexts, expected ", inputs_});
        for (const auto& input : r.inputs) {
            require<parameter_error>(input.scale == P::scale,
                                     {"slot_request_batch::put: got a ciphertext of scale ", input.scale,
                                      ", expected ", P::scale});
            ckks::check_residues<typename P::basis>(input.c0, "slot_request_batch::put", "a ciphertext");
        }
        for (std::size_t i = 0; i < inputs_; ++i) {
            upload(where, r.inputs[i].c0, c0_, t * inputs_ + i);
            where.upload(std::span<const random::seed>(&r.inputs[i].seed, 1),
                         seeds_.data() + t * inputs_ + i);
        }
        where.wait();
    }

    /// Returns token t as a host's request, of hidden states of d entries, `block` in one ciphertext.
    /// @throws shape_error if there is no token t
    lora::request<P, ckks::seeded_ciphertext<P>> get(const Where& where, std::size_t t, std::size_t d,
                                                     std::size_t block) const {
        check_token(t);
        lora::request<P, ckks::seeded_ciphertext<P>> r{d, block, {}};
        for (std::size_t i = 0; i < inputs_; ++i) {
            random::seed seed;
            where.download(seeds_.data() + t * inputs_ + i, std::span<random::seed>(&seed, 1));
            r.inputs.push_back({download(where, c0_, t * inputs_ + i), seed, P::scale});
        }
        return r;
    }

  private:
    std::size_t inputs_;
    poly_stack<typename P::basis, rns::evaluation_form, typename Where::space> c0_;
    memory::buffer<random::seed, typename Where::space> seeds_;
};

namespace detail {

/// Marks tokens whose state is no number, or longer than its layout allows.
struct norm_kernel {
    static constexpr int threads = 256;
    using shared_type = no_shared;

    const double* squared_norms;
    std::uint32_t* status;
    double largest_squared;
    std::uint32_t tokens;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.last([&](int t) {
            const std::uint32_t token = ctx.block().x * threads + static_cast<std::uint32_t>(t);
            if (token < tokens && !(squared_norms[token] <= largest_squared)) {
                status[token] |= status_not_finite;
            }
        });
    }
};

}  // namespace detail

/// The clients' side of the classic token, replicated slots and bare replies, on a device: encodes, encrypts,
/// decrypts, traces and decodes batches of tokens, with the numbers that lora::client gives for the same
/// seeds. Several clients take equal parts of a batch, in their order.
///
/// Staging, graphs and secrets are as with coefficient_tiles (device/lora/client.hpp).
template <ckks::parameter_set P, execution Where, class Rows>
class client<P, Where, lora::replicated_slots<Rows, lora::unrescaled_replies>, lora::reveals_adapter_rows> {
  public:
    using packing = lora::replicated_slots<Rows, lora::unrescaled_replies>;
    using layout_type = lora::layout<P, packing, lora::reveals_adapter_rows>;
    using requests = slot_request_batch<P, Where>;
    using replies = ciphertexts<P, typename Where::space>;
    static constexpr int reply_limbs = packing::template reply_limbs<P>;

    /// Memory of one stream of batches of up to `largest` tokens. Wiped on release.
    class workspace : public detail::client_batch<P, Where, layout_type> {
        using base = detail::client_batch<P, Where, layout_type>;

      public:
        workspace(const client& client, std::size_t largest)
            : workspace(client, largest, largest * client.layout_.inputs(),
                        largest * client.layout_.outputs() * 2 * client.layout_.slots().stride) {}

      private:
        friend class client;

        workspace(const client& client, std::size_t largest, std::size_t messages, std::size_t sums)
            : base(client.layout_, largest, messages, messages, sums),
              coefficients_(messages * P::degree, memory::uninitialized),
              work_(P::log_n > 14 ? messages * P::degree : 0, memory::uninitialized),
              c1_(messages, memory::uninitialized),
              sums_(sums * static_cast<std::size_t>(reply_limbs), memory::uninitialized) {
            std::fill(this->scales_.host.begin(), this->scales_.host.end(), P::scale);
        }

        typename base::template secret<double> coefficients_;
        typename base::template secret<double> work_;
        poly_stack<typename P::basis, rns::evaluation_form, typename Where::space> c1_;
        typename base::template secret<word> sums_;
    };

    /// Makes clients for one layout and copies their keys to the device.
    /// @param keys       of each client, number 0 on; copied to the device
    /// @param generator  to give an explicit one is for tests
    /// @throws as layout::check; parameter_error without keys, or for a stride above 32
    client(const Where& where, const layout_type& layout, std::span<const ckks::secret_key<P>* const> keys,
           random::generator generator = random::generator())
        : layout_(checked(layout)),
          generator_(std::move(generator)),
          plan_(where),
          slots_(where, P::log_n),
          fold_(where, layout.subring_log_n()),
          keys_(where, keys) {}

    const layout_type& layout() const noexcept { return layout_; }
    std::size_t clients() const noexcept { return keys_.count(); }

    /// First step, on the host: a batch of hidden states, and fresh seeds.
    /// @param states  tokens x d, the same number of tokens for each client
    /// @throws shape_error for more tokens than the workspace has room for, no whole number of states, or no
    ///         equal parts; encoding_error as lora::client; entropy_error
    void stage(workspace& work, std::span<const float> states) {
        work.unstage();
        const std::size_t tokens = work.count_of(states);
        check(work, tokens);
        work.for_each_state(states, [&](std::size_t, std::span<const float> state) {
            static_cast<void>(
                layout_.message_scale(layout_.budget(), lora::detail::norm_of_state(state, layout_.d)));
        });
        std::copy(states.begin(), states.end(), work.states_.host.begin());
        work.stage(generator_, tokens, tokens * layout_.inputs(), 1, nullptr);
    }

    /// First step for hidden states that are on the device already, whose norms are checked there: what
    /// stage() would refuse is not encrypted, and shows at `collect`.
    /// @param states  tokens x d in the memory of Where, until `encrypt` is done
    void stage_on_device(workspace& work, const float* states, std::size_t tokens) {
        work.unstage();
        require<parameter_error>(
            states != nullptr, {"device::client::stage_on_device: got a null pointer for the hidden states"});
        check(work, tokens);
        work.stage(generator_, tokens, tokens * layout_.inputs(), 1, states);
    }

    /// Second step: enqueues encoding and encryption of what is staged. One upload, and six launches; eight
    /// for states that are on the device.
    /// @throws shape_error if there is no room for so many requests, or the workspace is of another layout;
    ///         error if nothing is staged; device_error
    void encrypt(const Where& where, workspace& work, requests& to) const {
        work.check(layout_);
        to.set_tokens(work.tokens_);
        const std::size_t messages = work.tokens_ * layout_.inputs();
        const float* const states = work.begin(where);
        where.copy(work.c1_seeds_.device, to.seeds(), messages);
        if (work.device_states_ != nullptr) {
            const double largest = layout_.budget().largest_norm;
            where.launch(detail::norm_kernel{work.norms_.data(), work.status_.device, largest * largest,
                                             static_cast<std::uint32_t>(work.tokens_)},
                         grid_shape{blocks_for(work.tokens_, detail::norm_kernel::threads)});
        }
        to_coefficients<P::log_n>(
            where, slots_,
            load_replicated<float>{states, layout_.d, work.scales_.device,
                                   static_cast<std::uint32_t>(layout_.inputs()),
                                   static_cast<std::uint32_t>(layout_.entries_per_input()),
                                   std::countr_zero(layout_.slots().stride)},
            work.coefficients_.data(), messages, work.work_.data());
        device::encrypt<P>(where, plan_, keys_,
                           load_rounded<typename P::basis>{work.coefficients_.data(), P::degree, P::degree,
                                                           nullptr, nullptr},
                           messages, {work.error_seeds_.device, work.c1_seeds_.device}, to.c0(),
                           work.c1_.data(), work.encryption_);
        erase(where, work.status_.device, reinterpret_cast<std::uint8_t*>(to.c0()),
              layout_.inputs() * words_of_poly<typename P::basis> * sizeof(arith::word), work.tokens_,
              status_stale | status_not_finite);
    }

    /// Third step, when the replies are there: enqueues decryption, trace, decoding and one small download.
    /// @param download  whether `collect` will be called
    /// @throws shape_error if there are not as many replies as requests; parameter_error for another scale
    void decrypt(const Where& where, const replies& from, workspace& work, bool download = true) const {
        work.check(layout_);
        const std::size_t outputs = work.tokens_ * layout_.outputs();
        require<shape_error>(from.count() >= outputs, {"device::client::decrypt: got ", from.count(),
                                                       " ciphertexts, expected ", outputs});
        require<parameter_error>(from.scale == packing::template reply_scale<P>,
                                 {"device::client::decrypt: got ciphertexts of scale ", from.scale,
                                  ", expected ", packing::template reply_scale<P>});
        decrypt_trace<reply_limbs>(where, keys_, from.c0(), from.c1(), outputs, layout_.subring_log_n(),
                                   work.sums_.data());
        decode_trace(where, fold_, work.sums_.data(), from.scale, work.answers_.device, outputs);
        if (download) {
            work.results_.download_until(where, work.answers_, outputs * 2 * layout_.slots().stride);
        }
    }

    /// Last step, on the host, after `where.wait()`: tokens x rank answers. For a token that went wrong they
    /// are NaN, and the exception says what it was.
    /// @throws error for a token that was encrypted without staging, or not answered since; encoding_error
    ///         for a state on the device that stage() would have refused: for the first such token, when all
    ///         the answers are written; shape_error unless answers.size() == tokens * rank
    void collect(const workspace& work, std::span<double> answers) const {
        work.check(layout_);
        work.check_room(answers.size());
        std::fill(answers.begin(), answers.end(), std::numeric_limits<double>::quiet_NaN());
        for (std::size_t t = 0; t < work.tokens_; ++t) {
            for (std::size_t o = 0; work.status_.host[t] == 0 && o < layout_.outputs(); ++o) {
                // The standard lets pairs of reals be read as an array of std::complex.
                const auto* const sums = reinterpret_cast<const std::complex<double>*>(
                    work.answers_.host.data() + (t * layout_.outputs() + o) * 2 * layout_.slots().stride);
                layout_.slots().collect(o, {sums, layout_.slots().stride},
                                        answers.subspan(t * layout_.rank, layout_.rank));
            }
        }
        work.report();
    }

  private:
    static const layout_type& checked(const layout_type& layout) {
        layout.check();
        require<parameter_error>(
            layout.budget().largest_norm * P::scale < power_of_two(magnitude_bits<typename P::basis>),
            {"device::client: hidden states may be longer than the device can encode; use rows of a larger "
             "norm"});
        require<parameter_error>(layout.subring_log_n() <= most_subring_log_n,
                                 {"device::client: got a stride of ", layout.slots().stride,
                                  ", expected at most 32: rows of more entries, or fewer rows"});
        return layout;
    }

    void check(const workspace& work, std::size_t tokens) const {
        check_workspace("device::client::stage", work.layout_, layout_);
        require<shape_error>(tokens != 0 && tokens <= work.largest_ && tokens % clients() == 0,
                             {"device::client::stage: got ", tokens, " tokens, expected 1 to ", work.largest_,
                              ", the same number for each of ", clients(), " clients"});
    }

    layout_type layout_;
    random::generator generator_;
    plan<typename P::basis, typename Where::space> plan_;
    slot_tables<typename Where::space> slots_;
    folded_slot_tables<rns::prefix<typename P::basis, reply_limbs>, typename Where::space> fold_;
    secret_keys<P, typename Where::space> keys_;
};

/// The server's side of the classic token on a device: whole products, no transform, no protection: see
/// `reveals_adapter_rows`. Immutable after construction; each stream has a workspace of its own.
template <ckks::parameter_set P, execution Where, class Rows>
class server<P, Where, lora::replicated_slots<Rows, lora::unrescaled_replies>, lora::reveals_adapter_rows> {
  public:
    using packing = lora::replicated_slots<Rows, lora::unrescaled_replies>;
    using layout_type = lora::layout<P, packing, lora::reveals_adapter_rows>;
    using requests = slot_request_batch<P, Where>;
    using replies = ciphertexts<P, typename Where::space>;

    /// Memory of one stream, for c1 of the requests.
    class workspace {
      public:
        workspace(const server& server, std::size_t largest)
            : c1_(largest * server.layout_.inputs(), memory::uninitialized) {}

      private:
        friend class server;
        poly_stack<typename P::basis, rns::evaluation_form, typename Where::space> c1_;
    };

    /// Packs A (rank x d) on the host, once, and copies it to the device.
    /// @throws as lora::server
    server(const Where& where, const lora::matrix& a)
        : layout_(layout_type::of(a.rows, a.columns, lora::detail::public_row_norm(a))),
          weights_(layout_.outputs() * layout_.inputs(), memory::uninitialized) {
        for (std::size_t o = 0; o < layout_.outputs(); ++o) {
            for (std::size_t i = 0; i < layout_.inputs(); ++i) {
                const auto weights = ckks::forward(layout_.encode_weights(a, layout_.budget(), o, i));
                upload(where, weights.value, weights_, o * layout_.inputs() + i);
                where.wait();
            }
        }
    }
    server(const Where&, const lora::matrix&, const ckks::secret_key<P>&) = delete;  // never holds one

    const layout_type& layout() const noexcept { return layout_; }
    /// The weights in the memory of Where, which every batch reads, for a device::l2_window.
    const auto& weights() const noexcept { return weights_; }

    /// Makes room for the replies to a batch of `tokens` tokens.
    replies replies_for(std::size_t tokens) const {
        return replies(tokens * layout_.outputs(), packing::template reply_scale<P>);
    }

    /// Enqueues the answers to a batch: two launches.
    /// @throws shape_error without room for the replies, or unless the requests fit layout and workspace
    void apply(const Where& where, const requests& from, workspace& work, replies& to) const {
        const std::size_t messages = from.tokens() * layout_.inputs();
        require<shape_error>(from.inputs() == layout_.inputs() && messages <= work.c1_.count() &&
                                 to.count() == from.tokens() * layout_.outputs(),
                             {"device::server::apply: got ", from.tokens(), " requests of ", from.inputs(),
                              " ciphertexts and room for ", to.count(), " replies, expected up to ",
                              work.c1_.count() / layout_.inputs(), " requests of ", layout_.inputs(),
                              ", and ", layout_.outputs(), " replies for each"});
        const draw_group uniform =
            uniform_polynomials<typename P::basis>(from.seeds(), 1, messages, work.c1_.data());
        device::draw(where, std::span<const draw_group>(&uniform, 1));

        product_batch products;
        products.weights = weights_.data();
        products.c0 = from.c0();
        products.c1 = work.c1_.data();
        products.c0_sums = to.c0();
        products.c1_out = to.c1();
        products.tokens = static_cast<std::uint32_t>(from.tokens());
        products.inputs = static_cast<std::uint32_t>(layout_.inputs());
        products.outputs = static_cast<std::uint32_t>(layout_.outputs());
        products.blocks = static_cast<std::uint32_t>(P::degree);
        multiply<typename P::basis>(where, products);
    }

  private:
    layout_type layout_;
    secret_poly_stack<typename P::basis, rns::evaluation_form, typename Where::space> weights_;
};

}  // namespace tensafe::device
