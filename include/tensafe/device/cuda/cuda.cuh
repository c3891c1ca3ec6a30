#pragma once

#include <tensafe/device/cuda/check.cuh>
#include <tensafe/device/exec/context.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <span>
#include <type_traits>

namespace tensafe::memory {
struct pinned_space;
}

namespace tensafe::exec {

/// The context of one block on a GPU: each CUDA thread is one thread of the algorithm.
template <class Kernel>
class cuda_block {
  public:
    using shared_type = typename Kernel::shared_type;

    __device__ block_index block() const { return {blockIdx.x, blockIdx.y, blockIdx.z}; }

    __device__ shared_type& shared() const {
        extern __shared__ __align__(128) unsigned char tensafe_shared_memory[];
        return *reinterpret_cast<shared_type*>(tensafe_shared_memory);
    }

    template <class Phase>
    __device__ void each(Phase&& phase) const {
        phase(static_cast<int>(threadIdx.x));
        __syncthreads();
    }
    template <class Phase>
    __device__ void last(Phase&& phase) const {
        phase(static_cast<int>(threadIdx.x));
    }

    /// Registers: the one value of this thread.
    template <class T>
    class privates {
      public:
        __device__ T& operator[](int) { return value_; }

      private:
        T value_;
    };
    template <class T>
    __device__ privates<T> make_private() const {
        return {};
    }

    __device__ void atomic_or(std::uint32_t* to, std::uint32_t value) const { atomicOr(to, value); }
    __device__ void atomic_add(std::uint64_t* to, std::uint64_t value) const {
        atomicAdd(reinterpret_cast<unsigned long long*>(to), value);
    }
};

namespace detail {

/// How many blocks of it a multiprocessor should hold at least: the compiler then limits the registers. No
/// wish (0) unless the kernel has a member `blocks_per_sm`.
template <class Kernel>
constexpr int blocks_per_sm() noexcept {
    if constexpr (requires { Kernel::blocks_per_sm; }) {
        static_assert(Kernel::blocks_per_sm >= 1 && Kernel::blocks_per_sm * Kernel::threads <= 2048,
                      "block kernel: a multiprocessor holds at most 2048 threads");
        return Kernel::blocks_per_sm;
    } else {
        return 0;
    }
}

/// The one __global__ function: any block kernel.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, blocks_per_sm<Kernel>())
    run_blocks(const __grid_constant__ Kernel kernel) {
    cuda_block<Kernel> context;
    kernel(context);
}

template <class Kernel>
inline constexpr std::size_t shared_bytes = std::is_empty_v<typename Kernel::shared_type>
                                                ? 0
                                                : sizeof(typename Kernel::shared_type);

/// For what must be done once although a stream of this thread may be recording a graph, which forbids calls
/// that could wait for the device.
class capture_allows_everything {
  public:
    capture_allows_everything() { check_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "capture mode"); }
    ~capture_allows_everything() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
    capture_allows_everything(const capture_allows_everything&) = delete;
    capture_allows_everything& operator=(const capture_allows_everything&) = delete;

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Loads a kernel and lets it have its shared memory: once for each kernel and GPU. Threads that come first
/// at the same time all do it, to the same effect.
template <class Kernel>
void prepare_kernel() {
    static std::atomic<std::uint64_t> prepared{0};  // one bit for each GPU
    int device = 0;
    check_cuda(cudaGetDevice(&device), "block kernel: current device");
    const std::uint64_t bit = device < 64 ? std::uint64_t{1} << device : 0;  // beyond 64: every time
    if ((prepared.load(std::memory_order_acquire) & bit) != 0) {
        return;
    }
    const capture_allows_everything allowed;
    cudaFuncAttributes attributes;  // asking for them loads the kernel
    check_cuda(cudaFuncGetAttributes(&attributes, run_blocks<Kernel>), "block kernel: load");
    constexpr std::size_t shared = shared_bytes<Kernel>;
    if constexpr (shared > 48 * 1024) {
        check_cuda(cudaFuncSetAttribute(run_blocks<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(shared)),
                   "block kernel: shared memory");
    }
    prepared.fetch_or(bit, std::memory_order_release);
}

}  // namespace detail

/// Runs block kernels on the current GPU, in the order of one stream. A plain value that does not own the
/// stream: exec::stream does. Calls are checked; errors of kernels themselves show at a later call, at `wait`
/// at the latest.
///
/// Uploads and downloads return at once only if the host's memory is pinned (memory::pinned_space), which
/// must stay untouched until `wait`.
///
/// Thread safety: calls from several threads are safe; with one stream their order is then up to chance, and
/// `launches` must not be shared.
struct cuda {
    using space = memory::device_space;
    using staging_space = memory::pinned_space;  ///< host memory that uploads come from

    cudaStream_t stream = nullptr;    ///< null: the default stream, which waits for all ordinary streams
    std::size_t* launches = nullptr;  ///< counts kernel launches and graph launches, if given

    /// Nothing runs for a grid without blocks.  @throws device_error
    template <block_kernel Kernel>
    void launch(const Kernel& kernel, grid_shape grid) const {
        constexpr std::size_t shared = detail::shared_bytes<Kernel>;
        static_assert(shared <= 227 * 1024, "block kernel: a block has at most 227 KiB of shared memory");
        static_assert(Kernel::threads > 0 && Kernel::threads % 32 == 0 && Kernel::threads <= 1024,
                      "block kernel: a block has whole warps, and at most 1024 threads");
        if (launches != nullptr) {
            ++*launches;
        }
        if (grid.x == 0 || grid.y == 0 || grid.z == 0) {
            return;
        }
        detail::prepare_kernel<Kernel>();
        detail::run_blocks<Kernel><<<dim3(grid.x, grid.y, grid.z), Kernel::threads, shared, stream>>>(kernel);
        check_cuda(cudaGetLastError(), "block kernel: launch");
    }

    template <class T, std::size_t Extent>
    void upload(std::span<const T, Extent> from, T* to) const {
        check_cuda(cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream),
                   "upload");
    }
    template <class T, std::size_t Extent>
    void download(const T* from, std::span<T, Extent> to) const {
        check_cuda(cudaMemcpyAsync(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToHost, stream),
                   "download");
    }
    /// From one place of the space to another.
    template <class T>
    void copy(const T* from, T* to, std::size_t count) const {
        check_cuda(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToDevice, stream), "copy");
    }
    template <class T>
    void fill_zero(T* to, std::size_t count) const {
        check_cuda(cudaMemsetAsync(to, 0, count * sizeof(T), stream), "fill_zero");
    }
    /// Returns when everything in the stream is done.
    void wait() const { check_cuda(cudaStreamSynchronize(stream), "wait"); }
};

}  // namespace tensafe::exec
