#pragma once

#include <tensafe/device/cuda/cuda.cuh>

#include <algorithm>
#include <cstddef>
#include <cuda_runtime_api.h>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace tensafe::device {

namespace detail {

/// A handle of the CUDA runtime that is given back when its owner goes. Move-only.
template <class Handle, cudaError_t (*Destroy)(Handle)>
struct owned {
    Handle handle = nullptr;

    explicit owned(Handle h = nullptr) noexcept : handle(h) {}
    owned(owned&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    owned& operator=(owned&& other) noexcept {
        std::swap(handle, other.handle);
        return *this;
    }
    ~owned() {
        if (handle != nullptr) {
            static_cast<void>(Destroy(handle));
        }
    }
};

}  // namespace detail

/// An order of work on the GPU that was current when it was made. Owns a CUDA stream, one that does not wait
/// for the default stream. Streams run beside each other; device::event orders them. Move-only; a moved-from
/// stream may only be destroyed or assigned to. Work that is in it when it goes runs to its end.
class stream {
  public:
    /// Makes a stream of the current GPU.  @throws device_error: "no CUDA device: ..." where there is none
    stream() {
        require_device();
        check_cuda(cudaStreamCreateWithFlags(&stream_.handle, cudaStreamNonBlocking), "stream");
    }

    /// The place to run for every operation that takes one; valid as long as the stream.
    cuda where(std::size_t* launches = nullptr) const noexcept { return {stream_.handle, launches}; }

  private:
    detail::owned<cudaStream_t, cudaStreamDestroy> stream_;
};

/// The use of an event. One that measures time costs a little more to record and to wait for.
enum class event_use { order, time };

/// A point in the work of a stream that others can wait for. Owns a CUDA event.
///
/// Move-only; a moved-from event may only be destroyed or assigned to. Counts as passed before `record`.
class event {
  public:
    /// Makes an event.  @throws device_error
    explicit event(event_use use = event_use::order) {
        require_device();
        check_cuda(cudaEventCreateWithFlags(
                       &event_.handle, use == event_use::time ? cudaEventDefault : cudaEventDisableTiming),
                   "event");
    }

    /// Records what has been put into the stream so far.  @throws device_error
    void record(const cuda& where) {
        check_cuda(cudaEventRecord(event_.handle, where.stream), "event: record");
    }

    /// Whether all that was recorded is done.  @throws device_error, also with errors of earlier kernels
    bool passed() const {
        const cudaError_t result = cudaEventQuery(event_.handle);
        if (result == cudaErrorNotReady) {
            static_cast<void>(cudaGetLastError());  // an answer, not an error
            return false;
        }
        check_cuda(result, "event: passed");
        return true;
    }
    /// Makes the calling thread wait until all that was recorded is done.  @throws device_error
    void wait() const { check_cuda(cudaEventSynchronize(event_.handle), "event: wait"); }

    cudaEvent_t get() const noexcept { return event_.handle; }

  private:
    detail::owned<cudaEvent_t, cudaEventDestroy> event_;
};

/// Makes what is put into the stream from now on wait until the event, as last recorded, has passed.
/// @throws device_error
inline void wait_for(const cuda& where, const event& before) {
    check_cuda(cudaStreamWaitEvent(where.stream, before.get(), 0), "wait for an event");
}

/// The microseconds between two events of event_use::time, recorded outside of a graph, and passed.
/// @throws device_error
inline double microseconds_between(const event& start, const event& end) {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start.get(), end.get()), "time between events");
    return 1e3 * static_cast<double>(milliseconds);
}

/// A recorded sequence of launches and copies that runs again with a single call. Owns an instantiated CUDA
/// graph; `capture` makes one. It holds the arguments as they were, pointers included: that memory must be
/// in the same place whenever it runs, and the host's must be pinned.
///
/// Move-only; a moved-from graph may only be destroyed or assigned to, and none while it runs. Not
/// thread-safe.
class graph {
  public:
    /// Runs the graph once, in the order of any stream. Counts as one launch.
    /// @throws device_error
    void launch(const cuda& where) const {
        if (where.launches != nullptr) {
            ++*where.launches;
        }
        check_cuda(cudaGraphLaunch(graph_.handle, where.stream), "graph: launch");
    }

    /// The number of kernel launches that were recorded.
    std::size_t kernels() const noexcept { return kernels_; }

    template <class F>
    friend graph capture(const cuda& where, F&& f);

  private:
    graph(cudaGraphExec_t graph, std::size_t kernels) noexcept : graph_{graph}, kernels_(kernels) {}

    detail::owned<cudaGraphExec_t, cudaGraphExecDestroy> graph_;
    std::size_t kernels_ = 0;
};

namespace detail {

/// A stream that records instead of running. Ended in any case: a stream left in this state is of no use.
class recording {
  public:
    explicit recording(cudaStream_t stream) : lock_(recording_mutex()), stream_(stream) {
        // Of this thread alone: others may allocate meanwhile. Here, a call that waits for the device is an
        // error, which is what we want: it would happen now, not when the graph runs.
        check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "graph: capture");
        under_way_ = true;
        this_thread_records() = true;
    }
    recording(const recording&) = delete;
    recording& operator=(const recording&) = delete;
    ~recording() {
        if (under_way_) {
            this_thread_records() = false;
            static_cast<void>(cudaStreamEndCapture(stream_, &recorded_));
        }
        if (recorded_ != nullptr) {
            static_cast<void>(cudaGraphDestroy(recorded_));
        }
        if (under_way_) {
            static_cast<void>(cudaGetLastError());  // what was thrown says more
        }
    }

    void end() {
        this_thread_records() = false;
        under_way_ = false;  // also if the call fails: then the recording is over and nothing is recorded
        check_cuda(cudaStreamEndCapture(stream_, &recorded_), "graph: end of capture");
    }
    cudaGraphExec_t instantiate() const {
        cudaGraphExec_t result = nullptr;
        check_cuda(cudaGraphInstantiate(&result, recorded_, 0), "graph: instantiate");
        return result;
    }

  private:
    std::shared_lock<std::shared_mutex> lock_;
    cudaStream_t stream_;
    cudaGraph_t recorded_ = nullptr;
    bool under_way_ = false;
};

}  // namespace detail

/// Records what f(where) puts into the stream; nothing of it runs. f must not allocate, release or wait, and
/// work that it puts into other streams must be tied to this one by events, both ways. If f throws, nothing
/// is recorded and the stream can be used again.
/// @throws parameter_error for the default stream, which cannot be recorded
/// @throws device_error
template <class F>
graph capture(const cuda& where, F&& f) {
    require<parameter_error>(
        where.stream != nullptr,
        {"device::capture: the default stream cannot be recorded; make a device::stream"});
    std::size_t kernels = 0;
    detail::recording recorded(where.stream);
    std::forward<F>(f)(cuda{where.stream, &kernels});
    recorded.end();
    graph result(recorded.instantiate(), kernels);
    // So that the first run does not pay for it.
    check_cuda(cudaGraphUpload(result.graph_.handle, where.stream), "graph: upload");
    return result;
}

/// Graphs of the same work in several shapes, each recorded when its shape first comes up. The key says
/// everything that a recording depends on: sizes, and addresses unless they never change. Not thread-safe.
/// The graphs must not run any more when it is destroyed.
template <class Key>
class graph_cache {
  public:
    /// Makes an empty cache.
    /// @param capacity  shapes that are kept
    /// @throws parameter_error unless there is room for one
    explicit graph_cache(std::size_t capacity = 4) : capacity_(capacity) {
        require<parameter_error>(capacity != 0, {"device::graph_cache: got capacity 0, expected 1 or more"});
    }
    graph_cache(graph_cache&&) noexcept = default;
    graph_cache& operator=(graph_cache&&) noexcept = default;

    /// Runs what f(where) puts into the stream: recorded if `key` is new, from its recording otherwise. If f
    /// throws, nothing runs and the recordings are what they were.
    /// @throws what `capture` throws
    template <class F>
    void run(const cuda& where, const Key& key, F&& f) {
        auto found =
            std::find_if(entries_.begin(), entries_.end(), [&](const entry& e) { return e.key == key; });
        if (found == entries_.end()) {
            graph made = capture(where, std::forward<F>(f));
            if (entries_.size() == capacity_) {
                where.wait();  // it may still run, if this is its stream
                entries_.pop_back();
            }
            entries_.push_back(entry{key, std::move(made)});
            found = entries_.end() - 1;
            ++recordings_;
        }
        std::rotate(entries_.begin(), found, found + 1);  // the one used last stands first
        entries_.front().recorded.launch(where);
    }

    std::size_t size() const noexcept { return entries_.size(); }
    /// The number of recordings made.
    std::size_t recordings() const noexcept { return recordings_; }

  private:
    struct entry {
        Key key;
        graph recorded;
    };

    std::vector<entry> entries_;
    std::size_t capacity_;
    std::size_t recordings_ = 0;
};

/// Asks the GPU to keep a range of its memory in the L2 cache while this object lives, for kernels of one
/// stream: tables and weights that every launch reads. Changes no result, and nothing without such memory.
///
/// The part set apart belongs to the whole GPU, and its size is put back at the end: windows on one GPU must
/// end in the reverse order of their making, as they do in scopes.
class l2_window {
  public:
    /// Opens the window, or does nothing where the GPU refuses.
    /// @param wanted  false: does nothing, for comparisons
    /// @throws device_error if the GPU cannot be asked
    l2_window(const cuda& where, const void* data, std::size_t bytes, bool wanted = true)
        : stream_(where.stream) {
        const int device = current_device();
        const auto most = static_cast<std::size_t>(
            std::max(device_attribute(cudaDevAttrMaxAccessPolicyWindowSize, device), 0));
        const auto most_kept = static_cast<std::size_t>(
            std::max(device_attribute(cudaDevAttrMaxPersistingL2CacheSize, device), 0));
        const std::size_t covered = std::min(bytes, most);
        const std::size_t kept = std::min(covered, most_kept);
        if (!wanted || kept == 0) {
            return;
        }
        if (!answered(cudaDeviceGetLimit(&limit_before_, cudaLimitPersistingL2CacheSize)) ||
            !answered(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, std::max(kept, limit_before_)))) {
            return;  // partitioned and shared GPUs refuse
        }
        cudaStreamAttrValue value{};
        value.accessPolicyWindow.base_ptr = const_cast<void*>(data);
        value.accessPolicyWindow.num_bytes = covered;
        // Of a range that is larger than what is set apart, a share: all of it would push itself out.
        value.accessPolicyWindow.hitRatio =
            static_cast<float>(static_cast<double>(kept) / static_cast<double>(covered));
        value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
        value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
        active_ = answered(cudaStreamSetAttribute(stream_, cudaStreamAttributeAccessPolicyWindow, &value));
        if (!active_) {
            static_cast<void>(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, limit_before_));
        }
    }
    l2_window(const l2_window&) = delete;
    l2_window& operator=(const l2_window&) = delete;
    /// Ends the window without waiting: what is in the stream goes on, perhaps with slower memory.
    ~l2_window() {
        if (!active_) {
            return;
        }
        cudaStreamAttrValue none{};
        none.accessPolicyWindow.num_bytes = 0;
        none.accessPolicyWindow.hitProp = cudaAccessPropertyNormal;
        none.accessPolicyWindow.missProp = cudaAccessPropertyNormal;
        static_cast<void>(
            answered(cudaStreamSetAttribute(stream_, cudaStreamAttributeAccessPolicyWindow, &none)));
        static_cast<void>(answered(cudaCtxResetPersistingL2Cache()));
        static_cast<void>(answered(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, limit_before_)));
    }

    /// Whether the GPU keeps the range.
    bool active() const noexcept { return active_; }

  private:
    static bool answered(cudaError_t result) noexcept {
        if (result != cudaSuccess) {
            static_cast<void>(cudaGetLastError());
        }
        return result == cudaSuccess;
    }

    cudaStream_t stream_ = nullptr;
    std::size_t limit_before_ = 0;
    bool active_ = false;
};

}  // namespace tensafe::device
