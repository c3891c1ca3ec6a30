#pragma once

#include <tensafe/core/error.hpp>

#include <cuda_runtime_api.h>
#include <string>

namespace tensafe::exec {

/// @throws device_error, with the name and the text of the error, unless the call succeeded
inline void check_cuda(cudaError_t result, const char* what) {
    if (result != cudaSuccess) {
        static_cast<void>(cudaGetLastError());  // so that the next check does not report it again
        throw device_error(std::string(what) + ": " + cudaGetErrorName(result) + ": " +
                           cudaGetErrorString(result));
    }
}

}  // namespace tensafe::exec
