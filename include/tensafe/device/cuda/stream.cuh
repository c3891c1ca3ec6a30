#pragma once

#include <tensafe/device/cuda/check.cuh>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/device.cuh>

#include <cstddef>
#include <cuda_runtime_api.h>
#include <utility>

namespace tensafe::exec {

/// An order of work on the GPU that was current when it was made. Owns a CUDA stream, one that does not wait
/// for the default stream. Streams run beside each other; exec::event orders them.
///
/// Move-only; a moved-from stream may only be destroyed or assigned to.
class stream {
  public:
    /// @throws device_error: "no CUDA device: ..." where there is none
    stream() {
        require_device();
        check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    }
    stream(stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
    stream& operator=(stream&& other) noexcept {
        std::swap(stream_, other.stream_);
        return *this;
    }
    /// Does not wait: work that is in it goes on to its end. Memory that it uses must live until then.
    ~stream() {
        if (stream_ != nullptr) {
            static_cast<void>(cudaStreamDestroy(stream_));
        }
    }

    /// Where to run, for every operation that takes one; valid as long as the stream.
    cuda where(std::size_t* launches = nullptr) const noexcept { return {stream_, launches}; }

  private:
    cudaStream_t stream_ = nullptr;
};

}  // namespace tensafe::exec
