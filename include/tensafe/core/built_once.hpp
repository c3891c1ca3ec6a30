#pragma once

#include <atomic>

namespace tensafe {

/// A constant that is built when it is first asked for. Thread-safe: threads that ask at the same time each
/// build one, and all get the first that was finished. Lighter to compile than std::call_once.
template <class T>
class built_once {
  public:
    built_once() = default;
    built_once(const built_once&) noexcept {}  // a copy builds its own
    built_once& operator=(const built_once&) noexcept {
        delete built_.exchange(nullptr);
        return *this;
    }
    ~built_once() { delete built_.load(std::memory_order_relaxed); }

    /// The constant, which the first call builds by make() and which later calls return as it is.
    /// @throws what `make` throws; the next call tries again
    template <class Make>
    const T& get(Make make) const {
        const T* value = built_.load(std::memory_order_acquire);
        if (value == nullptr) {
            const T* const fresh = new T(make());
            if (built_.compare_exchange_strong(value, fresh, std::memory_order_acq_rel)) {
                return *fresh;
            }
            delete fresh;
        }
        return *value;
    }

  private:
    mutable std::atomic<const T*> built_ = nullptr;
};

}  // namespace tensafe
