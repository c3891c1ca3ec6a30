#pragma once

#include <tensafe/device/cuda/check.cuh>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/device.cuh>

#include <cuda_runtime_api.h>
#include <utility>

namespace tensafe::exec {

/// What an event is for. One that measures time costs a little more to record and to wait for.
enum class event_use { order, time };

/// A point in the work of a stream that others can wait for. Owns a CUDA event.
///
/// Move-only; a moved-from event may only be destroyed or assigned to. Before the first `record`, it counts
/// as passed.
class event {
  public:
    /// @throws device_error
    explicit event(event_use use = event_use::order) {
        require_device();
        check_cuda(cudaEventCreateWithFlags(
                       &event_, use == event_use::time ? cudaEventDefault : cudaEventDisableTiming),
                   "event");
    }
    event(event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    event& operator=(event&& other) noexcept {
        std::swap(event_, other.event_);
        return *this;
    }
    /// Work that it stands behind goes on.
    ~event() {
        if (event_ != nullptr) {
            static_cast<void>(cudaEventDestroy(event_));
        }
    }

    /// The event is what has been put into the stream so far.  @throws device_error
    void record(const cuda& where) { check_cuda(cudaEventRecord(event_, where.stream), "event: record"); }

    /// Whether all of that is done.  @throws device_error, also with errors of earlier kernels
    bool passed() const {
        const cudaError_t result = cudaEventQuery(event_);
        if (result == cudaErrorNotReady) {
            static_cast<void>(cudaGetLastError());  // an answer, not an error
            return false;
        }
        check_cuda(result, "event: passed");
        return true;
    }
    /// The calling thread waits for it.  @throws device_error
    void wait() const { check_cuda(cudaEventSynchronize(event_), "event: wait"); }

    cudaEvent_t get() const noexcept { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

/// What is put into the stream from now on starts when the event, as last recorded, has passed. The calling
/// thread does not wait.
/// @throws device_error
inline void wait_for(const cuda& where, const event& before) {
    check_cuda(cudaStreamWaitEvent(where.stream, before.get(), 0), "wait for an event");
}

/// Microseconds from one event to the other, both made with event_use::time, recorded outside of a graph, and
/// passed.
/// @throws device_error
inline double microseconds_between(const event& start, const event& end) {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start.get(), end.get()), "time between events");
    return 1e3 * static_cast<double>(milliseconds);
}

}  // namespace tensafe::exec
