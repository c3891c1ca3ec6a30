// Kernels and hosts that do what a GPU would not tell of: each must be found, and its neighbour that does it
// right must pass. Runs on the software device alone.

#include <tensafe/device/cuda/stream.cuh>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace tensafe;

constexpr int block_threads = 64;
using value = std::uint32_t;

enum class fault {
    none,
    shared_race,
    write_race,
    blocks_race,
    atomic_race,
    unwritten_shared,
    unwritten_global,
    beyond_end,
    misaligned,
    barrier_missed,
    divides_by_zero
};

/// Sums of neighbours by way of shared memory, to[i] = from[i] + from[i ^ 1], with one thing wrong.
template <fault Wrong>
struct neighbours {
    static constexpr int threads = block_threads;
    struct shared_type {
        value values[block_threads + 1];
    };
    const value* from;
    value* to;
    value divisor = 1;

    TENSAFE_HOST_DEVICE void operator()(auto& ctx) const {
        const auto place = [&](int t) { return ctx.block().x * block_threads + static_cast<value>(t); };
        const auto store = [&](int t) {
            ctx.shared().values[Wrong == fault::write_race ? t / 2 : t] = from[place(t)];
            if constexpr (Wrong == fault::atomic_race) {
                to[place(t)] = 0;
            }
        };
        const auto load = [&](int t) {
            const int other = Wrong == fault::unwritten_shared && t == block_threads - 1 ? t + 1 : t ^ 1;
            value sum = ctx.shared().values[t] + ctx.shared().values[other];
            if constexpr (Wrong == fault::atomic_race) {
                ctx.atomic_or(to + ctx.block().x * block_threads, 1U);
                sum += to[place(t)];
            } else if constexpr (Wrong == fault::unwritten_global) {
                sum += to[place(t)];
            } else if constexpr (Wrong == fault::divides_by_zero) {
                sum = sum / divisor;
            }
            if constexpr (Wrong == fault::beyond_end) {
                to[place(t) + 1] = sum;
            } else if constexpr (Wrong == fault::blocks_race) {
                to[t] = sum;
            } else if constexpr (Wrong == fault::misaligned) {
                auto* const bytes = reinterpret_cast<unsigned char*>(to + place(t)) + (t == 0 ? 2 : 0);
                *reinterpret_cast<value*>(bytes) = sum;
            } else {
                to[place(t)] = sum;
            }
        };
        if constexpr (Wrong == fault::shared_race) {
            ctx.each(store);
            ctx.last([&](int t) {
                store(t);
                load(t);
            });
        } else if constexpr (Wrong == fault::barrier_missed) {
            ctx.each(store);
            ctx.last([&](int t) {
                if (t != 3) {
                    ctx.each([](int) {});
                }
                load(t);
            });
        } else {
            ctx.each(store);
            ctx.last(load);
        }
    }
};

constexpr std::size_t count = 4 * block_threads;

/// What one case works on.
struct setting {
    device::stream stream;
    device::pinned_buffer<value> host{count};
    device::device_buffer<value> from{count, memory::uninitialized};
    device::device_buffer<value> to{count, memory::uninitialized};

    device::cuda where() const { return stream.where(); }
    std::span<const value> values() const { return {host.data(), count}; }
    setting() {
        for (std::size_t i = 0; i < count; ++i) {
            host[i] = static_cast<value>(3 * i + 1);
        }
    }
};

template <fault Wrong>
void run_neighbours(setting& s) {
    s.where().upload(s.values(), s.from.data());
    s.where().launch(neighbours<Wrong>{s.from.data(), s.to.data(), Wrong == fault::none ? 1U : 0U},
                     {count / block_threads});
    s.where().wait();
}

struct planted {
    const char* name;
    const char* message;  ///< part of it; null where all is right
    std::function<void(setting&)> run;
};

void expect(bool right, const char* what) {
    if (!right) {
        throw std::runtime_error(what);
    }
}

const std::vector<planted>& all_planted() {
    static const std::vector<planted> all = {
        {"nothing wrong", nullptr, run_neighbours<fault::none>},
        {"a missing barrier", "races", run_neighbours<fault::shared_race>},
        {"two threads write one place", "races: it writes what another thread writes",
         run_neighbours<fault::write_race>},
        {"two blocks write one place", "races: it writes what another thread writes",
         run_neighbours<fault::blocks_race>},
        {"an atomic beside a store", "races", run_neighbours<fault::atomic_race>},
        {"shared memory that nobody wrote", "reads memory that nobody wrote",
         run_neighbours<fault::unwritten_shared>},
        {"device memory that nobody wrote", "reads memory that nobody wrote",
         run_neighbours<fault::unwritten_global>},
        {"one beyond the end", "is outside of every buffer", run_neighbours<fault::beyond_end>},
        {"a word at an odd place", "is not aligned", run_neighbours<fault::misaligned>},
        {"a barrier that one thread misses", "not reached by all", run_neighbours<fault::barrier_missed>},
        {"a division by zero", "divides an integer by zero", run_neighbours<fault::divides_by_zero>},
        {"memory that was given back", "is outside of every buffer",
         [](setting& s) {
             const value* const stale = device::device_buffer<value>(count).data();
             s.where().launch(neighbours<fault::none>{stale, s.to.data()}, {1});
             s.where().wait();
         }},
        {"a pointer of the host", "is outside of every buffer",
         [](setting& s) {
             s.where().launch(neighbours<fault::none>{s.host.data(), s.to.data()}, {1});
             s.where().wait();
         }},
        {"host memory written while an upload may run", "host memory was reused",
         [](setting& s) {
             s.where().upload(s.values(), s.from.data());
             s.host[7] = 0;
             s.where().wait();
         }},
        {"host memory written while a download may run", "host memory was written",
         [](setting& s) {
             s.where().upload(s.values(), s.from.data());
             s.where().wait();
             s.where().download(s.from.data(), s.host.span());
             s.host[7] = 0;
             s.where().wait();
         }},
        {"a download of what nobody wrote", "reads memory that nobody wrote",
         [](setting& s) {
             s.where().download(s.from.data(), s.host.span());
             s.where().wait();
         }},
        {"a copy over the end", "are not in one buffer",
         [](setting& s) {
             s.where().fill_zero(s.from.data() + 1, count);
             s.where().wait();
         }},
        {"pageable memory may be reused at once", nullptr,
         [](setting& s) {
             std::vector<value> values(count, 5);
             s.where().upload(std::span<const value>(values), s.from.data());
             values.assign(count, 6);
             s.where().download(s.from.data(), std::span(values));  // returns when it is done
             expect(values[count - 1] == 5, "got what was written later");
         }},
        {"results without a wait are stale", nullptr,
         [](setting& s) {
             s.where().upload(s.values(), s.from.data());
             s.where().wait();
             const value right = s.host[7];
             s.where().download(s.from.data(), s.host.span());
             expect(s.host[7] != right, "the copy ran before anybody waited");
             s.where().wait();
             expect(s.host[7] == right, "the copy did not run");
         }},
        {"a stream that does not wait for another one", "reads memory that nobody wrote",
         [](setting& s) {
             const device::stream other;
             s.where().upload(s.values(), s.from.data());
             other.where().launch(neighbours<fault::none>{s.from.data(), s.to.data()}, {1});
             other.where().wait();
         }},
        {"and one that does", nullptr,
         [](setting& s) {
             const device::stream other;
             device::event done;
             s.where().upload(s.values(), s.from.data());
             done.record(s.where());
             device::wait_for(other.where(), done);
             other.where().launch(neighbours<fault::none>{s.from.data(), s.to.data()}, {1});
             other.where().wait();
         }},
    };
    return all;
}

/// What went wrong; empty if nothing.
std::string outcome(const planted& one) {
    std::string result;
    try {
        setting s;
        one.run(s);
    } catch (const std::exception& e) {
        result = e.what();
    }
    static_cast<void>(cudaDeviceReset());  // as a new process would begin
    return result;
}

}  // namespace

int main() {
    int missed = 0;
    for (const planted& one : all_planted()) {
        const std::string got = outcome(one);
        const bool right = one.message == nullptr ? got.empty() : got.find(one.message) != std::string::npos;
        std::printf("%-6s %s%s%s\n", right ? "ok" : "MISSED", one.name, right ? "" : ": got ",
                    right ? "" : (got.empty() ? "no error" : got.c_str()));
        missed += right ? 0 : 1;
    }
    std::printf("%zu cases, %d missed\n", all_planted().size(), missed);
    return missed == 0 ? 0 : 1;
}
