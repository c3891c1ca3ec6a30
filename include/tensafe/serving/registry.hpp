#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_layout.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::serving {

/// A packed adapter: immutable, thread-safe, and it knows the bytes of memory that it takes.
template <class Model>
concept packed_model = requires(const Model& model) {
    { model.bytes() } -> std::convertible_to<std::size_t>;
};

/// Packs adapters for a registry, on the thread that needs the packed form: one at a time if the registry has
/// a budget, else as many as are loaded at once, so that `pack` must be thread-safe.
template <packed_model Model>
struct loader {
    /// Returns the packed form, not null, after seconds perhaps. What it throws reaches the registry's
    /// caller.
    std::function<std::shared_ptr<const Model>(const lora::adapter&, const lora::pack_progress&)> pack;
    /// Returns the bytes that `pack` will need, known before packing.
    std::function<std::size_t(const lora::adapter&)> bytes_for;
};

/// Returns a loader that packs with Model's constructor, Model(adapter, options, progress), and asks
/// Model::bytes_for(adapter, options): pack_with<lora::model_server<params>>(lora::model_options{...}).
template <packed_model Model, class Options = typename Model::options_type>
loader<Model> pack_with(Options options = {}) {
    return {[options](const lora::adapter& matrices, const lora::pack_progress& progress) {
                return std::make_shared<const Model>(matrices, options, progress);
            },
            [options](const lora::adapter& matrices) -> std::size_t {
                return Model::bytes_for(matrices, options);
            }};
}

/// Checks that an adapter can be packed: every site needs a name of its own, an A and a B that
/// fit each other, and finite values. Reads every value once.
/// @throws parameter_error without sites, for a site without a name, a name that occurs twice, or a scale
///         that is not finite; shape_error for matrices that are empty or do not fit; encoding_error for a
///         value that is not finite. The message names the site.
inline void check_adapter(const lora::adapter& matrices) {
    require<parameter_error>(!matrices.sites.empty(), {"adapter: got no sites, expected at least one"});
    std::set<std::string_view> names;
    for (const lora::adapter_site& site : matrices.sites) {
        const auto where = [&] { return "adapter: site " + quote(site.name) + ": "; };
        require<parameter_error>(!site.name.empty() && names.insert(site.name).second,
                                 {where(), (site.name.empty() ? "it has no name" : "the name occurs twice")});
        try {
            site.a.check("A");
            site.b.check("B");
        } catch (const shape_error& e) {
            throw shape_error({where(), e.what()});
        }
        require<shape_error>(
            !site.a.values.empty() && !site.b.values.empty() && site.b.columns == site.a.rows,
            {where(), "got A ", site.a.rows, " x ", site.a.columns, " and B ", site.b.rows, " x ",
             site.b.columns, ", expected rank x d_in and d_out x rank"});
        require<parameter_error>(std::isfinite(site.scale), {where(), "the scale is not a finite number"});
        lora::detail::check_entries("adapter", site);
    }
}

struct registry_options {
    /// The bytes of packed forms to keep: the least recently used ones are evicted to stay below.
    std::size_t memory_budget = std::numeric_limits<std::size_t>::max();
};

/// The state of one adapter of a registry.
struct registry_entry {
    std::string name;
    std::uint64_t version = 0;
    bool packed = false;                             ///< false: evicted, and packed again by the next find
    std::size_t bytes = 0;                           ///< bytes that the packed form takes, or would take
    std::size_t handles = 0;                         ///< handles of this packed form
    std::chrono::steady_clock::time_point last_use;  ///< the last find or load
};

/// The state of a registry at one moment.
struct registry_status {
    std::vector<registry_entry> entries;  ///< adapters, sorted by name
    std::size_t memory_budget = 0;
    std::size_t bytes_packed = 0;    ///< bytes of the packed forms that the registry keeps
    std::size_t bytes_retained = 0;  ///< bytes of replaced, evicted or unloaded forms that handles still hold
};

template <packed_model Model>
class registry;

namespace detail {

/// A version of an adapter, with its packed form unless evicted. Immutable but for the time of its last use.
template <class Model>
struct cache_entry {
    using clock = std::chrono::steady_clock;

    std::string name;
    std::uint64_t version = 0;
    std::shared_ptr<const lora::adapter> matrices;
    std::shared_ptr<const Model> model;     ///< null: evicted
    std::size_t bytes = 0;                  ///< bytes of the packed form, also when it is evicted
    std::shared_ptr<const void> accounted;  ///< takes the packed form's bytes off the registry's sum
    std::shared_ptr<std::atomic<clock::rep>> last_use = std::make_shared<std::atomic<clock::rep>>(now());

    static clock::rep now() noexcept { return clock::now().time_since_epoch().count(); }
};

}  // namespace detail

/// Shared ownership of one packed version of an adapter. As long as a handle lives, its version stays whole
/// in memory, whatever the registry loads, evicts or unloads: take one for each token or request. It may
/// outlive the registry. Dropping the last one of a version that the registry no longer keeps frees its
/// memory on that thread.
///
/// Copying costs one atomic count. Empty if the name is unknown. A handle itself is for one thread at a time;
/// what it refers to is immutable and thread-safe.
template <packed_model Model>
class adapter_handle {
  public:
    adapter_handle() = default;

    explicit operator bool() const noexcept { return held_ != nullptr; }

    /// A number that is larger for what was published later; unique within the registry. 0 if empty.
    std::uint64_t version() const noexcept { return held_ ? held_->version : 0; }

    // References live as long as a handle of this version. They throw parameter_error if the handle is empty.
    const std::string& name() const& { return held().name; }
    const Model& model() const& { return *held().model; }
    const lora::adapter& matrices() const& { return *held().matrices; }
    const std::string& name() const&& = delete;  // keep the handle, then look inside
    const Model& model() const&& = delete;
    const lora::adapter& matrices() const&& = delete;

    /// The packed form for code that keeps a shared_ptr: it counts as this handle does.
    /// @throws parameter_error if the handle is empty
    std::shared_ptr<const Model> share() const { return {held_, held().model.get()}; }

  private:
    friend class registry<Model>;
    using entry = detail::cache_entry<Model>;

    explicit adapter_handle(std::shared_ptr<const entry> held) noexcept : held_(std::move(held)) {}

    const entry& held() const {
        require<parameter_error>(held_ != nullptr,
                                 {"adapter_handle: it is empty: no adapter of that name is loaded"});
        return *held_;
    }

    std::shared_ptr<const entry> held_;
};

/// Named adapters, packed, that can be loaded, replaced and unloaded while tokens flow.
///
/// Readers call `find` for each token or request. It copies a pointer to an immutable snapshot under a lock
/// that nobody holds for longer than that, so a reader sees one version whole or another, and a packed
/// adapter is found at once. Writers pack on their own threads, with a budget one at a time, and then
/// exchange the snapshot.
///
/// Packed forms are kept within a budget: the least recently used ones are evicted. Their matrices stay, so
/// that the next `find` packs the form again, without a file and with the same content and version number.
///
/// Thread-safe. A loader or progress callback may call the registry, on its own thread; what it packs comes
/// on top of the budget until it is published. Locks that `find` and `load` wait for may not be taken in one.
/// All calls must have returned before destruction; handles may live on. Exception safety: strong, except
/// that packed forms of other adapters may have been evicted.
template <packed_model Model>
class registry {
  public:
    using handle = adapter_handle<Model>;
    using source = std::function<lora::adapter()>;

    /// The most bytes of a name: what a meter counts under a name of its own, by default.
    static constexpr std::size_t longest_name = 128;

    /// Makes an empty registry.  @throws parameter_error if a function of the loader is missing
    registry(registry_options options, loader<Model> with)
        : loader_(std::move(with)), budget_(options.memory_budget) {
        require<parameter_error>(loader_.pack && loader_.bytes_for,
                                 {"registry: the loader has no ", (loader_.pack ? "bytes_for" : "pack")});
    }
    /// Makes a registry without a budget: nothing is ever evicted, and nothing but unload gives memory back.
    explicit registry(loader<Model> with) : registry(registry_options{}, std::move(with)) {}
    registry(const registry&) = delete;
    registry& operator=(const registry&) = delete;

    /// Finds the adapter of this name, for one token or request; empty if there is none. If its packed form
    /// was evicted, packs it again on this thread, after packings in progress; threads that want the same one
    /// share one packing. Cost of a packed one: a lock, a search by name, a clock, two atomic counts.
    /// @throws whatever the loader throws
    handle find(std::string_view name) {
        const entry_pointer found = lookup(name);
        if (!found) {
            return {};
        }
        found->last_use->store(entry::now(), std::memory_order_relaxed);
        return found->model ? handle(found) : pack_again(name);
    }

    /// Finds the adapter of this name, which must be loaded.
    /// @throws parameter_error for an unknown name, with a list of those that are loaded; whatever the loader
    ///         throws
    handle at(std::string_view name) {
        handle found = find(name);
        if (!found) {
            refuse_unknown(name);
        }
        return found;
    }

    /// Loads an adapter and packs it on the calling thread; then the name stands for it. A name that is
    /// loaded already is replaced: its old version serves until then, and to the end whoever holds a handle.
    /// Of several loads of one name at once, the one that finishes last stays.
    ///
    /// To make room, packed forms of other adapters are evicted before packing starts. A form that is being
    /// replaced is not evicted meanwhile and does not count: at the peak there are the budget and the
    /// replaced form.
    ///
    /// @param from  where the matrices come from: [] { return io::load_peft("adapters/legal"); }
    /// @return      the new version's number: numbers rise in the order of publication
    /// @throws parameter_error for a name that is empty, longer than longest_name, not UTF-8 or has control
    ///         characters, and for an adapter that takes more than the whole budget, before packing; as
    ///         check_adapter; whatever `from`, the loader and `progress` throw. The old version, if any,
    ///         serves on.
    std::uint64_t load(const std::string& name, const source& from,
                       const lora::pack_progress& progress = {}) {
        check_name(name);
        require<parameter_error>(from != nullptr, {"registry::load: ", in_quotes(name), " has no source"});
        entry made;
        made.name = name;
        made.matrices = std::make_shared<const lora::adapter>(from());
        check_adapter(*made.matrices);
        made.bytes = checked(name, loader_.bytes_for(*made.matrices));
        std::unique_lock writing(writers_, std::defer_lock);
        if (budget_ != registry_options().memory_budget) {
            writing.lock();
        }
        const auto packed = pack(std::move(made), progress);
        exchange([&](snapshot& next) {
            packed->version = ++versions_;
            publish(next, packed);
        });
        return packed->version;
    }

    /// Forgets an adapter; handles of it stay valid. Waits for nothing: a load of the name in progress
    /// publishes it again.
    /// @throws parameter_error for an unknown name
    void unload(std::string_view name) {
        bool was_there = false;
        exchange([&](snapshot& next) {
            if (const auto found = next.find(name); found != next.end()) {
                next.erase(found);
                was_there = true;
            }
        });
        if (!was_there) {
            refuse_unknown(name);
        }
    }

    /// The names that are loaded, packed or evicted, sorted.
    std::vector<std::string> names() const {
        const auto now = current();
        std::vector<std::string> result;
        for (const auto& [name, each] : *now) {
            result.push_back(name);
        }
        return result;
    }

    /// The state of all adapters at one moment; counts of handles are approximate.
    registry_status status() const {
        const auto now = current();
        registry_status result;
        result.memory_budget = budget_;
        for (const auto& [name, e] : *now) {
            const auto last = typename entry::clock::duration(e->last_use->load(std::memory_order_relaxed));
            result.entries.push_back({name, e->version, e->model != nullptr, e->bytes,
                                      static_cast<std::size_t>(e.use_count()) - 1,
                                      typename entry::clock::time_point(last)});
            result.bytes_packed += e->model ? e->bytes : 0;
        }
        result.bytes_retained = std::max(result.bytes_packed, accounted_->load()) - result.bytes_packed;
        return result;
    }

  private:
    using entry = detail::cache_entry<Model>;
    using entry_pointer = std::shared_ptr<const entry>;
    using snapshot = std::map<std::string, entry_pointer, std::less<>>;

    // For readers and writers.

    std::shared_ptr<const snapshot> current() const {
        const std::lock_guard lock(readers_);
        return current_;
    }
    entry_pointer lookup(std::string_view name) const {
        const auto now = current();
        const auto found = now->find(name);
        return found == now->end() ? nullptr : found->second;
    }

    // For writers only, with their lock held.

    handle pack_again(std::string_view name) {
        const std::lock_guard writing(writers_);
        const entry_pointer evicted = lookup(name);
        if (!evicted || evicted->model) {
            return handle(evicted);  // unloaded, or packed by another thread meanwhile
        }
        const auto packed = pack(*evicted, {});
        exchange([&](snapshot& next) {
            if (const auto now = next.find(name);
                now != next.end() && now->second->version == packed->version) {
                publish(next, packed);
            }
        });
        return handle(packed);
    }

    std::shared_ptr<entry> pack(entry made, const lora::pack_progress& progress) {
        exchange([&](snapshot& next) { make_room(next, made.bytes, made.name); });
        made.model = loader_.pack(*made.matrices, progress);
        require<error>(made.model != nullptr,
                       {"registry: the loader made nothing of ", in_quotes(made.name)});
        made.bytes = checked(made.name, made.model->bytes());
        *accounted_ += made.bytes;
        made.accounted = std::shared_ptr<const void>(
            nullptr, [bytes = made.bytes, sum = accounted_](const void*) { *sum -= bytes; });
        return std::make_shared<entry>(std::move(made));
    }

    void publish(snapshot& next, const entry_pointer& packed) const {
        make_room(next, packed->bytes, packed->name);  // it may take more than was forecast
        next[packed->name] = packed;
    }

    /// Puts a changed snapshot in the place of the current one. The caller may hold the writers' lock or not.
    template <class Change>
    void exchange(Change change) {
        std::shared_ptr<const snapshot> exchanged;  // freed outside the locks
        const std::lock_guard exchanging(exchange_);
        auto next = std::make_shared<snapshot>(*current_);
        change(*next);
        exchanged = std::move(next);
        const std::lock_guard lock(readers_);
        current_.swap(exchanged);
    }

    /// Evicts from `next`, the least recently used first, until `needed` bytes fit beside what is packed
    /// under other names than `replaced`.  @pre needed <= the budget
    void make_room(snapshot& next, std::size_t needed, std::string_view replaced) const {
        // Readers go on stamping meanwhile: sort what was read once.
        std::vector<std::pair<typename entry::clock::rep, entry_pointer*>> by_use;
        std::size_t packed = 0;
        for (auto& [name, e] : next) {
            if (e->model && name != replaced) {
                packed += e->bytes;
                by_use.emplace_back(e->last_use->load(std::memory_order_relaxed), &e);
            }
        }
        std::sort(by_use.begin(), by_use.end(),
                  [](const auto& a, const auto& b) { return a.first < b.first; });
        for (std::size_t i = 0; packed > budget_ - needed; ++i) {
            entry rest = **by_use[i].second;
            packed -= rest.bytes;
            rest.model = nullptr;
            rest.accounted = nullptr;
            *by_use[i].second = std::make_shared<const entry>(std::move(rest));
        }
    }

    std::size_t checked(std::string_view name, std::size_t bytes) const {
        require<parameter_error>(bytes <= budget_,
                                 {"registry: ", in_quotes(name), " takes ", bytes,
                                  " bytes packed, expected at most the memory budget, ", budget_});
        return bytes;
    }

    static void check_name(std::string_view name) {
        require<parameter_error>(
            !name.empty() && name.size() <= longest_name && is_printable_utf8(name),
            {"registry::load: got the name ", in_quotes(name), " of ", name.size(), " bytes, expected 1 to ",
             longest_name, " bytes of UTF-8 without control characters"});
    }

    [[noreturn]] void refuse_unknown(std::string_view name) const {
        constexpr std::size_t most_names = 20;
        const std::vector<std::string> known = names();
        std::string message = "registry: no adapter " + quote(name) + ", expected one of:";
        for (std::size_t i = 0; i < std::min(known.size(), most_names); ++i) {
            message += " " + quote(known[i]);
        }
        if (known.size() > most_names) {
            message += " and " + std::to_string(known.size() - most_names) + " more";
        }
        throw parameter_error(known.empty() ? message + " (none is loaded)" : message);
    }

    const loader<Model> loader_;
    const std::size_t budget_;
    mutable std::mutex readers_;    ///< guards the pointer current_
    std::mutex exchange_;           ///< held from reading the snapshot to exchanging it, never for long
    std::recursive_mutex writers_;  ///< held while packing within a budget; callbacks may call the registry
    std::shared_ptr<const snapshot> current_ = std::make_shared<const snapshot>();
    std::uint64_t versions_ = 0;  ///< the last one given; exchange_ guards it
    /// The bytes of all packed forms that live, kept or held by handles.
    std::shared_ptr<std::atomic<std::size_t>> accounted_ = std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace tensafe::serving
