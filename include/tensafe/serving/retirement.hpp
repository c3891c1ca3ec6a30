#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace tensafe::serving::detail {

/// Base of what a registry shares with its readers.
struct retirable {
    retirable() = default;
    retirable(const retirable&) = delete;
    retirable& operator=(const retirable&) = delete;
    virtual ~retirable() = default;

    retirable* next = nullptr;  ///< in the retirement's list, so that handing over allocates nothing
};

/// Takes what its last owner dropped and destroys it on a thread of its own: to give back the memory of a
/// large packed adapter takes milliseconds, which a thread that serves tokens does not have. Thread-safe.
class retirement {
  public:
    retirement() : home_(std::make_shared<home>()), thread_([to = home_.get()] { to->destroy_dropped(); }) {}
    retirement(const retirement&) = delete;
    retirement& operator=(const retirement&) = delete;

    /// Everything dropped so far is destroyed; what is dropped later is destroyed where it is dropped.
    ~retirement() {
        {
            const std::lock_guard lock(home_->mutex);
            home_->closed = true;
        }
        home_->dropped.notify_one();
        thread_.join();
    }

    /// Shared ownership whose last owner hands the object over: a few pointer writes under a lock. The owners
    /// may outlive this.
    template <class T>
    std::shared_ptr<T> share(std::unique_ptr<T> object) const {
        return std::shared_ptr<T>(object.release(), [to = home_](T* dropped) noexcept { to->take(dropped); });
    }

  private:
    struct home {
        std::mutex mutex;
        std::condition_variable dropped;
        retirable* first = nullptr;
        bool closed = false;

        void take(retirable* item) noexcept {
            {
                const std::lock_guard lock(mutex);
                if (!closed) {
                    item->next = std::exchange(first, item);
                    item = nullptr;
                }
            }
            delete item;
            dropped.notify_one();
        }

        void destroy_dropped() {
            std::unique_lock lock(mutex);
            for (;;) {
                dropped.wait(lock, [&] { return first != nullptr || closed; });
                if (first == nullptr) {
                    return;
                }
                retirable* item = std::exchange(first, nullptr);
                lock.unlock();
                while (item != nullptr) {
                    delete std::exchange(item, item->next);
                }
                lock.lock();
            }
        }
    };

    std::shared_ptr<home> home_;
    std::thread thread_;
};

}  // namespace tensafe::serving::detail
