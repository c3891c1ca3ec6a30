#pragma once

#include <tensafe/device/exec/thread_blocks.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <type_traits>

namespace tensafe::device {

/// Checks a call.  @throws device_error, with the name and the text of the error, unless it succeeded
inline void check_cuda(cudaError_t result, const char* what) {
    if (result != cudaSuccess) {
        static_cast<void>(cudaGetLastError());  // so that the next check does not report it again
        throw device_error({what, ": ", cudaGetErrorName(result), ": ", cudaGetErrorString(result)});
    }
}

namespace detail {

/// Keeps recordings and waiting for the whole GPU apart: a wait spoils what any thread is recording there.
inline std::shared_mutex& recording_mutex() {
    static std::shared_mutex mutex;
    return mutex;
}
/// Whether the calling thread records: then waiting is an error, and is to stay one rather than hang.
inline bool& this_thread_records() noexcept {
    static thread_local bool records = false;
    return records;
}

/// Keeps other threads from recording while it lives.
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

/// The number of GPUs that this process may use; 0 without a driver. Never fails.
inline int device_count() noexcept {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());  // a later check must not report it
        return 0;
    }
    return count;
}

/// Checks for a GPU.  @throws device_error that says why, if there is none to use
inline void require_device() {
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "no CUDA device");
    require<device_error>(count != 0,
                          {"no CUDA device: the driver is there, but shows none to this process"});
}

/// The number of the GPU that the calling thread uses.
/// @throws device_error
inline int current_device() {
    int device = 0;
    check_cuda(cudaGetDevice(&device), "current device");
    return device;
}

/// The properties of a GPU.
struct device_properties {
    std::string name;
    int sm = 0;  ///< compute capability as nvcc writes it: 90 for sm_90
    int multiprocessors = 0;
    double clock_hertz = 0;         ///< highest rate of the multiprocessors
    double memory_clock_hertz = 0;  ///< 0 where the driver does not tell
    int memory_bus_bits = 0;
    std::size_t l2_bytes = 0;
    std::size_t shared_bytes_of_block = 0;  ///< the most of one thread block

    /// The bytes a second between the GPU and its memory, if every clock edge carried data.
    double peak_memory_rate() const noexcept { return 2 * memory_clock_hertz * memory_bus_bits / 8; }
};

/// Reads one attribute of a GPU.
/// @throws device_error
inline int device_attribute(cudaDeviceAttr attribute, int device) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "device attribute");
    return value;
}

/// Reads the properties of a GPU.  @throws device_error
inline device_properties properties_of(int device) {
    cudaDeviceProp described{};
    check_cuda(cudaGetDeviceProperties(&described, device), "device properties");
    device_properties p;
    p.name = described.name;
    p.sm = described.major * 10 + described.minor;
    p.multiprocessors = described.multiProcessorCount;
    // As attributes: the structure lost the clocks in CUDA 13.
    p.clock_hertz = 1e3 * device_attribute(cudaDevAttrClockRate, device);
    p.memory_clock_hertz = 1e3 * device_attribute(cudaDevAttrMemoryClockRate, device);
    p.memory_bus_bits = device_attribute(cudaDevAttrGlobalMemoryBusWidth, device);
    p.l2_bytes = static_cast<std::size_t>(device_attribute(cudaDevAttrL2CacheSize, device));
    p.shared_bytes_of_block =
        static_cast<std::size_t>(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    return p;
}

/// Memory of the current GPU, 256-byte aligned, which must be current whenever it is used. Getting and giving
/// back waits for the device: buffers are made once and kept.
struct device_space {
    static constexpr bool host_accessible = false;

    /// Allocates memory of the GPU.  @throws device_error
    static void* allocate(std::size_t bytes) {
        void* data = nullptr;
        check_cuda(cudaMalloc(&data, bytes), "device memory");
        return data;
    }
    // Each of the following waits before and after: streams of ours do not wait for the default stream, where
    // these run.
    // Nothing can be done about errors here: the process may be past the end of the CUDA runtime.
    static void release(void* data, std::size_t) noexcept { static_cast<void>(cudaFree(data)); }
    static void wipe(void* data, std::size_t bytes) noexcept {
        const detail::no_recordings lock;
        static_cast<void>(cudaDeviceSynchronize());
        static_cast<void>(cudaMemset(data, 0, bytes));
        static_cast<void>(cudaDeviceSynchronize());
    }
    /// Sets bytes to 0.  @throws device_error
    static void fill_zero(void* data, std::size_t bytes) {
        alone([&] { return cudaMemset(data, 0, bytes); });
    }
    /// Copies bytes on the GPU.  @throws device_error
    static void copy(void* to, const void* from, std::size_t bytes) {
        alone([&] { return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice); });
    }

  private:
    template <class F>
    static void alone(F&& f) {
        const detail::no_recordings lock;
        for (const cudaError_t result : {cudaDeviceSynchronize(), f(), cudaDeviceSynchronize()}) {
            check_cuda(result, "device memory");
        }
    }
};

/// Host memory that a GPU reads and writes by itself: for everything that is uploaded or downloaded.
struct pinned_space : memory::host_space {
    /// Allocates pinned memory.  @throws device_error
    static void* allocate(std::size_t bytes) {
        void* data = nullptr;
        check_cuda(cudaMallocHost(&data, bytes), "pinned memory");
        return data;
    }
    static void release(void* data, std::size_t) noexcept { static_cast<void>(cudaFreeHost(data)); }
};

template <class T>
using device_buffer = memory::buffer<T, device_space>;
template <class T>
using pinned_buffer = memory::buffer<T, pinned_space>;

/// The context of one thread block on a GPU: each CUDA thread is one thread of the algorithm.
template <class Kernel>
class cuda_thread_block {
  public:
    using shared_type = typename Kernel::shared_type;

    __device__ thread_block_index block() const { return {blockIdx.x, blockIdx.y, blockIdx.z}; }

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

    /// Registers of this thread: one value.
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

/// The thread blocks of a kernel that a multiprocessor should hold at least: the compiler then limits the
/// registers. No wish (0) unless the kernel has a member `blocks_per_sm`.
template <class Kernel>
constexpr int blocks_per_sm() noexcept {
    if constexpr (requires { Kernel::blocks_per_sm; }) {
        static_assert(Kernel::blocks_per_sm >= 1 && Kernel::blocks_per_sm * Kernel::threads <= 2048,
                      "kernel: a multiprocessor holds at most 2048 threads");
        return Kernel::blocks_per_sm;
    } else {
        return 0;
    }
}

/// The one __global__ function, which runs any kernel.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, blocks_per_sm<Kernel>())
    run_kernel(const __grid_constant__ Kernel kernel) {
    cuda_thread_block<Kernel> context;
    kernel(context);
}

template <class Kernel>
inline constexpr std::size_t shared_bytes = std::is_empty_v<typename Kernel::shared_type>
                                                ? 0
                                                : sizeof(typename Kernel::shared_type);

/// Allows, while it lives, what must be done once although a stream of this thread may be recording a graph,
/// which forbids calls that could wait for the device.
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
    const int device = current_device();
    const std::uint64_t bit = device < 64 ? std::uint64_t{1} << device : 0;  // beyond 64: every time
    if ((prepared.load(std::memory_order_acquire) & bit) != 0) {
        return;
    }
    const capture_allows_everything allowed;
    cudaFuncAttributes attributes;  // asking for them loads the kernel
    check_cuda(cudaFuncGetAttributes(&attributes, run_kernel<Kernel>), "kernel: load");
    constexpr std::size_t shared = shared_bytes<Kernel>;
    if constexpr (shared > 48 * 1024) {
        check_cuda(cudaFuncSetAttribute(run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(shared)),
                   "kernel: shared memory");
    }
    prepared.fetch_or(bit, std::memory_order_release);
}

}  // namespace detail

/// Runs kernels on the current GPU, in the order of one stream, which device::stream owns. Errors of kernels
/// show at a later call, at `wait` at the latest. Uploads and downloads return at once only if the host's
/// memory is pinned (device::pinned_space); it must stay untouched until `wait`.
///
/// Thread-safe; with one stream the order is then up to chance, and `launches` must not be shared.
struct cuda {
    using space = device_space;
    using staging_space = pinned_space;  ///< host memory that uploads come from

    cudaStream_t stream = nullptr;    ///< null: the default stream, which waits for all ordinary streams
    std::size_t* launches = nullptr;  ///< counts kernel launches and graph launches, if given

    /// Launches a kernel; nothing runs for a grid without thread blocks.  @throws device_error
    template <kernel Kernel>
    void launch(const Kernel& kernel, grid_shape grid) const {
        constexpr std::size_t shared = detail::shared_bytes<Kernel>;
        static_assert(shared <= 227 * 1024, "kernel: a block has at most 227 KiB of shared memory");
        static_assert(Kernel::threads > 0 && Kernel::threads % 32 == 0 && Kernel::threads <= 1024,
                      "kernel: a block has whole warps, and at most 1024 threads");
        if (launches != nullptr) {
            ++*launches;
        }
        if (grid.x == 0 || grid.y == 0 || grid.z == 0) {
            return;
        }
        detail::prepare_kernel<Kernel>();
        detail::run_kernel<Kernel><<<dim3(grid.x, grid.y, grid.z), Kernel::threads, shared, stream>>>(kernel);
        check_cuda(cudaGetLastError(), "kernel: launch");
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
    /// Copies from one place of the space to another.
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

static_assert(execution<cuda>);

}  // namespace tensafe::device
