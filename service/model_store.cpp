#include "model_store.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/keystore/mark_key.hpp>
#include <tensafe/keystore/opened_pin.hpp>
#include <tensafe/lora/adapter/entropy.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/lora/tracing/marked_models.hpp>
#include <tensafe/lora/tracing/marks.hpp>
#include <tensafe/session/server_session.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/layout.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>

#include "params.hpp"

namespace split {

namespace {

namespace keystore = tensafe::keystore;
namespace lora = tensafe::lora;
namespace serving = tensafe::serving;
namespace wire = tensafe::wire;
using model_type = lora::model_server<params, packing, protection>;

static_assert(protection::protects, "query limits count the target coefficients of protected replies");

std::optional<std::uint64_t> bits_of(const share_limit& share, double entropy) {
    return share ? std::optional(static_cast<std::uint64_t>(*share * entropy)) : std::nullopt;
}

/// Of each group. Models are packed client_held_b here, which serves A. In mode blind it would be B A, and
/// the entropies of A and B together.
/// @throws parameter_error if a limit is below one request: nobody would ever be answered
void count_bits(adapter_facts& of, const lora::adapter& from, const lora::model_options& options,
                const of_each_scope<double>& shares) {
    const auto grouped = lora::group_sites(from, options);
    for (std::size_t g = 0; g < grouped.sites.size(); ++g) {
        const lora::model_layout::group& group = grouped.layout.groups[g];
        serving::query_limits& bits = of.groups.emplace_back();
        try {
            const std::size_t rows = group.rows(grouped.layout.mode);
            // The norm of the rows is no part of a budget. A token of a block has the same targets and
            // budget.
            const auto cost =
                lora::cost_of(lora::packing_plan<params, packing, protection>(rows, group.d, 1));
            bits.request = static_cast<std::uint64_t>(
                std::ceil(static_cast<double>(cost.targets) * cost.budget.channel_bits()));
        } catch (const tensafe::error& e) {
            throw tensafe::parameter_error(
                {"model_store: input ", tensafe::in_quotes(group.input), ": ", e.what()});
        }
        double& entropy = of.entropies.emplace_back();
        for (const std::size_t site : grouped.sites[g]) {
            entropy += lora::entropy_bits(from.sites[site].a);
        }
        for (std::size_t i = 0; i < shares.size(); ++i) {
            if (!shares[i]) {
                continue;
            }
            bits.limits[i] = bits_of(shares[i], entropy);
            tensafe::require<tensafe::parameter_error>(
                *bits.limits[i] >= bits.request,
                {"adapter ", tensafe::in_quotes(of.name), ": input ", tensafe::in_quotes(group.input),
                 ": got ", share_options[i], " ", *shares[i], ", which is ", *bits.limits[i],
                 " bits of its A, expected at least those of one request, ", bits.request,
                 ": give a larger share, or none"});
        }
    }
}

std::string hash_of_a(const lora::adapter& of) {
    keystore::sha256 hash;
    for (const auto& site : of.sites) {
        const std::array<std::uint64_t, 2> shape{site.a.rows, site.a.columns};
        hash.update(std::as_bytes(std::span(shape)));
        hash.update(std::as_bytes(std::span(site.a.values)));
    }
    return keystore::hex(hash.finish());
}

class one_version final : public served_model {
  public:
    using marked_type = lora::marked_models<params, packing, protection>;

    /// What all clients are served by, or, with marks in A, each tenant by its own.
    struct packed_a {
        std::shared_ptr<const model_type> plain;
        std::optional<marked_type> marked;
        const model_type& plans() const noexcept { return marked ? marked->plans() : *plain; }
        std::size_t bytes() const noexcept { return marked ? marked->bytes() : plain->bytes(); }
    };

    /// @param held_part  of lora::client_part
    /// @param marks      null: all clients hold it itself
    one_version(adapter_facts known, packed_a packed, lora::adapter held_part, marking_key marks)
        : served_model(std::move(known),
                       wire::write_model_layout<params, packing, protection>(packed.plans().layout())),
          packed_(std::move(packed)),
          marks_(std::move(marks)) {
        if (marks_) {
            unmarked_ = std::move(held_part);
        } else {
            held_.emplace(carried_message::kind::held_adapter, written(held_part));
        }
        if (!pin_folder.empty()) {
            lora::model_layout pinned = plans().layout();
            pinned.tokens_ahead = 0;
            pinned_layout_ = digest_of(wire::write_model_layout<params, packing, protection>(pinned));
            for (const auto& each : std::filesystem::directory_iterator(pin_folder)) {
                if (each.path().extension() == ".pin") {
                    pins_.emplace(each.path().stem().string(), tenant_pin{read_pin(each.path())});
                }
            }
        }
        bytes = packed_.bytes();
        for (std::size_t group = 0; group < groups.size(); ++group) {
            const auto& plan = plans().plan(group);
            largest_request = std::max(
                largest_request, lora::message_overhead_bytes + tensafe::random::seed_bytes +
                                     plan.inputs() * lora::packed_residues_bytes<params>(params::degree));
            if (plans().layout().tokens_ahead > 0) {
                using protocol = tensafe::session::lora_protocol<params, packing, protection>;
                bytes_of_block.push_back(protocol::bytes_of_block(plans(), group));
            }
        }
    }
    const model_type& plans() const noexcept { return packed_.plans(); }
    /// One for all sessions of an owner.
    std::shared_ptr<const model_type> model_for(const std::string& owner) const {
        if (!packed_.marked) {
            return packed_.plain;
        }
        const std::lock_guard lock(mutex_);
        auto result = models_[owner].lock();
        if (!result) {
            result = packed_.marked->of(marks_of(owner));
            models_[owner] = result;
            std::erase_if(models_, [](const auto& each) { return each.second.expired(); });
        }
        return result;
    }

    shared_message held_for(const std::string& owner, frame_form form) const override {
        if (held_) {
            return held_->in(form);
        }
        std::unique_lock lock(mutex_);
        if (auto known = sent_[{owner, form}].lock()) {
            return known;
        }
        lock.unlock();
        const auto made =
            opening_message(carried_message::kind::held_adapter,
                            written(marks_of(owner).added_to(lora::marked_matrix::b, unmarked_)))
                .in(form);
        lock.lock();
        std::erase_if(sent_, [](const auto& each) { return each.second.expired(); });
        sent_[{owner, form}] = made;
        return made;
    }

    std::string pin_for(const std::string& owner) const override {
        if (pin_folder.empty()) {
            return pin;
        }
        const std::string file_name = owner.substr(owner.starts_with(key_owner) ? key_owner.size() : 0);
        std::unique_lock lock(mutex_);
        const auto known = pins_.find(file_name);
        if (known != pins_.end() && known->second.fits) {
            return known->second.pinned.pin.text();
        }
        keystore::opened_pin pinned =
            known == pins_.end() ? read_pin(file_of(file_name)) : known->second.pinned;
        lock.unlock();
        keystore::weights_hash weights;
        packed_.marked->visit_weights(marks_of(owner), weights);
        pinned.check(name,
                     {pinned_layout_, digest_of(*held_for(owner, frame_form::binary)), weights.finish(),
                      marks_->commitment_to(name, owner)},
                     tensafe::quote(file_of(file_name).string()));
        lock.lock();
        return pins_.insert_or_assign(file_name, tenant_pin{std::move(pinned), true})
            .first->second.pinned.pin.text();
    }

  private:
    struct tenant_pin {
        keystore::opened_pin pinned;
        bool fits = false;  ///< B and A too
    };

    std::filesystem::path file_of(const std::string& owner) const { return pin_folder / (owner + ".pin"); }
    /// A pin that may still be of another B or A.
    keystore::opened_pin read_pin(const std::filesystem::path& file) const {
        auto result = keystore::opened_pin::read(file);
        result.check_layout(name, pinned_layout_, tensafe::quote(file.string()));
        return result;
    }
    static keystore::sha256_digest digest_of(const std::vector<std::uint8_t>& message) {
        return keystore::sha256::of(std::as_bytes(std::span(message)));
    }
    std::vector<std::uint8_t> written(const lora::adapter& held) const {
        return wire::write_held_adapter(held, plans().layout());
    }
    lora::marks marks_of(const std::string& owner) const {
        auto seed = marks_->seed_of(name, owner);
        const tensafe::memory::wipe_guard guard(seed);
        return lora::marks(seed);
    }

    const packed_a packed_;
    const marking_key marks_;
    std::optional<opening_message> held_;  ///< without marks
    lora::adapter unmarked_;               ///< what it is made of with them
    mutable std::mutex mutex_;
    mutable std::map<std::pair<std::string, frame_form>, std::weak_ptr<const std::vector<std::uint8_t>>>
        sent_;
    mutable std::map<std::string, std::weak_ptr<const model_type>> models_;
    keystore::sha256_digest pinned_layout_{};
    mutable std::map<std::string, tenant_pin> pins_;  ///< by owner: those of the load, and what came later
};

class evaluator_of_session final : public session_evaluator {
    using session_type = tensafe::session::server_session<params, packing, protection>;

    /// What `step` makes of the plan of a group's hidden states alone, or of its blocks.
    template <class Step>
    auto with_plan(std::size_t group, bool is_alone, Step step) const {
        const model_type& plans = model_->plans();
        return is_alone ? step(plans.plan(group)) : step(plans.plan_of_blocks(group));
    }

  public:
    evaluator_of_session(std::shared_ptr<const one_version> of, const std::string& owner,
                         const tensafe::random::seed& nonce,
                         std::span<const std::uint8_t> rerandomization_key,
                         std::unique_ptr<tensafe::session::store> counts)
        : model_(std::move(of)),
          counts_(std::move(counts)),
          session_(model_->model_for(owner), nonce,
                   wire::read_rerandomization_key<params, lora::request_level<params>>(rerandomization_key),
                   counts_.get(), tensafe::rns::panel_outputs),  // of a thread at once
          uses_blocks_(model_->plans().layout().tokens_ahead > 0) {}

    serving::usage on_message(std::span<const std::uint8_t> message, const wire::header& header,
                              shared_message& to) override {
        thread_local session_type::workspace work;
        serving::usage used{.bytes_up = message.size()};
        const bool is_now = session_.on_message(message, header, work, to);
        used.bytes_down = to->size();
        if (is_now) {
            const bool is_alone = header.what == wire::kind::request;
            uses_blocks_.store(!is_alone, std::memory_order_relaxed);
            next_group_.store((header.group + 1) % model_->plans().layout().groups.size(),
                              std::memory_order_relaxed);
            used.requests = 1;
            used.tokens = header.what == wire::kind::block_request ? 0 : 1;
            if (header.what != wire::kind::token_request) {
                used.products = with_plan(header.group, is_alone, [&](const auto& plan) {
                    return std::uint64_t{plan.inputs()} *
                           (is_alone ? plan.outputs() : work.block_reply.c1.size());
                });
            }
        }
        return used;
    }

    bool fill_pool(std::size_t most) override {
        return with_plan(next_group_.load(std::memory_order_relaxed),
                         !uses_blocks_.load(std::memory_order_relaxed), [&](const auto& plan) {
                             auto& pool = session_.zeros().zeros(plan.subring_log_n());
                             const std::size_t stored = pool.size();
                             const bool makes_one = stored < std::min(most, plan.outputs());
                             if (makes_one) {
                                 pool.fill(stored + 1);
                             }
                             return makes_one;
                         });
    }

    std::size_t pool_size() const override { return session_.zeros().zeros_stored(); }
    std::uint64_t next_number() const override { return session_.next_number(); }
    void on_resumed() override { session_.on_resumed(); }
    std::size_t held_bytes() const noexcept override { return session_.held_bytes(); }
    void drop_replies() noexcept override { session_.drop_replies(); }
    void drop_blocks() noexcept override { session_.drop_blocks(); }
    const served_model& model() const noexcept override { return *model_; }

  private:
    std::shared_ptr<const one_version> model_;
    std::unique_ptr<tensafe::session::store> counts_;
    session_type session_;
    std::atomic<std::size_t> next_group_{0};
    std::atomic<bool> uses_blocks_;
};

}  // namespace

group_limits limits_of(std::shared_ptr<const served_model> model, const std::optional<share_limit>& own) {
    if (!own) {
        return {model, &model->groups};
    }
    auto result = std::make_shared<std::vector<serving::query_limits>>(model->groups);
    for (std::size_t group = 0; group < result->size(); ++group) {
        const auto most = bits_of(*own, model->entropies[group]);
        (*result)[group].limits = {most, most, {}};
    }
    return result;
}

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
    static lora::model_options options_of(const limits& allowed) {
        lora::model_options result;
        result.tokens_ahead = allowed.tokens_ahead > 1 ? allowed.tokens_ahead : 0;
        result.column_scales = allowed.column_scales;
        return result;
    }
    state(const limits& allowed, pin_files files, bool peers, marking_key key)
        : shares(allowed.shares),
          pins(std::move(files)),
          options(options_of(allowed)),
          has_peers(peers),
          marks(std::move(key)),
          memory(marks && allowed.mark_bytes > 0 ? std::make_shared<lora::marked_memory>(allowed.mark_bytes)
                                                 : nullptr) {}
    /// Without counted_as.
    adapter_facts look_at(const std::string& name, std::uint64_t version,
                          const lora::adapter& matrices) const {
        adapter_facts result;
        result.name = name;
        result.version = version;
        count_bits(result, matrices, options, shares);
        if (marks) {
            lora::check_markable(matrices, lora::marked_matrix::b);
        }
        const auto file = pins.find(name);
        if (file != pins.end() && marks) {
            tensafe::require<tensafe::parameter_error>(
                memory != nullptr,
                {"adapter ", tensafe::in_quotes(name),
                 ": got pins of tenants, expected limits::mark_bytes: each has an A of its own"});
            result.pin_folder = file->second;
        } else if (file != pins.end()) {
            const auto pinned = keystore::opened_pin::read(file->second);
            pinned.check(name, keystore::pinned_parts_of<params, packing, protection>(matrices, options),
                         tensafe::quote(file->second.string()));
            result.pin = pinned.pin.text();
        }
        return result;
    }
    const of_each_scope<double> shares;
    const pin_files pins;
    const lora::model_options options;
    const bool has_peers;
    const marking_key marks;
    const std::shared_ptr<lora::marked_memory> memory;  ///< null: A has no marks
    std::mutex mutex;                                   // of what follows
    std::map<std::string, std::shared_ptr<const served_model>, std::less<>> current;
    std::atomic<std::uint64_t> versions{0};
    std::map<std::string, std::string> first_names;  // by the hash of A: another name begins nothing anew
};

model_store::model_store(const limits& allowed, pin_files pins, bool has_peers, marking_key marks)
    : state_(std::make_unique<state>(allowed, std::move(pins), has_peers, std::move(marks))) {}
model_store::~model_store() = default;

std::string model_store::count_under(const std::string& name, const lora::adapter& of) {
    std::string hash = hash_of_a(of);
    if (state_->has_peers) {
        return hash;
    }
    const std::lock_guard lock(state_->mutex);
    return state_->first_names.try_emplace(std::move(hash), name).first->second;
}

std::uint64_t model_store::next_version() noexcept {
    return ++state_->versions;
}

std::shared_ptr<const served_model> model_store::pack(const std::string& name,
                                                      const std::function<lora::adapter()>& from,
                                                      const lora::pack_progress& progress,
                                                      std::uint64_t version) {
    version = version == 0 ? next_version() : version;
    const lora::adapter matrices = from();
    adapter_facts known = state_->look_at(name, version, matrices);
    one_version::packed_a packed;
    if (state_->memory) {
        packed.marked.emplace(matrices, state_->options, state_->memory);
    } else {
        packed.plain = std::make_shared<const model_type>(matrices, state_->options, progress);
    }
    known.counted_as = count_under(name, matrices);
    return std::make_shared<const one_version>(std::move(known), std::move(packed),
                                               lora::client_part(matrices, state_->options), state_->marks);
}

void model_store::serve(std::shared_ptr<const served_model> packed) {
    const std::lock_guard lock(state_->mutex);
    state_->current[packed->name].swap(packed);  // the old one is given back outside the lock
}

bool model_store::unload(std::string_view name) {
    decltype(state_->current)::node_type dropped;
    const std::lock_guard lock(state_->mutex);
    if (const auto found = state_->current.find(name); found != state_->current.end()) {
        dropped = state_->current.extract(found);
    }
    return !dropped.empty();
}

std::shared_ptr<const served_model> model_store::find(std::string_view name) const {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->current.find(name);
    return found == state_->current.end() ? nullptr : found->second;
}

std::pair<std::size_t, std::uint64_t> model_store::marked() const {
    return state_->memory ? std::pair(state_->memory->bytes(), state_->memory->packed())
                          : std::pair<std::size_t, std::uint64_t>();
}

std::vector<std::shared_ptr<const served_model>> model_store::served() const {
    const std::lock_guard lock(state_->mutex);
    std::vector<std::shared_ptr<const served_model>> result;
    for (const auto& [name, each] : state_->current) {
        result.push_back(each);
    }
    return result;
}

std::unique_ptr<session_evaluator> make_evaluator(std::shared_ptr<const served_model> model,
                                                  const std::string& owner,
                                                  const tensafe::random::seed& nonce,
                                                  std::span<const std::uint8_t> rerandomization_key,
                                                  std::unique_ptr<tensafe::session::store> counts) {
    // There is no other kind of served_model.
    return std::make_unique<evaluator_of_session>(
        std::static_pointer_cast<const one_version>(std::move(model)), owner, nonce, rerandomization_key,
        std::move(counts));
}

std::size_t rerandomization_key_bytes() noexcept {
    return wire::rerandomization_key_bytes<params, lora::request_level<params>>;
}

}  // namespace split
