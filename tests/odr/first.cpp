#include <tensafe/tensafe.hpp>

#include <all_headers.hpp>
#include <cstddef>
#include <cstdio>

using wipe_function = void (*)(void*, std::size_t) noexcept;

// Defined in second.cpp.
wipe_function wipe_seen_by_second_unit();
const void* alignment_seen_by_second_unit();

int main() {
    const wipe_function wipe = &tensafe::memory::wipe;
    if (wipe != wipe_seen_by_second_unit() ||
        &tensafe::memory::alignment != alignment_seen_by_second_unit()) {
        std::puts("two translation units see different entities under one name");
        return 1;
    }
    return 0;
}
