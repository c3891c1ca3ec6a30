#include <tensafe/device/cuda/device.cuh>
#include <tensafe/device/cuda/device_space.cuh>
#include <tensafe/device/cuda/stream.cuh>

#include <cstdio>
#include <span>

namespace exec = tensafe::exec;

/// A kernel of a user's own.
struct fill {
    static constexpr int threads = 32;
    using shared_type = exec::no_shared;
    int* to;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.last([&](int t) { to[t] = t; });
    }
};

int main() {
    if (exec::device_count() == 0) {
        std::puts("no device");
        return 0;
    }
    const exec::stream stream;
    tensafe::memory::device_buffer<int> numbers(32);
    stream.where().launch(fill{numbers.data()}, {1});
    int last = 0;
    stream.where().download(numbers.data() + 31, std::span<int, 1>(&last, 1));
    stream.where().wait();
    return last == 31 ? 0 : 1;
}
