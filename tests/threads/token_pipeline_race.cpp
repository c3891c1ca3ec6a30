// Everything at once, for ThreadSanitizer: submitters, cancellations, reports, failures, and a stop in the
// middle. What comes out of it is in tests/serving/token_pipeline_test.cpp.
#include <tensafe/serving/token_pipeline.hpp>

#include <exception>

#include "../test.hpp"

namespace {

using namespace tensafe::serving;

/// Adds up; without locks or atomics of its own, so that the pipeline's are what orders it.
struct adder {
    std::uint64_t calls = 0;

    std::size_t groups() const { return 1; }
    std::size_t d(std::size_t) const { return 2; }
    std::size_t rows(std::size_t) const { return 1; }
    void run(std::span<request> batch) {
        if (++calls % 97 == 0) {
            throw tensafe::error("a batch that fails");
        }
        for (request& item : batch) {
            item.answers[0] = static_cast<double>(item.hidden[0]) + static_cast<double>(item.hidden[1]);
            if (calls % 31 == 0) {
                item.error = std::make_exception_ptr(tensafe::error("a request that fails"));
            }
        }
    }
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
        return s->steps++ == steps ? step::end() : step::ask_last(0, s->h);
    };
}

}  // namespace

TEST_CASE("submitting, cancelling, reporting and stopping from several threads is ordered") {
    adder engine;
    pipeline_options options;
    options.forward_threads = 2;
    options.largest_batch = 3;
    options.most_sequences = 5;
    token_pipeline<adder> pipeline(engine, options);
    std::atomic<int> wrong{0};
    std::vector<std::thread> users;
    for (int u = 0; u < 3; ++u) {
        users.emplace_back([&, u] {
            for (int i = 0; i < 60; ++i) {
                const auto mine = std::make_shared<stream>();
                try {
                    const auto handle = pipeline.submit(sequence_of(mine, 4 + u));
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
        std::uint64_t before = 0;
        while (pipeline.report().submitted < 120) {
            const auto report = pipeline.report();
            wrong += report.requests < before;
            before = report.requests;
            std::this_thread::yield();
        }
        pipeline.stop();
    });
    for (std::thread& user : users) {
        user.join();
    }
    observer.join();
    CHECK(wrong == 0);
    pipeline.close();
    const auto report = pipeline.report();
    CHECK(report.submitted == report.finished + report.failed + report.cancelled);
}

TEST_CASE("a pipeline that ends under load has let go of everything") {
    for (int round = 0; round < 20; ++round) {
        adder engine;
        std::vector<std::shared_ptr<stream>> streams;
        {
            pipeline_options options;
            options.forward_threads = 3;
            token_pipeline<adder> pipeline(engine, options);
            for (int s = 0; s < 8; ++s) {
                streams.push_back(std::make_shared<stream>());
                static_cast<void>(pipeline.submit(sequence_of(streams.back(), 1 << 30)));
            }
        }
        for (const auto& s : streams) {
            CHECK(s.use_count() == 1);
            CHECK(s->wrong == 0);
        }
        CHECK(engine.calls < 1'000'000);
    }
}
