#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "../service.hpp"

namespace split {

/// An adapter on the list of several servers.
struct listed_adapter {
    std::string name;
    std::uint64_t version = 0;  ///< of the list, the same on all servers; larger than all before
    std::string directory;      ///< below the adapter root of each server
    bool is_due = false;  ///< to be served: one has packed it, and all others that run tried or had time to
};

/// A version that a server need not be waited for any more.
struct tried_version {
    std::string name;
    std::uint64_t version = 0;
    bool is_packed = false;  ///< or it failed here
};

/// The list of adapters that several servers serve, in the store that they share. Thread-safe. All of it
/// throws what says why the store cannot be asked.
class adapter_list {
  public:
    virtual ~adapter_list() = default;

    /// Puts an adapter on the list, or its next version.
    virtual void put(const std::string& name, const std::string& directory) = 0;
    /// Whether it was on the list.
    virtual bool remove(const std::string& name) = 0;
    /// @param tried  by this server, of what is not served as it is not due
    /// @return the list, in the order of versions; of a name perhaps what was due last, and right behind it
    ///         what is not due yet
    virtual std::vector<listed_adapter> look(const std::vector<tried_version>& tried) = 0;
};

/// Has a service serve what is on the list, by a look at it every second: what is new is packed in the
/// background, and served when it is due, so that all servers change at once. Until then, and while the list
/// cannot be read, what was served is.
class listed_adapters {
  public:
    /// @param of, list  outlive this
    /// @param from      what the adapters on the list are read from; never null
    /// @param period    of looks; 0: only when `look` is called
    listed_adapters(service& of, adapter_list& list, std::shared_ptr<const adapter_source> from,
                    std::chrono::milliseconds period = std::chrono::seconds(1));
    ~listed_adapters() { of_.use_list(nullptr); }
    listed_adapters(const listed_adapters&) = delete;
    listed_adapters& operator=(const listed_adapters&) = delete;

    /// Puts an adapter on the list, and begins to pack it.
    /// @throws as adapter_source::check and adapter_list
    void put(const std::string& name, const std::string& directory);
    /// Whether it was on the list.  @throws as adapter_list
    bool remove(const std::string& name);
    /// Reads the list, and does what it says.  @throws as adapter_list
    void look();
    /// What this server lacks of what should be served, for people: nobody should be sent to it. Empty:
    /// nothing.
    std::string missing() const;

  private:
    struct begun_load {
        std::uint64_t version;
        time_point at;
    };
    void begin(const listed_adapter& what, bool has_next);
    void follow(const std::stop_token& stop, std::chrono::milliseconds period);

    service& of_;
    adapter_list& list_;
    const std::shared_ptr<const adapter_source> from_;
    std::mutex looking_;  // before the other; of begun_
    std::map<std::string, begun_load> begun_;
    mutable std::mutex mutex_;  // of the list as last read
    std::optional<std::vector<listed_adapter>> listed_;
    std::jthread thread_;
};

}  // namespace split
