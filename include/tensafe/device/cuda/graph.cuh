#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/device/cuda/check.cuh>
#include <tensafe/device/cuda/cuda.cuh>

#include <algorithm>
#include <cstddef>
#include <cuda_runtime_api.h>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace tensafe::exec {

/// A recorded sequence of launches and copies that runs again with a single call: what several small kernels
/// cost beyond their own time is paid once. Owns an instantiated CUDA graph; `capture` makes one.
///
/// It holds the arguments as they were when it was recorded, pointers included: that memory must be there,
/// and in the same place, whenever it runs. Copies read and write the host's memory when they run, so it must
/// be pinned.
///
/// Move-only; a moved-from graph may only be destroyed or assigned to. Must not be destroyed while it runs.
/// Not thread-safe: runs of one graph are ordered one behind the other.
class graph {
  public:
    graph(graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)), kernels_(other.kernels_) {}
    graph& operator=(graph&& other) noexcept {
        std::swap(graph_, other.graph_);
        std::swap(kernels_, other.kernels_);
        return *this;
    }
    ~graph() {
        if (graph_ != nullptr) {
            static_cast<void>(cudaGraphExecDestroy(graph_));
        }
    }

    /// Runs it once, in the order of the stream, which need not be the one that it was recorded from. Counts
    /// as one launch.
    /// @throws device_error
    void launch(const cuda& where) const {
        if (where.launches != nullptr) {
            ++*where.launches;
        }
        check_cuda(cudaGraphLaunch(graph_, where.stream), "graph: launch");
    }

    /// Kernel launches that were recorded.
    std::size_t kernels() const noexcept { return kernels_; }

    template <class F>
    friend graph capture(const cuda& where, F&& f);

  private:
    graph(cudaGraphExec_t graph, std::size_t kernels) noexcept : graph_(graph), kernels_(kernels) {}

    cudaGraphExec_t graph_ = nullptr;
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
/// work that it puts into other streams must be tied to this one by events, both ways.
///
/// If f throws, the recording is ended and thrown away, the stream can be used again, and the exception goes
/// on to the caller.
/// @throws parameter_error for the default stream, which cannot be recorded
/// @throws device_error
template <class F>
graph capture(const cuda& where, F&& f) {
    if (where.stream == nullptr) {
        throw parameter_error("exec::capture: the default stream cannot be recorded; make an exec::stream");
    }
    std::size_t kernels = 0;
    detail::recording recorded(where.stream);
    std::forward<F>(f)(cuda{where.stream, &kernels});
    recorded.end();
    graph result(recorded.instantiate(), kernels);
    // So that the first run does not pay for it.
    check_cuda(cudaGraphUpload(result.graph_, where.stream), "graph: upload");
    return result;
}

/// Graphs of the same work in several shapes. Each is recorded when its shape first comes up, and kept until
/// others push it out.
///
/// The key says everything that a recording depends on: sizes, and addresses unless they never change. Equal
/// keys must mean equal recordings. Not thread-safe. The graphs must not run any more when it is destroyed.
template <class Key>
class graph_cache {
  public:
    /// @param capacity  shapes that are kept
    /// @throws parameter_error unless there is room for one
    explicit graph_cache(std::size_t capacity = 4) : capacity_(capacity) {
        if (capacity == 0) {
            throw parameter_error("exec::graph_cache: got capacity 0, expected 1 or more");
        }
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
    /// How often something was recorded.
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

}  // namespace tensafe::exec
