#include <tensafe/exec/host.hpp>
#include <tensafe/exec/host_parallel.hpp>

#include <tbb/global_control.h>
#include <tbb/task_group.h>

#include <cfenv>
#include <mutex>

#include "../test.hpp"
#include "thread_sanitizer.hpp"

using namespace tests;
using namespace exec;

static_assert(host_execution<host> && host_execution<host_parallel>);
static_assert(!host_execution<int>);
static_assert(host::threads() == 1);
static_assert(!std::is_copy_constructible_v<host_parallel> && !std::is_copy_assignable_v<host_parallel>);

namespace {

/// Threads for the tests on machines with one processor, too.
const tbb::global_control more_threads(tbb::global_control::max_allowed_parallelism, 4);

/// Returns when `expected` callers have come, or after a while: true if they all came.
class meeting {
  public:
    explicit meeting(int expected) : expected_(expected) {}
    bool attend() {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        ++present_;
        while (present_ < expected_) {
            if (std::chrono::steady_clock::now() > end) {
                return false;
            }
            std::this_thread::yield();
        }
        return true;
    }

  private:
    int expected_;
    std::atomic<int> present_{0};
};

/// What a loop over `count` indices did, to be called by several threads.
class record {
  public:
    record(std::size_t count, std::size_t slots) : calls_(count), busy_(slots) {}

    void enter(std::size_t index, std::size_t slot) {
        if (index >= calls_.size() || slot >= busy_.size() || busy_[slot].exchange(true)) {
            fine_ = false;
        } else {
            ++calls_[index];
        }
    }
    void leave(std::size_t slot) { busy_[slot] = false; }

    /// Whether each index came once and no slot was shared.
    bool is_complete() const {
        return fine_ && std::all_of(calls_.begin(), calls_.end(), [](const auto& c) { return c == 1; });
    }

  private:
    std::vector<std::atomic<int>> calls_;
    std::vector<std::atomic<bool>> busy_;
    std::atomic<bool> fine_{true};
};

/// A loop of calls that take long enough to overlap.
bool runs_completely(const host_parallel& where, std::size_t count) {
    record seen(count, where.threads());
    where.for_each(count, [&](std::size_t index, std::size_t slot) {
        seen.enter(index, slot);
        std::this_thread::yield();
        seen.leave(slot);
    });
    return seen.is_complete();
}

}  // namespace

TEST_CASE("the host takes the indices in order, all in slot 0") {
    std::vector<std::size_t> order;
    host{}.for_each(5, [&](std::size_t index, std::size_t slot) {
        CHECK(slot == 0);
        order.push_back(index);
    });
    CHECK(order == std::vector<std::size_t>{0, 1, 2, 3, 4});
    host{}.for_each(0, [](std::size_t, std::size_t) { FAIL("there is no index"); });
}

TEST_CASE("each index comes once and slots are not shared, whatever the number of threads") {
    for (const int threads : {1, 2, 3, 4, 7, 64}) {
        const host_parallel where(threads);
        REQUIRE(where.threads() == static_cast<std::size_t>(threads));
        for (const std::size_t count : {0U, 1U, 2U, 3U, 4U, 5U, 63U, 64U, 65U, 1000U}) {
            INFO("threads := ", threads, ", count := ", count);
            CHECK(runs_completely(where, count));
        }
    }
}

TEST_CASE("results do not depend on who computes them, and are there when for_each returns") {
    const auto squares = [](const auto& where) {
        std::vector<std::size_t> values(500);
        std::vector<std::size_t> work(where.threads());  // not atomic: one call at a time has a slot
        where.for_each(values.size(), [&](std::size_t index, std::size_t slot) {
            work[slot] = index;
            work[slot] *= index;
            values[index] = work[slot];
        });
        return values;
    };
    const auto expected = squares(host{});
    const host_parallel where(4);
    for (int repetition = 0; repetition < 50; ++repetition) {
        CHECK(squares(where) == expected);
    }
}

TEST_CASE("several calls run at the same time, on different threads") {
    for (const int threads : {2, 3, 4}) {
        const host_parallel where(threads);
        meeting all(threads);
        std::atomic<bool> met{true};
        std::mutex mutex;
        std::set<std::thread::id> ids;
        where.for_each(where.threads(), [&](std::size_t, std::size_t) {
            if (!all.attend()) {
                met = false;
            }
            const std::lock_guard lock(mutex);
            ids.insert(std::this_thread::get_id());
        });
        CHECK(met);
        CHECK(ids.size() == where.threads());
        CHECK(ids.contains(std::this_thread::get_id()));
    }
}

TEST_CASE("one thread, or one index, is the caller itself, in order") {
    const auto caller = std::this_thread::get_id();
    const host_parallel one(1);
    std::vector<std::size_t> order;
    one.for_each(100, [&](std::size_t index, std::size_t slot) {
        CHECK(slot == 0);
        CHECK(std::this_thread::get_id() == caller);
        order.push_back(index);
    });
    std::vector<std::size_t> expected(100);
    std::iota(expected.begin(), expected.end(), std::size_t{0});
    CHECK(order == expected);
    const host_parallel three(3);
    three.for_each(1, [&](std::size_t, std::size_t) { CHECK(std::this_thread::get_id() == caller); });
}

TEST_CASE("an exception reaches the caller with its type, and the object stays usable") {
    const host_parallel where(3);
    for (const std::size_t guilty : {0U, 1U, 50U, 99U}) {
        CHECK_THROWS_WITH_AS(
            where.for_each(100,
                           [&](std::size_t index, std::size_t) {
                               if (index == guilty) {
                                   throw tensafe::shape_error("index " + std::to_string(index));
                               }
                           }),
            ("index " + std::to_string(guilty)).c_str(), tensafe::shape_error);
        CHECK(runs_completely(where, 100));
    }
    CHECK_THROWS_AS(where.for_each(100, [](std::size_t, std::size_t) { throw std::logic_error("all"); }),
                    std::logic_error);
    CHECK(runs_completely(where, 100));
}

TEST_CASE("after an exception the indices that have not begun are left out") {
    const host_parallel where(2);
    meeting both(2);
    std::atomic<int> calls{0};
    CHECK_THROWS_AS(where.for_each(10'000,
                                   [&](std::size_t, std::size_t) {
                                       if (++calls <= 2 && both.attend()) {
                                           throw std::logic_error("enough");
                                       }
                                       std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                   }),
                    std::logic_error);
    CHECK(calls == 2);
    CHECK_THROWS_AS(where.for_each(10'000,
                                   [&](std::size_t index, std::size_t) {
                                       if (index == 0) {
                                           throw std::logic_error("enough");
                                       }
                                       ++calls;
                                       std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                   }),
                    std::logic_error);
    CHECK(calls < 9'000);
}

TEST_CASE("an exception inside a nested loop ends both") {
    const host_parallel where(2);
    CHECK_THROWS_AS(where.for_each(4,
                                   [&](std::size_t outer, std::size_t) {
                                       where.for_each(4, [&](std::size_t inner, std::size_t) {
                                           if (outer + inner == 5) {
                                               throw std::logic_error("inner");
                                           }
                                       });
                                   }),
                    std::logic_error);
    CHECK(runs_completely(where, 10));
}

TEST_CASE("a loop inside a loop is complete, and both keep their slots apart") {
    const host_parallel where(4);
    const host_parallel other(3);
    for (const host_parallel* inside : {&where, &other}) {
        record outer(20, where.threads());
        std::atomic<int> complete{0};
        where.for_each(20, [&](std::size_t index, std::size_t slot) {
            outer.enter(index, slot);
            complete += runs_completely(*inside, 30) ? 1 : 0;
            outer.leave(slot);
        });
        CHECK(outer.is_complete());
        CHECK(complete == 20);
    }
}

TEST_CASE("a caller that waits does nothing for another caller: it may hold a lock that the other wants") {
    const host_parallel where(4);
    const auto waiting = std::this_thread::get_id();
    meeting all(3);
    std::atomic<bool> other_is_done{false};
    std::atomic<int> done_by_waiting{0};
    std::thread other([&] {
        all.attend();
        where.for_each(200, [&](std::size_t, std::size_t) {
            done_by_waiting += std::this_thread::get_id() == waiting ? 1 : 0;
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        });
        other_is_done = true;
    });
    where.for_each(2, [&](std::size_t, std::size_t) {
        all.attend();
        while (std::this_thread::get_id() != waiting && !other_is_done) {
            std::this_thread::yield();
        }
    });
    other.join();
    CHECK(done_by_waiting == 0);
}

TEST_CASE("two objects whose calls are nested in both orders do not wait for each other") {
    const host_parallel a(2);
    const host_parallel b(2);
    meeting all_of_a(2);
    std::atomic<int> calls{0};
    a.for_each(2, [&](std::size_t, std::size_t) {
        all_of_a.attend();  // no place in a is free from here on
        b.for_each(
            2, [&](std::size_t, std::size_t) { a.for_each(2, [&](std::size_t, std::size_t) { ++calls; }); });
    });
    CHECK(calls == 8);
}

TEST_CASE("several threads share one object, each with slots of its own") {
    const host_parallel where(2);
    std::array<std::atomic<int>, 5> complete{};
    on_threads(complete.size(), [&](std::size_t caller) {
        for (int repetition = 0; repetition < 20; ++repetition) {
            complete[caller] += runs_completely(where, 40) ? 1 : 0;
        }
    });
    for (const auto& count : complete) {
        CHECK(count == 20);
    }
}

TEST_CASE("a loop is complete though the loop around it has failed meanwhile") {
    const host_parallel where(2);
    meeting both(2);
    std::atomic<bool> failed{false};
    std::atomic<bool> complete{false};
    CHECK_THROWS_AS(where.for_each(2,
                                   [&](std::size_t index, std::size_t) {
                                       both.attend();
                                       if (index == 0) {
                                           throw std::logic_error("outer");
                                       }
                                       for (int wait = 0;
                                            wait < 10'000 && !tbb::is_current_task_group_canceling();
                                            ++wait) {
                                           std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                       }
                                       failed = tbb::is_current_task_group_canceling();
                                       complete = runs_completely(where, 100);
                                   }),
                    std::logic_error);
    CHECK(failed);
    CHECK(complete);
}

TEST_CASE("f sees the caller's rounding mode on every thread") {
    const host_parallel where(3);
    for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD}) {
        meeting all(3);
        std::atomic<int> same{0};
        const int before = std::fegetround();
        REQUIRE(std::fesetround(mode) == 0);
        where.for_each(3, [&](std::size_t, std::size_t) {
            all.attend();
            same += std::fegetround() == mode ? 1 : 0;
        });
        const int after = std::fegetround();
        std::fesetround(before);
        CHECK(same == 3);
        CHECK(after == mode);
    }
}

TEST_CASE("f is not copied") {
    struct counter {
        std::atomic<int> calls{0};
        void operator()(std::size_t, std::size_t) { ++calls; }
    };
    static_assert(!std::is_copy_constructible_v<counter>);
    counter f;
    host_parallel(2).for_each(100, f);
    CHECK(f.calls == 100);
    host{}.for_each(10, f);
    CHECK(f.calls == 110);
}

TEST_CASE("0 threads mean as many as the process may use; other counts are taken or refused") {
    const tbb::global_control fewer_threads(tbb::global_control::max_allowed_parallelism, 3);
    CHECK(host_parallel().threads() == 3);
    CHECK(host_parallel(0).threads() == 3);
    CHECK(host_parallel(1024).threads() == 1024);
    CHECK(runs_completely(host_parallel(1024), 3000));
    CHECK_THROWS_WITH_AS(host_parallel(-1),
                         "exec::host_parallel: got -1 threads, expected 1 to 1024, or 0 for as many as the "
                         "process may use",
                         tensafe::parameter_error);
    CHECK_THROWS_AS(host_parallel(1025), tensafe::parameter_error);
}
