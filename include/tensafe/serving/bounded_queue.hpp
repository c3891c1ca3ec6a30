#pragma once

#include <tensafe/core/precondition.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace tensafe::serving {

/// First in, first out, with room for a fixed number of T that is allocated once. It never waits: whoever may
/// not find room asks `full` first. Not thread-safe; T has a default value, which a free place holds.
template <class T>
class bounded_queue {
  public:
    explicit bounded_queue(std::size_t capacity) : places_(capacity) {}

    std::size_t size() const noexcept { return size_; }
    std::size_t capacity() const noexcept { return places_.size(); }
    bool empty() const noexcept { return size_ == 0; }
    bool full() const noexcept { return size_ == places_.size(); }

    /// @pre !full()
    void push(T value) noexcept {
        TENSAFE_PRECONDITION(!full());
        places_[(first_ + size_) % places_.size()] = std::move(value);
        ++size_;
    }
    /// The oldest.  @pre !empty()
    T pop() noexcept {
        TENSAFE_PRECONDITION(!empty());
        T value = std::exchange(places_[first_], T{});
        first_ = (first_ + 1) % places_.size();
        --size_;
        return value;
    }

  private:
    std::vector<T> places_;
    std::size_t first_ = 0;
    std::size_t size_ = 0;
};

}  // namespace tensafe::serving
