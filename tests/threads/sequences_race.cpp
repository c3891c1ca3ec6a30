// Everything at once, for ThreadSanitizer: submitters, cancellations, failures, and a stop in the middle.
// What comes out of it is in tests/session/sequences_test.cpp.
#include <tensafe/session/sequences.hpp>

#include "../test.hpp"

namespace {

using namespace tensafe::session;

/// Adds up; without locks or atomics of its own, so that those of the sequences are what orders it.
struct adder {
    std::uint64_t calls = 0;

    template <class Over>
    void answer(std::span<call* const> batch, Over&& next_is_over) {
        if (++calls % 97 == 0) {
            throw tensafe::error("a batch that fails");
        }
        for (call* const each : batch) {
            const auto h = each->row(0);
            each->answer(0, std::array{static_cast<double>(h[0]) + static_cast<double>(h[1])});
            if (calls % 31 == 0) {
                each->fail(std::make_exception_ptr(tensafe::error("a request that fails")));
            }
            next_is_over();
        }
    }
    bool work_ahead() { return ++ahead % 3 != 0; }
    std::uint64_t ahead = 0;
};

/// Memory of a sequence: plain, as one thread at a time has it.
struct stream {
    std::array<float, 2> h{};
    int steps = 0;
    int wrong = 0;
};

token_sequence sequence_of(const std::shared_ptr<stream>& s, int steps) {
    return [s, steps](std::span<const double> answers) {
        if (!answers.empty()) {
            s->wrong += answers[0] != static_cast<double>(s->h[0]) + static_cast<double>(s->h[1]);
        }
        s->h = {static_cast<float>(s->steps), 1};
        return s->steps++ == steps ? step::end() : step::ask(0, s->h);
    };
}

}  // namespace

TEST_CASE("submitting, cancelling and stopping from several threads is ordered") {
    adder answers;
    sequences<adder> runs(answers, 2, 5);
    std::atomic<int> wrong{0};
    std::atomic<int> submitted{0};
    std::vector<std::thread> users;
    for (int u = 0; u < 3; ++u) {
        users.emplace_back([&, u] {
            for (int i = 0; i < 60; ++i) {
                const auto mine = std::make_shared<stream>();
                try {
                    const auto handle = runs.submit(sequence_of(mine, 4 + u));
                    ++submitted;
                    if (i % 7 == u) {
                        handle.cancel();
                    }
                    handle.wait();
                } catch (const tensafe::error&) {
                }
                // The sequence is over or was never taken: its memory is the user's again.
                wrong += mine->wrong;
            }
        });
    }
    std::thread observer([&] {
        while (submitted < 120) {
            std::this_thread::yield();
        }
        runs.stop();
    });
    for (std::thread& user : users) {
        user.join();
    }
    observer.join();
    CHECK(wrong == 0);
    runs.close();
}

TEST_CASE("sequences that end under load have let go of everything") {
    for (int round = 0; round < 20; ++round) {
        adder answers;
        std::vector<std::shared_ptr<stream>> streams;
        {
            sequences<adder> runs(answers, 3);
            for (int s = 0; s < 8; ++s) {
                streams.push_back(std::make_shared<stream>());
                static_cast<void>(runs.submit(sequence_of(streams.back(), 1 << 30)));
            }
        }
        for (const auto& s : streams) {
            CHECK(s.use_count() == 1);
            CHECK(s->wrong == 0);
        }
        CHECK(answers.calls < 1'000'000);
    }
}
