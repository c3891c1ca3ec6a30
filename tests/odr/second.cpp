#include <tensafe/tensafe.hpp>

#include <all_headers.hpp>
#include <cstddef>

using wipe_function = void (*)(void*, std::size_t) noexcept;

wipe_function wipe_seen_by_second_unit();
const void* alignment_seen_by_second_unit();

wipe_function wipe_seen_by_second_unit() {
    return &tensafe::memory::wipe;
}
const void* alignment_seen_by_second_unit() {
    return &tensafe::memory::alignment;
}
