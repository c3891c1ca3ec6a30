#include <tensafe/exec/host_parallel.hpp>
#include <tensafe/serving/host_engine.hpp>
#include <tensafe/serving/token_pipeline.hpp>

#include "../lora/tiles_fixture.hpp"

using namespace tests;

namespace {

using namespace tiles_fixture;
using namespace tensafe::serving;
using tensafe::exec::host_parallel;
using tensafe::serving::request;  // not lora::request

/// Group 0: 6 rows of 300 entries; group 1: 3 rows of 500.
struct two_groups {
    matrix first = balanced(random_matrix(6, 300, 1));
    matrix second = balanced(random_matrix(3, 500, 2));
    narrow on_first{first};
    narrow on_second{second};
    std::vector<const narrow*> servers{&on_first, &on_second};
    session with = session_for<narrow>();

    const matrix& a(std::size_t group) const { return group == 0 ? first : second; }
    const narrow& server_of(std::size_t group) const { return *servers[group]; }

    /// Whether these are A*h, to the precision that the layout promises.
    bool right(std::size_t group, const std::vector<float>& h, std::span<const double> answers) const {
        const auto expected = product(a(group), h);
        const double limit = most_deviations * deviation(server_of(group).layout(), norm(h));
        for (std::size_t r = 0; r < expected.size(); ++r) {
            if (!(std::fabs(expected[r] - answers[r]) <= limit)) {  // nor NaN
                return false;
            }
        }
        return true;
    }
};

template <class Where = tensafe::exec::host>
using narrow_engine = host_engine<small, coefficient_tiles<4>, protects_adapter_rows<average_case<6>>, Where>;
static_assert(request_engine<narrow_engine<>>);

/// Which error an item has, as a word.
std::string error_of(const request& item) {
    if (item.error == nullptr) {
        return "none";
    }
    try {
        std::rethrow_exception(item.error);
    } catch (const shape_error&) {
        return "shape";
    } catch (const parameter_error&) {
        return "parameter";
    } catch (const encoding_error&) {
        return "encoding";
    } catch (const range_exceeded_error&) {
        return "range";
    } catch (...) {
        return "other";
    }
}

template <class Engine>
void check_mixed_batch(Engine& engine, const two_groups& groups) {
    auto h0 = random_state(300, 3);
    auto h1 = random_state(500, 4);
    auto h2 = random_state(300, 5);
    auto broken = h0;
    broken[7] = std::numeric_limits<float>::quiet_NaN();
    // Along a row of A: an answer of norm(row) * norm(h), seventeen times the usual one.
    const auto large = row_of(groups.first, 0);
    std::array<std::vector<double>, 8> answers;
    for (auto& of_item : answers) {
        of_item.assign(6, 0.5);
    }
    const auto first3 = [](std::vector<double>& a) { return std::span<double>(a).first(3); };
    std::vector<request> batch{
        {0, h0, answers[0], nullptr},         {1, h1, first3(answers[1]), nullptr},
        {0, broken, answers[2], nullptr},     {0, h2, answers[3], nullptr},
        {2, h0, answers[4], nullptr},         {1, h0, first3(answers[5]), nullptr},
        {0, h0, first3(answers[6]), nullptr}, {0, large, answers[7], nullptr},
    };
    for (int repeat = 0; repeat < 2; ++repeat) {
        engine.run(batch);
        std::vector<std::string> errors;
        for (const request& item : batch) {
            errors.push_back(error_of(item));
        }
        CHECK(errors == std::vector<std::string>{"none", "none", "encoding", "none", "parameter", "shape",
                                                 "shape", "range"});
        CHECK(groups.right(0, h0, batch[0].answers));
        CHECK(groups.right(1, h1, batch[1].answers));
        CHECK(groups.right(0, h2, batch[3].answers));
        for (const std::size_t i : {std::size_t{2}, std::size_t{4}, std::size_t{6}, std::size_t{7}}) {
            CHECK(std::isnan(batch[i].answers[0]));
        }
    }
    // Alone, so that it is the first and the last of its group.
    engine.run(std::span(batch).subspan(2, 1));
    CHECK(error_of(batch[2]) == "encoding");
    engine.run({});
}

TEST_CASE("a batch over two groups gets A*h each, and what is wrong with one leaves its neighbours alone") {
    two_groups groups;
    narrow_engine<> engine(groups.with.key_holder, groups.servers, groups.with.zeros);
    CHECK(engine.groups() == 2);
    CHECK(engine.d(1) == 500);
    CHECK(engine.rows(1) == 3);
    check_mixed_batch(engine, groups);
}

TEST_CASE("several threads serve the same batches") {
    two_groups groups;
    const host_parallel where(3);
    narrow_engine<host_parallel> engine(where, groups.with.key_holder, groups.servers, groups.with.zeros);
    check_mixed_batch(engine, groups);
}

TEST_CASE("an answer out of range is tried again with overflow margin only if that was asked for") {
    two_groups groups;
    const auto large =
        row_of(groups.first, 0);  // needs 17 / 6 of the range: overflow margin 4, the third try
    const auto usual = random_state(300, 6);
    for (const std::size_t tries : {1U, 2U, 3U, 5U}) {
        CAPTURE(tries);
        narrow_engine<> engine(groups.with.key_holder, groups.servers, groups.with.zeros, tries);
        std::vector<double> of_large(6);
        std::vector<double> of_usual(6);
        std::vector<request> batch{{0, large, of_large, nullptr}, {0, usual, of_usual, nullptr}};
        engine.run(batch);
        CHECK(groups.right(0, usual, of_usual));
        if (tries < 3) {
            CHECK(error_of(batch[0]) == "range");
            CHECK(std::isnan(of_large[0]));
        } else {
            CHECK(error_of(batch[0]) == "none");
            CHECK(of_large[0] == doctest::Approx(1).epsilon(0.01));  // norm(row)^2
        }
    }
}

TEST_CASE("bare replies need no zeros") {
    const matrix a = balanced(random_matrix(5, 300, 1));
    const bare server(a);
    const std::vector<const bare*> servers{&server};
    client<small> key_holder;
    host_engine<small, coefficient_tiles<4>, reveals_adapter_rows> engine(key_holder, servers);
    const auto h = random_state(300, 2);
    std::vector<double> answers(5);
    request one{0, h, answers, nullptr};
    engine.run(std::span(&one, 1));
    CHECK(one.error == nullptr);
    CHECK(largest_difference(answers, product(a, h)) <=
          most_deviations * deviation(server.layout(), norm(h)));
}

TEST_CASE("sequences of different lengths all get right answers from an encrypted pipeline") {
    two_groups groups;
    const host_parallel where(2);
    narrow_engine<host_parallel> engine(where, groups.with.key_holder, groups.servers, groups.with.zeros);
    pipeline_options options;
    options.forward_threads = 2;
    options.largest_batch = 3;
    token_pipeline<narrow_engine<host_parallel>> pipeline(engine, options);
    constexpr std::size_t sequences = 5;
    std::array<std::size_t, sequences> right{};
    for (std::size_t s = 0; s < sequences; ++s) {
        // A token is a hidden state through group 0, then one through group 1.
        static_cast<void>(pipeline.submit(
            [&, s, h = std::vector<float>(), n = std::size_t{0}](std::span<const double> answers) mutable {
                if (n > 0) {
                    right[s] += groups.right((n - 1) % 2, h, answers);
                }
                if (n == 2 * (s + 1)) {
                    return step::end();
                }
                h = random_state(n % 2 == 0 ? 300 : 500, 1000 + 100 * s + n);
                return n++ % 2 == 0 ? step::ask(0, h) : step::ask_last(1, h);
            }));
    }
    pipeline.close();
    for (std::size_t s = 0; s < sequences; ++s) {
        CHECK(right[s] == 2 * (s + 1));
    }
    const auto report = pipeline.report();
    CHECK(report.finished == sequences);
    CHECK(report.tokens == 15);
    CHECK(report.requests == 30);
}

TEST_CASE("an engine without servers, with a null pointer, foreign zeros or too many tries is refused") {
    two_groups groups;
    auto& holder = groups.with.key_holder;
    const auto made = [&](const std::vector<const narrow*>& servers, zeros_of_small& zeros,
                          std::size_t tries) {
        return refusal<parameter_error>([&] { narrow_engine<> engine(holder, servers, zeros, tries); });
    };
    CHECK(contains(made({}, groups.with.zeros, 1), "no servers"));
    CHECK(contains(made({&groups.on_first, nullptr}, groups.with.zeros, 1), "group 1"));
    CHECK(contains(made(groups.servers, groups.with.zeros, 0), "got 0 tries"));
    CHECK(contains(made(groups.servers, groups.with.zeros, 22), "expected 1 to 21"));
    session other(5);
    CHECK(contains(made(groups.servers, other.zeros, 1), "traced to degree 2^5, expected 2^2"));
}

}  // namespace
