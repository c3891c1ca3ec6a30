#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/serving/packer.hpp>
#include <tensafe/serving/retirement.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace tensafe::serving {

template <packed_model Model>
class registry;

/// What a registry can say of a name.
enum class availability {
    unknown,  ///< no adapter of this name is loaded
    /// No packed form, and nobody waits for it. Only registry::status reports it: find asks for the form, and
    /// says being_prepared.
    evicted,
    being_prepared,      ///< its packed form was evicted, and is asked for again
    cannot_be_prepared,  ///< packing it again failed: registry::wait_for tells why, and tries again
    ready,
};

inline const char* to_string(availability state) noexcept {
    switch (state) {
        case availability::unknown:
            return "unknown";
        case availability::evicted:
            return "evicted";
        case availability::being_prepared:
            return "being prepared";
        case availability::cannot_be_prepared:
            return "cannot be prepared";
        case availability::ready:
            break;
    }
    return "ready";
}

namespace detail {

/// One version of an adapter, with its packed form or, once that is evicted, without. Immutable.
template <class Model>
struct adapter_version : retirable {
    std::string name;
    std::uint64_t number = 0;
    std::shared_ptr<const lora::adapter> matrices;
    std::shared_ptr<const Model> model;  ///< null: evicted
    std::size_t bytes = 0;               ///< of the packed form, also when it is evicted
};

}  // namespace detail

/// Shared ownership of one version of an adapter, packed. As long as a handle lives, its version stays whole
/// in memory, whatever the registry loads, evicts or unloads: take one for each token or request, and keep
/// none longer. It may outlive the registry.
///
/// Copying costs one atomic count. Empty if there was nothing to hand out: state() says why. A handle itself
/// is for one thread at a time; what it refers to is immutable and thread-safe.
template <packed_model Model>
class adapter_handle {
  public:
    adapter_handle() = default;

    explicit operator bool() const noexcept { return held_ != nullptr; }
    availability state() const noexcept { return held_ ? availability::ready : state_; }

    /// Larger for what was published later; unique within the registry. 0 if empty.
    std::uint64_t version() const noexcept { return held_ ? held_->number : 0; }

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
    using version_type = detail::adapter_version<Model>;

    explicit adapter_handle(availability state) noexcept : state_(state) {}
    explicit adapter_handle(std::shared_ptr<const version_type> held) noexcept : held_(std::move(held)) {}

    const version_type& held() const {
        if (!held_) {
            throw parameter_error(std::string("adapter_handle: it is empty (") + to_string(state_) +
                                  "): look at state() first, or call registry::wait_for");
        }
        return *held_;
    }

    std::shared_ptr<const version_type> held_;
    availability state_ = availability::unknown;
};

}  // namespace tensafe::serving
