#pragma once

#include <tensafe/device/cuda/check.cuh>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/device.cuh>

#include <algorithm>
#include <cstddef>
#include <cuda_runtime_api.h>

namespace tensafe::exec {

/// Asks the GPU to keep a range of its memory in the L2 cache while this object lives, for kernels that are
/// put into one stream, or recorded from it: tables and weights that every launch reads. A wish that changes
/// no result; does nothing where the GPU, or the mode that it is in, has no such memory.
///
/// The part of the cache that is set apart belongs to the whole GPU. Its size is put back at the end, so
/// windows on one GPU must end in the reverse order of their making, as they do in scopes.
class l2_window {
  public:
    /// @param expected  false: does nothing, for comparisons
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
        if (active_) {
            kept_ = kept;
        } else {
            static_cast<void>(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, limit_before_));
        }
    }
    l2_window(const l2_window&) = delete;
    l2_window& operator=(const l2_window&) = delete;
    /// Does not wait: what is in the stream already goes on, perhaps with slower memory.
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

    /// Whether the GPU follows.
    bool active() const noexcept { return active_; }
    /// Bytes of the range that it tries to keep; 0 if not active.
    std::size_t kept_bytes() const noexcept { return kept_; }

  private:
    static bool answered(cudaError_t result) noexcept {
        if (result != cudaSuccess) {
            static_cast<void>(cudaGetLastError());
        }
        return result == cudaSuccess;
    }

    cudaStream_t stream_ = nullptr;
    std::size_t limit_before_ = 0;
    std::size_t kept_ = 0;
    bool active_ = false;
};

}  // namespace tensafe::exec
