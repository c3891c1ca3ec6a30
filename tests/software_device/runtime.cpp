// The CUDA runtime, as far as the project calls it, over machine.hpp: one file, since all calls share one
// state and one lock. Programs that nvcc compiled run on it unchanged.
//
// Work runs as late as the rules of CUDA allow: when somebody waits for it. So a program that forgets to wait
// gets what a GPU would give it on a bad day, always. Host memory that a copy will read or write is looked at
// when the copy is enqueued and when it runs: whoever touches it between is told.
//
// Environment: SOFTWARE_DEVICE_SM (80 or 90), SOFTWARE_DEVICE_ORDER (forward, reverse, shuffled);
// SOFTWARE_DEVICE_COUNTS names a file that counts of each kernel and grid are written to at the end.
// SOFTWARE_DEVICE_MODEL (A100, H100, H200): events give times that model.hpp predicts. Of each row of a grid
// few blocks run, each launch once, and nothing is checked. SOFTWARE_DEVICE_RESOURCES names a file with
// lines "name registers instructions" of kernels.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "machine.hpp"
#include "model.hpp"

namespace software_device {
namespace {

constexpr u8 poison = 0xA5;

struct event_state {
    struct stream_state* stream = nullptr;
    u64 position = 0;  ///< in its stream's work; 0: never recorded
    bool times = true;
    double passed = 0;  ///< microseconds
};

/// One piece of work, as it was asked for.
struct work {
    enum class kind { launch, upload, download, copy, fill, record, wait } what = kind::launch;
    launch kernel;
    u64 to = 0;
    u64 from = 0;
    u64 bytes = 0;
    int value = 0;
    event_state* event = nullptr;            ///< to be recorded
    struct stream_state* awaited = nullptr;  ///< up to `position`
    u64 position = 0;
    /// Of an upload: the bytes that its source had when it was enqueued.
    std::vector<u8> seen;
    bool staged = false;   ///< those are uploaded, since the host's memory is pageable
    bool watched = false;  ///< nobody else may touch the host's memory until then
};

struct stream_state {
    std::deque<work> queue;
    u64 enqueued = 0;
    u64 done = 0;
    double now = 0;                          ///< microseconds of its work, predicted
    struct graph_state* recorded = nullptr;  ///< what it records into
    bool spoilt = false;
};

struct graph_state {
    std::vector<work> nodes;
};

struct device_state {
    std::recursive_mutex mutex;
    int architecture = 90;
    thread_order order = thread_order::forward;
    std::unique_ptr<device_memory> memory;
    std::map<u64, u64> pinned;
    std::map<const void*, std::string> names;  ///< of kernels, by the host's functions
    std::map<const void*, u32> shared_limits;
    std::set<stream_state*> streams;
    stream_state ordinary;  ///< the default stream
    u64 persisting_limit = 0;
    const char* counts_file = std::getenv("SOFTWARE_DEVICE_COUNTS");
    std::map<std::pair<std::string, std::string>, counts> counted;  ///< by kernel and grid
    const machine_model* model = nullptr;
    std::map<std::string, resources> needs;                                       ///< of kernels, by name
    std::map<std::tuple<const kernel*, std::vector<u8>, u32>, double> predicted;  ///< by parameters and grid
    std::string lost;  ///< why nothing works any more, if so

    device_state() {
        const char* const sm = std::getenv("SOFTWARE_DEVICE_SM");
        const char* const given = std::getenv("SOFTWARE_DEVICE_ORDER");
        const std::string text = given == nullptr ? "forward" : given;
        architecture = sm == nullptr ? 90 : std::atoi(sm);
        order = text == "reverse"    ? thread_order::reverse
                : text == "shuffled" ? thread_order::shuffled
                                     : thread_order::forward;
        if ((architecture != 80 && architecture != 90) ||
            (text != "forward" && text != "reverse" && text != "shuffled")) {
            std::fprintf(stderr,
                         "software device: SOFTWARE_DEVICE_SM is 80 or 90, SOFTWARE_DEVICE_ORDER is "
                         "forward, reverse or shuffled\n");
            std::abort();
        }
        if (const char* const name = std::getenv("SOFTWARE_DEVICE_MODEL")) {
            model = find_model(name);
            const char* const file = std::getenv("SOFTWARE_DEVICE_RESOURCES");
            std::ifstream rows(file == nullptr ? "" : file);
            for (std::string kernel_name; rows >> kernel_name;) {
                resources& r = needs[kernel_name];
                rows >> r.registers >> r.instructions;
            }
            if (model == nullptr || needs.empty()) {
                std::fprintf(stderr,
                             "software device: SOFTWARE_DEVICE_MODEL is A100, H100 or H200, with "
                             "SOFTWARE_DEVICE_RESOURCES a file of kernels\n");
                std::abort();
            }
        }
    }
    device_memory& buffers() {
        if (memory == nullptr) {
            memory = std::make_unique<device_memory>(u64{8} << 30, model != nullptr);
        }
        return *memory;
    }
};

/// Never destroyed: programs release memory at their end.
device_state& state() {
    static device_state* const one = new device_state;
    return *one;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
/// Streams that this thread records.
thread_local std::set<stream_state*> recordings;

cudaError_t failed(cudaError_t error) {
    last_error = error;
    return error;
}
cudaError_t lose(const std::string& why) {
    if (state().lost.empty()) {
        state().lost = why;
        std::fprintf(stderr, "software device: %s\n", why.c_str());
    }
    return failed(cudaErrorLaunchFailure);
}

/// All calls: one at a time, and none after a fault.
template <class F>
cudaError_t call(F&& f) {
    device_state& s = state();
    const std::lock_guard lock(s.mutex);
    if (!s.lost.empty()) {
        return failed(cudaErrorLaunchFailure);
    }
    try {
        return f(s);
    } catch (const fault& wrong) {
        return lose(wrong.what());
    }
}

/// Calls that could wait for the device spoil what the thread records, unless it allows everything.
bool is_forbidden() {
    if (thread_mode == cudaStreamCaptureModeRelaxed || recordings.empty()) {
        return false;
    }
    for (stream_state* s : recordings) {
        s->spoilt = true;
    }
    return true;
}

stream_state& of(cudaStream_t stream) {
    if (stream == cudaStreamPerThread) {
        throw fault("default streams of threads are not known to the software device");
    }
    return stream == nullptr || stream == cudaStreamLegacy ? state().ordinary
                                                           : *reinterpret_cast<stream_state*>(stream);
}

bool is_pinned(const void* data, u64 bytes) {
    const u64 address = reinterpret_cast<u64>(data);
    auto found = state().pinned.upper_bound(address);
    if (found == state().pinned.begin()) {
        return false;
    }
    --found;
    return address - found->first <= found->second && bytes <= found->second - (address - found->first);
}

void run_until(stream_state& s, u64 position);

/// One line for each kernel and grid.
void write_counts() {
    std::FILE* const file = std::fopen(state().counts_file, "w");
    if (file == nullptr) {
        std::fprintf(stderr, "software device: cannot write %s\n", state().counts_file);
        return;
    }
    for (const auto& [key, c] : state().counted) {
        std::fprintf(file, "{\"kernel\": \"%s\", \"grid\": \"%s\"", key.first.c_str(), key.second.c_str());
        for (std::size_t i = 0; i < counts::size; ++i) {
            std::fprintf(file, ", \"%s\": %.0f", counts::names[i], c[i]);
        }
        std::fprintf(file, "}\n");
    }
    std::fclose(file);
}
counts& counts_of(const launch& what) {
    if (state().counted.empty()) {
        std::atexit(write_counts);
    }
    return state().counted[{readable(what.code->name), std::to_string(what.grid[0]) + "x" +
                                                           std::to_string(what.grid[1]) + "x" +
                                                           std::to_string(what.grid[2])}];
}

/// Microseconds of a launch: by its first one.
double predicted_time(const launch& what) {
    device_state& s = state();
    double& result = s.predicted[{what.code, what.parameters, what.grid[0]}];
    if (result == 0) {
        constexpr u32 blocks_of_row = 4;
        counts count;
        run(what, s.buffers(), s.order, &count, blocks_of_row);
        const auto needs = s.needs.find(what.code->name);
        if (needs == s.needs.end()) {
            throw fault(readable(what.code->name) + ": SOFTWARE_DEVICE_RESOURCES does not name it");
        }
        const prediction p = predict_launch(*s.model, what, count, needs->second);
        result = p.microseconds;
        if (s.counts_file != nullptr) {
            counts_of(what).add(count);
            std::fprintf(stderr, "%10.3f us  %-14s %ux%u  %s\n", p.microseconds, p.binds, what.grid[0],
                         what.grid[1], readable(what.code->name).c_str());
        }
    }
    return result;
}
/// What work takes by the model, and on the host's clock without one.
double time_after(const work& w, double before) {
    const machine_model* const model = state().model;
    if (model == nullptr) {
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
    switch (w.what) {
        case work::kind::launch:
            return before + predicted_time(w.kernel);
        case work::kind::upload:
        case work::kind::download:
            return before + predict_copy(*model, static_cast<double>(w.bytes), false);
        case work::kind::copy:
        case work::kind::fill:
            return before + predict_copy(*model, static_cast<double>(w.bytes), true);
        case work::kind::wait:
            return std::max(before, w.awaited->now);
        default:
            return before;
    }
}

void perform(const work& w) {
    device_state& s = state();
    switch (w.what) {
        case work::kind::launch:
            if (s.model == nullptr) {
                run(w.kernel, s.buffers(), s.order,
                    s.counts_file == nullptr ? nullptr : &counts_of(w.kernel));
            }
            break;
        case work::kind::upload: {
            const u8* const from = w.staged ? w.seen.data() : reinterpret_cast<const u8*>(w.from);
            if (w.watched && std::memcmp(from, w.seen.data(), w.bytes) != 0) {
                throw fault("upload: host memory was reused while the copy could still run");
            }
            std::memcpy(s.buffers().at(w.to, w.bytes, false, "upload"), from, w.bytes);
            s.buffers().mark_written(w.to, w.bytes);
            break;
        }
        case work::kind::download: {
            auto* const to = reinterpret_cast<u8*>(w.to);
            if (w.watched && !std::all_of(to, to + w.bytes, [](u8 x) { return x == poison; })) {
                throw fault("download: host memory was written while the copy could still run");
            }
            std::memcpy(to, s.buffers().at(w.from, w.bytes, true, "download"), w.bytes);
            break;
        }
        case work::kind::copy:
            std::memmove(s.buffers().at(w.to, w.bytes, false, "copy"),
                         s.buffers().at(w.from, w.bytes, true, "copy"), w.bytes);
            s.buffers().mark_written(w.to, w.bytes);
            break;
        case work::kind::fill:
            std::memset(s.buffers().at(w.to, w.bytes, false, "fill"), w.value, w.bytes);
            s.buffers().mark_written(w.to, w.bytes);
            break;
        case work::kind::record:
            w.event->passed = time_after(w, w.event->stream->now);
            break;
        case work::kind::wait:
            run_until(*w.awaited, w.position);
            break;
    }
}

void run_until(stream_state& s, u64 position) {
    while (s.done < position) {
        const work next = std::move(s.queue.front());
        s.queue.pop_front();
        ++s.done;
        perform(next);
        s.now = time_after(next, s.now);
    }
}
void run_all(stream_state& s) {
    run_until(s, s.enqueued);
}
void run_everything() {
    run_until(state().ordinary, state().ordinary.enqueued);
    for (stream_state* s : state().streams) {
        run_until(*s, s->enqueued);
    }
}

/// Whether work that waits to run uses such bytes of the host.
bool is_awaited(work::kind kind, u64 first, u64 bytes) {
    const auto uses = [&](const stream_state& s) {
        return std::any_of(s.queue.begin(), s.queue.end(), [&](const work& w) {
            const u64 start = kind == work::kind::upload ? w.from : w.to;
            return w.what == kind && start < first + bytes && first < start + w.bytes;
        });
    };
    return uses(state().ordinary) || std::any_of(state().streams.begin(), state().streams.end(),
                                                 [&](const stream_state* s) { return uses(*s); });
}

/// Looks at the host's memory now, for the time when the work runs. What other work will read or write is let
/// alone.
void watch(work& w) {
    if (w.what == work::kind::upload) {
        const auto* const from = reinterpret_cast<const u8*>(w.from);
        w.seen.assign(from, from + w.bytes);
        w.staged = !is_pinned(from, w.bytes);
        w.watched = !w.staged && !is_awaited(work::kind::download, w.from, w.bytes);
    } else if (w.what == work::kind::download) {
        w.staged = !is_pinned(reinterpret_cast<const void*>(w.to), w.bytes);
        w.watched = !w.staged && !is_awaited(work::kind::upload, w.to, w.bytes) &&
                    !is_awaited(work::kind::download, w.to, w.bytes);
        if (w.watched) {
            std::memset(reinterpret_cast<void*>(w.to), poison, w.bytes);
        }
    }
}

/// Of the streams that take part in a recording there is one here.
void refuse_in_recordings(const stream_state& s) {
    if (s.recorded != nullptr) {
        throw fault("events in recordings are not known to the software device");
    }
}

cudaError_t enqueue(stream_state& s, work w) {
    if (s.recorded != nullptr) {
        s.recorded->nodes.push_back(std::move(w));
        return cudaSuccess;
    }
    watch(w);
    const bool waits = w.what == work::kind::download && w.staged;  // pageable memory
    s.queue.push_back(std::move(w));
    ++s.enqueued;
    if (waits) {
        run_all(s);
    }
    return cudaSuccess;
}

cudaError_t transfer(device_state& d, void* to, const void* from, u64 bytes, cudaMemcpyKind kind,
                     stream_state& s) {
    if (bytes == 0) {
        return cudaSuccess;
    }
    work w;
    w.to = reinterpret_cast<u64>(to);
    w.from = reinterpret_cast<u64>(from);
    w.bytes = bytes;
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (d.buffers().holds(w.to) != to_device || d.buffers().holds(w.from) != from_device) {
        return failed(cudaErrorInvalidValue);
    }
    w.what = !to_device ? work::kind::download : from_device ? work::kind::copy : work::kind::upload;
    return enqueue(s, std::move(w));
}

struct configuration {
    dim3 grid;
    dim3 block;
    std::size_t shared;
    cudaStream_t stream;
};
thread_local std::vector<configuration> configurations;

const kernel* kernel_of(const void* function) {
    const auto found = state().names.find(function);
    return found == state().names.end() ? nullptr : registry::find(state().architecture, found->second);
}

u32 most_shared() {
    return (state().architecture == 80 ? 163 : 227) * 1024;
}

cudaError_t launch_kernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                          cudaStream_t stream) {
    return call([&](device_state& d) {
        const kernel* const code = kernel_of(function);
        if (code == nullptr) {
            return failed(cudaErrorInvalidDeviceFunction);
        }
        const auto given = d.shared_limits.find(function);
        const std::size_t limit = given == d.shared_limits.end() ? 48 * 1024 : given->second;
        if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffU || grid.y > 65535 ||
            grid.z > 65535 || block.x == 0 || block.y != 1 || block.z != 1 || block.x > 1024 ||
            (code->most_threads != 0 && block.x > code->most_threads) || shared > limit) {
            return failed(cudaErrorInvalidConfiguration);
        }
        work w;
        w.kernel.code = code;
        w.kernel.grid[0] = grid.x;
        w.kernel.grid[1] = grid.y;
        w.kernel.grid[2] = grid.z;
        w.kernel.threads = block.x;
        w.kernel.shared_bytes = static_cast<u32>(shared);
        w.kernel.parameters.resize(code->parameter_bytes);
        for (u32 i = 0; i < code->parameter_count; ++i) {
            std::memcpy(w.kernel.parameters.data() + code->parameters[i].offset, arguments[i],
                        code->parameters[i].bytes);
        }
        return enqueue(of(stream), std::move(w));
    });
}

}  // namespace
}  // namespace software_device

using namespace software_device;

extern "C" {

// What nvcc's objects call by themselves.

void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
    state().names[function] = name;
}
/// No kernel uses any.
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
char __cudaInitModule(void**) {
    return 1;
}  // what nvcc calls it for, variables in managed memory, no kernel has
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void* stream) {
    configurations.push_back({grid, block, shared, static_cast<cudaStream_t>(stream)});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
    const configuration c = configurations.back();
    configurations.pop_back();
    *grid = c.grid;
    *block = c.block;
    *shared = c.shared;
    *static_cast<cudaStream_t*>(stream) = c.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared, cudaStream_t stream) {
    return launch_kernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared, cudaStream_t stream) {
    return launch_kernel(function, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* launch, const void* function, void** arguments) {
    if (launch->numAttrs != 0) {
        throw fault("attributes of launches are not known to the software device");
    }
    return launch_kernel(function, launch->gridDim, launch->blockDim, arguments, launch->dynamicSmemBytes,
                         launch->stream);
}

// Errors.

cudaError_t cudaGetLastError() {
    const cudaError_t result = state().lost.empty() ? last_error : cudaErrorLaunchFailure;
    last_error = cudaSuccess;
    return result;
}
cudaError_t cudaPeekAtLastError() {
    return state().lost.empty() ? last_error : cudaErrorLaunchFailure;
}
const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration:
            return "cudaErrorInvalidConfiguration";
        case cudaErrorInvalidDevice:
            return "cudaErrorInvalidDevice";
        case cudaErrorInvalidDeviceFunction:
            return "cudaErrorInvalidDeviceFunction";
        case cudaErrorInvalidResourceHandle:
            return "cudaErrorInvalidResourceHandle";
        case cudaErrorNotReady:
            return "cudaErrorNotReady";
        case cudaErrorLaunchFailure:
            return "cudaErrorLaunchFailure";
        case cudaErrorStreamCaptureUnsupported:
            return "cudaErrorStreamCaptureUnsupported";
        case cudaErrorStreamCaptureInvalidated:
            return "cudaErrorStreamCaptureInvalidated";
        case cudaErrorIllegalState:
            return "cudaErrorIllegalState";
        default:
            return "cudaError";
    }
}
const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorLaunchFailure && !state().lost.empty() ? state().lost.c_str()
                                                                    : cudaGetErrorName(error);
}

// The device.

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : failed(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    if (device != 0) {
        return failed(cudaErrorInvalidDevice);
    }
    *p = {};
    std::snprintf(p->name, sizeof p->name, "software device");
    p->major = state().architecture / 10;
    p->minor = 0;
    cudaDeviceGetAttribute(&p->multiProcessorCount, cudaDevAttrMultiProcessorCount, 0);
    p->totalGlobalMem = std::size_t{8} << 30;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (device != 0) {
        return failed(cudaErrorInvalidDevice);
    }
    const bool ampere = state().architecture == 80;
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor:
            *value = state().architecture / 10;
            break;
        case cudaDevAttrComputeCapabilityMinor:
            *value = 0;
            break;
        case cudaDevAttrMultiProcessorCount:
            *value = ampere ? 108 : 132;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = 48 * 1024;
            break;
        case cudaDevAttrClockRate:
            *value = ampere ? 1410000 : 1980000;
            break;
        case cudaDevAttrMemoryClockRate:
            *value = ampere ? 1215000 : 3201000;
            break;
        case cudaDevAttrGlobalMemoryBusWidth:
            *value = ampere ? 5120 : 6144;
            break;
        case cudaDevAttrL2CacheSize:
            *value = (ampere ? 40 : 50) << 20;
            break;
        case cudaDevAttrMaxPersistingL2CacheSize:
            *value = (ampere ? 30 : 32) << 20;
            break;
        case cudaDevAttrMaxAccessPolicyWindowSize:
            *value = 128 << 20;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = static_cast<int>(most_shared());
            break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            *value = static_cast<int>(most_shared()) + 1024;
            break;
        case cudaDevAttrMaxRegistersPerMultiprocessor:
            *value = 65536;
            break;
        default:
            return failed(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    return call([](device_state&) {
        if (is_forbidden()) {
            return failed(cudaErrorStreamCaptureUnsupported);
        }
        run_everything();
        return cudaSuccess;
    });
}
cudaError_t cudaDeviceReset() {
    device_state& s = state();
    const std::lock_guard lock(s.mutex);
    s.memory.reset();
    s.pinned.clear();
    s.ordinary = {};
    s.lost.clear();
    last_error = cudaSuccess;
    for (stream_state* stream : s.streams) {
        stream->queue.clear();
        stream->done = stream->enqueued;
    }
    return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
    if (limit != cudaLimitPersistingL2CacheSize) {
        return failed(cudaErrorInvalidValue);
    }
    *value = state().persisting_limit;
    return cudaSuccess;
}
cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value) {
    int most = 0;
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxPersistingL2CacheSize, 0);
    if (limit != cudaLimitPersistingL2CacheSize || value > static_cast<std::size_t>(most)) {
        return failed(cudaErrorInvalidValue);
    }
    state().persisting_limit = value;
    return cudaSuccess;
}
cudaError_t cudaCtxResetPersistingL2Cache() {
    return cudaSuccess;
}

// Memory.

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
    return call([&](device_state& d) {
        if (is_forbidden()) {
            return failed(cudaErrorStreamCaptureUnsupported);
        }
        const u64 address = bytes == 0 ? 0 : d.buffers().allocate(bytes);
        *data = reinterpret_cast<void*>(address);
        return address == 0 && bytes != 0 ? failed(cudaErrorMemoryAllocation) : cudaSuccess;
    });
}
cudaError_t cudaFree(void* data) {
    return call([&](device_state& d) {
        if (data == nullptr) {
            return cudaSuccess;
        }
        if (is_forbidden()) {
            return failed(cudaErrorStreamCaptureUnsupported);
        }
        run_everything();
        return d.buffers().release(reinterpret_cast<u64>(data)) ? cudaSuccess : failed(cudaErrorInvalidValue);
    });
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
    return call([&](device_state& d) {
        if (is_forbidden()) {
            return failed(cudaErrorStreamCaptureUnsupported);
        }
        *data = bytes == 0 ? nullptr : std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        if (*data == nullptr && bytes != 0) {
            return failed(cudaErrorMemoryAllocation);
        }
        if (bytes != 0) {
            d.pinned[reinterpret_cast<u64>(*data)] = bytes;
        }
        return cudaSuccess;
    });
}
cudaError_t cudaFreeHost(void* data) {
    return call([&](device_state& d) {
        if (data == nullptr) {
            return cudaSuccess;
        }
        if (is_forbidden()) {
            return failed(cudaErrorStreamCaptureUnsupported);
        }
        run_everything();
        if (d.pinned.erase(reinterpret_cast<u64>(data)) == 0) {
            return failed(cudaErrorInvalidValue);
        }
        std::free(data);
        return cudaSuccess;
    });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return call([&](device_state& d) { return transfer(d, to, from, bytes, kind, of(stream)); });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    return call([&](device_state& d) {
        if (bytes == 0) {
            return cudaSuccess;
        }
        if (!d.buffers().holds(reinterpret_cast<u64>(to))) {
            return failed(cudaErrorInvalidValue);
        }
        work w;
        w.what = work::kind::fill;
        w.to = reinterpret_cast<u64>(to);
        w.bytes = bytes;
        w.value = value;
        return enqueue(of(stream), std::move(w));
    });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return call([&](device_state& d) {
        if (is_forbidden()) {
            return failed(cudaErrorStreamCaptureUnsupported);
        }
        const cudaError_t result = transfer(d, to, from, bytes, kind, d.ordinary);
        if (kind != cudaMemcpyDeviceToDevice) {  // which returns before it is done
            run_all(d.ordinary);
        }
        return result;
    });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
    return is_forbidden() ? failed(cudaErrorStreamCaptureUnsupported)
                          : cudaMemsetAsync(to, value, bytes, nullptr);
}

// Kernels.

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
    return call([&](device_state&) {
        const kernel* const code = kernel_of(function);
        if (code == nullptr) {
            return failed(cudaErrorInvalidDeviceFunction);
        }
        *attributes = {};
        attributes->maxThreadsPerBlock = static_cast<int>(code->most_threads);
        attributes->ptxVersion = attributes->binaryVersion = state().architecture;
        return cudaSuccess;
    });
}
/// As threads and shared memory allow: registers are not known.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads,
                                                                   std::size_t shared, unsigned) {
    if (threads < 1 || threads > 1024 || shared > most_shared()) {
        return failed(cudaErrorInvalidValue);
    }
    const std::size_t by_shared = (most_shared() + 1024) / (shared + 1024);
    *blocks = static_cast<int>(std::min<std::size_t>(2048 / threads, by_shared));
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    return call([&](device_state& d) {
        if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
            static_cast<u32>(value) > most_shared()) {
            return failed(cudaErrorInvalidValue);
        }
        d.shared_limits[function] = static_cast<u32>(value);
        return cudaSuccess;
    });
}

// Streams and events.

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return call([&](device_state& d) {
        if (flags != cudaStreamNonBlocking) {
            throw fault("streams that wait for the default stream are not known to the software device");
        }
        auto* const made = new stream_state;
        d.streams.insert(made);
        *stream = reinterpret_cast<cudaStream_t>(made);
        return cudaSuccess;
    });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return call([&](device_state& d) {
        run_all(of(stream));
        d.streams.erase(&of(stream));  // and stays in memory, for events that were recorded in it
        return cudaSuccess;
    });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return call([&](device_state&) {
        stream_state& s = of(stream);
        if (s.recorded != nullptr) {
            s.spoilt = true;
            return failed(cudaErrorStreamCaptureUnsupported);
        }
        run_all(s);
        return cudaSuccess;
    });
}
cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaStreamAttrID attribute,
                                   const cudaStreamAttrValue* value) {
    return call([&](device_state& d) {
        const auto& window = value->accessPolicyWindow;
        int most = 0;
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxAccessPolicyWindowSize, 0);
        if (attribute != cudaStreamAttributeAccessPolicyWindow || window.num_bytes > static_cast<u64>(most) ||
            window.hitRatio < 0 || window.hitRatio > 1) {
            return failed(cudaErrorInvalidValue);
        }
        if (window.num_bytes != 0) {
            d.buffers().at(reinterpret_cast<u64>(window.base_ptr), window.num_bytes, false, "window");
        }
        return cudaSuccess;
    });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    auto* const made = new event_state;
    made->times = (flags & cudaEventDisableTiming) == 0;
    *event = reinterpret_cast<cudaEvent_t>(made);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return call([&](device_state&) {
        auto* const e = reinterpret_cast<event_state*>(event);
        if (e->stream != nullptr) {
            run_everything();  // who waits for it goes on
        }
        delete e;
        return cudaSuccess;
    });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return call([&](device_state&) {
        stream_state& s = of(stream);
        refuse_in_recordings(s);
        work w;
        w.what = work::kind::record;
        w.event = reinterpret_cast<event_state*>(event);
        const cudaError_t result = enqueue(s, std::move(w));
        auto* const e = reinterpret_cast<event_state*>(event);
        e->stream = &s;
        e->position = s.enqueued;
        return result;
    });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    return call([&](device_state&) {
        const auto* const e = reinterpret_cast<event_state*>(event);
        refuse_in_recordings(of(stream));
        if (e->stream == nullptr) {  // never recorded
            return cudaSuccess;
        }
        work w;
        w.what = work::kind::wait;
        w.awaited = e->stream;
        w.position = e->position;
        return enqueue(of(stream), std::move(w));
    });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return call([&](device_state&) {
        auto* const e = reinterpret_cast<event_state*>(event);
        if (e->stream == nullptr || e->stream->done >= e->position) {
            return cudaSuccess;
        }
        run_until(*e->stream, e->stream->done + 1);  // who asks often enough hears yes
        return failed(cudaErrorNotReady);
    });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return call([&](device_state&) {
        auto* const e = reinterpret_cast<event_state*>(event);
        if (is_forbidden()) {
            return failed(cudaErrorStreamCaptureUnsupported);
        }
        if (e->stream != nullptr) {
            run_until(*e->stream, e->position);
        }
        return cudaSuccess;
    });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    return call([&](device_state&) {
        const auto* const a = reinterpret_cast<event_state*>(start);
        const auto* const b = reinterpret_cast<event_state*>(end);
        if (a->stream == nullptr || b->stream == nullptr || !a->times || !b->times) {
            return failed(cudaErrorInvalidResourceHandle);
        }
        if (a->stream->done < a->position || b->stream->done < b->position) {
            return failed(cudaErrorNotReady);
        }
        *milliseconds = static_cast<float>((b->passed - a->passed) / 1000);
        return cudaSuccess;
    });
}

// Graphs.

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, thread_mode);
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    return call([&](device_state&) {
        stream_state& s = of(stream);
        if (stream == nullptr || mode != cudaStreamCaptureModeThreadLocal) {
            return failed(cudaErrorStreamCaptureUnsupported);
        }
        if (s.recorded != nullptr) {
            return failed(cudaErrorIllegalState);
        }
        s.recorded = new graph_state;
        s.spoilt = false;
        recordings.insert(&s);
        return cudaSuccess;
    });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    return call([&](device_state&) {
        stream_state& s = of(stream);
        *graph = nullptr;
        if (s.recorded == nullptr) {
            return failed(cudaErrorIllegalState);
        }
        recordings.erase(&s);
        graph_state* const made = std::exchange(s.recorded, nullptr);
        if (s.spoilt) {
            delete made;
            return failed(cudaErrorStreamCaptureInvalidated);
        }
        *graph = reinterpret_cast<cudaGraph_t>(made);
        return cudaSuccess;
    });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete reinterpret_cast<graph_state*>(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    *executable = reinterpret_cast<cudaGraphExec_t>(new graph_state(*reinterpret_cast<graph_state*>(graph)));
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    delete reinterpret_cast<graph_state*>(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    return call([&](device_state&) {
        for (const work& node : reinterpret_cast<graph_state*>(graph)->nodes) {
            static_cast<void>(enqueue(of(stream), node));
        }
        return cudaSuccess;
    });
}

}  // extern "C"
