// The pipeline of tokens with an engine that only adds: long, for each test is one order of events among
// threads.
#include <tensafe/serving/pipeline_report.hpp>
#include <tensafe/serving/token_pipeline.hpp>

#include <exception>

#include "../gate.hpp"
#include "../random_values.hpp"
#include "../test.hpp"

using namespace tests;

namespace {

using namespace tensafe::serving;
using std::chrono::nanoseconds;

constexpr auto patience = gate::patience;

/// Group 0: two numbers and their sum. Group 1: three numbers, their sum and their product.
struct sums {
    std::function<void(std::span<request>)> before{};
    std::vector<std::vector<float>> batches{};  ///< the first number of each hidden state
    std::function<void(std::span<request>)> after{};

    std::size_t groups() const { return 2; }
    std::size_t d(std::size_t group) const { return group + 2; }
    std::size_t rows(std::size_t group) const { return group + 1; }
    void run(std::span<request> batch) {
        batches.emplace_back();
        for (const request& item : batch) {
            batches.back().push_back(item.hidden[0]);
        }
        if (before) {
            before(batch);
        }
        for (request& item : batch) {
            double sum = 0;
            double product = 1;
            for (const float x : item.hidden) {
                sum += static_cast<double>(x);
                product *= static_cast<double>(x);
            }
            item.answers[0] = sum;
            if (item.group == 1) {
                item.answers[1] = product;
            }
        }
        if (after) {
            after(batch);
        }
    }
};
/// A fixture.
struct with_sums {
    sums engine;
};

static_assert(request_engine<sums>);
static_assert(!request_engine<int>);

pipeline_options options(std::size_t threads, std::size_t batch, std::size_t sequences,
                         std::function<nanoseconds()> clock = {}) {
    pipeline_options o;
    o.forward_threads = threads;
    o.largest_batch = batch;
    o.most_sequences = sequences;
    o.clock = std::move(clock);
    return o;
}

/// Asks `steps` times with {name, step number} and then ends; calls `at(step)` first.
token_sequence asking(float name, int steps, std::function<void(int)> at = {}) {
    return [h = std::array<float, 2>{name, 0}, number = 0, steps,
            at = std::move(at)](std::span<const double>) mutable {
        if (at) {
            at(number);
        }
        h[1] = static_cast<float>(number);
        return number++ == steps ? step::end() : step::ask_last(0, h);
    };
}

/// Returns when a submitter has begun to wait; false if none does.
template <class Pipeline>
bool waits_for_room(const Pipeline& pipeline) {
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (pipeline.report().submitters_waiting == 0) {
        if (std::chrono::steady_clock::now() > limit) {
            return false;
        }
        std::this_thread::yield();
    }
    return true;
}

/// Holds the batch that begins with the sequence 0 until whatever was submitted meanwhile waits for the
/// engine or is over.
class held_batch {
  public:
    explicit held_batch(sums& engine) {
        engine.before = [this](std::span<request> batch) {
            if (batch[0].hidden[0] == 0) {
                static_cast<void>(queued_.pass());
            }
        };
    }
    sequence_handle start(token_pipeline<sums>& pipeline) {
        auto first = pipeline.submit(asking(0, 1));
        REQUIRE(queued_.wait_until_somebody_is_there());
        return first;
    }
    /// Its forward comes after those of the others, if there is one thread for them.
    void release(token_pipeline<sums>& pipeline) {
        static_cast<void>(pipeline.submit(asking(6, 0, [this](int) { queued_.open(); })));
    }

  private:
    gate queued_;
};

class clock_of_test {
  public:
    void advance(std::int64_t ticks) { now_ += ticks; }
    std::function<nanoseconds()> reader() {
        return [this] { return nanoseconds(now_.load()); };
    }

  private:
    std::atomic<std::int64_t> now_{1000};
};

}  // namespace

TEST_CASE_FIXTURE(with_sums,
                  "a sequence gets the answers to its last request, step by step, in memory that stays") {
    token_pipeline<sums> pipeline(engine);
    std::vector<std::vector<double>> got;
    std::vector<const double*> places;
    std::array<float, 3> h{};
    const auto handle = pipeline.submit([&](std::span<const double> answers) {
        got.emplace_back(answers.begin(), answers.end());
        if (!answers.empty()) {
            places.push_back(answers.data());
        }
        const auto n = static_cast<float>(got.size());
        h = {n, 2, 3};
        if (got.size() == 5) {
            return step::end();
        }
        return got.size() % 2 == 1 ? step::ask(1, h) : step::ask_last(0, std::span(h).first(2));
    });
    handle.wait();
    CHECK(handle.status() == sequence_status::finished);
    CHECK(got == std::vector<std::vector<double>>{{}, {6, 6}, {4}, {8, 18}, {6}});
    CHECK(std::all_of(places.begin(), places.end(), [&](const double* p) { return p == places[0]; }));
    const auto report = pipeline.report();
    CHECK(report.forwards == 5);
    CHECK(report.requests == 4);
    CHECK(report.tokens == 2);
    CHECK(report.token.count() == 2);
    CHECK(report.mean_batch() == 1);
}

TEST_CASE_FIXTURE(
    with_sums, "many sequences on many threads each get their own answers, and run on one thread at a time") {
    token_pipeline<sums> pipeline(engine, options(3, 4, 64));
    constexpr int sequences = 24;
    constexpr int steps = 20;
    struct stream {
        std::array<float, 2> h{};
        std::atomic<int> inside{0};
        int number = 0;
        int right = 0;
        bool alone = true;
    };
    std::vector<stream> streams(sequences);
    std::vector<sequence_handle> handles;
    for (int s = 0; s < sequences; ++s) {
        stream& mine = streams[static_cast<std::size_t>(s)];
        handles.push_back(pipeline.submit([&mine, s](std::span<const double> answers) {
            mine.alone = mine.alone && mine.inside++ == 0;
            if (mine.number > 0 && answers.size() == 1) {
                mine.right += answers[0] == static_cast<double>(mine.h[0]) + static_cast<double>(mine.h[1]);
            }
            mine.h = {static_cast<float>(s), static_cast<float>(mine.number)};
            const bool last = mine.number++ == steps;
            --mine.inside;
            return last ? step::end() : step::ask_last(0, mine.h);
        }));
    }
    pipeline.close();
    for (int s = 0; s < sequences; ++s) {
        CAPTURE(s);
        CHECK(handles[static_cast<std::size_t>(s)].status() == sequence_status::finished);
        CHECK(streams[static_cast<std::size_t>(s)].right == steps);
        CHECK(streams[static_cast<std::size_t>(s)].alone);
    }
    const auto report = pipeline.report();
    CHECK(report.submitted == sequences);
    CHECK(report.finished == sequences);
    CHECK(report.tokens == sequences * steps);
    CHECK(report.waiting.count() == sequences * steps);
    CHECK(report.working.count() == sequences * steps);
    CHECK(report.batched == sequences * steps);
    for (const auto& batch : engine.batches) {
        CHECK(batch.size() <= 4);
    }
}

TEST_CASE_FIXTURE(with_sums,
                  "the forward of one sequence and the request of another overlap, and the report shows it") {
    clock_of_test clock;
    gate engine_began;
    gate forward_began;
    gate passed;
    bool engine_met = false;
    bool forward_met = false;
    // Each waits for the other: if they took turns, neither would go on.
    engine.before = [&](std::span<request> batch) {
        if (batch[0].hidden[0] == 1) {
            engine_began.open();
            engine_met = forward_began.pass() && passed.pass();
        }
    };
    token_pipeline<sums> pipeline(engine, options(1, 8, 8, clock.reader()));
    const auto first = pipeline.submit(asking(1, 1));
    const auto second = pipeline.submit(asking(2, 1, [&](int number) {
        if (number == 0) {
            forward_began.open();
            forward_met = engine_began.pass();
            clock.advance(100);
            passed.open();
        }
    }));
    first.wait();
    second.wait();
    CHECK(engine_met);
    CHECK(forward_met);
    const auto report = pipeline.report();
    CHECK(report.both_busy.count() == 100);
    CHECK(report.engine_busy.count() == 100);
    CHECK(report.forward_busy.count() == 100);
    CHECK(report.overlap() == 1);
}

TEST_CASE_FIXTURE(with_sums,
                  "one sequence alone never overlaps with itself, however many threads there are") {
    clock_of_test clock;
    std::atomic<int> busy{0};
    bool together = false;
    engine.before = [&](std::span<request>) {
        together = together || busy++ != 0;
        clock.advance(30);
    };
    engine.after = [&](std::span<request>) { --busy; };
    token_pipeline<sums> pipeline(engine, options(4, 8, 8, clock.reader()));
    std::array<float, 2> h{};
    int steps = 0;
    pipeline
        .submit([&](std::span<const double>) {
            together = together || busy++ != 0;
            clock.advance(steps < 50 ? 10 : 0);
            --busy;
            return steps++ == 50 ? step::end() : step::ask_last(0, h);
        })
        .wait();
    CHECK_FALSE(together);
    // 50 times 10 ns of forward and 30 ns of encrypted work: all times are known.
    const auto report = pipeline.report();
    CHECK(report.overlap() == 0);
    CHECK(report.mean_batch() == 1);
    CHECK(report.span.count() == 2000);
    CHECK(report.forward.percentile(50).count() == 10);
    CHECK(report.working.min().count() == 30);
    CHECK(report.working.max().count() == 30);
    CHECK(report.waiting.max().count() == 0);
    CHECK(report.token.count() == 50);
    CHECK(report.token.min().count() == 40);
    CHECK(report.token.max().count() == 40);
    CHECK(report.engine_fraction() == doctest::Approx(0.75));
    CHECK(report.forward_fraction() == doctest::Approx(0.25 / 4));  // of four threads
    CHECK(report.tokens_per_second() == doctest::Approx(1e9 / 40));
    CHECK(report.requests_per_second() == doctest::Approx(1e9 / 40));
}

TEST_CASE_FIXTURE(with_sums, "the time of a request is told apart from the time it waits for the engine") {
    clock_of_test clock;
    gate queued;
    engine.before = [&](std::span<request> batch) {
        if (batch[0].hidden[0] == 1) {
            static_cast<void>(queued.pass());
            clock.advance(1000);
        }
    };
    token_pipeline<sums> pipeline(engine, options(1, 8, 8, clock.reader()));
    static_cast<void>(pipeline.submit(asking(1, 1)));
    REQUIRE(queued.wait_until_somebody_is_there());
    static_cast<void>(pipeline.submit(asking(2, 1)));
    static_cast<void>(pipeline.submit(asking(3, 0, [&](int) { queued.open(); })));  // after the request of 2
    pipeline.close();
    const auto report = pipeline.report();
    CHECK(report.waiting.count() == 2);
    CHECK(report.waiting.min().count() == 0);
    CHECK(report.waiting.max().count() == 1000);
    CHECK(report.working.min().count() == 0);
    CHECK(report.working.max().count() == 1000);
}

TEST_CASE_FIXTURE(
    with_sums, "what waits goes to the engine together, the longest waiting first, up to the largest batch") {
    held_batch first(engine);
    token_pipeline<sums> pipeline(engine, options(1, 3, 16));
    static_cast<void>(first.start(pipeline));
    for (int s = 1; s <= 5; ++s) {
        static_cast<void>(pipeline.submit(asking(static_cast<float>(s), 1)));
    }
    first.release(pipeline);
    pipeline.close();
    CHECK(engine.batches == std::vector<std::vector<float>>{{0}, {1, 2, 3}, {4, 5}});
    CHECK(pipeline.report().mean_batch() == 2);
}

TEST_CASE_FIXTURE(with_sums, "no sequence starves: all take turns") {
    gate all_there;
    token_pipeline<sums> pipeline(engine, options(1, 1, 16));
    constexpr int steps = 30;
    for (int s = 0; s < 5; ++s) {
        static_cast<void>(pipeline.submit(asking(static_cast<float>(s), steps, [&, s](int number) {
            if (s == 0 && number == 0) {
                static_cast<void>(all_there.pass());
            }
        })));
    }
    all_there.open();
    pipeline.close();
    REQUIRE(engine.batches.size() == 5 * steps);
    for (std::size_t i = 0; i < engine.batches.size(); ++i) {
        CHECK(engine.batches[i] == std::vector<float>{static_cast<float>(i % 5)});
    }
}

TEST_CASE_FIXTURE(with_sums, "what a sequence throws comes out of its handle, and others go on") {
    token_pipeline<sums> pipeline(engine, options(2, 4, 16));
    const auto good = pipeline.submit(asking(1, 10));
    const auto bad = pipeline.submit(asking(2, 10, [](int number) {
        if (number == 3) {
            throw std::out_of_range("no such token");
        }
    }));
    const auto odd = pipeline.submit([](std::span<const double>) -> step { throw 42; });
    CHECK_THROWS_WITH_AS(bad.wait(), Contains("no such token"), std::out_of_range);
    CHECK_THROWS_WITH_AS(bad.wait(), Contains("no such token"), std::out_of_range);  // each time
    CHECK_THROWS_AS(odd.wait(), int);
    CHECK(bad.status() == sequence_status::failed);
    good.wait();
    pipeline.submit(asking(3, 1)).wait();
    CHECK(pipeline.report().failed == 2);
    CHECK(pipeline.report().finished == 2);
    CHECK(pipeline.report().requests == 10 + 3 + 1);
}

TEST_CASE_FIXTURE(with_sums,
                  "a request of a wrong shape is the sequence's error and never reaches the engine") {
    token_pipeline<sums> pipeline(engine);
    const std::array<float, 3> h{1, 2, 3};
    const auto group = pipeline.submit([&](std::span<const double>) { return step::ask(2, h); });
    const auto size = pipeline.submit([&](std::span<const double>) { return step::ask(0, h); });
    CHECK_THROWS_WITH_AS(group.wait(), Contains("group 2, expected less than 2"), parameter_error);
    CHECK_THROWS_WITH_AS(size.wait(), Contains("3 entries, expected 2"), shape_error);
    pipeline.close();
    CHECK(engine.batches.empty());
}

TEST_CASE_FIXTURE(with_sums,
                  "a request that fails ends its own sequence, and its neighbours have their answers") {
    engine.after = [](std::span<request> batch) {
        for (request& item : batch) {
            if (item.hidden[0] == 2) {
                item.error = std::make_exception_ptr(range_exceeded_error("too large"));
            }
        }
    };
    held_batch first(engine);
    token_pipeline<sums> pipeline(engine, options(1, 4, 16));
    static_cast<void>(first.start(pipeline));
    std::vector<sequence_handle> handles;
    for (int s = 1; s <= 3; ++s) {
        handles.push_back(pipeline.submit(asking(static_cast<float>(s), 2)));
    }
    first.release(pipeline);
    handles[0].wait();
    CHECK_THROWS_WITH_AS(handles[1].wait(), Contains("too large"), range_exceeded_error);
    handles[2].wait();
    pipeline.close();
    REQUIRE(engine.batches.size() >= 2);
    CHECK(engine.batches[1] == std::vector<float>{1, 2, 3});  // they were neighbours
    CHECK(pipeline.report().failed == 1);
    CHECK(pipeline.report().requests == 1 + 2 + 2);
    CHECK(pipeline.report().tokens == 1 + 2 + 2);
}

TEST_CASE_FIXTURE(with_sums, "an engine that throws ends the sequences of that batch, and no other") {
    held_batch first(engine);
    engine.after = [](std::span<request> batch) {
        if (batch[0].hidden[0] == 1) {
            throw device_error("the device is gone");
        }
    };
    token_pipeline<sums> pipeline(engine, options(1, 2, 16));
    const auto before = first.start(pipeline);
    std::vector<sequence_handle> handles;
    for (int s = 1; s <= 3; ++s) {
        handles.push_back(pipeline.submit(asking(static_cast<float>(s), 1)));
    }
    first.release(pipeline);
    before.wait();
    CHECK_THROWS_AS(handles[0].wait(), device_error);
    CHECK_THROWS_AS(handles[1].wait(), device_error);
    handles[2].wait();
    CHECK(pipeline.report().failed == 2);
}

TEST_CASE_FIXTURE(with_sums, "a sequence that is cancelled before its first step is never called") {
    gate release;
    token_pipeline<sums> pipeline(engine, options(1, 4, 16));
    const auto first = pipeline.submit(asking(1, 1, [&](int number) {
        if (number == 0) {
            static_cast<void>(release.pass());
        }
    }));
    REQUIRE(release.wait_until_somebody_is_there());
    bool called = false;
    const auto second = pipeline.submit(asking(2, 1, [&](int) { called = true; }));
    second.cancel();
    CHECK_FALSE(second.done());
    release.open();
    CHECK_THROWS_AS(second.wait(), cancelled_error);
    first.wait();
    CHECK_FALSE(called);
    CHECK(second.status() == sequence_status::cancelled);
    CHECK(pipeline.report().cancelled == 1);
}

TEST_CASE_FIXTURE(
    with_sums,
    "cancelling takes effect at its next step: with the engine, waiting for it, or in the forward") {
    gate release;
    engine.before = [&](std::span<request> batch) {
        if (batch[0].hidden[0] == 1) {
            static_cast<void>(release.pass());
        }
    };
    token_pipeline<sums> pipeline(engine, options(1, 1, 16));
    std::atomic<int> calls{0};
    const auto with_engine = pipeline.submit(asking(1, 5, [&](int) { ++calls; }));
    REQUIRE(release.wait_until_somebody_is_there());
    const auto waiting = pipeline.submit(asking(2, 5, [&](int) { ++calls; }));
    gate in_forward;
    gate cancelled;
    const auto forward = pipeline.submit(asking(3, 5, [&](int) {
        ++calls;
        in_forward.open();
        static_cast<void>(cancelled.pass());
    }));
    const auto ends = pipeline.submit(asking(4, 0, [&](int) { ++calls; }));
    REQUIRE(in_forward.pass());
    with_engine.cancel();
    waiting.cancel();
    forward.cancel();
    cancelled.open();
    release.open();
    CHECK_THROWS_AS(with_engine.wait(), cancelled_error);
    CHECK_THROWS_AS(waiting.wait(), cancelled_error);
    CHECK_THROWS_AS(forward.wait(), cancelled_error);
    ends.wait();
    ends.cancel();  // too late
    CHECK(ends.status() == sequence_status::finished);
    CHECK(calls == 4);
    pipeline.close();
    CHECK(engine.batches == std::vector<std::vector<float>>{{1}});
    CHECK(pipeline.report().requests == 1);
}

TEST_CASE_FIXTURE(with_sums,
                  "no more sequences are in flight than allowed: submissions wait, or are refused") {
    gate release;
    token_pipeline<sums> pipeline(engine, options(2, 4, 2));
    const auto hold = [&](int) { static_cast<void>(release.pass()); };
    const auto first = pipeline.submit(asking(1, 1, hold));
    const auto second = pipeline.submit(asking(2, 1, hold));
    token_sequence third = asking(3, 1);
    CHECK_FALSE(pipeline.try_submit(std::move(third)).has_value());
    REQUIRE(third != nullptr);  // it was left alone
    release.open();
    first.wait();  // and so there is room
    const auto accepted = pipeline.try_submit(std::move(third));
    REQUIRE(accepted.has_value());
    accepted->wait();
    second.wait();
}

TEST_CASE_FIXTURE(with_sums, "a submitter waits until there is room, and then goes on") {
    gate release;
    token_pipeline<sums> pipeline(engine, options(1, 4, 1));
    static_cast<void>(pipeline.submit(asking(1, 1, [&](int) { static_cast<void>(release.pass()); })));
    std::atomic<bool> accepted{false};
    std::thread submitter([&] {
        static_cast<void>(pipeline.submit(asking(2, 1)));
        accepted = true;
    });
    CHECK(waits_for_room(pipeline));
    CHECK_FALSE(accepted);
    release.open();
    submitter.join();
    pipeline.close();
    CHECK(accepted);
    CHECK(pipeline.report().submitters_waiting == 0);
    CHECK(engine.batches == std::vector<std::vector<float>>{{1}, {2}});
}

TEST_CASE_FIXTURE(with_sums, "several submitters share the room that there is") {
    token_pipeline<sums> pipeline(engine, options(2, 4, 2));
    // A sequence counts as over before it makes room, and as accepted after it has got some.
    std::atomic<int> accepted{0};
    std::atomic<int> over{0};
    std::atomic<int> most{0};
    constexpr int sequences = 50;
    on_threads(3, [&](std::size_t) {
        for (int i = 0; i < sequences; ++i) {
            static_cast<void>(pipeline.submit(asking(1, 3, [&](int number) { over += number == 3; })));
            const int now_accepted = ++accepted;
            const int live = now_accepted - over.load();
            int before = most.load();
            while (live > before && !most.compare_exchange_weak(before, live)) {
            }
        }
    });
    pipeline.close();
    CHECK(over == 3 * sequences);
    CHECK(most <= 2);
    CHECK(pipeline.report().finished == 3 * sequences);
}

TEST_CASE_FIXTURE(with_sums, "stopping cancels what is in flight and wakes whoever waits for room") {
    gate release;
    std::optional<token_pipeline<sums>> pipeline(std::in_place, engine, options(1, 4, 1));
    const auto first = pipeline->submit(asking(1, 1, [&](int) { static_cast<void>(release.pass()); }));
    REQUIRE(release.wait_until_somebody_is_there());
    std::string thrown;
    std::thread submitter([&] { thrown = refusal<closed_error>([&] { pipeline->submit(asking(2, 1)); }); });
    CHECK(waits_for_room(*pipeline));
    pipeline->stop();
    submitter.join();
    CHECK(contains(thrown, "closed"));
    CHECK_FALSE(first.done());
    release.open();
    CHECK_THROWS_AS(first.wait(), cancelled_error);
    CHECK_THROWS_AS(pipeline->try_submit(asking(3, 1)), closed_error);
    pipeline->close();
    pipeline.reset();
    CHECK_THROWS_AS(first.wait(), cancelled_error);  // handles outlive the pipeline
}

TEST_CASE_FIXTURE(with_sums,
                  "closing waits for all sequences and takes no more; dropped handles change nothing") {
    token_pipeline<sums> pipeline(engine, options(2, 4, 16));
    std::atomic<int> ended{0};
    for (int s = 0; s < 10; ++s) {
        static_cast<void>(pipeline.submit(asking(1, 7, [&](int number) { ended += number == 7; })));
    }
    pipeline.close();
    CHECK(ended == 10);
    CHECK(pipeline.report().finished == 10);
    CHECK_THROWS_AS(pipeline.submit(asking(1, 1)), closed_error);
    pipeline.close();  // again
}

TEST_CASE_FIXTURE(with_sums,
                  "a pipeline that is destroyed cancels endless sequences and lets go of their code") {
    gate running;
    const auto captured = std::make_shared<int>(0);
    const std::weak_ptr<int> watched = captured;
    std::vector<sequence_handle> handles;
    {
        token_pipeline<sums> pipeline(engine, options(2, 2, 16));
        for (int s = 0; s < 6; ++s) {
            handles.push_back(pipeline.submit(asking(1, 1 << 30, [&, captured](int number) {
                if (number == 3) {
                    running.open();
                }
            })));
        }
        REQUIRE(running.pass());
    }
    CHECK(watched.use_count() == 1);
    for (const auto& t : handles) {
        CHECK(t.status() == sequence_status::cancelled);
    }
}

TEST_CASE_FIXTURE(with_sums,
                  "when a handle says that a sequence is over, its code is gone and there is room") {
    token_pipeline<sums> pipeline(engine, options(1, 1, 1));
    for (int i = 0; i < 200; ++i) {
        auto captured = std::make_shared<int>(0);
        const std::weak_ptr<int> watched = captured;
        const auto t = pipeline.submit(asking(1, 1, [c = std::move(captured)](int) {}));
        t.wait();
        REQUIRE(watched.expired());
        auto next = pipeline.try_submit(asking(2, 0));
        REQUIRE(next.has_value());
        next->wait();
    }
}

TEST_CASE_FIXTURE(with_sums, "a handle can be waited for with a limit") {
    gate release;
    token_pipeline<sums> pipeline(engine);
    const auto t = pipeline.submit(asking(1, 0, [&](int) { static_cast<void>(release.pass()); }));
    CHECK_FALSE(t.wait_for(std::chrono::milliseconds(1)));
    release.open();
    CHECK(t.wait_for(patience));
}

TEST_CASE_FIXTURE(with_sums, "a sequence may submit others, but must not wait for room, handles or the end") {
    token_pipeline<sums> pipeline(engine, options(1, 4, 2));
    std::optional<sequence_handle> child;
    std::string full;
    std::string waited;
    std::string closed;
    bool refused = false;
    const auto parent = pipeline.submit([&](std::span<const double>) {
        child = pipeline.submit(asking(1, 2));
        refused = !pipeline.try_submit(asking(2, 2)).has_value();
        full = refusal<error>([&] { pipeline.submit(asking(2, 2)); });
        waited = refusal<error>([&] { child->wait(); });
        closed = refusal<error>([&] { pipeline.close(); });
        return step::end();
    });
    parent.wait();
    REQUIRE(child.has_value());
    child->wait();
    CHECK(refused);
    CHECK(contains(full, "try_submit"));
    CHECK(contains(waited, "another thread"));
    CHECK(contains(closed, "use stop"));
    pipeline.submit(asking(3, 1)).wait();  // it was not closed
}

TEST_CASE_FIXTURE(with_sums, "a sequence may stop its pipeline") {
    token_pipeline<sums> pipeline(engine, options(2, 4, 16));
    const auto endless = pipeline.submit(asking(1, 1 << 30));
    const auto stopping = pipeline.submit([&](std::span<const double>) {
        pipeline.stop();
        return step::end();
    });
    stopping.wait();
    CHECK_THROWS_AS(endless.wait(), cancelled_error);
}

TEST_CASE_FIXTURE(with_sums,
                  "a pipeline that is stopped while requests are gathered sends none of them to the engine") {
    gate queued;
    engine.before = [&](std::span<request>) { static_cast<void>(queued.pass()); };
    token_pipeline<sums> pipeline(engine, options(1, 4, 16));
    static_cast<void>(pipeline.submit(asking(0, 1)));
    REQUIRE(queued.wait_until_somebody_is_there());
    const auto gathered = pipeline.submit(asking(1, 1));
    std::shared_ptr<void> stops(nullptr, [&](void*) { pipeline.stop(); });
    const auto cancelled = pipeline.submit(asking(2, 1, [s = std::move(stops)](int) {}));
    gate both_ask;
    static_cast<void>(pipeline.submit(asking(3, 0, [&](int) { both_ask.open(); })));
    REQUIRE(both_ask.pass());
    cancelled.cancel();  // the engine's thread comes to it after the other, and it stops the pipeline then
    queued.open();
    CHECK_THROWS_AS(cancelled.wait(), cancelled_error);
    CHECK_THROWS_AS(gathered.wait(), cancelled_error);
    pipeline.close();
    CHECK(engine.batches == std::vector<std::vector<float>>{{0}});
}

TEST_CASE("an exception that nobody waits for may call the pipeline when it goes away") {
    struct calling {
        std::shared_ptr<void> when_it_goes;
    };
    enum class thrown_by { sequence, request, batch };
    for (const thrown_by where : {thrown_by::sequence, thrown_by::request, thrown_by::batch}) {
        CAPTURE(static_cast<int>(where));
        sums engine;
        gate dropped;
        gate gone;
        const token_pipeline<sums>* called = nullptr;
        const auto raise = [&] {
            throw calling{std::shared_ptr<void>(nullptr, [&](void*) {
                static_cast<void>(called->report());
                gone.open();
            })};
        };
        engine.after = [&](std::span<request> batch) {
            try {
                raise();
            } catch (...) {
                if (where == thrown_by::batch) {
                    throw;
                }
                batch[0].error = std::current_exception();
            }
        };
        token_pipeline<sums> pipeline(engine);
        called = &pipeline;
        static_cast<void>(pipeline.submit(asking(1, 1, [&](int) {
            static_cast<void>(dropped.pass());
            if (where == thrown_by::sequence) {
                raise();
            }
        })));
        dropped.open();
        CHECK(gone.pass());
    }
}

TEST_CASE("while work is under way no part of a report passes the whole") {
    nanoseconds now{0};
    serving::detail::pipeline_stopwatch watch([&] { return now; });
    watch.report.forward_threads = 3;
    watch.submitted();
    const auto first = watch.forward_began();
    now = nanoseconds(2);
    watch.forward_ended(first);
    CHECK(watch.report.span.count() == 2);
    watch.forward_began();
    watch.forward_began();
    now = nanoseconds(20);
    watch.forward_began();  // counts what has been busy since: two forwards
    CHECK(watch.report.span.count() == 20);
    CHECK(watch.report.forward_busy.count() == 38);
    CHECK(watch.report.forward_fraction() == doctest::Approx(38.0 / 60));
    for (int i = 0; i < 3; ++i) {
        watch.forward_ended(first);
    }
    watch.batch_began();
    now = nanoseconds(60);
    watch.forward_began();
    CHECK(watch.report.span.count() == 60);
    CHECK(watch.report.engine_busy.count() == 40);
    CHECK(watch.report.engine_fraction() == doctest::Approx(40.0 / 60));
    CHECK(watch.report.overlap() == 0);
}

TEST_CASE("a pause without work is not added to the span until work goes on") {
    nanoseconds now{0};
    serving::detail::pipeline_stopwatch watch([&] { return now; });
    watch.submitted();
    const auto first = watch.forward_began();
    now = nanoseconds(10);
    watch.forward_ended(first);
    now = nanoseconds(50);
    watch.submitted();
    const auto second = watch.forward_began();
    CHECK(watch.report.span.count() == 10);
    now = nanoseconds(60);
    watch.forward_ended(second);
    CHECK(watch.report.span.count() == 60);
}

TEST_CASE_FIXTURE(with_sums, "options and engines that cannot work are refused") {
    const auto refused = [&](std::size_t threads, std::size_t batch, std::size_t sequences) {
        return refusal<parameter_error>(
            [&] { token_pipeline<sums> pipeline(engine, options(threads, batch, sequences)); });
    };
    CHECK(contains(refused(0, 1, 1), "forward_threads: got 0"));
    CHECK(contains(refused(1025, 1, 1), "forward_threads: got 1025, expected 1 to 1024"));
    CHECK(contains(refused(1, 0, 1), "largest_batch: got 0"));
    CHECK(contains(refused(1, 1, 0), "most_sequences: got 0"));
    CHECK(contains(refused(1, 1, static_cast<std::size_t>(-1)), "most_sequences: got"));
    struct nothing {
        std::size_t groups() const { return 0; }
        std::size_t d(std::size_t) const { return 0; }
        std::size_t rows(std::size_t) const { return 0; }
        void run(std::span<request>) {}
    } none;
    CHECK_THROWS_AS(token_pipeline<nothing>{none}, parameter_error);
    token_pipeline<sums> pipeline(engine);
    CHECK_THROWS_AS(pipeline.submit({}), parameter_error);
    CHECK(pipeline.report().submitted == 0);
    CHECK(pipeline.report().tokens_per_second() == 0);
    CHECK(pipeline.report().mean_batch() == 0);
}
