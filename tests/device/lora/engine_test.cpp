#include <tensafe/device/exec/thread_blocks.hpp>
#include <tensafe/device/lora/engine.hpp>
#include <tensafe/serving/engine_answers.hpp>
#include <tensafe/session/sequences.hpp>

#include "../../random_values.hpp"
#include "../../test.hpp"
#include "../exec/recording_blocks.hpp"

using namespace tests;

namespace {
using serving::request;

using narrow_range = lora::protects_adapter_rows<lora::average_case<6>>;
using packing = lora::coefficient_tiles<4>;

/// Counts who waits for it.
struct place : recording_blocks {
    std::shared_ptr<int> waits = std::make_shared<int>(0);

    place() : recording_blocks{device::host_blocks(), nullptr} {}
    place(const recording_blocks& inner_blocks, std::shared_ptr<int> counter)
        : recording_blocks(inner_blocks), waits(std::move(counter)) {}
    void wait() const { ++*waits; }
};

/// Replays what it recorded, or is lost after some launches.
struct replay_or_fail {
    const bool* lost = nullptr;
    run_recorded recorded{};

    void operator()(const place& where, std::size_t key, auto&& f) {
        if (lost != nullptr && *lost) {
            f(where);
            throw device_error("lost");
        }
        recorded(where, key, [&](const recording_blocks& recording) { f(place(recording, where.waits)); });
    }
};

using server_type = device::server<small, place, packing, narrow_range>;
using client_type = device::client<small, place, packing, narrow_range>;
using engine_type = device::engine<small, place, packing, narrow_range, replay_or_fail>;
static_assert(serving::request_engine<engine_type>);

/// Groups 0 and 1 of one shape, group 2 of another; two keys.
struct three_groups {
    place where;
    std::array<lora::matrix, 3> a;
    std::vector<ckks::secret_key<small>> keys;
    std::vector<std::unique_ptr<server_type>> servers;
    std::vector<std::unique_ptr<client_type>> clients;
    std::vector<engine_type::group_type> groups;

    three_groups() {
        for (std::size_t g = 0; g < 3; ++g) {
            auto rows = random_matrix(g < 2 ? 6 : 3, g < 2 ? 300 : 500, g + 1);
            a[g] = lora::normalize_rows({"", std::move(rows), lora::matrix(1, g < 2 ? 6 : 3), 1}).a;
        }
        keys.emplace_back(random::fresh_seed());
        keys.emplace_back(random::fresh_seed());
        const std::array<const ckks::secret_key<small>*, 2> pointers{&keys[0], &keys[1]};
        for (std::size_t g = 0; g < 3; ++g) {
            servers.push_back(std::make_unique<server_type>(where, a[g]));
            clients.push_back(std::make_unique<client_type>(where, servers[g]->layout(), pointers));
            const auto nonce = random::fresh_nonce();
            const std::uint32_t number =
                servers[g]->add_client(where, nonce, device::make_rerandomization_key(keys[1], nonce));
            groups.push_back({clients[g].get(), servers[g].get(), 1, number});
        }
    }

    bool right(std::size_t group, const std::vector<float>& h, std::span<const double> answers) const {
        const auto expected = product(a[group], h);
        const auto& layout = servers[group]->layout();
        const double deviation = layout.budget().relative_error * layout.row_norm * norm(std::span(h)) /
                                 std::sqrt(static_cast<double>(layout.d));
        for (std::size_t r = 0; r < expected.size(); ++r) {
            if (!(std::fabs(expected[r] - answers[r]) <= 7 * deviation)) {  // nor NaN
                return false;
            }
        }
        return true;
    }
};

template <class E>
bool failed_with(const request& item) {
    try {
        if (item.error != nullptr) {
            std::rethrow_exception(item.error);
        }
    } catch (const E&) {
        return true;
    } catch (...) {
    }
    return false;
}

}  // namespace

TEST_CASE_FIXTURE(three_groups,
                  "batches over groups that share workspaces get A*h, and errors stay with their requests") {
    engine_type engine(where, groups, 2);
    CHECK(engine.groups() == 3);
    CHECK(engine.d(2) == 500);
    CHECK(engine.rows(0) == 6);
    const auto h0 = random_state(300, 3);
    const auto h1 = random_state(300, 4);
    const auto h2 = random_state(500, 5);
    auto broken = h0;
    broken[299] = std::numeric_limits<float>::infinity();
    const std::vector<float> large(a[1].row(0).begin(), a[1].row(0).end());
    std::array<std::vector<double>, 9> answers;
    for (std::size_t i = 0; i < answers.size(); ++i) {
        answers[i].resize(i == 2 ? 3 : 6);
    }
    std::vector<request> batch{
        {0, h0, answers[0], nullptr},    {1, h1, answers[1], nullptr}, {2, h2, answers[2], nullptr},
        {1, large, answers[3], nullptr}, {1, h0, answers[4], nullptr}, {0, broken, answers[5], nullptr},
        {0, h1, answers[6], nullptr},    {3, h0, answers[7], nullptr}, {2, h0, answers[8], nullptr},
    };
    for (int repeat = 0; repeat < 2; ++repeat) {  // what was recorded is replayed
        engine.run(batch);
        CHECK(right(0, h0, answers[0]));
        CHECK(right(1, h1, answers[1]));
        CHECK(right(2, h2, answers[2]));
        CHECK(right(1, h0, answers[4]));
        CHECK(right(0, h1, answers[6]));
        CHECK(failed_with<range_exceeded_error>(batch[3]));
        CHECK(failed_with<encoding_error>(batch[5]));
        CHECK(failed_with<parameter_error>(batch[7]));
        CHECK(failed_with<shape_error>(batch[8]));
        for (const std::size_t i : {0U, 1U, 2U, 4U, 6U}) {
            CHECK(batch[i].error == nullptr);
        }
        for (const std::size_t i : {3U, 5U, 7U, 8U}) {
            CHECK(std::isnan(answers[i][0]));
        }
    }
    engine.run(std::span(batch).subspan(5, 1));
    CHECK(failed_with<encoding_error>(batch[5]));
}

TEST_CASE_FIXTURE(three_groups,
                  "on a device, too, an answer out of range is tried again if that was asked for") {
    const std::vector<float> large(a[0].row(0).begin(), a[0].row(0).end());
    const auto usual = random_state(300, 6);
    std::vector<double> of_large(6);
    std::vector<double> of_usual(6);
    std::vector<request> batch{{0, large, of_large, nullptr}, {0, usual, of_usual, nullptr}};
    engine_type twice(where, groups, 4, 2);
    twice.run(batch);
    CHECK(failed_with<range_exceeded_error>(batch[0]));
    engine_type thrice(where, groups, 4, 3);
    thrice.run(batch);
    CHECK(batch[0].error == nullptr);
    CHECK(of_large[0] == doctest::Approx(1).epsilon(0.01));
    CHECK(right(0, usual, of_usual));
}

TEST_CASE_FIXTURE(
    three_groups,
    "where enqueuing fails after some launches, the device is waited for before the batch goes") {
    bool lost = true;
    engine_type engine(where, groups, 4, 1, replay_or_fail{&lost});
    const auto h = random_state(300, 7);
    std::vector<double> answers(6);
    std::vector<request> batch{{0, h, answers, nullptr}};
    const int before = *where.waits;
    engine.run(batch);
    CHECK(failed_with<device_error>(batch[0]));
    CHECK(*where.waits == before + 1);
    lost = false;
    engine.run(batch);
    CHECK(batch[0].error == nullptr);
    CHECK(*where.waits == before + 2);
    CHECK(right(0, h, answers));
}

TEST_CASE("sequences run over the device half") {
    three_groups g;
    engine_type engine(g.where, g.groups, 4);
    serving::engine_answers<engine_type> answers(engine);
    session::sequences<serving::engine_answers<engine_type>> runs(answers);
    std::array<int, 3> right{};
    for (std::size_t s = 0; s < 3; ++s) {
        static_cast<void>(runs.submit(
            [&, s, h = std::vector<float>(), n = std::size_t{0}](std::span<const double> of_last) mutable {
                if (n > 0) {
                    right[s] += g.right((s + n - 1) % 3, h, of_last);
                }
                if (n == 3) {
                    return session::step::end();
                }
                const std::size_t group = (s + n++) % 3;
                h = random_state(engine.d(group), 1000 + 10 * s + n);
                return session::step::ask(group, h);
            }));
    }
    runs.close();
    CHECK(right == std::array<int, 3>{3, 3, 3});
}

TEST_CASE("an engine refuses groups that do not fit together") {
    three_groups g;
    const auto refused = [&](std::vector<engine_type::group_type> groups, std::size_t largest,
                             std::size_t tries) {
        return tests::refusal<error>([&] { engine_type engine(g.where, groups, largest, tries); });
    };
    CHECK(contains(refused({}, 1, 1), "no groups"));
    CHECK(contains(refused(g.groups, 0, 1), "room for 0"));
    CHECK(contains(refused(g.groups, 1, 0), "got 0 tries"));
    auto groups = g.groups;
    groups[1].client = nullptr;
    CHECK(contains(refused(groups, 1, 1), "group 1 has no client"));
    groups[1] = {g.groups[2].client, g.groups[1].server, 1, 0};
    CHECK(contains(refused(groups, 1, 1), "different layouts"));
    groups = g.groups;
    groups[2].key = 2;
    CHECK(contains(refused(groups, 1, 1), "got key 2"));
    groups = g.groups;
    groups[2].number = 1;
    CHECK(contains(refused(groups, 1, 1), "client number 1"));
}
