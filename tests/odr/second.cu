#include <tensafe/tensafe.cuh>
#include <tensafe/tensafe.hpp>

#include <string>

using check_function = void (*)(cudaError_t, const char*);

check_function check_seen_by_second_unit();
std::string launch_from_second_unit();

check_function check_seen_by_second_unit() {
    return &tensafe::device::check_cuda;
}

std::string launch_from_second_unit() {
    try {
        const tensafe::device::event event;
        event.wait();
        return "";
    } catch (const tensafe::device_error& error) {
        return error.what();
    }
}
