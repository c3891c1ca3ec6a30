#pragma once

#include <tensafe/device/exec/thread_blocks.hpp>

#include <functional>
#include <map>

#include "../device_data.hpp"

namespace tests {

/// device::host_blocks that can record what is enqueued instead of doing it, as a stream does while a CUDA
/// graph is made of it: arguments and addresses as they were, memory as it will be.
struct recording_blocks {
    using space = device::host_blocks::space;
    using staging_space = device::host_blocks::staging_space;
    using recording = std::vector<std::function<void()>>;

    device::host_blocks inner;
    recording* into = nullptr;

    void launch(const auto& kernel, device::grid_shape grid) const {
        put([=, where = inner] { where.launch(kernel, grid); });
    }
    template <class T, std::size_t Extent>
    void upload(std::span<const T, Extent> from, T* to) const {
        put([=, where = inner] { where.upload(from, to); });
    }
    template <class T, std::size_t Extent>
    void download(const T* from, std::span<T, Extent> to) const {
        put([=, where = inner] { where.download(from, to); });
    }
    template <class T>
    void copy(const T* from, T* to, std::size_t count) const {
        put([=, where = inner] { where.copy(from, to, count); });
    }
    void fill_zero(auto* to, std::size_t count) const {
        put([=, where = inner] { where.fill_zero(to, count); });
    }
    void wait() const noexcept {}

  private:
    template <class F>
    void put(F&& f) const {
        if (into == nullptr) {
            f();
        } else {
            into->emplace_back(std::forward<F>(f));
        }
    }
};

/// Records what f enqueues for each key once, and replays it: device::graph_cache on the host.
struct run_recorded {
    std::map<std::size_t, recording_blocks::recording> recordings;

    void operator()(const recording_blocks& where, std::size_t key, auto&& f) {
        const auto [found, made] = recordings.try_emplace(key);
        if (made) {
            f(recording_blocks{where.inner, &found->second});
        }
        for (const auto& step : found->second) {
            step();
        }
    }
};

}  // namespace tests
