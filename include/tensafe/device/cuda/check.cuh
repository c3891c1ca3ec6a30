#pragma once

#include <tensafe/core/error.hpp>

#include <cuda_runtime_api.h>
#include <mutex>
#include <shared_mutex>
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

namespace detail {

/// Waiting for the whole GPU spoils what any thread is recording there, so the two keep out of each other's
/// way.
inline std::shared_mutex& recording_mutex() {
    static std::shared_mutex mutex;
    return mutex;
}
/// Whether the calling thread records: then waiting is an error, and is to stay one rather than hang.
inline bool& this_thread_records() noexcept {
    static thread_local bool records = false;
    return records;
}

/// While it lives no other thread records.
class no_recordings {
  public:
    no_recordings() {
        if (!this_thread_records()) {
            lock_ = std::unique_lock(recording_mutex());
        }
    }

  private:
    std::unique_lock<std::shared_mutex> lock_;
};

}  // namespace detail

}  // namespace tensafe::exec
