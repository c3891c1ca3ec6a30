#pragma once

#include <tensafe/device/cuda/check.cuh>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/memory/buffer.hpp>

#include <cstddef>
#include <cuda_runtime_api.h>

namespace tensafe::memory {

/// Memory of the current GPU, 256-byte aligned. Getting and giving back waits for the device: buffers are
/// made once and kept. They are released, wiped and copied while the GPU that they were made on is current.
struct device_space {
    static constexpr bool host_accessible = false;

    /// @throws device_error
    static void* allocate(std::size_t bytes) {
        void* data = nullptr;
        exec::check_cuda(cudaMalloc(&data, bytes), "device memory");
        return data;
    }
    // Each of the following waits before and after: streams of ours do not wait for the default stream, where
    // these run.
    // Nothing can be done about errors here: the process may be past the end of the CUDA runtime.
    static void release(void* data) noexcept { static_cast<void>(cudaFree(data)); }
    static void wipe(void* data, std::size_t bytes) noexcept {
        const exec::detail::no_recordings lock;
        static_cast<void>(cudaDeviceSynchronize());
        static_cast<void>(cudaMemset(data, 0, bytes));
        static_cast<void>(cudaDeviceSynchronize());
    }
    /// @throws device_error
    static void fill_zero(void* data, std::size_t bytes) {
        const exec::detail::no_recordings lock;
        exec::check_cuda(cudaDeviceSynchronize(), "device memory");
        exec::check_cuda(cudaMemset(data, 0, bytes), "device memory");
        exec::check_cuda(cudaDeviceSynchronize(), "device memory");
    }
    /// @throws device_error
    static void copy(void* to, const void* from, std::size_t bytes) {
        const exec::detail::no_recordings lock;
        exec::check_cuda(cudaDeviceSynchronize(), "device memory");
        exec::check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice), "device memory");
        exec::check_cuda(cudaDeviceSynchronize(), "device memory");
    }
};

/// Host memory that a GPU reads and writes by itself: for everything that is uploaded or downloaded.
struct pinned_space {
    static constexpr bool host_accessible = true;

    /// @throws device_error
    static void* allocate(std::size_t bytes) {
        void* data = nullptr;
        exec::check_cuda(cudaMallocHost(&data, bytes), "pinned memory");
        return data;
    }
    static void release(void* data) noexcept { static_cast<void>(cudaFreeHost(data)); }
    static void wipe(void* data, std::size_t bytes) noexcept { memory::wipe(data, bytes); }
    static void fill_zero(void* data, std::size_t bytes) noexcept { host_space::fill_zero(data, bytes); }
    static void copy(void* to, const void* from, std::size_t bytes) noexcept {
        host_space::copy(to, from, bytes);
    }
};

template <class T>
using device_buffer = buffer<T, device_space>;
template <class T>
using secret_device_buffer = buffer<T, device_space, wipe_on_release>;
template <class T>
using pinned_buffer = buffer<T, pinned_space>;
template <class T>
using secret_pinned_buffer = buffer<T, pinned_space, wipe_on_release>;

}  // namespace tensafe::memory

namespace tensafe::exec {
static_assert(block_execution<cuda>);
}
