#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/quoted_name.hpp>
#include <tensafe/serving/registry_snapshot.hpp>
#include <tensafe/serving/registry_status.hpp>
#include <tensafe/serving/retirement.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::serving::detail {

/// The snapshot of a registry that readers see, and the memory budget: which packed forms stay when another
/// needs room. Readers call current() and nothing else; everything else needs the writers' lock.
template <class Model>
class registry_store {
  public:
    using snapshot = registry_snapshot<Model>;
    using entry = typename snapshot::entry;
    using version_type = adapter_version<Model>;
    using writers_lock = std::unique_lock<std::mutex>;

    explicit registry_store(std::size_t budget)
        : budget_(budget), current_(retirement_.share(std::make_unique<snapshot>())) {}

    std::shared_ptr<const snapshot> current() const {
        const std::lock_guard lock(readers_);
        return current_;
    }

    writers_lock lock_writers() const { return writers_lock(writers_); }

    /// Sleeps until something changed and `enough()` holds.
    template <class Enough>
    void wait(writers_lock& lock, Enough enough) {
        changed_.wait(lock, enough);
    }
    void notify() noexcept { changed_.notify_all(); }

    /// @throws parameter_error, listing the names
    entry at(std::string_view name) const {
        const auto& entries = current_->entries;
        const auto found = snapshot::place(entries, name);
        if (found != entries.end() && (*found)->held->name == name) {
            return *found;
        }
        constexpr std::size_t most_names = 20;
        std::string message = "registry: no adapter " + lora::detail::quoted_name(name) + ", wanted one of:";
        for (std::size_t i = 0; i < std::min(entries.size(), most_names); ++i) {
            message += " " + lora::detail::quoted_name(entries[i]->held->name);
        }
        if (entries.size() > most_names) {
            message += " and " + std::to_string(entries.size() - most_names) + " more";
        }
        throw parameter_error(entries.empty() ? message + " (none is loaded)" : message);
    }

    bool is_current(const version_type& version) const noexcept {
        const auto* const found = current_->find(version.name);
        return found != nullptr && found->held->number == version.number;
    }

    /// Publishes a version under its name; makes room if it takes more than was forecast.
    std::shared_ptr<const version_type> put(std::unique_ptr<version_type> made,
                                            std::shared_ptr<use_record> use) {
        const std::shared_ptr<const version_type> held = retirement_.share(std::move(made));
        auto next = current_->entries;
        snapshot::put(next,
                      std::make_shared<const registered<Model>>(registered<Model>{held, std::move(use)}));
        evict(next, replacing_.contains(held->name) ? 0 : held->bytes, held->name);
        publish(std::move(next));
        return held;
    }

    /// Drops a version that nobody saw, as one that was replaced: not here, where the writers' lock is held.
    void discard(std::unique_ptr<version_type> made) const { retirement_.share(std::move(made)); }

    /// @throws parameter_error for an unknown name
    void erase(std::string_view name) {
        at(name);
        auto next = current_->entries;
        next.erase(snapshot::place(next, name));
        publish(std::move(next));
    }

    /// Room for a packing in progress.
    class reservation {
      public:
        /// Waits for its turn: first come, first served, so that none starves. Then evicts what was not used
        /// for longest, and waits for other packings if these hold the room.
        /// @param replaced  the name whose packed form must stay meanwhile, and does not count; empty: none
        /// @pre bytes <= the budget
        reservation(registry_store& store, writers_lock& lock, std::size_t bytes, std::string replaced)
            : store_(store), lock_(lock), bytes_(bytes), replaced_(std::move(replaced)) {
            const place_in_line place(store_, lock_);
            for (;;) {
                auto next = store_.current_->entries;
                if (store_.evict(next, bytes_, replaced_)) {
                    store_.publish(std::move(next));
                    break;
                }
                store_.changed_.wait(lock_);
            }
            if (!replaced_.empty()) {
                ++store_.replacing_[replaced_];
            }
            store_.reserved_ += bytes_;
        }
        reservation(const reservation&) = delete;
        reservation& operator=(const reservation&) = delete;

        /// Leaves the lock held.
        ~reservation() {
            if (!lock_.owns_lock()) {
                lock_.lock();
            }
            if (release()) {
                // The form that was to be replaced stays and counts again, perhaps beside new ones.
                try {
                    auto next = store_.current_->entries;
                    store_.evict(next, 0, {});
                    store_.publish(std::move(next));
                } catch (const std::bad_alloc&) {
                    // The next reservation evicts it.
                }
            }
        }

        /// @return  whether there was something to release
        bool release() noexcept {
            if (released_) {
                return false;
            }
            released_ = true;
            store_.reserved_ -= bytes_;
            const auto at = store_.replacing_.find(replaced_);
            if (at != store_.replacing_.end() && --at->second == 0) {
                store_.replacing_.erase(at);
            }
            store_.notify();
            return true;
        }

      private:
        /// Begins when all who came before have room, and lets the next one begin.
        class place_in_line {
          public:
            place_in_line(registry_store& store, writers_lock& lock) : store_(store) {
                const std::uint64_t mine = store_.next_turn_++;
                store_.changed_.wait(lock, [&] { return store_.turn_ == mine; });
            }
            place_in_line(const place_in_line&) = delete;
            place_in_line& operator=(const place_in_line&) = delete;
            ~place_in_line() {
                ++store_.turn_;
                store_.notify();
            }

          private:
            registry_store& store_;
        };

        registry_store& store_;
        writers_lock& lock_;
        std::size_t bytes_;
        std::string replaced_;
        bool released_ = false;
    };

    registry_status status() const {
        registry_status result;
        result.memory_budget = budget_;
        result.bytes_packing = reserved_;
        result.packings_waiting = static_cast<std::size_t>(next_turn_ - turn_);
        for (const entry& e : current_->entries) {
            registry_entry& shown = result.entries.emplace_back();
            shown.name = e->held->name;
            shown.version = e->held->number;
            shown.state = e->packed()                 ? availability::ready
                          : e->use->failed            ? availability::cannot_be_prepared
                          : e->use->asked.load() != 0 ? availability::being_prepared
                                                      : availability::evicted;
            shown.bytes = e->held->bytes;
            shown.handles = static_cast<std::size_t>(e->held.use_count()) - 1;
            shown.last_use = use_record::clock::time_point(use_record::clock::duration(e->use->last.load()));
            shown.failure = e->use->failure;
            result.bytes_packed += e->packed() ? e->held->bytes : 0;
        }
        for (const auto& gone : leaving_) {
            if (const auto alive = gone.lock()) {
                result.bytes_leaving += alive->bytes;
            }
        }
        return result;
    }

  private:
    /// Takes packed forms out of `next`, the least recently used first, until `needed` bytes fit beside the
    /// others and the packings in progress. Spares one name, and those that are being replaced, and does not
    /// count them.
    /// @return  false, with nothing done, if packings in progress leave too little room
    bool evict(std::vector<entry>& next, std::size_t needed, std::string_view spared) const {
        if (reserved_ > budget_ || needed > budget_ - reserved_) {
            return false;
        }
        const std::size_t room = budget_ - reserved_ - needed;
        std::size_t kept = 0;
        std::vector<entry*> candidates;
        for (entry& e : next) {
            if (e->packed() && e->held->name != spared && !replacing_.contains(e->held->name)) {
                kept += e->held->bytes;
                candidates.push_back(&e);
            }
        }
        if (kept <= room) {
            return true;
        }
        // Readers go on stamping meanwhile: sort what was read once.
        std::vector<std::pair<use_record::clock::rep, entry*>> by_use;
        for (entry* e : candidates) {
            by_use.emplace_back((*e)->use->last.load(std::memory_order_relaxed), e);
        }
        std::sort(by_use.begin(), by_use.end());
        for (const auto& [last, e] : by_use) {
            if (kept <= room) {
                break;
            }
            kept -= (*e)->held->bytes;
            *e = without_model(**e);
        }
        return true;
    }

    entry without_model(const registered<Model>& evicted) const {
        auto rest = std::make_unique<version_type>();
        rest->name = evicted.held->name;
        rest->number = evicted.held->number;
        rest->matrices = evicted.held->matrices;
        rest->bytes = evicted.held->bytes;
        // Before anybody can see the eviction, so that no question for the new state is lost.
        evicted.use->asked = 0;
        return std::make_shared<const registered<Model>>(
            registered<Model>{retirement_.share(std::move(rest)), evicted.use});
    }

    void publish(std::vector<entry> next) {
        if (next == current_->entries) {
            return;
        }
        auto made = std::make_unique<snapshot>();
        made->entries = std::move(next);
        std::shared_ptr<const snapshot> exchanged = retirement_.share(std::move(made));
        std::erase_if(leaving_, [](const auto& gone) { return gone.expired(); });
        leaving_.reserve(leaving_.size() + current_->entries.size());
        for (const entry& old : current_->entries) {
            const registered<Model>* const now = exchanged->find(old->held->name);
            if (old->packed() && (now == nullptr || now->held != old->held)) {
                leaving_.push_back(old->held);
            }
        }
        {
            const std::lock_guard lock(readers_);
            current_.swap(exchanged);
        }
        notify();
    }

    retirement retirement_;  // first: what the others drop ends there
    const std::size_t budget_;
    mutable std::mutex readers_;  // for the pointer current_; writers hold writers_ as well
    mutable std::mutex writers_;
    std::condition_variable changed_;
    std::shared_ptr<const snapshot> current_;
    std::size_t reserved_ = 0;
    std::uint64_t next_turn_ = 0;                                ///< of who asks for room next
    std::uint64_t turn_ = 0;                                     ///< whose it is
    std::map<std::string, std::size_t, std::less<>> replacing_;  // loads in progress of names that exist
    std::vector<std::weak_ptr<const version_type>> leaving_;
};

}  // namespace tensafe::serving::detail
