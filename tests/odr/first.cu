#include <tensafe/tensafe.cuh>
#include <tensafe/tensafe.hpp>

#include <cstdio>
#include <string>

using check_function = void (*)(cudaError_t, const char*);

// Defined in second.cu.
check_function check_seen_by_second_unit();
std::string launch_from_second_unit();

namespace {

std::string launch_here() {
    try {
        const tensafe::device::stream stream;
        stream.where().wait();
        return "";
    } catch (const tensafe::device_error& error) {
        return error.what();
    }
}

}  // namespace

int main() {
    if (check_seen_by_second_unit() != &tensafe::device::check_cuda) {
        std::puts("two translation units see different entities under one name");
        return 1;
    }
    const std::string here = launch_here();
    const std::string there = launch_from_second_unit();
    if (tensafe::device::device_count() > 0) {
        std::printf("a GPU is there: %s%s\n", here.c_str(), there.c_str());
        return here.empty() && there.empty() ? 0 : 1;
    }
    const bool says_so = here.starts_with("no CUDA device: ") && here == there;
    std::printf("%s: %s\n", says_so ? "as it should be" : "wrong message", here.c_str());
    return says_so ? 0 : 1;
}
