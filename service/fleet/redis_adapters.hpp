#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "listed_adapters.hpp"
#include "redis_counts.hpp"

namespace split {

/// The list of adapters in Redis, over the connection of the counts. Each change of a name is a version, also
/// that it was removed; the larger one of two is the later one, so that a server tells a store that lost some
/// what it heard before. A version is due when one server has packed it, and all whose lease holds have tried
/// to, or after `deadline`.
class redis_adapters final : public adapter_list {
  public:
    static constexpr std::chrono::milliseconds deadline = std::chrono::minutes(2);

    /// @param store  that a service uses for its counts before this is asked
    explicit redis_adapters(std::shared_ptr<redis_counts> store, std::chrono::milliseconds time = deadline)
        : store_(std::move(store)), time_(time) {}

    void put(const std::string& name, const std::string& directory) override;
    bool remove(const std::string& name) override;
    std::vector<listed_adapter> look(const std::vector<tried_version>& tried) override;

  private:
    struct change {
        listed_adapter is;
        bool is_gone;
        std::string text;       ///< in the store
        listed_adapter before;  ///< that is served until this is due; version 0: none
    };
    std::vector<change> run(std::string_view own, const std::vector<std::string>& values);
    void hear(const std::vector<std::string>& tried);

    const std::shared_ptr<redis_counts> store_;
    const std::chrono::milliseconds time_;
    std::mutex mutex_;
    std::vector<change> last_;  ///< by version
};

}  // namespace split
