#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/device/cuda/check.cuh>

#include <cstddef>
#include <cuda_runtime_api.h>
#include <string>

namespace tensafe::exec {

/// GPUs that this process may use; 0 without a driver. Never fails.
inline int device_count() noexcept {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());  // a later check must not report it
        return 0;
    }
    return count;
}

/// @throws device_error that says why, if there is no GPU to use
inline void require_device() {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess) {
        check_cuda(result, "no CUDA device");
    }
    if (count == 0) {
        throw device_error("no CUDA device: the driver is there, but shows none to this process");
    }
}

/// The number of the GPU that the calling thread uses.
/// @throws device_error
inline int current_device() {
    int device = 0;
    check_cuda(cudaGetDevice(&device), "current device");
    return device;
}

/// What a GPU is and has.
struct device_properties {
    std::string name;
    int sm = 0;  ///< compute capability as nvcc writes it: 90 for sm_90
    int multiprocessors = 0;
    double clock_hertz = 0;         ///< of the multiprocessors, at most
    double memory_clock_hertz = 0;  ///< 0 where the driver does not tell
    int memory_bus_bits = 0;
    std::size_t memory_bytes = 0;
    std::size_t l2_bytes = 0;
    std::size_t l2_persisting_bytes = 0;        ///< that a window may reserve at most; 0 where there is none
    std::size_t l2_window_bytes = 0;            ///< that a window may cover at most
    std::size_t shared_bytes_of_block = 0;      ///< at most
    std::size_t shared_bytes_of_processor = 0;  ///< for all blocks that run on it at a time
    int registers_of_processor = 0;             ///< of 32 bits

    /// Bytes a second between the GPU and its memory, if every clock edge carried data.
    double peak_memory_rate() const noexcept { return 2 * memory_clock_hertz * memory_bus_bits / 8; }
};

/// One attribute of a GPU.
/// @throws device_error
inline int device_attribute(cudaDeviceAttr attribute, int device) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "device attribute");
    return value;
}

/// @throws device_error
inline device_properties properties_of(int device) {
    cudaDeviceProp described{};
    check_cuda(cudaGetDeviceProperties(&described, device), "device properties");
    const auto bytes = [device](cudaDeviceAttr attribute) {
        return static_cast<std::size_t>(device_attribute(attribute, device));
    };
    device_properties p;
    p.name = described.name;
    p.sm = described.major * 10 + described.minor;
    p.multiprocessors = described.multiProcessorCount;
    // As attributes: the structure lost the clocks in CUDA 13.
    p.clock_hertz = 1e3 * device_attribute(cudaDevAttrClockRate, device);
    p.memory_clock_hertz = 1e3 * device_attribute(cudaDevAttrMemoryClockRate, device);
    p.memory_bus_bits = device_attribute(cudaDevAttrGlobalMemoryBusWidth, device);
    p.memory_bytes = described.totalGlobalMem;
    p.l2_bytes = bytes(cudaDevAttrL2CacheSize);
    p.l2_persisting_bytes = bytes(cudaDevAttrMaxPersistingL2CacheSize);
    p.l2_window_bytes = bytes(cudaDevAttrMaxAccessPolicyWindowSize);
    p.shared_bytes_of_block = bytes(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    p.shared_bytes_of_processor = bytes(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    p.registers_of_processor = device_attribute(cudaDevAttrMaxRegistersPerMultiprocessor, device);
    return p;
}

}  // namespace tensafe::exec
