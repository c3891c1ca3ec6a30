#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include "test.hpp"

namespace tests {

/// A page between two that stop whoever touches them, even to read: spans are placed at its start or its end.
class guarded_pages {
  public:
    guarded_pages()
        : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
          start_(static_cast<std::uint8_t*>(
              mmap(nullptr, 3 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        REQUIRE(start_ != MAP_FAILED);
        REQUIRE(mprotect(start_ + page_, page_, PROT_READ | PROT_WRITE) == 0);
    }
    ~guarded_pages() { munmap(start_, 3 * page_); }
    guarded_pages(const guarded_pages&) = delete;
    guarded_pages& operator=(const guarded_pages&) = delete;

    template <class T>
    std::span<T> place(std::size_t count, bool at_end) const {
        REQUIRE(count * sizeof(T) <= page_);
        std::uint8_t* const at = start_ + page_ + (at_end ? page_ - count * sizeof(T) : 0);
        return {reinterpret_cast<T*>(at), count};
    }

  private:
    std::size_t page_;
    std::uint8_t* start_;
};

}  // namespace tests
