#pragma once

#include <tensafe/serving/adapter_handle.hpp>
#include <tensafe/serving/retirement.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::serving::detail {

/// What readers note about one version, and what its preparation left behind. Shared by its packed and its
/// evicted form.
struct use_record {
    using clock = std::chrono::steady_clock;

    std::atomic<clock::rep> last{now()};
    std::atomic<clock::rep> asked{0};  ///< since when somebody waits for the packed form; 0: nobody does
    std::atomic<bool> failed{false};
    std::string failure;  ///< guarded by the registry's writers

    /// @return  whether nobody had asked before
    bool ask() noexcept {
        clock::rep nobody = 0;
        return asked.compare_exchange_strong(nobody, now());
    }
    void touch() noexcept { last.store(now(), std::memory_order_relaxed); }
    /// The time as a number that is never 0.
    static clock::rep now() noexcept { return clock::now().time_since_epoch().count() | 1; }
};

/// One name of a snapshot. The pointer to the version is the snapshot's only one: all further ones are
/// handles.
template <class Model>
struct registered {
    std::shared_ptr<const adapter_version<Model>> held;
    std::shared_ptr<use_record> use;

    bool packed() const noexcept { return held->model != nullptr; }
};

/// All adapters of a registry at one moment, by name. Readers see it whole, and never changed.
template <class Model>
struct registry_snapshot : retirable {
    using entry = std::shared_ptr<const registered<Model>>;

    std::vector<entry> entries;

    const registered<Model>* find(std::string_view name) const noexcept {
        const auto at = place(entries, name);
        return at != entries.end() && (*at)->held->name == name ? at->get() : nullptr;
    }

    /// @pre a new name: reserve() first where it must not throw
    static void put(std::vector<entry>& list, entry added) {
        const auto at = place(list, added->held->name);
        if (at != list.end() && (*at)->held->name == added->held->name) {
            *at = std::move(added);
        } else {
            list.insert(at, std::move(added));
        }
    }

    template <class List>
    static auto place(List& list, std::string_view name) noexcept {
        return std::lower_bound(list.begin(), list.end(), name,
                                [](const entry& e, std::string_view n) { return e->held->name < n; });
    }
};

}  // namespace tensafe::serving::detail
