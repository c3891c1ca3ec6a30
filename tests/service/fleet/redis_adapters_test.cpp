// The list of adapters in a real Redis, whatever happens to it and to the servers.
#include "../../../service/fleet/redis_adapters.hpp"

#include <algorithm>

#include "redis_process.hpp"

using namespace tests;
using namespace std::chrono_literals;
using tensafe::serving::unavailable_error;

namespace {

using tried = std::vector<split::tried_version>;

/// A server without counts.
struct listing_server {
    listing_server(const redis_process& redis, char digit, std::chrono::milliseconds time = 1h)
        : store(std::make_shared<split::redis_counts>(options_of(redis))), list(store, time) {
        store->begin(std::string(32, digit), [](const std::string&) {
            return std::vector<tensafe::serving::shared_counts::entry>();
        });
        REQUIRE(comes([&] { return store->is_up(); }));
    }
    static split::redis_counts_options options_of(const redis_process& redis) {
        split::redis_counts_options made;
        made.store = redis.address();
        made.key = tensafe::memory::secret_buffer<std::byte>(32);
        made.renewal = 50ms;
        made.lease = 1s;
        return made;
    }
    /// "name version directory", of what is not due in brackets.
    std::string seen(const tried& has = {}) {
        std::string all;
        for (const split::listed_adapter& each : list.look(has)) {
            const std::string text = each.name + " " + std::to_string(each.version) + " " + each.directory;
            all += each.is_due ? text + "; " : "(" + text + "); ";
        }
        return all;
    }

    std::shared_ptr<split::redis_counts> store;
    split::redis_adapters list;
};

struct one_list {
    redis_process redis;
    listing_server a{redis, 'a'};
    listing_server b{redis, 'b'};
};

}  // namespace

TEST_CASE_FIXTURE(one_list, "a version is due when all servers that run have packed it") {
    CHECK(a.seen().empty());
    a.list.put("qwen", "one");
    CHECK(b.seen() == "(qwen 1 one); ");
    CHECK(a.seen({{"qwen", 1, true}}) == "(qwen 1 one); ");
    CHECK(a.seen() == "(qwen 1 one); ");
    CHECK(b.seen({{"qwen", 2, true}, {"other", 1, true}}) == "(qwen 1 one); ");  // which are not on the list
    CHECK(b.seen({{"qwen", 1, true}}) == "qwen 1 one; ");
    CHECK(a.seen() == "qwen 1 one; ");
    a.list.put("broken", "nowhere");
    a.seen({{"broken", 2, false}});
    CHECK(b.seen({{"broken", 2, false}}) == "qwen 1 one; (broken 2 nowhere); ");  // which nobody has
    a.list.put("broken", "at one");
    a.seen({{"broken", 3, false}});
    CHECK(b.seen({{"broken", 3, true}}) == "qwen 1 one; broken 3 at one; ");
    CHECK(a.list.remove("broken"));
    b.list.put("other", "two");
    b.list.put("qwen", "three");
    // The one before stays due until then, also for a server that starts.
    CHECK(a.seen({{"qwen", 1, true}}) == "(other 5 two); qwen 1 one; (qwen 6 three); ");
    a.list.put("qwen", "nowhere");
    CHECK(b.seen() == "(other 5 two); qwen 1 one; (qwen 7 nowhere); ");
    b.list.put("qwen", "three");
    a.seen({{"other", 5, true}, {"qwen", 8, true}});
    CHECK(b.seen({{"qwen", 8, true}}) == "(other 5 two); qwen 8 three; ");
    b.list.put("qwen", "four");
    CHECK(a.list.remove("qwen"));
    a.list.put("qwen", "five");
    CHECK(b.seen() == "(other 5 two); (qwen 11 five); ");
}

TEST_CASE_FIXTURE(one_list, "a server that died, or takes too long, is not waited for") {
    {
        listing_server dies(redis, 'c');
        a.list.put("qwen", "one");
        a.seen({{"qwen", 1, true}});
        CHECK(b.seen({{"qwen", 1, true}}) == "(qwen 1 one); ");
    }  // says goodbye
    CHECK(b.seen() == "qwen 1 one; ");
    listing_server hurries(redis, 'd', 200ms);
    hurries.list.put("other", "two");
    std::this_thread::sleep_for(250ms);
    CHECK(hurries.seen() == "qwen 1 one; (other 2 two); ");                // perhaps nobody can
    CHECK(a.seen({{"other", 2, true}}) == "qwen 1 one; (other 2 two); ");  // who has more time
    CHECK(hurries.seen() == "qwen 1 one; other 2 two; ");
}

TEST_CASE_FIXTURE(one_list, "what is removed is gone, once, and may come back") {
    a.list.put("qwen", "one");
    CHECK(b.list.remove("qwen"));
    CHECK_FALSE(b.list.remove("qwen"));
    CHECK_FALSE(a.list.remove("qwen"));
    CHECK_FALSE(a.list.remove("other"));
    CHECK(a.seen().empty());
    a.list.put("qwen", "two");
    CHECK(b.seen() == "(qwen 3 two); ");
}

TEST_CASE_FIXTURE(one_list, "a store that lost its list, or some of it, hears it from the servers") {
    a.list.put("qwen", "one");
    a.list.put("other", "two");
    a.seen({{"qwen", 1, true}});
    CHECK(b.seen({{"qwen", 1, true}}) == "qwen 1 one; (other 2 two); ");
    CHECK(a.list.remove("other"));
    a.list.put("third", "three");  // b has not heard of either
    CHECK(redis.says({"FLUSHALL"}) == "OK");
    CHECK(b.seen() == "qwen 1 one; (other 2 two); ");
    CHECK(a.seen() == "qwen 1 one; (third 4 three); ");
    CHECK(b.seen() == "qwen 1 one; (third 4 three); ");
    b.list.put("qwen", "four");
    CHECK(a.seen() == "(third 4 three); qwen 1 one; (qwen 5 four); ");
    redis.kill();
    CHECK_THROWS_AS(a.list.look({}), unavailable_error);
    CHECK_THROWS_AS(a.list.put("qwen", "five"), unavailable_error);
    redis.start();
    REQUIRE(comes([&] { return a.store->is_up(); }));
    CHECK(a.seen() == "(third 4 three); qwen 1 one; (qwen 5 four); ");
    a.list.put("qwen", "five");
    CHECK(a.seen() == "(third 4 three); qwen 1 one; (qwen 6 five); ");
}

TEST_CASE_FIXTURE(one_list, "a list that is full takes no new name, and forgets what was removed long ago") {
    a.list.put("qwen", "one");
    const std::string key = redis.says({"KEYS", "tensafe:*:adapters"});
    std::vector<std::string> many{"HSET", key};
    for (int i = 1; i < 4'096; ++i) {
        many.insert(many.end(), {"old " + std::to_string(i), R"({"version": 1, "at": 1})"});
    }
    redis.says(many);
    CHECK(a.seen() == "(qwen 1 one); ");
    CHECK(redis.says({"HLEN", key}) == "1");
    for (std::string& each : many) {
        each = each.starts_with("{") ? R"({"version": 1, "at": 1, "directory": "one", "due": true})" : each;
    }
    redis.says(many);
    CHECK_THROWS_AS(b.list.put("new", "one"), unavailable_error);
    CHECK(b.list.remove("old 7"));
    CHECK_THROWS_AS(b.list.put("new", "one"), unavailable_error);  // it is remembered
    b.list.put("old 7", "two");
    CHECK(a.list.look({}).size() == 4'096);
}

TEST_CASE_FIXTURE(one_list, "names and folders are kept as they are") {
    const std::string name = "a \"name\" \\ with \xc3\xa9 {1} [x]:*";
    for (const std::string& directory :
         {std::string(), std::string("sub/folder \"x\"\n"), std::string(4'000, 'x')}) {
        a.list.put(name, directory);
        const auto seen = b.list.look({});
        REQUIRE(seen.size() == 1);
        CHECK(seen[0].name == name);
        CHECK(seen[0].directory == directory);
    }
    const std::string key = redis.says({"KEYS", "tensafe:*:adapters"});
    for (const char* const bad : {"no text of ours", R"({"version": 1e300, "at": 1, "directory": ""})",
                                  R"({"version": -1, "at": 1, "directory": ""})"}) {
        redis.says({"HSET", key, "bad", bad});
        CHECK_THROWS_AS(b.list.look({}), tensafe::error);
        CHECK(b.store->is_up());  // the counts have nothing to do with it
    }
    redis.says({"HDEL", key, "bad"});
    redis.says({"HSET", key, "../bad", R"({"version": 1, "at": 1, "directory": ""})"});
    CHECK_THROWS_AS(b.list.look({}), tensafe::format_error);
}
