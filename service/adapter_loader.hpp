#pragma once

#include <tensafe/lora/adapter/adapter.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "log.hpp"
#include "model_store.hpp"

namespace split {

/// An adapter that is not served yet, or could not be.
struct adapter_load {
    enum class stage { waiting, begun, packed, failed };

    std::string name;
    std::function<tensafe::lora::adapter()> from;
    bool at_start = false;
    bool is_wanted = false;  ///< by a client
    bool is_named = false;   ///< or is not of the start: what its A counts under is settled
    stage at = stage::waiting;
    std::uint64_t version = 0;  ///< 0: as they came, after a restart the same ones again
    bool is_held = false;       ///< when it is packed, it waits for `serve`
    std::shared_ptr<const served_model> packed = {};
    std::size_t done = 0;  ///< inputs that are packed
    std::size_t total = 0;
    std::string failure = {};
};

const char* to_string(adapter_load::stage at) noexcept;

/// Loads and packs adapters beside the service, several at once; those that clients ask for are first, then
/// those that came first. Those of the start are all read before one is packed, in order: what A counts under
/// must not depend on who asks first. Thread-safe.
class adapter_loader {
  public:
    /// @param to  outlives this
    adapter_loader(model_store& to, log to_log, std::size_t threads);
    /// Waits for no adapter: what is being packed is given up.
    ~adapter_loader();
    adapter_loader(const adapter_loader&) = delete;
    adapter_loader& operator=(const adapter_loader&) = delete;

    enum class outcome { done, waiting, begun, full, unknown };

    /// Loads an adapter when its turn comes.
    /// @param what  name, source, called on a thread of this, and whether the server starts with it
    /// @param most_waiting  if as many wait, it is refused
    /// @return done; waiting or begun: it is already, or this version is held; full
    outcome begin(adapter_load what, std::size_t most_waiting = std::numeric_limits<std::size_t>::max());
    /// Serves a version that is held.  Whether it was packed
    bool serve(std::string_view name, std::uint64_t version);
    /// Removes an adapter from the store, or from those that wait, are held or failed.
    /// @return done, begun or unknown
    outcome remove(const std::string& name);

    /// A client wants this adapter. How long to wait before asking again, unless it failed or is unknown.
    std::optional<std::chrono::milliseconds> want(std::string_view name);

    /// What waits, is being packed, is held or failed, in the order in which it came.
    std::vector<adapter_load> loads() const;
    struct progress {
        std::size_t done = 0;
        std::size_t all = 0;
        std::string failure = {};  ///< of the first one that failed
    };
    /// Of the adapters that the server starts with.
    progress at_start() const;
    /// Waits until nothing waits or is being packed.
    void wait();

  private:
    using place = std::list<adapter_load>::iterator;

    place find(std::string_view name);
    place next();
    place first_without_name();
    void name(std::unique_lock<std::mutex>& lock, place which);
    void work(const std::stop_token& stop);
    void load(const std::stop_token& stop, std::unique_lock<std::mutex>& lock, place which);
    void serve(place which);
    void fail(adapter_load& which, std::string failure);

    model_store& to_;
    const log log_;
    mutable std::mutex mutex_;
    std::condition_variable_any changed_;
    std::list<adapter_load> loads_;
    std::size_t all_at_start_ = 0;
    bool is_naming_ = false;
    std::vector<std::jthread> threads_;
};

}  // namespace split
