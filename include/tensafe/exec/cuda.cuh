#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/exec/block_context.hpp>

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <span>
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

/// The one __global__ function: any block kernel.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads) run_blocks(const __grid_constant__ Kernel kernel) {
    cuda_block<Kernel> context;
    kernel(context);
}

template <class Kernel>
inline constexpr std::size_t shared_bytes = std::is_empty_v<typename Kernel::shared_type>
                                                ? 0
                                                : sizeof(typename Kernel::shared_type);

}  // namespace detail

/// Runs block kernels on the current GPU, in the order of one stream. A plain value that does not own the
/// stream. Calls are checked; errors of kernels themselves show at a later call, at `wait` at the latest.
///
/// Uploads and downloads return at once only if the host's memory is pinned (memory::pinned_space), which
/// must stay untouched until `wait`.
struct cuda {
    using space = memory::device_space;

    cudaStream_t stream = nullptr;
    std::size_t* launches = nullptr;  ///< counts kernel launches, if given

    /// @throws device_error
    template <block_kernel Kernel>
    void launch(const Kernel& kernel, grid_shape grid) const {
        constexpr std::size_t shared = detail::shared_bytes<Kernel>;
        static_assert(shared <= 227 * 1024, "block kernel: a block has at most 227 KiB of shared memory");
        static_assert(Kernel::threads % 32 == 0 && Kernel::threads <= 1024,
                      "block kernel: a block has whole warps, and at most 1024 threads");
        if constexpr (shared > 48 * 1024) {
            check_cuda(
                cudaFuncSetAttribute(detail::run_blocks<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared)),
                "block kernel: shared memory");
        }
        if (launches != nullptr) {
            ++*launches;
        }
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
