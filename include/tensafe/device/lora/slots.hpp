#pragma once

#include <tensafe/ckks/rerandomization.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/real.hpp>
#include <tensafe/device/ckks/ciphertext.hpp>
#include <tensafe/device/ckks/decrypt.hpp>
#include <tensafe/device/ckks/encrypt.hpp>
#include <tensafe/device/ckks/keys.hpp>
#include <tensafe/device/encoding/decode.hpp>
#include <tensafe/device/encoding/load_rounded.hpp>
#include <tensafe/device/encoding/norms.hpp>
#include <tensafe/device/encoding/replicate.hpp>
#include <tensafe/device/encoding/slots.hpp>
#include <tensafe/device/exec/context.hpp>
#include <tensafe/device/lora/client.hpp>
#include <tensafe/device/lora/guard.hpp>
#include <tensafe/device/lora/server.hpp>
#include <tensafe/device/memory/staging.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/random/samplers.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/device/rns/products.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>
#include <tensafe/lora/protocol/slot_server.hpp>
#include <tensafe/random/generator.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// Requests of the classic layout for several tokens in the memory of a device: what slot_request holds,
/// token after token.
template <ckks::parameter_set P, class Where>
class slot_request_batch {
  public:
    template <class Packing>
    slot_request_batch(const slot_layout<P, Packing>& layout, std::size_t largest)
        : inputs_(layout.inputs),
          largest_(checked_room("slot_request_batch", largest)),
          c0_(largest * inputs_, memory::uninitialized),
          seeds_(largest * inputs_) {}

    std::size_t tokens() const noexcept { return tokens_; }
    std::size_t largest() const noexcept { return largest_; }
    std::size_t inputs() const noexcept { return inputs_; }

    /// @throws shape_error if there is no room for so many
    void set_tokens(std::size_t tokens) {
        if (tokens == 0 || tokens > largest_) {
            throw shape_error("slot_request_batch: got " + std::to_string(tokens) +
                              " tokens, expected 1 to " + std::to_string(largest_));
        }
        tokens_ = tokens;
    }

    // In the memory of Where, for each token and input: c0, and the seed that stands for c1.
    arith::word* c0() noexcept { return c0_.data(); }
    const arith::word* c0() const noexcept { return c0_.data(); }
    random::seed* seeds() noexcept { return seeds_.data(); }
    const random::seed* seeds() const noexcept { return seeds_.data(); }

    /// Takes over a request from a host.
    /// @throws shape_error if it has another shape, or there is no token t; parameter_error for another
    /// scale;
    ///         format_error if it holds anything but residues
    void put(const Where& where, std::size_t t, const slot_request<P>& r) {
        if (t >= tokens_ || r.inputs.size() != inputs_) {
            throw shape_error("slot_request_batch::put: got token " + std::to_string(t) + " of " +
                              std::to_string(tokens_) + ", a request of " + std::to_string(r.inputs.size()) +
                              " ciphertexts, expected " + std::to_string(inputs_));
        }
        for (const auto& input : r.inputs) {
            if (input.scale != P::scale) {
                throw parameter_error("slot_request_batch::put: got a ciphertext of scale " +
                                      std::to_string(input.scale) + ", expected " + std::to_string(P::scale));
            }
            ckks::check_residues<typename P::basis>(input.c0, "slot_request_batch::put", "a ciphertext");
        }
        for (std::size_t i = 0; i < inputs_; ++i) {
            rns::upload(where, r.inputs[i].c0, c0_, t * inputs_ + i);
            where.upload(std::span<const random::seed>(&r.inputs[i].seed, 1),
                         seeds_.data() + t * inputs_ + i);
        }
        where.wait();
    }

    /// Token t as a host's request, of hidden states of d entries with this stride.
    /// @throws shape_error if there is no token t
    slot_request<P> get(const Where& where, std::size_t t, std::size_t d, std::size_t stride) const {
        if (t >= tokens_) {
            throw shape_error("slot_request_batch::get: got token " + std::to_string(t) + " of " +
                              std::to_string(tokens_));
        }
        slot_request<P> r{d, stride, {}};
        for (std::size_t i = 0; i < inputs_; ++i) {
            random::seed seed;
            where.download(seeds_.data() + t * inputs_ + i, std::span<random::seed>(&seed, 1));
            r.inputs.push_back({rns::download(where, c0_, t * inputs_ + i), seed, P::scale});
        }
        return r;
    }

  private:
    std::size_t inputs_;
    std::size_t largest_;
    std::size_t tokens_ = 0;
    rns::poly_stack<typename P::basis, rns::evaluation_form, typename Where::space> c0_;
    memory::buffer<random::seed, typename Where::space> seeds_;
};

namespace detail {

/// Marks tokens whose state is no number, or longer than its layout allows.
struct norm_kernel {
    static constexpr int threads = 256;
    using shared_type = exec::no_shared;

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
/// Staging, graphs and secrets are as with coefficient_tiles.
template <ckks::parameter_set P, exec::block_execution Where, class Rows>
class block_client<P, Where, replicated_slots<Rows, unrescaled_replies>, reveals_adapter_rows> {
  public:
    using packing = replicated_slots<Rows, unrescaled_replies>;
    using layout_type = slot_layout<P, packing>;
    using requests = slot_request_batch<P, Where>;
    using replies = ckks::block_ciphertexts<P, typename Where::space>;
    static constexpr int reply_limbs = packing::template reply_limbs<P>;

    /// Memory of one stream of batches of up to `largest` tokens. Wiped on release.
    class workspace {
      public:
        workspace(const block_client& client, std::size_t largest)
            : layout_(client.layout_),
              largest_(checked_room("block_client::workspace", largest)),
              messages_(largest * client.layout_.inputs),
              outputs_(largest * client.layout_.outputs),
              results_(area::template bytes_for<std::uint32_t>(largest) +
                       area::template bytes_for<double>(outputs_ * 2 * client.layout_.stride)),
              status_(results_.template take<std::uint32_t>(largest)),
              slots_(results_.template take<double>(outputs_ * 2 * client.layout_.stride)),
              staging_(2 * area::template bytes_for<random::seed>(messages_) +
                       area::template bytes_for<double>(largest) + area::template bytes_for<batch_record>(1) +
                       area::template bytes_for<float>(largest * client.layout_.d)),
              c1_seeds_(staging_.template take<random::seed>(messages_)),
              error_seeds_(staging_.template take<random::seed>(messages_)),
              scales_(staging_.template take<double>(largest)),
              record_(staging_.template take<batch_record>(1)),
              states_(staging_.template take<float>(largest * client.layout_.d)),
              drawn_(2 * messages_),
              coefficients_(messages_ * P::degree, memory::uninitialized),
              work_(P::log_n > 14 ? messages_ * P::degree : 0, memory::uninitialized),
              c1_(messages_, memory::uninitialized),
              encryption_(messages_),
              sums_(outputs_ * static_cast<std::size_t>(reply_limbs) * 2 * client.layout_.stride,
                    memory::uninitialized),
              norms_(largest),
              seen_(1) {
            std::fill(scales_.host.begin(), scales_.host.end(), P::scale);
        }

        std::size_t tokens() const noexcept { return tokens_; }
        std::size_t largest() const noexcept { return largest_; }
        /// Sums over slots on the device: for each token and output `stride` complex numbers, after
        /// `decrypt`.
        const double* sums_of_slots() const noexcept { return slots_.device; }

      private:
        friend class block_client;
        using area = memory::staging_area<Where>;
        template <class T>
        using secret = memory::buffer<T, typename Where::space, memory::wipe_on_release>;

        layout_type layout_;
        std::size_t largest_;
        std::size_t messages_;
        std::size_t outputs_;
        std::size_t tokens_ = 0;
        const float* device_states_ = nullptr;
        area results_;
        typename area::template piece<std::uint32_t> status_;
        typename area::template piece<double> slots_;
        area staging_;
        typename area::template piece<random::seed> c1_seeds_;
        typename area::template piece<random::seed> error_seeds_;
        typename area::template piece<double> scales_;
        typename area::template piece<batch_record> record_;
        typename area::template piece<float> states_;
        memory::secret_buffer<random::seed> drawn_;
        secret<double> coefficients_;
        secret<double> work_;
        rns::poly_stack<typename P::basis, rns::evaluation_form, typename Where::space> c1_;
        ckks::block_encryption_workspace<P, typename Where::space> encryption_;
        secret<arith::word> sums_;
        secret<double> norms_;
        memory::buffer<std::uint64_t, typename Where::space> seen_;
    };

    /// @param keys       of each client, number 0 on; copied to the device
    /// @param generator  to give an explicit one is for tests
    /// @throws as slot_layout::check; parameter_error without keys, or for a stride above 32
    block_client(const Where& where, const layout_type& layout,
                 std::span<const ckks::secret_key<P>* const> keys,
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
        withdraw(work.record_.host[0], work.tokens_);
        const std::size_t tokens = states.size() / layout_.d;
        if (states.size() % layout_.d != 0) {
            throw shape_error("block_client::stage: got " + std::to_string(states.size()) +
                              " entries, expected whole hidden states of " + std::to_string(layout_.d));
        }
        check(work, tokens);
        for (std::size_t t = 0; t < tokens; ++t) {
            try {
                layout_.check_state(states.subspan(t * layout_.d, layout_.d));
            } catch (const encoding_error& e) {
                throw encoding_error("block_client::stage: token " + std::to_string(t) + ": " + e.what());
            }
        }
        std::copy(states.begin(), states.end(), work.states_.host.begin());
        draw(work, tokens, nullptr);
    }

    /// The same for hidden states that are on the device already, whose norms are checked there: what stage()
    /// would refuse is not encrypted, and shows at `collect`.
    /// @param states  tokens x d in the memory of Where, until `encrypt` is done
    void stage_on_device(workspace& work, const float* states, std::size_t tokens) {
        withdraw(work.record_.host[0], work.tokens_);
        if (states == nullptr) {
            throw parameter_error("block_client::stage_on_device: got a null pointer for the hidden states");
        }
        check(work, tokens);
        draw(work, tokens, states);
    }

    /// Second step: enqueues encoding and encryption of what is staged. One upload, and six launches; eight
    /// for states that are on the device.
    /// @throws shape_error if there is no room for so many requests, or the workspace is of another layout;
    ///         error if nothing is staged; device_error
    void encrypt(const Where& where, workspace& work, requests& to) const {
        check_workspace("block_client::encrypt", work.layout_, layout_);
        check_staged("block_client::encrypt", work.tokens_);
        to.set_tokens(work.tokens_);
        const std::size_t messages = work.tokens_ * layout_.inputs;
        work.staging_.upload_until(where, work.states_,
                                   work.device_states_ == nullptr ? work.tokens_ * layout_.d : 0);
        claim(where, work.record_.device, work.seen_.data(), work.status_.device, work.tokens_,
              work.device_states_);
        where.copy(work.c1_seeds_.device, to.seeds(), messages);
        const float* states = work.states_.device;
        if (work.device_states_ != nullptr) {
            states = work.device_states_;
            encoding::squared_norms_blocks(where, states, layout_.d, work.tokens_, work.norms_.data());
            const double largest = layout_.largest_norm();
            where.launch(detail::norm_kernel{work.norms_.data(), work.status_.device, largest * largest,
                                             static_cast<std::uint32_t>(work.tokens_)},
                         exec::grid_shape{exec::blocks_for(work.tokens_, detail::norm_kernel::threads)});
        }
        encoding::to_coefficients_blocks<P::log_n>(
            where, slots_,
            encoding::load_replicated<float>{
                states, layout_.d, work.scales_.device, static_cast<std::uint32_t>(layout_.inputs),
                static_cast<std::uint32_t>(layout_.entries_per_input()), std::countr_zero(layout_.stride)},
            work.coefficients_.data(), messages, work.work_.data());
        ckks::encrypt_blocks<P>(where, plan_, keys_,
                                encoding::load_rounded<typename P::basis>{
                                    work.coefficients_.data(), P::degree, P::degree, nullptr, nullptr},
                                messages, {work.error_seeds_.device, work.c1_seeds_.device}, to.c0(),
                                work.c1_.data(), work.encryption_);
        seal(where, work.status_.device, reinterpret_cast<std::uint8_t*>(to.c0()),
             layout_.inputs * rns::words_of_poly<typename P::basis> * sizeof(arith::word), work.tokens_,
             status_stale | status_not_finite);
    }

    /// Third step, when the replies are there: enqueues decryption, trace and decoding, and one download of a
    /// few hundred bytes.
    /// @param download  whether `collect` will be called
    /// @throws shape_error if there are not as many replies as requests; parameter_error for another scale
    void decrypt(const Where& where, const replies& from, workspace& work, bool download = true) const {
        check_workspace("block_client::decrypt", work.layout_, layout_);
        check_staged("block_client::decrypt", work.tokens_);
        const std::size_t outputs = work.tokens_ * layout_.outputs;
        if (from.count() < outputs) {
            throw shape_error("block_client::decrypt: got " + std::to_string(from.count()) +
                              " ciphertexts, expected " + std::to_string(outputs));
        }
        if (from.scale != packing::template reply_scale<P>) {
            throw parameter_error("block_client::decrypt: got ciphertexts of scale " +
                                  std::to_string(from.scale) + ", expected " +
                                  std::to_string(packing::template reply_scale<P>));
        }
        ckks::decrypt_trace_blocks<reply_limbs>(where, keys_, from.c0(), from.c1(), outputs,
                                                layout_.subring_log_n(), work.sums_.data());
        encoding::decode_trace_blocks(where, fold_, work.sums_.data(), from.scale, work.slots_.device,
                                      outputs);
        if (download) {
            work.results_.download_until(where, work.slots_, outputs * 2 * layout_.stride);
        }
    }

    /// Last step, on the host, after `where.wait()`: tokens x rank answers. For a token that went wrong they
    /// are NaN, and the exception says what it was.
    /// @throws error for a token that was encrypted without staging, or not answered since; encoding_error
    /// for
    ///         a state on the device that stage() would have refused: for the first such token, when all the
    ///         answers are written; shape_error unless answers.size() == tokens * rank
    void collect(const workspace& work, std::span<double> answers) const {
        check_workspace("block_client::collect", work.layout_, layout_);
        check_staged("block_client::collect", work.tokens_);
        if (answers.size() != work.tokens_ * layout_.rank) {
            throw shape_error("block_client::collect: got room for " + std::to_string(answers.size()) +
                              " answers, expected " + std::to_string(work.tokens_ * layout_.rank));
        }
        std::fill(answers.begin(), answers.end(), std::numeric_limits<double>::quiet_NaN());
        for (std::size_t t = 0; t < work.tokens_; ++t) {
            for (std::size_t o = 0; work.status_.host[t] == 0 && o < layout_.outputs; ++o) {
                // The standard lets pairs of reals be read as an array of std::complex.
                const auto* const sums = reinterpret_cast<const std::complex<double>*>(
                    work.slots_.host.data() + (t * layout_.outputs + o) * 2 * layout_.stride);
                layout_.collect(o, {sums, layout_.stride}, answers.subspan(t * layout_.rank, layout_.rank));
            }
        }
        report(work.status_.host.first(work.tokens_));
    }

  private:
    static const layout_type& checked(const layout_type& layout) {
        layout.check();
        if (!(layout.largest_norm() * P::scale <
              tensafe::detail::power_of_two(encoding::magnitude_bits<typename P::basis>))) {
            throw parameter_error(
                "block_client: hidden states may be longer than the device can encode; use rows of a larger "
                "norm");
        }
        if (layout.subring_log_n() > rns::most_subring_log_n) {
            throw parameter_error("block_client: got a stride of " + std::to_string(layout.stride) +
                                  ", expected at most 32: rows of more entries, or fewer rows");
        }
        return layout;
    }

    void report(std::span<const std::uint32_t> status) const {
        for (std::size_t t = 0; t < status.size(); ++t) {
            const std::string token = "block_client: token " + std::to_string(t) + ": ";
            if ((status[t] & status_pending) != 0) {
                throw error(token + "not answered yet; call decrypt() with download, and where.wait()");
            }
            if ((status[t] & status_stale) != 0) {
                throw error(
                    token +
                    "enqueued twice after one staging, or recorded for other tokens or another pointer; "
                    "call stage() each time, and keep a graph for each batch size and pointer");
            }
            if (status[t] != 0) {
                throw encoding_error(token +
                                     "an entry of the hidden state is no finite number, or its norm passes " +
                                     std::to_string(layout_.largest_norm()));
            }
        }
    }

    void check(const workspace& work, std::size_t tokens) const {
        check_workspace("block_client::stage", work.layout_, layout_);
        if (tokens == 0 || tokens > work.largest_ || tokens % clients() != 0) {
            throw shape_error("block_client::stage: got " + std::to_string(tokens) +
                              " tokens, expected 1 to " + std::to_string(work.largest_) +
                              ", the same number for each of " + std::to_string(clients()) + " clients");
        }
    }

    void draw(workspace& work, std::size_t tokens, const float* device_states) {
        work.device_states_ = device_states;
        const std::size_t messages = tokens * layout_.inputs;
        // In the order of lora::client: for each message the seed of c1, then that of the error.
        const std::span<random::seed> drawn = work.drawn_.span().first(2 * messages);
        generator_.next_seeds(drawn);
        for (std::size_t m = 0; m < messages; ++m) {
            work.c1_seeds_.host[m] = drawn[2 * m];
            work.error_seeds_.host[m] = drawn[2 * m + 1];
        }
        memory::wipe(drawn.data(), drawn.size_bytes());
        batch_record& record = work.record_.host[0];
        record = {record.number + 1, tokens, device_states, 1};
        std::fill(work.status_.host.begin(), work.status_.host.end(), status_pending);
        work.tokens_ = tokens;
    }

    layout_type layout_;
    random::generator generator_;
    ntt::block_plan<typename P::basis, typename Where::space> plan_;
    encoding::block_slot_tables<typename Where::space> slots_;
    encoding::block_trace_tables<rns::prefix<typename P::basis, reply_limbs>, typename Where::space> fold_;
    ckks::block_secret_key<P, typename Where::space> keys_;
};

/// The server's side of the classic token on a device: whole products, no transform, no protection: see
/// `reveals_adapter_rows`. Immutable after construction; each stream has a workspace of its own.
template <ckks::parameter_set P, exec::block_execution Where, class Rows>
class block_server<P, Where, replicated_slots<Rows, unrescaled_replies>, reveals_adapter_rows> {
  public:
    using packing = replicated_slots<Rows, unrescaled_replies>;
    using layout_type = slot_layout<P, packing>;
    using requests = slot_request_batch<P, Where>;
    using replies = ckks::block_ciphertexts<P, typename Where::space>;

    /// Memory of one stream: c1 of the requests.
    class workspace {
      public:
        workspace(const block_server& server, std::size_t largest)
            : c1_(largest * server.layout_.inputs, memory::uninitialized) {}

      private:
        friend class block_server;
        rns::poly_stack<typename P::basis, rns::evaluation_form, typename Where::space> c1_;
    };

    /// Packs A (rank x d) on the host, once, and copies it to the device.
    /// @throws as lora::server
    block_server(const Where& where, const matrix& a)
        : layout_(layout_type::of(a.rows, a.columns, detail::largest_row_norm(a))),
          weights_(layout_.outputs * layout_.inputs, memory::uninitialized) {
        memory::secret_buffer<std::complex<double>> slots(P::slots);
        for (std::size_t o = 0; o < layout_.outputs; ++o) {
            for (std::size_t i = 0; i < layout_.inputs; ++i) {
                layout_.fill(a, o, i, slots.span());
                const auto weights =
                    ckks::forward(ckks::encode_slots<P>(slots.span(), packing::template weight_scale<P>()));
                rns::upload(where, weights.value, weights_, o * layout_.inputs + i);
                where.wait();
            }
        }
    }
    block_server(const Where&, const matrix&, const ckks::secret_key<P>&) = delete;  // never holds one

    const layout_type& layout() const noexcept { return layout_; }
    /// In the memory of Where: what every batch reads, for an exec::l2_window.
    const auto& weights() const noexcept { return weights_; }

    /// Room for the replies to a batch of so many tokens.
    replies replies_for(std::size_t tokens) const {
        return replies(tokens * layout_.outputs, packing::template reply_scale<P>);
    }

    /// Enqueues the answers to a batch: two launches.
    /// @throws shape_error unless there is room for the replies, and the requests are of this layout and fit
    ///         the workspace
    void apply(const Where& where, const requests& from, workspace& work, replies& to) const {
        const std::size_t messages = from.tokens() * layout_.inputs;
        if (from.inputs() != layout_.inputs || messages > work.c1_.count() ||
            to.count() != from.tokens() * layout_.outputs) {
            throw shape_error("block_server::apply: got " + std::to_string(from.tokens()) + " requests of " +
                              std::to_string(from.inputs()) + " ciphertexts and room for " +
                              std::to_string(to.count()) + " replies, expected up to " +
                              std::to_string(work.c1_.count() / layout_.inputs) + " requests of " +
                              std::to_string(layout_.inputs) + ", and " + std::to_string(layout_.outputs) +
                              " replies for each");
        }
        constexpr auto limbs = static_cast<std::uint32_t>(P::limbs);
        random::block_draws uniform{};
        uniform.kind = random::drawn::uniform;
        uniform.domain = random::stream_domain::uplink;
        uniform.lanes = limbs;
        uniform.polynomials = static_cast<std::uint32_t>(messages) * limbs;
        uniform.size = static_cast<std::uint32_t>(P::degree);
        uniform.seeds = from.seeds();
        uniform.out = work.c1_.data();
        uniform.moduli_count = limbs;
        std::copy(P::basis::primes.begin(), P::basis::primes.end(), uniform.moduli);
        random::draw_blocks(where, std::span<const random::block_draws>(&uniform, 1));

        rns::block_products products;
        products.weights = weights_.data();
        products.c0 = from.c0();
        products.c1 = work.c1_.data();
        products.c0_sums = to.c0();
        products.c1_out = to.c1();
        products.tokens = static_cast<std::uint32_t>(from.tokens());
        products.inputs = static_cast<std::uint32_t>(layout_.inputs);
        products.outputs = static_cast<std::uint32_t>(layout_.outputs);
        products.blocks = static_cast<std::uint32_t>(P::degree);
        rns::multiply_blocks<typename P::basis>(where, products);
    }

  private:
    layout_type layout_;
    rns::secret_poly_stack<typename P::basis, rns::evaluation_form, typename Where::space> weights_;
};

}  // namespace tensafe::lora
