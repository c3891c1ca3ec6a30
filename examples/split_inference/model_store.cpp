#include "model_store.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/keystore/adapter_pin.hpp>
#include <tensafe/lora/adapter/entropy.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/model/server_zeros.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/layout.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/request.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <optional>

#include "params.hpp"

namespace split {

namespace {

namespace lora = tensafe::lora;
namespace serving = tensafe::serving;
namespace wire = tensafe::wire;
using model_type = lora::model_server<params, packing, protection>;
using handle = serving::adapter_handle<model_type>;

static_assert(protection::protects, "query limits count the target coefficients of protected replies");

/// Of each group, before it is packed. Models are packed client_held_b here, which serves A. In mode blind it
/// would be B A, and the entropies of A and B together.
/// @throws parameter_error if a limit is below one request: nobody would ever be answered
std::vector<group_bits> bits_of(std::string_view name, const lora::adapter& from,
                                const lora::model_options& options, const of_each_scope<double>& shares) {
    const auto grouped = lora::detail::group_sites(from, options);
    std::vector<group_bits> result;
    for (std::size_t g = 0; g < grouped.sites.size(); ++g) {
        const lora::model_layout::group& group = grouped.layout.groups[g];
        group_bits bits;
        lora::detail::naming_input("model_store", group, [&] {
            const std::size_t rows = group.rows(grouped.layout.mode);
            // The norm of the rows is no part of a budget. A token of a block has the same targets and
            // budget.
            const auto cost =
                lora::cost_of(lora::packing_plan<params, packing, protection>(rows, group.d, 1));
            bits.request = static_cast<std::uint64_t>(
                std::ceil(static_cast<double>(cost.targets) * cost.budget.channel_bits()));
        });
        double entropy = 0;
        for (const std::size_t site : grouped.sites[g]) {
            entropy += lora::entropy_bits(from.sites[site].a);
        }
        for (std::size_t i = 0; i < shares.size(); ++i) {
            if (!shares[i]) {
                continue;
            }
            bits.limits[i] = static_cast<std::uint64_t>(*shares[i] * entropy);
            tensafe::require<tensafe::parameter_error>(
                *bits.limits[i] >= bits.request,
                {"adapter ", tensafe::in_quotes(name), ": input ", tensafe::in_quotes(group.input), ": got ",
                 share_options[i], " ", *shares[i], ", which is ", *bits.limits[i],
                 " bits of its A, expected at least those of one request, ", bits.request,
                 ": give a larger share, or none"});
        }
        result.push_back(bits);
    }
    return result;
}

class one_version final : public served_model {
  public:
    /// @param options  that the model was packed with
    one_version(handle of, const lora::model_options& options, std::vector<group_bits> bits,
                const tensafe::keystore::signing_key* publisher)
        : served_model(
              wire::write_model_layout<params, packing, protection>(of.model().layout()),
              wire::write_held_adapter(lora::client_part(of.matrices(), options), of.model().layout())),
          handle_(std::move(of)) {
        name = handle_.name();
        version = handle_.version();
        groups = std::move(bits);
        if (publisher != nullptr) {
            namespace keystore = tensafe::keystore;
            lora::model_layout pinned = packed().layout();
            pinned.tokens_ahead = 0;  // the adapter is the same, however tokens are sent
            const auto layout_bytes = wire::write_model_layout<params, packing, protection>(pinned);
            pin =
                keystore::adapter_pin::make(*publisher, name, std::as_bytes(std::span(layout_bytes)),
                                            std::as_bytes(std::span(*held.in(frame_form::binary))),
                                            keystore::weights_digest<model_type>(handle_.matrices(), options))
                    .text();
        }
        for (std::size_t group = 0; group < groups.size(); ++group) {
            const auto& plan = packed().decode(group).plan();
            largest_request = std::max(
                largest_request, lora::message_overhead_bytes + tensafe::random::seed_bytes +
                                     plan.inputs() * lora::packed_residues_bytes<params>(params::degree));
        }
    }
    const model_type& packed() const noexcept { return handle_.model(); }

  private:
    handle handle_;
};

class evaluator_of_session final : public session_evaluator {
  public:
    evaluator_of_session(std::shared_ptr<const one_version> of, const tensafe::random::seed& nonce,
                         std::span<const std::uint8_t> rerandomization_key)
        : model_(std::move(of)),
          session_(nonce,
                   wire::read_rerandomization_key<params, lora::request_level<params>>(rerandomization_key),
                   tensafe::rns::panel_outputs),  // of a thread at once
          uses_blocks_(model_->packed().layout().tokens_ahead > 0) {}

    serving::usage answer(std::span<const std::uint8_t> message, const wire::header& header,
                          std::vector<std::uint8_t>& to) override {
        uses_blocks_.store(header.what != wire::kind::request, std::memory_order_relaxed);
        next_group_.store((header.group + 1) % model_->packed().layout().groups.size(),
                          std::memory_order_relaxed);
        if (header.what == wire::kind::request) {
            return answer_request(message, header, to);
        }
        const std::lock_guard lock(mutex_);
        const serving::usage used = header.what == wire::kind::block_request
                                        ? prepare(message, header, to)
                                        : answer_token(message, header, to);
        std::vector<std::uint8_t> kept(to);  // in memory of its own: that of a block is given back
        held_bytes_ += kept.size() - last_reply_.size();
        last_reply_.swap(kept);
        last_number_ = header.number;
        return used;
    }

    bool repeat(std::uint64_t number, std::vector<std::uint8_t>& to) const override {
        const std::lock_guard lock(mutex_);
        const bool is_it = number == last_number_;
        if (is_it) {
            to = last_reply_;
        }
        return is_it;
    }

    bool fill_pool(std::size_t most) override {
        const std::size_t group = next_group_.load(std::memory_order_relaxed);
        const model_type& packed = model_->packed();
        if (uses_blocks_.load(std::memory_order_relaxed)) {
            return fill_pool(packed.blocks(group).plan(), most);
        }
        return fill_pool(packed.decode(group).plan(), most);
    }

    std::size_t pool_size() const override { return session_.zeros_stored(); }
    std::size_t block_bytes() const noexcept override { return held_bytes_; }
    void drop_blocks() noexcept override {
        const std::lock_guard lock(mutex_);
        blocks_.clear();
        last_reply_ = {};
        last_number_.reset();
        held_bytes_ = 0;
    }
    const served_model& model() const noexcept override { return *model_; }

  private:
    /// By group and number of the block's request.
    using blocks = std::map<std::pair<std::size_t, std::uint64_t>, lora::server_block<params>>;

    template <class Plan>
    bool fill_pool(const Plan& plan, std::size_t most) {
        auto& pool = session_.zeros(plan.subring_log_n());
        const std::size_t stored = pool.size();
        if (stored >= std::min(most, plan.outputs())) {
            return false;
        }
        pool.fill(stored + 1);
        return true;
    }

    serving::usage answer_request(std::span<const std::uint8_t> message, const wire::header& header,
                                  std::vector<std::uint8_t>& to) {
        // Holds nothing of a client but sizes and requests, which are encrypted, and products, which are as
        // secret as the adapter.
        thread_local lora::server_workspace<params> work;
        thread_local lora::request<params> request;
        thread_local lora::reply<params, packing, protection> reply;
        const model_type& packed = model_->packed();
        const std::size_t group = header.group;
        const auto& plan = packed.decode(group).plan();
        wire::read_request(message, plan, request);
        session_.apply(packed, group, request, work, reply);
        wire::write_reply(reply, header.envelope(), to);
        return serving::usage_of(request, reply, plan);
    }

    serving::usage prepare(std::span<const std::uint8_t> message, const wire::header& header,
                           std::vector<std::uint8_t>& to) {
        thread_local lora::block_reply reply;
        const auto& plan = model_->packed().blocks(header.group).plan();
        const lora::block_request request = wire::read_block_request(message, plan);
        const auto first = blocks_.lower_bound({header.group, 0});
        const auto count = std::distance(first, blocks_.lower_bound({header.group + std::size_t{1}, 0}));
        if (static_cast<std::size_t>(count) >= most_blocks) {
            throw refusal{error_code::block_limit,
                          tensafe::text_of({"block request: this session has ", count, " blocks of group ",
                                            header.group, " that are not used up, expected at most ",
                                            most_blocks - 1, ": use one up before"})};
        }
        lora::server_block<params> block;
        session_.prepare(tensafe::exec::host{}, model_->packed(), header.group, request, work(), block,
                         reply);
        wire::write_block_reply<params, protection>(reply, header.envelope(), to);
        blocks_.emplace(std::pair(std::size_t{header.group}, header.number), std::move(block));
        held_bytes_ += bytes_of_block(header.group);
        return serving::usage_of(request, reply, plan);
    }

    serving::usage answer_token(std::span<const std::uint8_t> message, const wire::header& header,
                                std::vector<std::uint8_t>& to) {
        thread_local lora::token_request request;
        thread_local lora::token_reply reply;
        const auto& server = model_->packed().blocks(header.group);
        wire::read_token_request(message, server.plan(), request);
        const auto of = blocks_.find({header.group, request.block});
        if (of == blocks_.end()) {
            throw refusal{
                error_code::unknown_block,
                tensafe::text_of({"token request: got block ", request.block, " of group ", header.group,
                                  ", expected one that this session prepared, not used up and not "
                                  "before the last one used: prepare another block"})};
        }
        if (!of->second.is_open(request.position)) {
            throw refusal{error_code::replayed,
                          tensafe::text_of({"token request: position ", request.position, " of block ",
                                            request.block, " of group ", header.group,
                                            " was answered; encrypt anew at the next one"})};
        }
        server.answer(of->second, request, work(), reply);
        wire::write_token_reply<params, protection>(reply, header.envelope(), to);
        // Whoever goes on to a later block has given up what is left of earlier ones.
        const auto end = of->second.left() == 0 ? std::next(of) : of;
        for (auto each = blocks_.lower_bound({header.group, 0}); each != end; each = blocks_.erase(each)) {
            held_bytes_ -= bytes_of_block(header.group);
        }
        return serving::usage_of(request, reply, server.plan());
    }

    std::size_t bytes_of_block(std::size_t group) const {
        const auto& plan = model_->packed().blocks(group).plan();
        constexpr std::size_t limbs = lora::request_level<params> + 1;
        return plan.layout().tokens * plan.outputs() * limbs * sizeof(tensafe::arith::word);
    }

    /// As of answer_request: what it holds of a client is encrypted.
    static lora::block_workspace<params>& work() {
        thread_local lora::block_workspace<params> of_thread;
        return of_thread;
    }

    std::shared_ptr<const one_version> model_;
    lora::server_zeros<params> session_;  // locks itself
    std::atomic<std::size_t> next_group_{0};
    std::atomic<bool> uses_blocks_;
    std::atomic<std::size_t> held_bytes_{0};

    mutable std::mutex mutex_;  // of all below; two connections may have the session for a moment
    blocks blocks_;
    std::vector<std::uint8_t> last_reply_;
    std::optional<std::uint64_t> last_number_;
};

}  // namespace

opening_message::opening_message(carried_message::kind what, std::vector<std::uint8_t> message)
    : what_(what), binary_(std::make_shared<const std::vector<std::uint8_t>>(std::move(message))) {}

shared_message opening_message::in(frame_form form) const {
    if (form == frame_form::binary) {
        return binary_;
    }
    std::call_once(encoded_, [&] {
        const std::string text = carried_text(what_, *binary_);
        json_ = std::make_shared<const std::vector<std::uint8_t>>(text.begin(), text.end());
    });
    return json_;
}

struct model_store::state {
    static lora::model_options with_blocks(std::size_t tokens) {
        lora::model_options result;
        result.tokens_ahead = tokens > 1 ? tokens : 0;
        return result;
    }
    state(const limits& allowed, std::shared_ptr<const tensafe::keystore::signing_key> signer)
        : shares(allowed.shares), publisher(std::move(signer)), options(with_blocks(allowed.tokens_ahead)) {}
    const of_each_scope<double> shares;
    const std::shared_ptr<const tensafe::keystore::signing_key> publisher;
    const lora::model_options options;
    serving::registry<model_type> adapters{serving::pack_with<model_type>(options)};
    std::mutex mutex;  // an unload takes it for both, so that what is current is in the registry
    std::map<std::string, std::shared_ptr<const one_version>, std::less<>> current;
};

model_store::model_store(const limits& allowed,
                         std::shared_ptr<const tensafe::keystore::signing_key> publisher)
    : state_(std::make_unique<state>(allowed, std::move(publisher))) {}
model_store::~model_store() = default;

std::uint64_t model_store::load(const std::string& name, const std::function<lora::adapter()>& from,
                                const lora::pack_progress& progress) {
    std::vector<group_bits> bits;
    const auto checked = [&] {
        lora::adapter matrices = from();
        bits = bits_of(name, matrices, state_->options, state_->shares);
        return matrices;
    };
    const std::uint64_t version = state_->adapters.load(name, checked, progress);
    handle now = state_->adapters.find(name);
    if (!now || now.version() != version) {
        return version;  // another load or an unload was faster
    }
    auto made = std::make_shared<const one_version>(std::move(now), state_->options, std::move(bits),
                                                    state_->publisher.get());
    std::shared_ptr<const one_version> dropped;  // given back outside the lock
    const std::lock_guard lock(state_->mutex);
    if (const handle still = state_->adapters.find(name); still && still.version() == version) {
        dropped = std::exchange(state_->current[name], std::move(made));
    }
    return version;
}

bool model_store::unload(std::string_view name) {
    decltype(state_->current)::node_type dropped;
    const std::lock_guard lock(state_->mutex);
    try {
        state_->adapters.unload(name);
    } catch (const tensafe::parameter_error&) {
        return false;
    }
    if (const auto found = state_->current.find(name); found != state_->current.end()) {
        dropped = state_->current.extract(found);
    }
    return true;
}

std::shared_ptr<const served_model> model_store::find(std::string_view name) const {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->current.find(name);
    return found == state_->current.end() ? nullptr : found->second;
}

std::vector<serving::registry_entry> model_store::entries() const {
    auto known = state_->adapters.status().entries;
    const std::lock_guard lock(state_->mutex);
    for (auto& each : known) {
        const auto found = state_->current.find(each.name);
        each.version = found == state_->current.end() ? 0 : found->second->version;
    }
    // What was packed just now, but has no messages yet, cannot be found.
    std::erase_if(known, [](const auto& each) { return each.version == 0; });
    return known;
}

std::unique_ptr<session_evaluator> make_evaluator(std::shared_ptr<const served_model> model,
                                                  const tensafe::random::seed& nonce,
                                                  std::span<const std::uint8_t> rerandomization_key) {
    // There is no other kind of served_model.
    return std::make_unique<evaluator_of_session>(
        std::static_pointer_cast<const one_version>(std::move(model)), nonce, rerandomization_key);
}

std::size_t rerandomization_key_bytes() noexcept {
    return wire::rerandomization_key_bytes<params, lora::request_level<params>>;
}

}  // namespace split
