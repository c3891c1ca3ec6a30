// Sequences, first over an engine that only adds: long, for each test is one order of events among threads.
// Then over a session, without ciphertexts and with them.
#include <tensafe/exec/host_parallel.hpp>
#include <tensafe/serving/engine_answers.hpp>
#include <tensafe/session/sequences.hpp>

#include "../gate.hpp"
#include "../random_values.hpp"
#include "rehearsal.hpp"

using namespace tests;

namespace {

using session::call;
using session::sequence_handle;
using session::sequence_status;
using session::step;
using session::token_sequence;
using tensafe::serving::engine_answers;
using tensafe::serving::request;

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
using runner = session::sequences<engine_answers<sums>>;

static_assert(serving::request_engine<sums>);
static_assert(!serving::request_engine<int>);
static_assert(session::answers_calls<engine_answers<sums>>);
static_assert(!session::answers_calls<sums>);

/// Asks `steps` times with {name, step number} and then ends; calls `at(step)` first.
token_sequence asking(float name, int steps, std::function<void(int)> at = {}) {
    return [h = std::array<float, 2>{name, 0}, number = 0, steps,
            at = std::move(at)](std::span<const double>) mutable {
        if (at) {
            at(number);
        }
        h[1] = static_cast<float>(number);
        return number++ == steps ? step::end() : step::ask(0, h);
    };
}

/// What `asking` calls at this step: it waits there.
std::function<void(int)> waits_at(gate& at, int step = 0) {
    return [&at, step](int number) {
        if (number == step) {
            static_cast<void>(at.pass());
        }
    };
}

/// Time for a submitter to begin to wait.
void let_it_wait() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

struct with_sums {
    /// The sequences 0 to `last`: the first requests of all but the first wait together for the engine.
    std::vector<sequence_handle> together(runner& runs, int last, int steps = 1) {
        const auto queued = std::make_shared<gate>();
        engine.before = [queued](std::span<request> batch) {
            if (batch[0].hidden[0] == 0) {
                static_cast<void>(queued->pass());
            }
        };
        std::vector<sequence_handle> handles{runs.submit(asking(0, 1))};
        REQUIRE(queued->wait_until_somebody_is_there());
        for (int s = 1; s <= last; ++s) {
            handles.push_back(runs.submit(asking(static_cast<float>(s), steps)));
        }
        // Its forward comes after those of the others, if there is one thread for them.
        static_cast<void>(runs.submit(asking(99, 0, [queued](int) { queued->open(); })));
        return handles;
    }
    sums engine;
    engine_answers<sums> by_engine{engine};
};

}  // namespace

TEST_CASE_FIXTURE(with_sums, "a sequence gets the answers to its last request, step by step") {
    runner runs(by_engine);
    std::vector<std::vector<double>> got;
    std::array<float, 3> h{};
    const auto handle = runs.submit([&](std::span<const double> answers) {
        got.emplace_back(answers.begin(), answers.end());
        const auto n = static_cast<float>(got.size());
        h = {n, 2, 3};
        if (got.size() == 5) {
            return step::end();
        }
        return got.size() % 2 == 1 ? step::ask(1, h) : step::ask(0, std::span(h).first(2));
    });
    handle.wait();
    CHECK(handle.status() == sequence_status::finished);
    CHECK(got == std::vector<std::vector<double>>{{}, {6, 6}, {4}, {8, 18}, {6}});
}

TEST_CASE_FIXTURE(
    with_sums, "many sequences on many threads each get their own answers, and run on one thread at a time") {
    runner runs(by_engine, 3, 64);
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
        handles.push_back(runs.submit([&mine, s](std::span<const double> answers) {
            mine.alone = mine.alone && mine.inside++ == 0;
            if (mine.number > 0 && answers.size() == 1) {
                mine.right += answers[0] == static_cast<double>(mine.h[0]) + static_cast<double>(mine.h[1]);
            }
            mine.h = {static_cast<float>(s), static_cast<float>(mine.number)};
            const bool last = mine.number++ == steps;
            --mine.inside;
            return last ? step::end() : step::ask(0, mine.h);
        }));
    }
    runs.close();
    for (int s = 0; s < sequences; ++s) {
        CAPTURE(s);
        CHECK(handles[static_cast<std::size_t>(s)].status() == sequence_status::finished);
        CHECK(streams[static_cast<std::size_t>(s)].right == steps);
        CHECK(streams[static_cast<std::size_t>(s)].alone);
    }
}

TEST_CASE_FIXTURE(with_sums, "the forward of one sequence and the request of another overlap") {
    gate engine_began;
    gate forward_began;
    bool engine_met = false;
    bool forward_met = false;
    // Each waits for the other: if they took turns, neither would go on.
    engine.before = [&](std::span<request> batch) {
        if (batch[0].hidden[0] == 1) {
            engine_began.open();
            engine_met = forward_began.pass();
        }
    };
    runner runs(by_engine, 1, 8);
    const auto first = runs.submit(asking(1, 1));
    const auto second = runs.submit(asking(2, 1, [&](int number) {
        if (number == 0) {
            forward_began.open();
            forward_met = engine_began.pass();
        }
    }));
    first.wait();
    second.wait();
    CHECK(engine_met);
    CHECK(forward_met);
}

TEST_CASE_FIXTURE(with_sums, "what waits is answered together, the longest waiting first") {
    runner runs(by_engine, 1, 16);
    static_cast<void>(together(runs, 5));
    runs.close();
    CHECK(engine.batches == std::vector<std::vector<float>>{{0}, {1, 2, 3, 4, 5}});
}

TEST_CASE_FIXTURE(with_sums, "no sequence starves: all take turns") {
    gate all_there;
    runner runs(by_engine, 1, 16);
    constexpr int steps = 30;
    for (int s = 0; s < 5; ++s) {
        static_cast<void>(runs.submit(
            asking(static_cast<float>(s), steps, s == 0 ? waits_at(all_there) : std::function<void(int)>())));
    }
    all_there.open();
    runs.close();
    std::vector<float> order;
    for (const auto& batch : engine.batches) {
        order.insert(order.end(), batch.begin(), batch.end());
    }
    REQUIRE(order.size() == 5 * steps);
    for (std::size_t i = 0; i < order.size(); ++i) {
        CHECK(order[i] == static_cast<float>(i % 5));
    }
}

TEST_CASE_FIXTURE(with_sums, "what a sequence throws comes out of its handle, and others go on") {
    runner runs(by_engine, 2, 16);
    const auto good = runs.submit(asking(1, 10));
    const auto bad = runs.submit(asking(2, 10, [](int number) {
        if (number == 3) {
            throw std::out_of_range("no such token");
        }
    }));
    const auto odd = runs.submit([](std::span<const double>) -> step { throw 42; });
    CHECK_THROWS_WITH_AS(bad.wait(), Contains("no such token"), std::out_of_range);
    CHECK_THROWS_WITH_AS(bad.wait(), Contains("no such token"), std::out_of_range);  // each time
    CHECK_THROWS_AS(odd.wait(), int);
    CHECK(bad.status() == sequence_status::failed);
    good.wait();
    runs.submit(asking(3, 1)).wait();
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
    runner runs(by_engine, 1, 16);
    const auto handles = together(runs, 3, 2);
    handles[1].wait();
    CHECK_THROWS_WITH_AS(handles[2].wait(), Contains("too large"), range_exceeded_error);
    handles[3].wait();
    runs.close();
    REQUIRE(engine.batches.size() >= 2);
    CHECK(engine.batches[1] == std::vector<float>{1, 2, 3});  // they were neighbours
}

TEST_CASE_FIXTURE(with_sums, "what fails as a whole ends the sequences that it was to answer, and no other") {
    engine.after = [](std::span<request> batch) {
        if (batch[0].hidden[0] == 1) {
            throw device_error("the device is gone");
        }
    };
    runner runs(by_engine, 1, 16);
    const auto handles = together(runs, 2);
    handles[0].wait();
    CHECK_THROWS_AS(handles[1].wait(), device_error);
    CHECK_THROWS_AS(handles[2].wait(), device_error);
    runs.submit(asking(3, 1)).wait();
}

TEST_CASE_FIXTURE(with_sums, "a sequence that is cancelled before its first step is never called") {
    gate release;
    runner runs(by_engine, 1, 16);
    const auto first = runs.submit(asking(1, 1, waits_at(release)));
    REQUIRE(release.wait_until_somebody_is_there());
    bool called = false;
    const auto second = runs.submit(asking(2, 1, [&](int) { called = true; }));
    second.cancel();
    CHECK_FALSE(second.done());
    release.open();
    CHECK_THROWS_AS(second.wait(), cancelled_error);
    first.wait();
    CHECK_FALSE(called);
    CHECK(second.status() == sequence_status::cancelled);
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
    runner runs(by_engine, 1, 16);
    std::atomic<int> calls{0};
    const auto with_engine = runs.submit(asking(1, 5, [&](int) { ++calls; }));
    REQUIRE(release.wait_until_somebody_is_there());
    const auto waiting = runs.submit(asking(2, 5, [&](int) { ++calls; }));
    gate in_forward;
    gate cancelled;
    const auto forward = runs.submit(asking(3, 5, [&](int) {
        ++calls;
        in_forward.open();
        static_cast<void>(cancelled.pass());
    }));
    const auto ends = runs.submit(asking(4, 0, [&](int) { ++calls; }));
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
    runs.close();
    CHECK(engine.batches == std::vector<std::vector<float>>{{1}});
}

TEST_CASE_FIXTURE(with_sums,
                  "no more sequences are in flight than allowed: submissions wait, or are refused") {
    gate release;
    runner runs(by_engine, 2, 2);
    const auto hold = waits_at(release);
    const auto first = runs.submit(asking(1, 1, hold));
    const auto second = runs.submit(asking(2, 1, hold));
    token_sequence third = asking(3, 1);
    CHECK_FALSE(runs.try_submit(std::move(third)).has_value());
    REQUIRE(third != nullptr);  // it was left alone
    release.open();
    first.wait();  // and so there is room
    const auto accepted = runs.try_submit(std::move(third));
    REQUIRE(accepted.has_value());
    accepted->wait();
    second.wait();
}

TEST_CASE_FIXTURE(with_sums, "a submitter waits until there is room, and then goes on") {
    gate release;
    runner runs(by_engine, 1, 1);
    static_cast<void>(runs.submit(asking(1, 1, waits_at(release))));
    std::atomic<bool> accepted{false};
    std::thread submitter([&] {
        static_cast<void>(runs.submit(asking(2, 1)));
        accepted = true;
    });
    let_it_wait();
    CHECK_FALSE(accepted);
    release.open();
    submitter.join();
    runs.close();
    CHECK(accepted);
    CHECK(engine.batches == std::vector<std::vector<float>>{{1}, {2}});
}

TEST_CASE_FIXTURE(with_sums, "stopping cancels what is in flight and wakes whoever waits for room") {
    gate release;
    std::optional<runner> runs(std::in_place, by_engine, 1, 1);
    const auto first = runs->submit(asking(1, 1, waits_at(release)));
    REQUIRE(release.wait_until_somebody_is_there());
    std::string thrown;
    std::thread submitter([&] { thrown = refusal<closed_error>([&] { runs->submit(asking(2, 1)); }); });
    let_it_wait();
    runs->stop();
    submitter.join();
    CHECK(contains(thrown, "closed"));
    CHECK_FALSE(first.done());
    release.open();
    CHECK_THROWS_AS(first.wait(), cancelled_error);
    CHECK_THROWS_AS(runs->try_submit(asking(3, 1)), closed_error);
    runs->close();
    runs.reset();
    CHECK_THROWS_AS(first.wait(), cancelled_error);  // handles outlive what ran them
}

TEST_CASE_FIXTURE(with_sums,
                  "closing waits for all sequences and takes no more; dropped handles change nothing") {
    runner runs(by_engine, 2, 16);
    std::atomic<int> ended{0};
    for (int s = 0; s < 10; ++s) {
        static_cast<void>(runs.submit(asking(1, 7, [&](int number) { ended += number == 7; })));
    }
    runs.close();
    CHECK(ended == 10);
    CHECK_THROWS_AS(runs.submit(asking(1, 1)), closed_error);
    runs.close();  // again
}

TEST_CASE_FIXTURE(with_sums, "destruction cancels endless sequences and lets go of their code") {
    gate running;
    const auto captured = std::make_shared<int>(0);
    const std::weak_ptr<int> watched = captured;
    std::vector<sequence_handle> handles;
    {
        runner runs(by_engine, 2, 16);
        for (int s = 0; s < 6; ++s) {
            handles.push_back(runs.submit(asking(1, 1 << 30, [&, captured](int number) {
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
    runner runs(by_engine, 1, 1);
    for (int i = 0; i < 200; ++i) {
        auto captured = std::make_shared<int>(0);
        const std::weak_ptr<int> watched = captured;
        const auto t = runs.submit(asking(1, 1, [c = std::move(captured)](int) {}));
        t.wait();
        REQUIRE(watched.expired());
        auto next = runs.try_submit(asking(2, 0));
        REQUIRE(next.has_value());
        next->wait();
    }
}

TEST_CASE_FIXTURE(with_sums, "a handle can be waited for with a limit") {
    gate release;
    runner runs(by_engine);
    const auto t = runs.submit(asking(1, 0, waits_at(release)));
    CHECK_FALSE(t.wait_for(std::chrono::milliseconds(1)));
    release.open();
    CHECK(t.wait_for(patience));
}

TEST_CASE_FIXTURE(with_sums, "a sequence may submit others, but must not wait for room, handles or the end") {
    runner runs(by_engine, 1, 2);
    std::optional<sequence_handle> child;
    std::string full;
    std::string waited;
    std::string closed;
    bool refused = false;
    const auto parent = runs.submit([&](std::span<const double>) {
        child = runs.submit(asking(1, 2));
        refused = !runs.try_submit(asking(2, 2)).has_value();
        full = refusal<error>([&] { runs.submit(asking(2, 2)); });
        waited = refusal<error>([&] { child->wait(); });
        closed = refusal<error>([&] { runs.close(); });
        return step::end();
    });
    parent.wait();
    REQUIRE(child.has_value());
    child->wait();
    CHECK(refused);
    CHECK(contains(full, "try_submit"));
    CHECK(contains(waited, "another thread"));
    CHECK(contains(closed, "use stop"));
    runs.submit(asking(3, 1)).wait();  // it was not closed
}

TEST_CASE_FIXTURE(with_sums, "a sequence may stop what runs it") {
    runner runs(by_engine, 2, 16);
    const auto endless = runs.submit(asking(1, 1 << 30));
    const auto stopping = runs.submit([&](std::span<const double>) {
        runs.stop();
        return step::end();
    });
    stopping.wait();
    CHECK_THROWS_AS(endless.wait(), cancelled_error);
}

TEST_CASE_FIXTURE(with_sums, "what is stopped while requests are gathered has none of them answered") {
    gate queued;
    engine.before = [&](std::span<request>) { static_cast<void>(queued.pass()); };
    runner runs(by_engine, 1, 16);
    static_cast<void>(runs.submit(asking(0, 1)));
    REQUIRE(queued.wait_until_somebody_is_there());
    const auto gathered = runs.submit(asking(1, 1));
    std::shared_ptr<void> stops(nullptr, [&](void*) { runs.stop(); });
    const auto cancelled = runs.submit(asking(2, 1, [s = std::move(stops)](int) {}));
    gate both_ask;
    static_cast<void>(runs.submit(asking(3, 0, [&](int) { both_ask.open(); })));
    REQUIRE(both_ask.pass());
    cancelled.cancel();  // it is taken after the other, and stops all of them then
    queued.open();
    CHECK_THROWS_AS(cancelled.wait(), cancelled_error);
    CHECK_THROWS_AS(gathered.wait(), cancelled_error);
    runs.close();
    CHECK(engine.batches == std::vector<std::vector<float>>{{0}});
}

TEST_CASE("an exception that nobody waits for may call what ran it when it goes away") {
    struct calling {
        std::shared_ptr<void> when_it_goes;
    };
    enum class thrown_by { sequence, request, batch };
    for (const thrown_by where : {thrown_by::sequence, thrown_by::request, thrown_by::batch}) {
        CAPTURE(static_cast<int>(where));
        sums engine;
        engine_answers<sums> by_engine(engine);
        gate dropped;
        gate gone;
        runner* called = nullptr;
        const auto raise = [&] {
            throw calling{std::shared_ptr<void>(nullptr, [&](void*) {
                called->stop();
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
        runner runs(by_engine);
        called = &runs;
        static_cast<void>(runs.submit(asking(1, 1, [&](int) {
            static_cast<void>(dropped.pass());
            if (where == thrown_by::sequence) {
                raise();
            }
        })));
        dropped.open();
        CHECK(gone.pass());
    }
}

TEST_CASE_FIXTURE(with_sums, "numbers of threads and sequences that cannot work are refused") {
    const auto refused = [&](std::size_t threads, std::size_t most) {
        return tests::refusal<parameter_error>([&] { runner runs(by_engine, threads, most); });
    };
    CHECK(contains(refused(0, 1), "forward_threads: got 0"));
    CHECK(contains(refused(1025, 1), "forward_threads: got 1025, expected 1 to 1024"));
    CHECK(contains(refused(1, 0), "most_sequences: got 0"));
    CHECK(contains(refused(1, static_cast<std::size_t>(-1)), "most_sequences: got"));
    runner runs(by_engine);
    CHECK_THROWS_AS(runs.submit({}), parameter_error);
}

namespace {

/// Answers all calls by {1} and notes what it did.
struct noting {
    std::function<void()> before{};
    std::function<bool()> ahead{};
    std::vector<char> done{};  ///< a: a call; w: work ahead

    template <class Over>
    void answer(std::span<call* const> calls, Over&& next_is_over) {
        if (before) {
            before();
        }
        for (call* const each : calls) {
            done.push_back('a');
            each->answer(0, std::array{1.0});
            next_is_over();
        }
    }
    bool work_ahead() {
        done.push_back('w');
        return ahead && ahead();
    }
};

/// Leaves calls as they are.
struct idle {
    template <class Over>
    void answer(std::span<call* const> calls, Over&& next_is_over) {
        if (calls.front()->row(0)[0] != 2) {
            next_is_over();
        }
    }
    bool work_ahead() { throw error("nothing"); }
};

/// Both halves of the model without ciphertexts.
struct rehearsed {
    explicit rehearsed(std::vector<std::uint64_t> left = {}, std::size_t tokens_ahead = 3)
        : model(model_of(tokens_ahead)) {
        of.counted = 1'000'000;
        rehearsal::book = &of;
        client.opened(left);
    }
    ~rehearsed() { rehearsal::book = nullptr; }

    template <class Over>
    void answer(std::span<call* const> calls, Over&& next_is_over) {
        rehearsal::book = &of;  // of this thread
        most = std::max(most, calls.size());
        both.answer(calls, next_is_over);
    }
    bool work_ahead() {
        rehearsal::book = &of;
        return both.work_ahead();
    }

    rehearsal::ledger of;
    static std::shared_ptr<rehearsal::client_model> model_of(std::size_t tokens_ahead) {
        auto made = std::make_shared<rehearsal::client_model>();
        made->layout().tokens_ahead = tokens_ahead;
        return made;
    }
    std::shared_ptr<rehearsal::client_model> model;
    rehearsal::server_session server{model, random::seed{}, 0};
    rehearsal::client_session client{model};
    session::in_process<rehearsal::protocol> both{client, server, 5};
    std::size_t most = 0;
};

/// Asks for `steps` numbers from `first` on, and counts the right answers.
token_sequence counting(std::size_t group, float first, int steps, int& right) {
    return [h = std::array<float, 1>{first}, group, left = steps,
            &right](std::span<const double> answers) mutable {
        if (!answers.empty()) {
            const auto asked = static_cast<rehearsal::state>(h[0]);
            right += answers[0] == static_cast<double>(rehearsal::answer_to(asked));
            h[0] += 1;
        }
        return left-- == 0 ? step::end() : step::ask(group, h);
    };
}

// What a call keeps: an explicit instantiation may name private members.
struct products_tag {
    using type = memory::secret_buffer<double> call::*;  // wiped on release
    friend type member_of(products_tag);
};
template <class Tag, typename Tag::type Member>
struct opened_call {
    friend typename Tag::type member_of(Tag) { return Member; }
};
template struct opened_call<products_tag, &call::products_>;

struct watching : noting {
    bool is_empty = true;
    template <class Over>
    void answer(std::span<call* const> calls, Over&& next_is_over) {
        for (const call* const each : calls) {
            is_empty = is_empty && (each->*member_of(products_tag())).empty();
        }
        noting::answer(calls, next_is_over);
    }
};

}  // namespace

TEST_CASE("work ahead goes on while a forward runs, until a step waits") {
    noting answers;
    gate third;
    gate waits;
    int pieces = 0;
    bool met = false;
    answers.ahead = [&] {
        if (++pieces == 3) {
            third.open();
        }
        return true;  // endless: a step must come before it
    };
    session::sequences<noting> runs(answers);
    const auto one = runs.submit(asking(1, 4, [&](int number) { met = number != 0 ? met : third.pass(); }));
    one.wait();
    CHECK(met);
    // While an answer is under way another step comes to wait: it is answered next.
    answers.before = [&, held = false]() mutable {
        if (!std::exchange(held, true)) {
            answers.done.clear();
            static_cast<void>(waits.pass());
        }
    };
    const auto first = runs.submit(asking(1, 1));
    REQUIRE(waits.wait_until_somebody_is_there());
    static_cast<void>(runs.submit(asking(2, 1)));
    static_cast<void>(runs.submit(asking(3, 0, [&](int) { waits.open(); })));
    runs.close();
    REQUIRE(answers.done.size() >= 2);
    CHECK(answers.done[0] == 'a');
    CHECK(answers.done[1] == 'a');
}

TEST_CASE("calls that nobody answers end their sequences, and work ahead that fails ends none") {
    idle nobody;
    session::sequences<idle> runs(nobody);
    CHECK_THROWS_WITH_AS(runs.submit(asking(1, 1)).wait(), Contains("without an answer"), error);
    CHECK_THROWS_WITH_AS(runs.submit(asking(2, 1)).wait(), Contains("without an answer"), error);
}

TEST_CASE("over a session, answers are each sequence's own, and blocks and zeros are made ahead") {
    rehearsed answers;
    constexpr int count = 12;
    constexpr int steps = 25;
    std::array<int, count> right{};
    {
        session::sequences<rehearsed> runs(answers, 3);
        for (std::size_t s = 0; s < count; ++s) {
            const auto first = 1000 * static_cast<float>(s + 1);
            static_cast<void>(runs.submit(counting(s % 2, first, steps, right[s])));
        }
        runs.close();
    }
    CHECK(std::all_of(right.begin(), right.end(), [](int r) { return r == steps; }));
    CHECK(answers.of.answers == count * steps);
    CHECK(answers.of.answered.size() == count * steps);  // all in blocks
    CHECK(answers.most > 1);
    while (answers.work_ahead()) {
    }
    CHECK(answers.server.zeros().made == 5);
}

TEST_CASE("over a session, the next block is prepared when no step waits") {
    rehearsed answers({}, 8);
    const std::array<float, 1> h{7};
    const auto ask = [&](int times) {
        for (int i = 0; i < times; ++i) {
            call one(0, 1, [&](std::size_t) { return std::span<const float>(h); });
            std::array<call*, 1> calls{&one};
            answers.answer(calls, [] {});
            CHECK(one.is_answered(0));
        }
    };
    const auto blocks = [&] { return answers.server.held_bytes() / 1000; };
    ask(5);
    while (answers.work_ahead()) {
    }
    CHECK(blocks() == 1);  // three of eight positions are left
    ask(2);
    CHECK(blocks() == 1);
    CHECK(answers.work_ahead());
    CHECK(blocks() == 2);
    ask(1);
    CHECK(blocks() == 1);
}

TEST_CASE("over a session, what is wrong with one call ends its own sequence and nothing is sent for it") {
    rehearsed answers;
    session::sequences<rehearsed> runs(answers);
    int right = 0;
    int wrong = 0;
    gate together;
    const auto good = runs.submit([&, of = counting(0, 10, 20, right)](std::span<const double> a) mutable {
        static_cast<void>(together.pass());
        return of(a);
    });
    const auto negative = runs.submit(counting(0, -5, 1, wrong));
    const auto no_group = runs.submit(counting(7, 5, 1, wrong));
    together.open();
    good.wait();
    CHECK_THROWS_WITH_AS(negative.wait(), Contains("negative"), encoding_error);
    CHECK_THROWS_WITH_AS(no_group.wait(), Contains("no group 7"), parameter_error);
    CHECK(right == 20);
    CHECK(wrong == 0);
    CHECK(answers.of.answers == 20);
}

TEST_CASE("over a session, a limit of queries ends the sequences that it cannot pay") {
    rehearsed answers({7});
    session::sequences<rehearsed> runs(answers);
    int right = 0;
    std::vector<sequence_handle> handles;
    for (int s = 0; s < 3; ++s) {
        handles.push_back(runs.submit(counting(0, static_cast<float>(100 * s + 100), 5, right)));
    }
    int refused = 0;
    for (const auto& each : handles) {
        try {
            each.wait();
        } catch (const session::refused_error& e) {
            refused += e.why() == session::refusal::query_limit;
        }
    }
    CHECK(right == 7);
    CHECK(refused >= 2);
    CHECK(answers.client.queries_left() == 0);
}

TEST_CASE(
    "over a session, what the server fails with ends the sequences that waited, and the session goes on") {
    rehearsed answers;
    session::sequences<rehearsed> runs(answers);
    int right = 0;
    answers.of.counted = 2;
    CHECK_THROWS_WITH_AS(runs.submit(counting(0, 10, 5, right)).wait(), Contains("not counted"),
                         std::logic_error);
    CHECK(right == 2);
    answers.of.counted = 100;
    runs.submit(counting(0, 20, 5, right)).wait();
    CHECK(right == 7);
}

TEST_CASE("the answers before are wiped when a sequence asks again") {
    watching answers;
    session::sequences<watching> runs(answers);
    runs.submit(asking(1, 5)).wait();
    CHECK(answers.is_empty);
}

TEST_CASE_TEMPLATE(
    "with ciphertexts, sequences of different lengths all get right answers, in blocks and alone", Where,
    exec::host, exec::host_parallel) {
    using P = ckks::private_n4096;
    using protocol =
        session::lora_protocol<P, lora::coefficient_tiles<4>, lora::protects_adapter_rows<>, Where>;
    const Where where = [] {
        if constexpr (std::is_same_v<Where, exec::host>) {
            return Where{};
        } else {
            return Where(3);
        }
    }();
    lora::adapter adapter;
    adapter.sites = {random_site(24, 8, 96, 1), random_site(24, 8, 128, 2)};
    adapter.sites[0].name = "layers.0.self_attn.o_proj";
    adapter.sites[1].name = "layers.0.mlp.down_proj";
    for (const std::size_t tokens_ahead : {0U, 8U}) {
        CAPTURE(tokens_ahead);
        lora::model_options options;
        options.tokens_ahead = tokens_ahead;
        const auto model = std::make_shared<const lora::model_server<P>>(adapter, options);
        const auto keys =
            std::make_shared<lora::model_client<P>>(model->layout(), lora::client_part(adapter, options));
        const auto nonce = random::fresh_nonce();
        session::basic_server_session<protocol> server(model, nonce, keys->rerandomization_key(nonce));
        session::basic_client_session<protocol> client(keys);
        session::in_process<protocol> answers(client, server, 3, typename protocol::workspace(where));
        constexpr std::size_t count = 5;
        std::array<std::size_t, count> right{};
        {
            session::sequences running(answers, 2);
            for (std::size_t s = 0; s < count; ++s) {
                // A token is a hidden state through one group, then one through the other.
                static_cast<void>(running.submit([&, s, h = lora::matrix(), n = std::size_t{0}](
                                                     std::span<const double> of_last) mutable {
                    if (n > 0) {
                        const auto& site = adapter.sites[(n - 1) % 2];
                        const auto deltas = keys->deltas((n - 1) % 2, of_last);
                        const auto expected = lora::plain_delta(site, h.row(0));
                        right[s] += std::equal(expected.begin(), expected.end(), deltas[0].begin(),
                                               [](double x, double y) { return std::fabs(x - y) < 1e-4; });
                    }
                    if (n == 2 * (s + 1)) {
                        return step::end();
                    }
                    h = random_matrix(1, n % 2 == 0 ? 96 : 128, 1000 + 100 * s + n);
                    return step::ask(n++ % 2, h.row(0));
                }));
            }
            running.close();
        }
        CHECK(right == std::array<std::size_t, count>{2, 4, 6, 8, 10});
        while (answers.work_ahead()) {
        }
        CHECK(server.zeros().zeros_stored() > 0);
    }
}
