#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/quoted_name.hpp>
#include <tensafe/lora/model/pack_progress.hpp>
#include <tensafe/serving/packer.hpp>
#include <tensafe/serving/registry_snapshot.hpp>
#include <tensafe/serving/registry_store.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace tensafe::serving::detail {

/// A registry's packer, with what it makes checked. Thread-safe, without any lock.
template <class Model>
class registry_packing {
  public:
    /// @throws parameter_error if a function is missing
    registry_packing(packer<Model> made_with, std::size_t budget)
        : packer_(std::move(made_with)), budget_(budget) {
        if (!packer_.pack || !packer_.bytes_for) {
            throw parameter_error(std::string("registry: the packer has no ") +
                                  (packer_.pack ? "bytes_for" : "pack"));
        }
    }

    /// @throws parameter_error if that is more than the budget
    std::size_t bytes_for(std::string_view name, const lora::adapter& matrices) const {
        return checked(name, packer_.bytes_for(matrices));
    }

    /// A version without its number.
    std::unique_ptr<adapter_version<Model>> pack(const std::string& name,
                                                 std::shared_ptr<const lora::adapter> matrices,
                                                 const lora::pack_progress& progress) const {
        auto made = std::make_unique<adapter_version<Model>>();
        made->model = packer_.pack(*matrices, progress);
        if (!made->model) {
            throw error("registry: the packer made nothing of " + lora::detail::quoted_name(name));
        }
        made->bytes = checked(name, made->model->bytes());
        made->name = name;
        made->matrices = std::move(matrices);
        return made;
    }

  private:
    std::size_t checked(std::string_view name, std::size_t bytes) const {
        if (bytes > budget_) {
            throw parameter_error(
                "registry: " + lora::detail::quoted_name(name) + " takes " + std::to_string(bytes) +
                " bytes packed, wanted at most the memory budget, " + std::to_string(budget_));
        }
        return bytes;
    }

    packer<Model> packer_;
    std::size_t budget_;
};

/// Packs again what was evicted: on the thread that wants it, or on one of its own when readers ask. Each
/// version is packed by one thread at a time, for all who wait.
template <class Model>
class registry_preparations {
  public:
    using store = registry_store<Model>;
    using entry = typename store::entry;
    using version_type = typename store::version_type;
    using writers_lock = typename store::writers_lock;
    using progress_by_name = std::function<void(const std::string&, std::size_t, std::size_t)>;

    registry_preparations(store& versions, const registry_packing<Model>& packing, progress_by_name progress)
        : store_(versions),
          packing_(packing),
          progress_(std::move(progress)),
          thread_([this] { prepare_what_is_asked_for(); }) {}
    registry_preparations(const registry_preparations&) = delete;
    registry_preparations& operator=(const registry_preparations&) = delete;

    /// Stops the packing in progress after its current group.
    ~registry_preparations() {
        {
            const std::lock_guard lock(asking_);
            stopping_ = true;
        }
        asked_.notify_one();
        thread_.join();
    }

    /// For readers: the background thread will prepare this. Const, since it changes nothing that a reader
    /// sees.
    void ask(use_record& use) const {
        if (use.ask()) {
            wake();
        }
    }

    /// Lets the background thread prepare it, and waits.
    /// @throws parameter_error for an unknown name; what the packer threw
    std::shared_ptr<const version_type> wait_for(std::string_view name) {
        auto lock = store_.lock_writers();
        for (;;) {
            const entry wanted = store_.at(name);
            if (wanted->packed()) {
                return wanted->held;
            }
            const std::shared_ptr<preparation> awaited = preparation_of(*wanted->held);
            wanted->use->failed = false;
            wanted->use->ask();
            wake();
            if (auto done = result_of(lock, *wanted->held, *awaited)) {
                return done;
            }
        }
    }

    /// Prepares it here, unless another thread is at it.
    /// @throws as wait_for; what `progress` threw
    std::shared_ptr<const version_type> prepare(std::string_view name, const lora::pack_progress& progress) {
        auto lock = store_.lock_writers();
        for (;;) {
            const entry wanted = store_.at(name);
            if (wanted->packed()) {
                wanted->use->touch();
                return wanted->held;
            }
            const std::shared_ptr<preparation> shared = preparation_of(*wanted->held);
            if (!shared->running) {
                pack_again(lock, *wanted, *shared, progress);
            }
            if (auto done = result_of(lock, *wanted->held, *shared)) {
                return done;
            }
        }
    }

  private:
    /// Packing one version again. Guarded by the writers' lock, as is everything below but wake().
    struct preparation {
        bool running = false;
        bool done = false;
        std::shared_ptr<const version_type> result;  ///< for all who wait, even if it is evicted at once
        std::exception_ptr failure;  ///< of the background thread: another caller's failure is its own
    };

    std::shared_ptr<preparation> preparation_of(const version_type& version) {
        auto& found = preparations_[version.number];
        if (!found) {
            found = std::make_shared<preparation>();
        }
        return found;
    }

    /// Waits for it. Null if another caller's packing failed, or the version was replaced: look again.
    std::shared_ptr<const version_type> result_of(writers_lock& lock, const version_type& version,
                                                  const preparation& awaited) {
        store_.wait(lock, [&] { return awaited.done || !store_.is_current(version); });
        if (awaited.failure) {
            std::rethrow_exception(awaited.failure);
        }
        if (!awaited.done && !awaited.running) {
            preparations_.erase(version.number);  // the version is gone, so nobody will take it up
        }
        return awaited.result;
    }

    /// Gives the lock up while it packs.
    void pack_again(writers_lock& lock, const registered<Model>& wanted, preparation& shared,
                    const lora::pack_progress& progress) {
        const version_type& version = *wanted.held;
        shared.running = true;
        try {
            typename store::reservation room(store_, lock, version.bytes, {});
            lock.unlock();
            auto made = packing_.pack(version.name, version.matrices, progress);
            made->number = version.number;
            lock.lock();
            room.release();
            if (store_.is_current(version)) {
                wanted.use->touch();
                wanted.use->failed = false;
                wanted.use->failure.clear();
                shared.result = store_.put(std::move(made), wanted.use);
            } else {
                store_.discard(std::move(made));
            }
        } catch (...) {
            finish(version, shared);
            wake();  // readers may have asked while this thread was at it
            throw;
        }
        finish(version, shared);
    }

    void finish(const version_type& version, preparation& shared) noexcept {
        shared.done = true;
        preparations_.erase(version.number);
        store_.notify();
    }

    void wake() const {
        {
            const std::lock_guard lock(asking_);
            woken_ = true;
        }
        asked_.notify_one();
    }

    void prepare_what_is_asked_for() {
        for (;;) {
            {
                std::unique_lock lock(asking_);
                asked_.wait(lock, [&] { return woken_ || stopping_; });
                woken_ = false;
            }
            auto lock = store_.lock_writers();
            for (entry next = longest_asked_for(); next && !stopping_; next = longest_asked_for()) {
                prepare_in_background(lock, *next);
            }
            if (stopping_) {
                return;
            }
        }
    }

    /// Null if nobody waits for anything. What failed is not tried again because a reader asks, which it may
    /// do just when that fails.
    entry longest_asked_for() const {
        entry first;
        use_record::clock::rep first_since = 0;
        for (const entry& e : store_.current()->entries) {
            const auto since = e->use->asked.load();
            const auto found = preparations_.find(e->held->number);
            const bool running = found != preparations_.end() && found->second->running;
            if (!e->packed() && since != 0 && !e->use->failed && !running &&
                (!first || since < first_since)) {
                first = e;
                first_since = since;
            }
        }
        return first;
    }

    void prepare_in_background(writers_lock& lock, const registered<Model>& wanted) noexcept {
        std::shared_ptr<preparation> shared;
        try {
            shared = preparation_of(*wanted.held);
            pack_again(lock, wanted, *shared, [&](std::size_t done, std::size_t total) {
                if (stopping_) {
                    throw error("registry: it is being destroyed");
                }
                if (progress_) {
                    progress_(wanted.held->name, done, total);
                }
            });
        } catch (...) {
            // The lock was held since it failed, so whoever waits sees the reason.
            wanted.use->failed = true;
            wanted.use->asked = 0;
            if (shared) {
                shared->failure = std::current_exception();
            }
            note_failure(wanted.use->failure);
        }
    }

    /// The text of the exception in flight.
    static void note_failure(std::string& text) noexcept {
        try {
            try {
                throw;
            } catch (const std::exception& e) {
                text = e.what();
            } catch (...) {
                text = "an exception that is not a std::exception";
            }
        } catch (const std::bad_alloc&) {
            text.clear();
        }
    }

    store& store_;
    const registry_packing<Model>& packing_;
    const progress_by_name progress_;
    std::map<std::uint64_t, std::shared_ptr<preparation>>
        preparations_;  // in progress or awaited, by version
    mutable std::mutex asking_;
    mutable std::condition_variable asked_;
    mutable bool woken_ = false;
    std::atomic<bool> stopping_ = false;
    std::thread thread_;  // last: it uses the others
};

}  // namespace tensafe::serving::detail
