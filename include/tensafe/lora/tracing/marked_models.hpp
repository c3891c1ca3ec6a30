#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/model/model_server.hpp>
#include <tensafe/lora/protocol/block_server.hpp>
#include <tensafe/lora/tracing/marks.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// Keeps packed groups of marked_models, of one or more adapters, within a number of bytes: those that were
/// used least recently leave, and stay whole as long as somebody computes with them. Thread-safe.
class marked_memory {
  public:
    explicit marked_memory(std::size_t most_bytes) : most_bytes_(most_bytes) {}
    marked_memory(const marked_memory&) = delete;
    marked_memory& operator=(const marked_memory&) = delete;

    std::size_t most_bytes() const noexcept { return most_bytes_; }
    std::size_t bytes() const {
        const std::lock_guard lock(mutex_);
        return bytes_;
    }
    /// The number of groups that were packed because they were not here.
    std::uint64_t packed() const {
        const std::lock_guard lock(mutex_);
        return packed_;
    }

    /// A group of a tenant in an adapter: the adapter's number, the tenant's, and which.
    using key = std::tuple<std::uint64_t, std::uint64_t, std::size_t>;

    /// Returns what is kept under the key, or else keeps what `make` returns. Threads that ask at once may
    /// all make it; one is kept.
    /// @param bytes  of what make returns
    /// @throws what make throws
    template <class T, class Make>
    std::shared_ptr<const T> get(const key& of, std::size_t bytes, Make make) {
        if (auto known = find<T>(of)) {
            return known;
        }
        std::shared_ptr<const T> made = make();
        if (bytes > most_bytes_) {  // it would drop all others, and not stay
            const std::lock_guard lock(mutex_);
            ++packed_;
            return made;
        }
        std::list<kept> fresh;
        std::list<kept> dropped;  // given back outside the lock
        fresh.push_front({of, bytes, made});
        const std::lock_guard lock(mutex_);
        ++packed_;
        if (!places_.try_emplace(of, fresh.begin()).second) {
            return made;  // another thread was faster
        }
        kept_.splice(kept_.begin(), fresh);
        bytes_ += bytes;
        while (bytes_ > most_bytes_) {
            drop(std::prev(kept_.end()), dropped);
        }
        return made;
    }

    /// Drops all that is kept of an adapter.
    void forget(std::uint64_t adapter) {
        std::list<kept> dropped;
        const std::lock_guard lock(mutex_);
        for (auto at = places_.lower_bound({adapter, 0, 0});
             at != places_.end() && std::get<0>(at->first) == adapter;) {
            drop((at++)->second, dropped);
        }
    }

  private:
    struct kept {
        key of;
        std::size_t bytes;
        std::shared_ptr<const void> what;
    };

    template <class T>
    std::shared_ptr<const T> find(const key& of) {
        const std::lock_guard lock(mutex_);
        const auto at = places_.find(of);
        if (at == places_.end()) {
            return nullptr;
        }
        kept_.splice(kept_.begin(), kept_, at->second);
        return std::static_pointer_cast<const T>(at->second->what);
    }
    void drop(std::list<kept>::iterator at, std::list<kept>& to) {
        bytes_ -= at->bytes;
        places_.erase(at->of);
        to.splice(to.begin(), kept_, at);
    }

    const std::size_t most_bytes_;
    mutable std::mutex mutex_;  // of what follows
    std::list<kept> kept_;      ///< the one that was used last is the first
    std::map<key, std::list<kept>::iterator> places_;
    std::size_t bytes_ = 0;
    std::uint64_t packed_ = 0;
};

/// An adapter of which each tenant is served by an A of its own, the adapter's with the tenant's marks. All
/// tenants have one layout: rows with marks keep the norms of A's rows, and columns their exponents, so that
/// nothing that is published says anything of marks.
///
/// Keeps A as it was read. Groups are packed when they are asked for, at some nanoseconds an entry, and kept
/// in a marked_memory: 4 bytes an entry for blocks, more for hidden states alone. One that was packed again
/// is the same integers, and answers the blocks of the one before. Thread-safe.
template <ckks::parameter_set P, class Packing = coefficient_tiles<4>,
          class Protection = protects_adapter_rows<>>
class marked_models {
  public:
    using model = model_server<P, Packing, Protection>;

    /// Reads A; packs nothing.
    /// @param from    without marks
    /// @param memory  for packed groups, which other adapters may share
    /// @throws parameter_error in mode blind, whose rows are those of B A; for an adapter that keeps no marks
    ///         in A (check_markable), or, with column_scales, has columns of very different sizes; as
    ///         model_server
    marked_models(const adapter& from, const model_options& options, std::shared_ptr<marked_memory> memory)
        : all_(std::make_shared<const shared>(from, options, std::move(memory))) {}

    /// Layout and plans of all tenants; it has no servers.
    const model& plans() const noexcept { return all_->plans; }
    /// The bytes of A as it was read.
    std::size_t bytes() const noexcept { return all_->bytes(); }

    /// Returns the model of the tenant with these marks, which is light: it may outlive this.
    std::shared_ptr<const model> of(const marks& tenant) const {
        return std::make_shared<const model>(all_->plans.layout(),
                                             std::make_shared<const of_tenant>(all_, tenant));
    }
    /// Shows `take` the integers of that model, as model_server::visit_weights does.
    template <class Take>
    void visit_weights(const marks& tenant, Take&& take) const {
        for (std::size_t group = 0; group < all_->a.size(); ++group) {
            model::visit_weights_of(plans().plan(group), all_->rows(group, tenant), take);
        }
    }

  private:
    using decode_server = typename model::decode_server;
    using block_server = typename model::block_server;

    struct shared {
        shared(const adapter& from, const model_options& options, std::shared_ptr<marked_memory> in)
            : memory(std::move(in)),
              trusts(options.trusts_clients),
              plans(model::visit_rows(from, options, [](const auto&, const matrix&) {}), nullptr) {
            require<parameter_error>(
                options.mode == mode::client_held_b,
                {"marked_models: got the mode blind, expected client_held_b: marks are of A's rows"});
            check_markable(from, marked_matrix::a);
            const grouped_sites groups = group_sites(from, options);
            for (const model_layout::group& group : plans.layout().groups) {
                for (const std::int8_t exponent : group.column_exponents) {
                    require<parameter_error>(
                        std::abs(exponent) <= 3,
                        {"marked_models: input ", in_quotes(group.input), " has a column with the exponent ",
                         int{exponent},
                         ", expected -3 to 3: marks are as long in each column, and would drown "
                         "what is in small ones: serve it without column_scales"});
                }
            }
            a.resize(groups.sites.size());
            for (std::size_t g = 0; g < a.size(); ++g) {
                for (const std::size_t site : groups.sites[g]) {
                    adapter_site& own = a[g].emplace_back();
                    own.name = from.sites[site].name;
                    own.a = from.sites[site].a;
                }
            }
        }
        shared(const shared&) = delete;
        shared& operator=(const shared&) = delete;
        ~shared() { memory->forget(number); }

        std::size_t bytes() const noexcept {
            std::size_t sum = 0;
            for (const auto& sites : a) {
                for (const adapter_site& site : sites) {
                    sum += site.a.values.size() * sizeof(float);
                }
            }
            return sum;
        }

        matrix rows(std::size_t group, const marks& tenant) const {
            std::vector<matrix> marked;
            for (adapter_site site : a[group]) {
                tenant.add_to(site, marked_matrix::a);
                marked.push_back(std::move(site.a));
            }
            return detail::stacked_alike(marked, plans.layout().groups[group]);
        }

        const std::shared_ptr<marked_memory> memory;
        const bool trusts;
        const std::uint64_t number = detail::next_server_number();
        const model plans;
        std::vector<std::vector<adapter_site>> a;  ///< names and A by group
    };

    class of_tenant final : public model::source {
      public:
        of_tenant(std::shared_ptr<const shared> all, const marks& tenant)
            : all_(std::move(all)), marks_(tenant), number_(tenant.number()) {}

        std::shared_ptr<const decode_server> decode(std::size_t group) const override {
            return get<decode_server>(2 * group, all_->plans.plan(group).layout(),
                                      [&] { return model::packed(rows(group), all_->trusts); });
        }
        std::shared_ptr<const block_server> blocks(std::size_t group) const override {
            const auto& layout = all_->plans.plan_of_blocks(group).layout();
            return get<block_server>(2 * group + 1, layout, [&] {
                const std::array<std::uint64_t, 2> place{all_->number, group};
                return std::make_shared<const block_server>(rows(group), layout.tokens, trusts_clients{},
                                                            marks_.number(place));
            });
        }

      private:
        template <class Server, class Layout, class Make>
        std::shared_ptr<const Server> get(std::size_t part, const Layout& layout, Make make) const {
            return all_->memory->template get<Server>({all_->number, number_, part},
                                                      detail::packed_bytes(layout), make);
        }
        matrix rows(std::size_t group) const { return all_->rows(group, marks_); }

        const std::shared_ptr<const shared> all_;
        const marks marks_;
        const std::uint64_t number_;
    };

    std::shared_ptr<const shared> all_;
};

}  // namespace tensafe::lora
