#pragma once

#include <tensafe/arith/word.hpp>
#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/rerandomization.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/device/ckks/encrypt.hpp>
#include <tensafe/device/ckks/keys.hpp>
#include <tensafe/device/encoding/load_rounded.hpp>
#include <tensafe/device/encoding/norms.hpp>
#include <tensafe/device/exec/context.hpp>
#include <tensafe/device/lora/guard.hpp>
#include <tensafe/device/lora/messages.hpp>
#include <tensafe/device/lora/open.hpp>
#include <tensafe/device/memory/staging.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/rns/trace.hpp>
#include <tensafe/device/wire/bits.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/random/generator.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::lora {

namespace detail {

/// The key of each message of a batch: of the client whose token it belongs to.
struct keys_of_tokens {
    const arith::word* keys;         ///< evaluation form, [client][limb][N]
    std::size_t stride;              ///< words of a client
    const std::uint32_t* client_of;  ///< of each token
    std::uint32_t inputs;            ///< messages of a token

    TENSAFE_HOST_DEVICE const arith::word* polynomial(std::uint32_t message) const {
        return keys + client_of[message / inputs] * stride;
    }
};

/// scale[t] = largest / norm of token t.
struct scale_kernel {
    static constexpr int threads = 256;
    using shared_type = exec::no_shared;

    const double* squared_norms;
    double* scales;
    std::uint32_t* status;
    const batch_record* record;
    double largest;  ///< scale of a state of norm 1
    std::uint32_t tokens;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.last([&](int t) {
            const std::uint32_t token = ctx.block().x * threads + static_cast<std::uint32_t>(t);
            if (token < tokens) {
                const double squared = squared_norms[token];
                // Neither NaN nor infinite.
                const bool finite = squared - squared == 0;
                const double norm = std::sqrt(squared);
                constexpr double least = 0x1p-500;
                scales[token] =
                    finite ? largest / (norm < least ? least : norm) / record->overflow_margin : 0.0;
                if (!finite) {
                    status[token] |= status_not_finite;
                }
            }
        });
    }
};

/// Answers from target coefficients, and for calibrated ranges the check that none wrapped around. One block
/// for each token.
template <class Layout>
struct answer_kernel {
    static constexpr int threads = 128;
    using shared_type = exec::no_shared;

    const double* coefficients;  ///< [token][output * rows + k]
    const double* scales;
    const double* weights;  ///< of checksum rows: [check of a group][row of the group]; not for rigorous
    double* answers;        ///< [token][rank]
    std::uint32_t* status;
    double row_norm;
    double weight_norm;
    double modulus;
    std::uint32_t rank;
    std::uint32_t stride;       ///< coefficients of a token
    std::uint32_t first_check;  ///< where those of checksum rows start
    std::uint32_t checks;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        const std::uint32_t token = ctx.block().x;
        const double* const values = coefficients + std::size_t{token} * stride;
        ctx.last([&](int t) {
            const double unit = row_norm / arith::rounded_product(weight_norm, scales[token]);
            for (auto r = static_cast<std::uint32_t>(t); r < rank; r += threads) {
                answers[std::size_t{token} * rank + r] = values[r] * unit;
            }
            if constexpr (Layout::can_wrap) {
                for (auto j = static_cast<std::uint32_t>(t); j < checks; j += threads) {
                    check(ctx, values, j);
                }
            }
        });
    }

  private:
    template <class Context>
    TENSAFE_HOST_DEVICE void check(Context& ctx, const double* values, std::uint32_t j) const {
        constexpr auto group = static_cast<std::uint32_t>(rows_per_checksum);
        constexpr auto per_group = static_cast<std::uint32_t>(checksums_per_group);
        constexpr auto per_output = static_cast<std::uint32_t>(Layout::checksums_per_output);
        const std::uint32_t first = j / per_group * group;
        const std::uint32_t end = first + group < rank ? first + group : rank;
        double sum = 0;
        for (std::uint32_t r = first; r < end; ++r) {
            sum += arith::rounded_product(weights[j % per_group * group + r - first], values[r]);
        }
        const std::uint32_t at =
            first_check + j / per_output * static_cast<std::uint32_t>(Layout::rows) + j % per_output;
        const double multiples = (sum - values[at]) / modulus;
        const double lost = multiples - std::nearbyint(multiples);
        if (!(lost < checksum_tolerance && lost > -checksum_tolerance)) {
            ctx.atomic_or(status + ctx.block().x, status_range_exceeded);
        }
    }
};

}  // namespace detail

/// A client's re-randomization key for a server's nonce: what block_server::add_client takes, and
/// lora::server::zeros_for.
template <ckks::parameter_set P>
ckks::rerandomization_key<P, request_level<P>> make_rerandomization_key(const ckks::secret_key<P>& key,
                                                                        const random::seed& server_nonce) {
    random::generator generator;
    return ckks::make_rerandomization_key<request_level<P>>(key, server_nonce, generator);
}

/// The clients' side of encrypted LoRA on a device: encrypts batches of hidden states and opens the replies,
/// for one client or for several with keys of their own, each operation a few launches for the whole batch.
/// Requests and answers are what lora::client makes of the same states, keys and seeds, bit for bit.
///
/// A token takes two steps: `stage` on the host draws seeds and copies, `encrypt` and `decrypt` only enqueue
/// work, so that they can be captured in a graph and replayed after each staging; without a new one, requests
/// are erased, because two messages under the same randomness show their difference. Between staging and the
/// end of the enqueued work the workspace must be left alone.
///
/// Keys lie in device memory, wiped on release. Const calls may run at the same time, each with its own
/// workspace; staging draws seeds, so it takes one thread at a time.
/// Packings: coefficient_tiles with protected replies, and replicated_slots with bare ones (block_slots.hpp).
template <ckks::parameter_set P, exec::block_execution Where, class Packing = coefficient_tiles<4>,
          class Protection = protects_adapter_rows<>>
class block_client {
    static_assert(
        sizeof(P) == 0,
        "lora::block_client: this packing with this protection is not on the device; use lora::client");
};

template <ckks::parameter_set P, exec::block_execution Where, int Rows, class Protection>
class block_client<P, Where, coefficient_tiles<Rows>, Protection> {
    static_assert(Protection::protects, "lora::block_client: replies of coefficient_tiles are protected");

  public:
    using packing = coefficient_tiles<Rows>;
    using layout_type = lora::layout<P, packing, Protection>;
    using basis = typename traced_product<P>::basis;
    using requests = request_batch<P, Where>;
    using replies = reply_batch<P, Where, packing, Protection>;

    /// Memory of one stream of batches of up to `largest` tokens. Holds hidden states, errors and answers:
    /// wiped on release.
    class workspace {
      public:
        workspace(const block_client& client, std::size_t largest)
            : layout_(client.layout_),
              largest_(checked_room("block_client::workspace", largest)),
              polynomials_(largest * client.layout_.inputs()),
              coefficients_(client.layout_.outputs() * Rows_),
              results_(area::template bytes_for<std::uint32_t>(largest) +
                       area::template bytes_for<double>(largest * client.layout_.rank)),
              status_(results_.template take<std::uint32_t>(largest)),
              answers_(results_.template take<double>(largest * client.layout_.rank)),
              staging_(area::template bytes_for<random::seed>(largest) +
                       area::template bytes_for<random::seed>(polynomials_) +
                       area::template bytes_for<double>(largest) +
                       area::template bytes_for<std::uint32_t>(largest) +
                       area::template bytes_for<float>(largest * client.layout_.d) +
                       area::template bytes_for<batch_record>(1)),
              uplink_seeds_(staging_.template take<random::seed>(largest)),
              error_seeds_(staging_.template take<random::seed>(polynomials_)),
              scales_(staging_.template take<double>(largest)),
              client_of_(staging_.template take<std::uint32_t>(largest)),
              record_(staging_.template take<batch_record>(1)),
              states_(staging_.template take<float>(largest * client.layout_.d)),
              drawn_(largest + polynomials_),
              encryption_(polynomials_),
              c1_(polynomials_ * words_, memory::uninitialized),
              c0_(polynomials_ * words_, memory::uninitialized),
              norms_(largest),
              seen_(1),
              values_(largest * coefficients_) {}

        /// Tokens of the batch that is staged.
        std::size_t tokens() const noexcept { return tokens_; }
        std::size_t largest() const noexcept { return largest_; }
        /// Answers on the device: tokens x rank, after `decrypt`.
        const double* answers() const noexcept { return answers_.device; }

      private:
        friend class block_client;
        using area = memory::staging_area<Where>;
        template <class T>
        using secret = memory::buffer<T, typename Where::space, memory::wipe_on_release>;

        layout_type layout_;
        std::size_t largest_;
        std::size_t polynomials_;
        std::size_t coefficients_;  ///< of a token's reply
        std::size_t tokens_ = 0;
        const float* device_states_ = nullptr;  ///< instead of states_, if the caller has them there
        area results_;
        typename area::template piece<std::uint32_t> status_;
        typename area::template piece<double> answers_;
        area staging_;
        typename area::template piece<random::seed> uplink_seeds_;
        typename area::template piece<random::seed> error_seeds_;
        typename area::template piece<double> scales_;
        typename area::template piece<std::uint32_t> client_of_;
        typename area::template piece<batch_record> record_;
        typename area::template piece<float> states_;  ///< the last, since it is not always used
        memory::secret_buffer<random::seed> drawn_;
        ckks::block_encryption_workspace<P, typename Where::space> encryption_;
        memory::buffer<arith::word, typename Where::space> c1_;
        secret<arith::word> c0_;
        secret<double> norms_;
        memory::buffer<std::uint64_t, typename Where::space> seen_;
        secret<double> values_;
    };

    /// @param layout     of the server that will answer
    /// @param keys       of each client, number 0 on; copied to the device
    /// @param generator  to give an explicit one is for tests
    /// @throws parameter_error or shape_error for a layout that layout::of does not give, or without keys
    block_client(const Where& where, const layout_type& layout,
                 std::span<const ckks::secret_key<P>* const> keys,
                 random::generator generator = random::generator())
        : layout_(checked(layout)),
          budget_(layout.budget()),
          generator_(std::move(generator)),
          plan_(where),
          keys_(where, keys),
          windows_(keys.size() * 2 * P::degree, memory::uninitialized),
          outputs_(block_outputs(layout).outputs.size(), memory::uninitialized),
          stride_(block_outputs(layout).stride) {
        for (std::size_t c = 0; c < keys.size(); ++c) {
            where.upload(keys[c]->window().entries(), windows_.data() + c * 2 * P::degree);
        }
        const block_outputs places(layout);
        where.upload(std::span<const block_output>(places.outputs), outputs_.data());
        if constexpr (layout_type::can_wrap) {
            std::vector<double> weights;
            for (std::size_t k = 0; k < detail::checksums_per_group; ++k) {
                for (std::size_t r = 0; r < detail::rows_per_checksum; ++r) {
                    weights.push_back(detail::checksum_weight(r, k));
                }
            }
            check_weights_ =
                memory::buffer<double, typename Where::space>(weights.size(), memory::uninitialized);
            where.upload(std::span<const double>(weights), check_weights_.data());
            where.wait();
        }
        where.wait();
    }

    const layout_type& layout() const noexcept { return layout_; }
    std::size_t clients() const noexcept { return keys_.count(); }

    /// First step, on the host: a batch of hidden states, their scales, and fresh seeds.
    /// @param states     tokens x d
    /// @param client_of  whose key encrypts each token, by its place among `keys`; one client can do without
    /// @param overflow margin   scales are divided by it: for another try after range_exceeded_error
    /// @throws shape_error for more tokens than the workspace has room for, or no whole number of states;
    ///         parameter_error for a client that does not exist or a bad overflow margin; encoding_error for
    ///         an entry that is no finite number; entropy_error
    void stage(workspace& work, std::span<const float> states, std::span<const std::uint32_t> client_of = {},
               double overflow_margin = 1) {
        withdraw(work.record_.host[0], work.tokens_);
        const std::size_t tokens = states.size() / layout_.d;
        if (states.size() % layout_.d != 0) {
            throw shape_error("block_client::stage: got " + std::to_string(states.size()) +
                              " entries, expected whole hidden states of " + std::to_string(layout_.d));
        }
        check(work, tokens, client_of, overflow_margin);
        for (std::size_t t = 0; t < tokens; ++t) {
            const auto state = states.subspan(t * layout_.d, layout_.d);
            try {
                work.scales_.host[t] =
                    layout_.message_scale(budget_, detail::norm_of_state(state, layout_.d)) / overflow_margin;
            } catch (const encoding_error& e) {
                throw encoding_error("block_client::stage: token " + std::to_string(t) + ": " + e.what());
            }
        }
        std::copy(states.begin(), states.end(), work.states_.host.begin());
        work.device_states_ = nullptr;
        draw(work, tokens, client_of, overflow_margin);
    }

    /// The same for hidden states that are on the device already; their norms are taken there. An entry that
    /// is no finite number shows at `check`.
    /// @param states  tokens x d in the memory of Where, until `encrypt` is done
    void stage_on_device(workspace& work, const float* states, std::size_t tokens,
                         std::span<const std::uint32_t> client_of = {}, double overflow_margin = 1) {
        withdraw(work.record_.host[0], work.tokens_);
        if (states == nullptr) {
            throw parameter_error("block_client::stage_on_device: got a null pointer for the hidden states");
        }
        check(work, tokens, client_of, overflow_margin);
        work.device_states_ = states;
        draw(work, tokens, client_of, overflow_margin);
    }

    /// Second step: enqueues the encryption of what is staged. One upload, and five launches; seven for
    /// states that are on the device.
    /// @throws shape_error if workspace or requests are of another layout, or the requests too few; error if
    ///         nothing is staged; device_error
    void encrypt(const Where& where, workspace& work, requests& to) const {
        check_workspace("block_client::encrypt", work.layout_, layout_);
        check_staged("block_client::encrypt", work.tokens_);
        const std::size_t inputs = layout_.inputs();
        if (to.d() != layout_.d || to.inputs() != inputs || to.block() != layout_type::block) {
            throw shape_error("block_client::encrypt: got requests of " + std::to_string(to.d()) +
                              " entries, expected " + std::to_string(layout_.d));
        }
        to.set_tokens(work.tokens_);
        const auto tokens = static_cast<std::uint32_t>(work.tokens_);
        const auto polynomials = static_cast<std::uint32_t>(work.tokens_ * inputs);
        work.staging_.upload_until(where, work.states_,
                                   work.device_states_ == nullptr ? work.tokens_ * layout_.d : 0);
        claim(where, work.record_.device, work.seen_.data(), work.status_.device, work.tokens_,
              work.device_states_);
        where.copy(work.uplink_seeds_.device, to.seeds(), work.tokens_);

        const float* states = work.states_.device;
        if (work.device_states_ != nullptr) {
            states = work.device_states_;
            encoding::squared_norms_blocks(where, states, layout_.d, work.tokens_, work.norms_.data());
            where.launch(
                detail::scale_kernel{work.norms_.data(), work.scales_.device, work.status_.device,
                                     work.record_.device, layout_.message_scale(budget_, 1.0), tokens},
                exec::grid_shape{exec::blocks_for(work.tokens_, detail::scale_kernel::threads)});
        }
        ckks::encrypt_blocks_under<P, request_level<P>>(
            where, plan_,
            detail::keys_of_tokens{keys_.values().data(), keys_.values().stride, work.client_of_.device,
                                   static_cast<std::uint32_t>(inputs)},
            encoding::load_rounded<basis, float>{states, layout_.d, layout_.d, work.scales_.device, nullptr,
                                                 static_cast<std::uint32_t>(inputs), layout_type::block},
            polynomials,
            {work.error_seeds_.device, work.uplink_seeds_.device, static_cast<std::uint32_t>(inputs)},
            work.c0_.data(), work.c1_.data(), work.encryption_);
        wire::pack_blocks<basis>(where, work.c0_.data(), polynomials, to.bytes());
        seal(where, work.status_.device, to.bytes(), inputs * requests::input_bytes(), work.tokens_,
             status_stale | status_not_finite);
    }

    /// Third step, when the replies are there: enqueues decryption, and one download of what the host needs.
    /// @param download  whether `collect` will be called; answers stay on the device as well
    /// @throws shape_error if the replies are of another layout, or of another number of tokens
    void decrypt(const Where& where, const replies& from, workspace& work, bool download = true) const {
        check_workspace("block_client::decrypt", work.layout_, layout_);
        check_staged("block_client::decrypt", work.tokens_);
        if (from.tokens() != work.tokens_ || !(from.layout() == layout_)) {
            throw shape_error("block_client::decrypt: got replies to " + std::to_string(from.tokens()) +
                              " tokens of a " + std::to_string(from.layout().rank) + " x " +
                              std::to_string(from.layout().d) + " matrix, expected " +
                              std::to_string(work.tokens_) + " of a " + std::to_string(layout_.rank) + " x " +
                              std::to_string(layout_.d) + " matrix");
        }
        const auto outputs = static_cast<std::uint32_t>(layout_.outputs());
        open_blocks<P>(where, from.bytes(), stride_, outputs_.data(), outputs, work.tokens_, windows_.data(),
                       work.client_of_.device, layout_type::subring_log_n(), work.values_.data(),
                       work.status_.device, status_malformed_reply);
        detail::answer_kernel<layout_type> answer{};
        answer.coefficients = work.values_.data();
        answer.scales = work.scales_.device;
        answer.weights = check_weights_.data();
        answer.answers = work.answers_.device;
        answer.status = work.status_.device;
        answer.row_norm = layout_.row_norm;
        answer.weight_norm = budget_.weight_norm;
        answer.modulus = budget_.modulus;
        answer.rank = static_cast<std::uint32_t>(layout_.rank);
        answer.stride = outputs * static_cast<std::uint32_t>(Rows);
        answer.first_check =
            static_cast<std::uint32_t>(layout_.row_outputs()) * static_cast<std::uint32_t>(Rows);
        answer.checks = static_cast<std::uint32_t>(layout_type::checks(layout_.rank));
        where.launch(answer, exec::grid_shape{static_cast<std::uint32_t>(work.tokens_)});
        if (download) {
            work.results_.download_until(where, work.answers_, work.tokens_ * layout_.rank);
        }
    }

    /// Last step, on the host, after `where.wait()`: tokens x rank answers. For a token that went wrong they
    /// are NaN, and the exception says what it was; `status` has it for each.
    /// @throws encoding_error, format_error or range_exceeded_error for the first such token, when all the
    ///         answers are written; error for one that was not answered since it was staged; shape_error
    ///         unless answers.size() == tokens * rank
    void collect(const workspace& work, std::span<double> answers) const {
        check_workspace("block_client::collect", work.layout_, layout_);
        check_staged("block_client::collect", work.tokens_);
        if (answers.size() != work.tokens_ * layout_.rank) {
            throw shape_error("block_client::collect: got room for " + std::to_string(answers.size()) +
                              " answers, expected " + std::to_string(work.tokens_ * layout_.rank));
        }
        for (std::size_t t = 0; t < work.tokens_; ++t) {
            const auto at = static_cast<std::ptrdiff_t>(t * layout_.rank);
            if (status(work)[t] == 0) {
                std::copy_n(work.answers_.host.begin() + at, layout_.rank, answers.begin() + at);
            } else {
                std::fill_n(answers.begin() + at, layout_.rank, std::numeric_limits<double>::quiet_NaN());
            }
        }
        report(status(work));
    }

    /// For answers that stay on the device: downloads the status of the last batch, waits, and throws as
    /// collect.
    void check(const Where& where, workspace& work) const {
        work.results_.download_until(where, work.status_, work.tokens_);
        where.wait();
        report(status(work));
    }

    /// The status word of each token, 0 if all is well: after `check`, or after `decrypt` with download and
    /// `where.wait()`.
    std::span<const std::uint32_t> status(const workspace& work) const noexcept {
        return work.status_.host.first(work.tokens_);
    }

  private:
    static constexpr std::size_t words_ = P::degree * static_cast<std::size_t>(basis::limbs);
    static constexpr auto Rows_ = static_cast<std::size_t>(Rows);
    static_assert(layout_type::block >= 2, "lora::block_client: two entries at least in one input");
    static_assert(layout_type::subring_log_n() <= rns::most_subring_log_n,
                  "lora::block_client: at most 64 rows in a plaintext");

    static const layout_type& checked(const layout_type& layout) {
        layout.check();
        return layout;
    }

    void check(const workspace& work, std::size_t tokens, std::span<const std::uint32_t> client_of,
               double overflow_margin) const {
        check_workspace("block_client::stage", work.layout_, layout_);
        if (client_of.empty() && clients() > 1) {
            throw parameter_error(
                "block_client::stage: got no client numbers, expected one for each token: there are " +
                std::to_string(clients()) + " clients");
        }
        if (tokens == 0 || tokens > work.largest_) {
            throw shape_error("block_client::stage: got " + std::to_string(tokens) +
                              " tokens, expected 1 to " + std::to_string(work.largest_));
        }
        if (!client_of.empty() && client_of.size() != tokens) {
            throw shape_error("block_client::stage: got " + std::to_string(client_of.size()) +
                              " client numbers for " + std::to_string(tokens) + " tokens");
        }
        for (const std::uint32_t client : client_of) {
            if (client >= clients()) {
                throw parameter_error("block_client::stage: got client number " + std::to_string(client) +
                                      ", expected less than " + std::to_string(clients()));
            }
        }
        if (!(overflow_margin >= 1 && overflow_margin <= 0x1p20)) {
            throw parameter_error("block_client::stage: got a overflow margin of " +
                                  std::to_string(overflow_margin) + ", expected 1 to 2^20");
        }
    }

    void draw(workspace& work, std::size_t tokens, std::span<const std::uint32_t> client_of,
              double overflow_margin) {
        // In the order of lora::client: the seed of a token's c1, then those of its errors.
        const std::size_t of_token = 1 + layout_.inputs();
        const std::span<random::seed> drawn = work.drawn_.span().first(tokens * of_token);
        generator_.next_seeds(drawn);
        for (std::size_t t = 0; t < tokens; ++t) {
            work.client_of_.host[t] = client_of.empty() ? 0 : client_of[t];
            work.uplink_seeds_.host[t] = drawn[t * of_token];
            std::copy_n(drawn.begin() + static_cast<std::ptrdiff_t>(t * of_token + 1), layout_.inputs(),
                        work.error_seeds_.host.begin() + static_cast<std::ptrdiff_t>(t * layout_.inputs()));
        }
        memory::wipe(drawn.data(), drawn.size_bytes());
        batch_record& record = work.record_.host[0];
        record = {record.number + 1, tokens, work.device_states_, overflow_margin};
        std::fill(work.status_.host.begin(), work.status_.host.end(), status_pending);
        work.tokens_ = tokens;
    }

    static void report(std::span<const std::uint32_t> status) {
        for (std::size_t t = 0; t < status.size(); ++t) {
            const std::string token = "block_client: token " + std::to_string(t) + ": ";
            if ((status[t] & status_pending) != 0) {
                throw error(token +
                            "not answered yet; call decrypt() with download, or check(), and where.wait()");
            }
            if ((status[t] & status_stale) != 0) {
                throw error(
                    token +
                    "enqueued twice after one staging, or recorded for other tokens or another pointer; call "
                    "stage() each time, and keep a graph for each batch size and pointer");
            }
            if ((status[t] & status_not_finite) != 0) {
                throw encoding_error(token +
                                     "an entry of the hidden state is no finite number, or its norm "
                                     "passes the range of double");
            }
            if ((status[t] & status_malformed_reply) != 0) {
                throw format_error(token + "the reply has unused bits set, or was erased by the server");
            }
            if ((status[t] & status_range_exceeded) != 0) {
                throw range_exceeded_error(
                    token +
                    "an answer passed the calibrated range and wrapped around; "
                    "encrypt this hidden state again with more overflow margin, or use "
                    "the range policy lora::rigorous");
            }
        }
    }

    layout_type layout_;
    reply_budget budget_;
    random::generator generator_;
    ntt::block_plan<basis, typename Where::space> plan_;
    ckks::block_secret_key<P, typename Where::space> keys_;
    memory::buffer<std::int8_t, typename Where::space, memory::wipe_on_release> windows_;
    memory::buffer<block_output, typename Where::space> outputs_;
    std::size_t stride_;
    memory::buffer<double, typename Where::space> check_weights_;
};

}  // namespace tensafe::lora
