#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/printable.hpp>
#include <tensafe/core/quoted_name.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/pack_progress.hpp>
#include <tensafe/serving/adapter_check.hpp>
#include <tensafe/serving/adapter_handle.hpp>
#include <tensafe/serving/packer.hpp>
#include <tensafe/serving/registry_preparations.hpp>
#include <tensafe/serving/registry_snapshot.hpp>
#include <tensafe/serving/registry_status.hpp>
#include <tensafe/serving/registry_store.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::serving {

/// Named adapters, packed, that can be loaded, replaced and unloaded while tokens flow.
///
/// Readers call `find` for each token or request. It copies a pointer to an immutable snapshot under a lock
/// that nobody holds for longer than that, so a reader sees one version whole or another, and never waits for
/// a packing. Writers (administrators) pack on their own threads, outside every lock, and then exchange the
/// snapshot. Memory that readers drop last is given back by a thread of the registry.
///
/// Packed forms are kept within a budget: the least recently used ones are evicted. Their matrices stay, so
/// that a form is prepared again without a file and with the same content.
///
/// Every member function may be called from any number of threads. From a packer or a progress callback call
/// find, names, status and unload only: what packs may have to wait for the room that this packing holds. All
/// calls must have returned before destruction; handles may live on. Exception safety: strong, except that
/// packed forms of other adapters may have been evicted.
template <packed_model Model>
class registry {
  public:
    using handle = adapter_handle<Model>;
    using source = std::function<lora::adapter()>;

    /// Bytes of a name: what a meter counts under a name of its own, by default.
    static constexpr std::size_t longest_name = 128;

    /// @throws parameter_error if a function of the packer is missing
    registry(registry_options options, packer<Model> packing)
        : packing_(std::move(packing), options.memory_budget),
          store_(options.memory_budget),
          preparations_(store_, packing_, std::move(options.on_preparing)) {}
    /// Without a budget: nothing is ever evicted, and nothing but unload gives memory back.
    explicit registry(packer<Model> packing) : registry(registry_options{}, std::move(packing)) {}
    registry(const registry&) = delete;
    registry& operator=(const registry&) = delete;

    // Readers.

    /// The adapter of this name, for one token or request. Empty if there is none, or if its packed form was
    /// evicted: then it is prepared in the background, and a later call finds it. Never packs or frees, and
    /// waits for pointer copies only. Cost: a lock, a search by name, a clock, two atomic counts.
    handle find(std::string_view name) const {
        const auto now = store_.current();
        const detail::registered<Model>* const found = now->find(name);
        if (found == nullptr) {
            return handle(availability::unknown);
        }
        found->use->touch();
        if (found->packed()) {
            return handle(found->held);
        }
        if (found->use->failed) {
            return handle(availability::cannot_be_prepared);
        }
        preparations_.ask(*found->use);
        return handle(availability::being_prepared);
    }

    /// The same, but waits until the packed form is there. Several waiting threads get the result of one
    /// packing, even if it is evicted at once for another one.
    /// @throws parameter_error for an unknown name, with a list of those that are loaded; whatever the packer
    ///         threw
    handle wait_for(std::string_view name) {
        if (handle found = find(name)) {
            return found;
        }
        return handle(preparations_.wait_for(name));
    }

    // Writers.

    /// Loads an adapter and packs it on the calling thread; then the name stands for it. A name that is
    /// loaded already is replaced: its old version serves until then, and to the end whoever holds a handle.
    /// Of several loads of one name at once, the one that finishes last stays.
    ///
    /// To make room, packed forms of other adapters are evicted before packing starts. A form that is being
    /// replaced is not evicted meanwhile and does not count: at the peak there are the budget and the
    /// replaced form. If other packings in progress hold the room, this waits for them. Room is given in the
    /// order of asking, to loads and preparations alike.
    ///
    /// @param from  where the matrices come from: [] { return io::load_peft("adapters/legal"); }
    /// @return      the new version's number: numbers rise in the order of publication
    /// @throws parameter_error for a name that is empty, longer than longest_name, not UTF-8 or has control
    ///         characters, and for an adapter that takes more than the whole budget, before packing; as
    ///         check_adapter; whatever `from`, the packer and `progress` throw. The old version, if any,
    ///         serves on.
    std::uint64_t load(const std::string& name, const source& from,
                       const lora::pack_progress& progress = {}) {
        check_name(name);
        if (!from) {
            throw parameter_error("registry::load: " + lora::detail::quoted_name(name) + " has no source");
        }
        const auto matrices = std::make_shared<const lora::adapter>(from());
        check_adapter(*matrices);
        const std::size_t bytes = packing_.bytes_for(name, *matrices);

        auto lock = store_.lock_writers();
        typename store::reservation room(store_, lock, bytes, name);
        lock.unlock();
        auto made = packing_.pack(name, matrices, progress);
        lock.lock();
        room.release();
        made->number = versions_ + 1;
        store_.put(std::move(made), std::make_shared<detail::use_record>());
        return ++versions_;
    }

    /// Forgets an adapter. Handles of it stay valid; a load of it in progress still publishes it.
    /// @throws parameter_error for an unknown name
    void unload(std::string_view name) {
        const auto lock = store_.lock_writers();
        store_.erase(name);
    }

    /// Packs an evicted adapter again, on the calling thread; waits if another thread is at it, without
    /// progress. Nothing happens if it is packed.
    /// @return the version's number
    /// @throws parameter_error for an unknown name; whatever the packer and `progress` throw
    std::uint64_t prepare(std::string_view name, const lora::pack_progress& progress = {}) {
        return preparations_.prepare(name, progress)->number;
    }

    // For operators.

    /// The names that are loaded, packed or evicted, sorted.
    std::vector<std::string> names() const {
        const auto now = store_.current();
        std::vector<std::string> result;
        result.reserve(now->entries.size());
        for (const entry& e : now->entries) {
            result.push_back(e->held->name);
        }
        return result;
    }

    /// Everything at one moment; counts of handles may change while they are read.
    registry_status status() const {
        const auto lock = store_.lock_writers();
        return store_.status();
    }

  private:
    using store = detail::registry_store<Model>;
    using entry = typename store::entry;

    static void check_name(std::string_view name) {
        if (name.empty() || name.size() > longest_name || !is_printable_utf8(name)) {
            throw parameter_error("registry::load: got the name " + lora::detail::quoted_name(name) + " of " +
                                  std::to_string(name.size()) + " bytes, wanted 1 to " +
                                  std::to_string(longest_name) +
                                  " bytes of UTF-8 without control characters");
        }
    }

    const detail::registry_packing<Model> packing_;
    store store_;
    std::uint64_t versions_ = 0;                         // the last one given; guarded by the writers' lock
    detail::registry_preparations<Model> preparations_;  // last: its thread uses the others
};

}  // namespace tensafe::serving
