#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/stream.cuh>

#include <cstdio>
#include <span>

namespace device = tensafe::device;

/// A kernel of a user's own.
struct fill {
    static constexpr int threads = 32;
    using shared_type = device::no_shared;
    int* to;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        ctx.last([&](int t) { to[t] = t; });
    }
};

int main() {
    if (device::device_count() == 0) {
        std::puts("no device");
        return 0;
    }
    const device::stream stream;
    tensafe::device::device_buffer<int> numbers(32);
    stream.where().launch(fill{numbers.data()}, {1});
    int last = 0;
    stream.where().download(numbers.data() + 31, std::span<int, 1>(&last, 1));
    stream.where().wait();
    return last == 31 ? 0 : 1;
}
