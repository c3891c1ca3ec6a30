// Rates that several servers have together, in a real Redis.
#include "../../../service/fleet/redis_rates.hpp"

#include "redis_process.hpp"

using namespace tests;
using namespace std::chrono_literals;

namespace {

struct one_store {
    one_store() {
        split::redis_counts_options made;
        made.store = redis.address();
        made.key = tensafe::memory::secret_buffer<std::byte>(32);
        made.renewal = 50ms;
        store = std::make_shared<split::redis_counts>(std::move(made));
        store->begin(std::string(32, 'a'), [](const std::string&) {
            return std::vector<tensafe::serving::shared_counts::entry>();
        });
        REQUIRE(comes([&] { return store->is_up(); }));
        buckets = split::redis_rates(store);
    }
    double lacks(double more, double per_second = 0.001) {
        const std::vector<std::pair<std::string, double>> taken{{"alice", more}};
        return buckets("requests", per_second, taken).at(0);
    }
    redis_process redis;
    std::shared_ptr<split::redis_counts> store;
    split::shared_buckets buckets;
};

}  // namespace

TEST_CASE_FIXTURE(one_store, "what servers take adds up, refills, and is forgotten when it is full") {
    CHECK(lacks(3) == 3);
    CHECK(lacks(2) == doctest::Approx(5).epsilon(0.01));
    CHECK(lacks(-4) == doctest::Approx(1).epsilon(0.05));
    CHECK(lacks(-4) == 0);
    CHECK(lacks(1'000, 1'000) == 1'000);
    std::this_thread::sleep_for(20ms);
    CHECK(lacks(0, 1'000) <= 980);
    const std::string key = redis.says({"KEYS", "tensafe:*:r:*"});
    CHECK(std::stol(redis.says({"PTTL", key})) <= 981);
    CHECK_FALSE(contains(redis.says({"KEYS", "*"}), "alice"));
    CHECK(comes([&] { return redis.says({"KEYS", "tensafe:*:r:*"}).empty(); }));
    // Each limit has its own, and so many names are one call.
    std::vector<std::pair<std::string, double>> crowd;
    for (int i = 0; i < 1'000; ++i) {
        crowd.emplace_back(std::to_string(i), i);
    }
    const auto said = buckets("work", 0.001, crowd);
    for (std::size_t i = 0; i < crowd.size(); ++i) {
        CHECK(said[i] == crowd[i].second);
    }
    CHECK(buckets("requests", 0.001, std::span(crowd).last(1)) == std::vector<double>{999});
}

TEST_CASE_FIXTURE(one_store, "a damaged bucket is a full one, and a store that is away says so") {
    CHECK(lacks(3) == 3);
    const std::string key = redis.says({"KEYS", "tensafe:*:r:*"});
    for (const char* const damaged : {"x", "nan 1", "-5 1", "inf 1", "1e300 99999999999999", "2e15 0"}) {
        CAPTURE(damaged);
        redis.says({"SET", key, damaged});
        CHECK(lacks(1) == 1);
    }
    redis.kill();
    CHECK_THROWS_AS(lacks(1), tensafe::serving::unavailable_error);
    redis.start();
    CHECK(comes([&] { return store->is_up(); }));
    CHECK(lacks(1) == 1);
}
