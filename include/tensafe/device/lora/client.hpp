#pragma once

#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/device/ckks/ciphertext.hpp>
#include <tensafe/device/ckks/encrypt.hpp>
#include <tensafe/device/encoding/reals.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/lora/decrypt.hpp>
#include <tensafe/device/lora/messages.hpp>
#include <tensafe/device/lora/staging.hpp>
#include <tensafe/device/ntt/transform.hpp>
#include <tensafe/device/rns/trace.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/protocol/toeplitz_row.hpp>
#include <tensafe/random/generator.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::device {

namespace detail {

/// The keys of the messages of a batch: each of the client whose token it belongs to.
struct keys_of_tokens {
    const word* keys;                ///< evaluation form, [client][limb][N]
    std::size_t stride;              ///< words of a client
    const std::uint32_t* client_of;  ///< the client of each token
    std::uint32_t inputs;            ///< messages of a token

    TENSAFE_HOST_DEVICE const word* polynomial(std::uint32_t message) const {
        return keys + client_of[message / inputs] * stride;
    }
};

struct scale_kernel {
    static constexpr int threads = 256;
    using shared_type = no_shared;

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

/// Makes answers of target coefficients, and for average-case ranges checks that none wrapped around. One
/// thread block for each token.
template <class Layout>
struct answer_kernel {
    static constexpr int threads = 128;
    using shared_type = no_shared;

    const double* coefficients;  ///< [token][output * rows + k]
    const double* scales;
    const double* weights;  ///< checksum weights: [check of a group][row of the group]; not for worst-case
    double* answers;        ///< [token][rank]
    std::uint32_t* status;
    double row_norm;
    double weight_norm;
    double modulus;
    std::uint32_t rank;
    std::uint32_t stride;       ///< coefficients of a token
    std::uint32_t first_check;  ///< the place where those of checksum rows start
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
            if constexpr (Layout::can_overflow) {
                for (auto j = static_cast<std::uint32_t>(t); j < checks; j += threads) {
                    check(ctx, values, j);
                }
            }
        });
    }

  private:
    template <class Context>
    TENSAFE_HOST_DEVICE void check(Context& ctx, const double* values, std::uint32_t j) const {
        constexpr auto group = static_cast<std::uint32_t>(lora::detail::rows_per_checksum);
        constexpr auto per_group = static_cast<std::uint32_t>(lora::detail::checksums_per_group);
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
        if (!(lost < lora::detail::checksum_tolerance && lost > -lora::detail::checksum_tolerance)) {
            ctx.atomic_or(status + ctx.block().x, status_range_exceeded);
        }
    }
};

}  // namespace detail

/// Makes a client's re-randomization key for a server's nonce, which device::server::add_client and
/// lora::server::pool take.
template <ckks::parameter_set P>
ckks::rerandomization_key<P, lora::request_level<P>> make_rerandomization_key(
    const ckks::secret_key<P>& key, const random::seed& server_nonce) {
    random::generator generator;
    return ckks::make_rerandomization_key<lora::request_level<P>>(key, server_nonce, generator);
}

/// The clients' side of encrypted LoRA on a device, for one client or several with keys of their own, each
/// operation a few launches for a whole batch. Requests and answers are those of lora::client for the same
/// states, keys and seeds, bit for bit.
///
/// `stage` on the host draws seeds and copies; `encrypt` and `decrypt` only enqueue work, so that a graph of
/// them can be replayed after each staging. Without a new one requests are erased: two messages under the
/// same randomness show their difference. Between staging and the end of the work leave the workspace alone.
///
/// Keys lie in device memory, wiped on release. Const calls may run at the same time, each with its own
/// workspace; stage on one thread at a time.
/// Packings: coefficient_tiles with protected replies, and replicated_slots with bare ones (lora/slots.hpp).
template <ckks::parameter_set P, execution Where, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>>
class client {
    static_assert(sizeof(P) == 0,
                  "device::client: this packing with this protection is not on the device; use lora::client");
};

template <ckks::parameter_set P, execution Where, int Rows, class Protection>
class client<P, Where, lora::coefficient_tiles<Rows>, Protection> {
    static_assert(Protection::protects, "device::client: replies of coefficient_tiles are protected");

  public:
    using packing = lora::coefficient_tiles<Rows>;
    using layout_type = lora::layout<P, packing, Protection>;
    using basis = typename lora::traced_product<P>::basis;
    using requests = request_batch<P, Where>;
    using replies = reply_batch<P, Where, packing, Protection>;

    /// Memory of one stream of batches of up to `largest` tokens: states, errors and answers. Wiped on
    /// release.
    class workspace : public detail::client_batch<P, Where, layout_type> {
        using base = detail::client_batch<P, Where, layout_type>;

      public:
        workspace(const client& client, std::size_t largest)
            : base(client.layout_, largest, largest, largest * client.layout_.inputs(),
                   largest * client.layout_.rank),
              c1_(largest * client.layout_.inputs() * words_, memory::uninitialized),
              c0_(largest * client.layout_.inputs() * words_, memory::uninitialized),
              values_(largest * client.layout_.outputs() * static_cast<std::size_t>(Rows)) {}

        /// The answers on the device: tokens x rank, after `decrypt`.
        const double* answers() const noexcept { return this->answers_.device; }

      private:
        friend class client;

        typename base::template open<word> c1_;
        typename base::template secret<word> c0_;
        typename base::template secret<double> values_;
    };

    /// Makes clients for one layout and copies their keys to the device.
    /// @param layout     of the server that will answer
    /// @param keys       of each client, number 0 on; copied to the device
    /// @param generator  to give an explicit one is for tests
    /// @throws parameter_error or shape_error for a layout that layout::of does not give, or without keys
    client(const Where& where, const layout_type& layout, std::span<const ckks::secret_key<P>* const> keys,
           random::generator generator = random::generator())
        : layout_(checked(layout)),
          budget_(layout.budget()),
          generator_(std::move(generator)),
          plan_(where),
          keys_(where, keys),
          windows_(keys.size() * 2 * P::degree, memory::uninitialized),
          places_(layout),
          outputs_(uploaded(where, places_.outputs)) {
        std::vector<lora::toeplitz_row> rows;
        for (std::size_t c = 0; c < keys.size(); ++c) {
            rows.emplace_back(keys[c]->coefficients());
            where.upload(rows[c].entries(), windows_.data() + c * 2 * P::degree);
        }
        if constexpr (layout_type::can_overflow) {
            std::vector<double> weights;
            for (std::size_t k = 0; k < lora::detail::checksums_per_group; ++k) {
                for (std::size_t r = 0; r < lora::detail::rows_per_checksum; ++r) {
                    weights.push_back(lora::detail::checksum_weight(r, k));
                }
            }
            check_weights_ = uploaded(where, weights);
        }
        where.wait();
    }

    const layout_type& layout() const noexcept { return layout_; }
    std::size_t clients() const noexcept { return keys_.count(); }

    /// First step, on the host: a batch of hidden states, their scales, and fresh seeds.
    /// @param states     tokens x d
    /// @param client_of  whose key encrypts each token, by its place among `keys`; one client can do without
    /// @param overflow_margin  scales are divided by it: for another try after range_exceeded_error
    /// @throws shape_error for more tokens than the workspace has room for, or no whole number of states;
    ///         parameter_error for a client that does not exist or a bad overflow margin; encoding_error for
    ///         an entry that is no finite number; entropy_error
    void stage(workspace& work, std::span<const float> states, std::span<const std::uint32_t> client_of = {},
               double overflow_margin = 1) {
        work.unstage();
        const std::size_t tokens = work.count_of(states);
        note_clients(work, tokens, client_of, overflow_margin);
        work.for_each_state(states, [&](std::size_t t, std::span<const float> state) {
            const double norm = lora::detail::norm_of_state(state, layout_.d);
            work.scales_.host[t] = layout_.message_scale(budget_, norm) / overflow_margin;
        });
        std::copy(states.begin(), states.end(), work.states_.host.begin());
        work.stage(generator_, tokens, tokens, layout_.inputs(), nullptr, overflow_margin);
    }

    /// First step for hidden states that are on the device already; their norms are taken there. An entry
    /// that is no finite number shows at `check`.
    /// @param states  tokens x d in the memory of Where, until `encrypt` is done
    /// @throws as stage, but for entries that are not finite
    void stage_on_device(workspace& work, const float* states, std::size_t tokens,
                         std::span<const std::uint32_t> client_of = {}, double overflow_margin = 1) {
        work.unstage();
        require<parameter_error>(
            states != nullptr, {"device::client::stage_on_device: got a null pointer for the hidden states"});
        note_clients(work, tokens, client_of, overflow_margin);
        work.stage(generator_, tokens, tokens, layout_.inputs(), states, overflow_margin);
    }

    /// Second step: enqueues the encryption of what is staged. One upload, and five launches; seven for
    /// states that are on the device.
    /// @throws shape_error if workspace or requests are of another layout, or the requests too few; error if
    ///         nothing is staged; device_error
    void encrypt(const Where& where, workspace& work, requests& to) const {
        work.check(layout_);
        const std::size_t inputs = layout_.inputs();
        require<shape_error>(
            to.d() == layout_.d && to.inputs() == inputs && to.block() == layout_type::block,
            {"device::client::encrypt: got requests of ", to.d(), " entries, expected ", layout_.d});
        to.set_tokens(work.tokens_);
        const auto tokens = static_cast<std::uint32_t>(work.tokens_);
        const auto polynomials = static_cast<std::uint32_t>(work.tokens_ * inputs);
        const float* const states = work.begin(where);
        where.copy(work.c1_seeds_.device, to.seeds(), work.tokens_);
        if (work.device_states_ != nullptr) {
            where.launch(
                detail::scale_kernel{work.norms_.data(), work.scales_.device, work.status_.device,
                                     work.record_.device, layout_.message_scale(budget_, 1.0), tokens},
                grid_shape{blocks_for(work.tokens_, detail::scale_kernel::threads)});
        }
        encrypt_under<P, lora::request_level<P>>(
            where, plan_,
            detail::keys_of_tokens{keys_.values().data(), keys_.values().stride, work.client_of_.device,
                                   static_cast<std::uint32_t>(inputs)},
            load_rounded<basis, float>{states, layout_.d, layout_.d, work.scales_.device, nullptr,
                                       static_cast<std::uint32_t>(inputs), layout_type::block},
            polynomials,
            {work.error_seeds_.device, work.c1_seeds_.device, static_cast<std::uint32_t>(inputs)},
            work.c0_.data(), work.c1_.data(), work.encryption_);
        pack<basis>(where, work.c0_.data(), polynomials, to.bytes());
        erase(where, work.status_.device, to.bytes(), inputs * requests::input_bytes(), work.tokens_,
              status_stale | status_not_finite);
    }

    /// Third step, when the replies are there: enqueues decryption, and one download of what the host needs.
    /// @param download  whether `collect` will be called; answers stay on the device as well
    /// @throws shape_error if the replies are of another layout, or of another number of tokens
    void decrypt(const Where& where, const replies& from, workspace& work, bool download = true) const {
        work.check(layout_);
        require<shape_error>(from.tokens() == work.tokens_ && from.layout() == layout_,
                             {"device::client::decrypt: got replies to ", from.tokens(), " tokens of a ",
                              from.layout().rank, " x ", from.layout().d, " matrix, expected ", work.tokens_,
                              " of a ", layout_.rank, " x ", layout_.d, " matrix"});
        const auto outputs = static_cast<std::uint32_t>(layout_.outputs());
        decrypt_replies<P>(where, from.bytes(), places_.stride, outputs_.data(), outputs, work.tokens_,
                           windows_.data(), work.client_of_.device, layout_type::subring_log_n(),
                           work.values_.data(), work.status_.device, status_malformed_reply);
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
        where.launch(answer, grid_shape{static_cast<std::uint32_t>(work.tokens_)});
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
        work.check(layout_);
        work.check_room(answers.size());
        for (std::size_t t = 0; t < work.tokens_; ++t) {
            const auto at = static_cast<std::ptrdiff_t>(t * layout_.rank);
            if (status(work)[t] == 0) {
                std::copy_n(work.answers_.host.begin() + at, layout_.rank, answers.begin() + at);
            } else {
                std::fill_n(answers.begin() + at, layout_.rank, std::numeric_limits<double>::quiet_NaN());
            }
        }
        work.report();
    }

    /// Last step for answers on the device: downloads the last batch's status, waits, and throws as collect.
    void check(const Where& where, workspace& work) const {
        work.results_.download_until(where, work.status_, work.tokens_);
        where.wait();
        work.report();
    }

    /// The status word of each token, 0 if all is well, after `check`, or `decrypt` with download and a wait.
    std::span<const std::uint32_t> status(const workspace& work) const noexcept {
        return work.status_.host.first(work.tokens_);
    }

  private:
    static constexpr std::size_t words_ = P::degree * static_cast<std::size_t>(basis::limbs);
    static_assert(layout_type::block >= 2, "device::client: two entries at least in one input");
    static_assert(layout_type::subring_log_n() <= most_subring_log_n,
                  "device::client: at most 64 rows in a plaintext");

    static const layout_type& checked(const layout_type& layout) {
        layout.check();
        return layout;
    }

    void note_clients(workspace& work, std::size_t tokens, std::span<const std::uint32_t> client_of,
                      double overflow_margin) const {
        check_workspace("device::client::stage", work.layout_, layout_);
        require<parameter_error>(
            !client_of.empty() || clients() <= 1,
            {"device::client::stage: got no client numbers, expected one for each token: there are ",
             clients(), " clients"});
        require<shape_error>(
            tokens != 0 && tokens <= work.largest_,
            {"device::client::stage: got ", tokens, " tokens, expected 1 to ", work.largest_});
        require<shape_error>(
            client_of.empty() || client_of.size() == tokens,
            {"device::client::stage: got ", client_of.size(), " client numbers for ", tokens, " tokens"});
        for (const std::uint32_t number : client_of) {
            require<parameter_error>(number < clients(), {"device::client::stage: got client number ", number,
                                                          ", expected less than ", clients()});
        }
        require<parameter_error>(
            overflow_margin >= 1 && overflow_margin <= 0x1p20,
            {"device::client::stage: got an overflow margin of ", overflow_margin, ", expected 1 to 2^20"});
        for (std::size_t t = 0; t < tokens; ++t) {
            work.client_of_.host[t] = client_of.empty() ? 0 : client_of[t];
        }
    }

    layout_type layout_;
    lora::reply_budget budget_;
    random::generator generator_;
    plan<basis, typename Where::space> plan_;
    secret_keys<P, typename Where::space> keys_;
    memory::buffer<std::int8_t, typename Where::space, memory::wipe_on_release> windows_;
    output_places places_;
    memory::buffer<output_place, typename Where::space> outputs_;
    memory::buffer<double, typename Where::space> check_weights_;
};

}  // namespace tensafe::device
