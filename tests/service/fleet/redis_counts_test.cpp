// What several servers count in a real Redis, whatever happens to it, to them and to their folders.
#include "../../../service/fleet/redis_counts.hpp"

#include <tensafe/serving/file_store.hpp>

#include "../../serving/stored_counts.hpp"
#include "redis_process.hpp"

using namespace tests;
using namespace std::chrono_literals;
using split::redis_address;
using tensafe::serving::unavailable_error;

namespace {

/// What was logged.
struct lines {
    bool has(std::string_view part) {
        const std::lock_guard lock(mutex);
        return contains(text, part);
    }
    split::log log() {
        return split::log([this](std::string_view line) {
            const std::lock_guard lock(mutex);
            text += line;
        });
    }
    std::mutex mutex;
    std::string text;
};

struct counting_server {
    counting_server(const redis_address& at, const std::filesystem::path& folder, lines& to,
                    std::chrono::milliseconds renewal = 100ms, std::chrono::milliseconds lease = 2s,
                    bool anybody = false)
        : store(options_of(at, to, renewal, lease, anybody)),
          counts(folder, query_counts::when_full::refuse, &store) {}
    static split::redis_counts_options options_of(const redis_address& at, lines& to,
                                                  std::chrono::milliseconds renewal,
                                                  std::chrono::milliseconds lease, bool anybody) {
        split::redis_counts_options made;
        made.store = at;
        made.key = tensafe::memory::secret_buffer<std::byte>(32);
        std::fill_n(made.key.data(), 32, std::byte{7});
        made.rows_expire = anybody;
        made.to = to.log();
        made.step_limit = 500ms;
        made.renewal = renewal;
        made.lease = lease;
        made.settling = 200ms;
        return made;
    }
    query_counts::account alice() const { return counts.account_of("alice", "acme", "kjv"); }

    /// Whether it counts for an answer.
    bool ask(const limits& most) { return counts.add(alice(), 0, 10, most) == outcome{}; }
    /// As a client does, which comes again.
    bool ask_until_heard(const limits& most) {
        bool is_counted = false;
        REQUIRE(comes([&] {
            try {
                is_counted = ask(most);
                return true;
            } catch (const unavailable_error&) {
                return false;
            }
        }));
        return is_counted;
    }
    bool is_unavailable(const limits& most) {
        try {
            while (ask(most)) {  // what is reserved
                ++answered_meanwhile;
            }
            return false;
        } catch (const unavailable_error&) {
            return true;
        }
    }
    std::uint64_t answered_meanwhile = 0;
    split::redis_counts store;
    query_counts counts;
};

struct redis_fleet {
    redis_fleet() { std::signal(SIGPIPE, SIG_IGN); }
    std::unique_ptr<counting_server> server(std::size_t i) {
        return std::make_unique<counting_server>(redis.address(), folders[i].path(), logged[i]);
    }
    /// A row's numbers of all servers.
    std::string numbers(const std::string& row) const {
        const std::string key = redis.says({"KEYS", "tensafe:*:c:" + row + ":0"});
        return redis.says({"HGETALL", key});
    }
    std::uint64_t sum(const std::string& row) const {
        std::uint64_t result = 0;
        const auto all = words(numbers(row));
        for (std::size_t i = 1; i < all.size(); i += 2) {
            result += std::stoull(all[i]);
        }
        return result;
    }
    redis_process redis;
    std::array<temporary_directory, 3> folders;
    std::array<lines, 3> logged;
};

constexpr std::uint64_t limit = 3200;
const limits most{limit, {}, {}};
const std::uint64_t a_chunk = query_counts::chunk(10, limit, 0, 2);

}  // namespace

TEST_CASE("the address of a store is read strictly, and a password is none of it") {
    const auto one = redis_address::parse("redis://ten@[::1]:6379/3");
    CHECK(one.hosts == std::vector<std::pair<std::string, std::uint16_t>>{{"::1", 6379}});
    CHECK((one.user == "ten" && one.database == 3 && one.master.empty() && !one.is_secure));
    const auto some = redis_address::parse("sentinel://a:1,b.example:26379/mymaster/2");
    CHECK(some.hosts.size() == 2);
    CHECK((some.hosts[1].first == "b.example" && some.master == "mymaster" && some.database == 2));
    for (const char* const text :
         {"", "redis://", "redis://host", "redis://:1", "redis://h:0", "redis://h:65536", "redis://h:1/x",
          "redis://h:1/-1", "redis://u:secret@h:1", "redis://@h:1", "redis://h:1,i:2", "http://h:1",
          "redis:h:1", "sentinel://h:1", "sentinel://h:1/", "redis://::1:6379", "redis://h:1/0/0",
          "redis://h:1,"}) {
        CAPTURE(text);
        const std::string said = refusal<tensafe::parameter_error>([&] { redis_address::parse(text); });
        CHECK(contains(said, "expected redis://"));
    }
}

TEST_CASE_FIXTURE(redis_fleet,
                  "servers share a limit in Redis, also one that was killed and one that stops") {
    auto a = server(0);
    auto b = server(1);
    std::uint64_t answered = 0;
    for (int i = 0; i < 30; ++i) {
        answered += a->ask_until_heard(most) ? 10u : 0u;
        answered += b->ask_until_heard(most) ? 10u : 0u;
    }
    CHECK(answered == 600);
    CHECK(sum(a->alice()[0]) >= answered);
    CHECK(sum(a->alice()[0]) <= answered + 2 * a_chunk);
    CHECK_FALSE(contains(redis.says({"KEYS", "*"}), "alice"));
    // It dies, its lease does not.
    const pid_t child = ::fork();
    if (child == 0) {
        counting_server c(redis.address(), folders[2].path(), logged[2]);
        for (int i = 0; i < 20; ++i) {
            while (true) {
                try {
                    if (!c.ask(most)) {
                        ::_exit(1);
                    }
                    break;
                } catch (const unavailable_error&) {
                    std::this_thread::sleep_for(20ms);
                }
            }
        }
        ::_exit(0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    answered += 200;
    auto c = server(2);  // waits for the lease
    CHECK(c->counts.used(c->alice(), 0, false)[0] >= 200);
    CHECK(c->counts.used(c->alice(), 0, false)[0] <= 200 + a_chunk);
    b->counts.save();
    const std::uint64_t of_b = b->counts.used(b->alice(), 0, false)[0];
    CHECK(contains(numbers(b->alice()[0]),
                   text_of(folders[1].path() / "server_id") + " " + std::to_string(of_b)));
    b.reset();
    for (bool is_over = false; !is_over;) {  // in turn: each is told of the other too late
        is_over = true;
        for (counting_server* const each : {a.get(), c.get()}) {
            if (each->ask_until_heard(most)) {
                answered += 10;
                is_over = false;
            }
        }
    }
    CHECK(answered <= limit);
    CHECK(answered + 2 * a_chunk + 20 >= limit);
    CHECK(sum(a->alice()[0]) <= limit);
}

TEST_CASE_FIXTURE(redis_fleet,
                  "a store that lost everything learns it from all servers before it grants anything") {
    lines& log = logged[0];
    counting_server a(redis.address(), folders[0].path(), log, 100ms, 20s);
    counting_server b(redis.address(), folders[1].path(), logged[1], 20s, 40s);  // which looks rarely
    REQUIRE(comes([&] { return b.store.is_up(); }));
    std::uint64_t answered = 0;
    const auto both = [&] {
        for (int i = 0; i < 20; ++i) {
            answered += a.ask_until_heard(most) ? 10u : 0u;
            answered += b.ask_until_heard(most) ? 10u : 0u;
        }
    };
    std::this_thread::sleep_for(250ms);  // a has heard of b
    const bool is_killed = true;
    for (const bool kills : {is_killed, !is_killed}) {
        both();
        const std::uint64_t before = sum(a.alice()[0]);
        if (kills) {
            redis.kill();
            redis.start();
        } else {
            redis.says({"FLUSHALL"});
        }
        CHECK(comes(
            [&] { return a.store.is_up() && log.has("store_behind") && !numbers(a.alice()[0]).empty(); }));
        // b still answers what it reserved, and a is granted nothing.
        std::this_thread::sleep_for(500ms);
        CHECK(a.is_unavailable(most));
        answered += 10 * std::exchange(a.answered_meanwhile, 0);
        CHECK(b.is_unavailable(most));  // now it hears of it
        answered += 10 * std::exchange(b.answered_meanwhile, 0);
        CHECK(comes([&] { return sum(a.alice()[0]) >= before; }));
        both();
        CHECK(sum(a.alice()[0]) >= answered);
        CHECK(sum(a.alice()[0]) <= limit);
        const std::lock_guard lock(log.mutex);
        log.text.clear();
    }
    while (a.ask_until_heard(most)) {
        answered += 10;
    }
    CHECK(answered <= limit);
    CHECK(answered + a_chunk + 20 >= limit);
}

TEST_CASE_FIXTURE(redis_fleet, "a lost, an old and a copied folder give nobody more than the limit") {
    std::uint64_t answered = 0;
    const auto some = [&](counting_server& of, int count) {
        for (int i = 0; i < count; ++i) {
            answered += of.ask_until_heard(most) ? 10u : 0u;
        }
    };
    const temporary_directory backup;
    auto a = server(0);
    some(*a, 5);
    const auto copy = [](const std::filesystem::path& from, const std::filesystem::path& to) {
        for (const char* const name : {"usage", "server_id"}) {
            std::filesystem::copy_file(from / name, to / name,
                                       std::filesystem::copy_options::overwrite_existing);
        }
    };
    copy(folders[0].path(), backup.path());
    CHECK(contains(refusal<tensafe::parameter_error>(
                       [&] { counting_server(redis.address(), backup.path(), logged[1]); }),
                   "its --state is a copy"));
    some(*a, 20);
    a.reset();
    copy(backup.path(), folders[0].path());  // as of a backup
    a = server(0);
    some(*a, 20);
    CHECK(a->counts.used(a->alice(), 0)[0] >= answered);
    a.reset();
    a = server(1);  // as if the folder were lost
    while (a->ask_until_heard(most)) {
        answered += 10;
    }
    CHECK(answered <= limit);
    CHECK(answered + 4 * a_chunk >= limit);
}

TEST_CASE_FIXTURE(redis_fleet, "a store that stands still costs one wait, and a reply that is lost nothing") {
    auto a = server(0);
    REQUIRE(a->ask_until_heard(most));
    std::uint64_t answered = 10;
    for (int round = 0; round < 3; ++round) {
        redis.signal(SIGSTOP);
        CHECK(a->ask(most));  // reserved
        answered += 10;
        CHECK(a->is_unavailable(most));
        answered += 10 * std::exchange(a->answered_meanwhile, 0);
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < 200; ++i) {
            CHECK_THROWS_AS(a->ask(most), unavailable_error);
        }
        CHECK(std::chrono::steady_clock::now() - begin < 20s);  // 200 times half a second otherwise
        redis.signal(SIGCONT);                                  // now it reserves, for nobody
        CHECK(a->ask_until_heard(most));
        answered += 10;
        CHECK(a->counts.used(a->alice(), 0)[0] == answered);
    }
    CHECK(logged[0].has("store_unavailable"));
    CHECK(logged[0].has("store_up"));
}

TEST_CASE_FIXTURE(redis_fleet,
                  "entries are told again where they may be older, and not after a connection was lost") {
    auto a = server(0);
    REQUIRE(a->ask_until_heard(most));
    const std::string row = redis.says({"KEYS", "tensafe:*:c:" + a->alice()[0] + ":0"});
    const std::string id = text_of(folders[0].path() / "server_id");
    const std::uint64_t reserved = sum(a->alice()[0]);
    redis.says({"HSET", row, id, "1"});  // so that it shows
    redis.says({"CLIENT", "KILL", "TYPE", "normal"});
    CHECK(comes([&] { return logged[0].has("store_unavailable") && a->store.is_up(); }));
    CHECK(sum(a->alice()[0]) == 1);
    redis.says({"REPLICAOF", "127.0.0.1", "1"});
    CHECK(comes([&] { return !a->store.is_up(); }));
    redis.says({"REPLICAOF", "NO", "ONE"});
    CHECK(comes([&] { return sum(a->alice()[0]) == reserved; }));
    // And to one whose machine was set back.
    redis.says({"HSET", row, id, "1"});
    redis.says({"SET", redis.says({"KEYS", "tensafe:*:beats"}), "0"});
    CHECK(comes([&] { return sum(a->alice()[0]) == reserved; }));
}

TEST_CASE_FIXTURE(redis_fleet, "a lease of a server that died before the store's clock went back ends") {
    auto a = server(0);
    REQUIRE(a->ask_until_heard(most));
    const std::string servers = redis.says({"KEYS", "tensafe:*:servers"});
    const std::string an_hour_ahead = std::to_string((std::time(nullptr) + 3'600) * 1'000);
    redis.says({"HSET", servers, std::string(32, 'd'), "boot " + an_hour_ahead + " -"});
    CHECK(a->is_unavailable(most));
    CHECK(a->ask_until_heard(most));
}

TEST_CASE_FIXTURE(redis_fleet, "a store that is full, a replica, or asks for a password grants nothing") {
    auto a = server(0);
    REQUIRE(a->ask_until_heard(most));
    const std::vector<std::vector<std::vector<std::string>>> troubles{
        {{"CONFIG", "SET", "maxmemory", "1"}, {"CONFIG", "SET", "maxmemory", "0"}},
        {{"REPLICAOF", "127.0.0.1", "1"}, {"REPLICAOF", "NO", "ONE"}},
        {{"CONFIG", "SET", "min-replicas-to-write", "1"}, {"CONFIG", "SET", "min-replicas-to-write", "0"}}};
    for (const auto& trouble : troubles) {
        CAPTURE(trouble[0][2]);
        REQUIRE(redis.says(trouble[0]) == "OK");
        CHECK(a->is_unavailable(most));
        CHECK(comes([&] { return !a->store.is_up(); }));
        CHECK_THROWS_AS(a->ask(most), unavailable_error);
        REQUIRE(redis.says(trouble[1]) == "OK");
        CHECK(a->ask_until_heard(most));
    }
    a.reset();
    REQUIRE(redis.says({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"}) == "OK");
    {
        counting_server refused(redis.address(), folders[0].path(), logged[1]);
        CHECK_THROWS_AS(refused.ask(most), unavailable_error);
        CHECK(logged[1].has("expected noeviction"));
    }
    REQUIRE(redis.says({"CONFIG", "SET", "maxmemory-policy", "noeviction"}) == "OK");
    REQUIRE(redis.says({"CONFIG", "SET", "requirepass", "secret"}) == "OK");
    redis_address at = redis.address();
    for (const char* const password : {"", "wrong"}) {
        at.password = password;
        lines log;
        counting_server refused(at, folders[0].path(), log);
        CHECK_THROWS_AS(refused.ask(most), unavailable_error);
        CHECK(log.has(*password == '\0' ? "NOAUTH" : "WRONGPASS"));
        CHECK_FALSE(log.has("\"wrong\""));
    }
    at.password = "secret";
    CHECK(counting_server(at, folders[0].path(), logged[1]).ask_until_heard(most));
}

TEST_CASE_FIXTURE(
    redis_fleet,
    "a store that was away for longer than a lease, and is older, grants nobody what others had") {
    counting_server a(redis.address(), folders[0].path(), logged[0], 2s, 2500ms);  // comes back late
    counting_server b(redis.address(), folders[1].path(), logged[1], 100ms, 2500ms);
    REQUIRE(comes([&] { return a.store.servers() == 2 && b.store.servers() == 2; }));
    REQUIRE(redis.says({"SAVE"}) == "OK");
    std::uint64_t answered = 0;
    while (answered < 2'600) {
        answered += a.ask_until_heard(most) ? 10u : 0u;
    }
    redis.kill();
    std::this_thread::sleep_for(3s);
    redis.start();  // with what was saved
    for (counting_server* const each : {&b, &a}) {
        while (each->ask_until_heard(most)) {
            answered += 10;
        }
    }
    CHECK(answered <= limit);
    CHECK(answered > limit - 2 * a_chunk);
}

TEST_CASE_FIXTURE(redis_fleet,
                  "a server and the store lost together lose what was reserved since the store's copy") {
    auto a = server(0);
    auto b = server(1);
    std::uint64_t answered = 0;
    const auto some = [&](counting_server& of, int count) {
        for (int i = 0; i < count; ++i) {
            answered += of.ask_until_heard(most) ? 10u : 0u;
        }
    };
    some(*a, 60);
    some(*b, 60);
    REQUIRE(redis.says({"SAVE"}) == "OK");
    const std::uint64_t saved = sum(a->alice()[0]);
    some(*a, 20);
    const std::uint64_t since = sum(a->alice()[0]) - saved;
    CHECK(since <= 3 * a_chunk);
    redis.kill();
    a.reset();
    for (const auto& each : std::filesystem::directory_iterator(folders[0].path())) {
        std::filesystem::remove_all(each.path());
    }
    redis.start();
    a = server(0);  // as a new one
    for (counting_server* const each : {b.get(), a.get()}) {
        while (each->ask_until_heard(most)) {
            answered += 10;
        }
    }
    CHECK(answered <= limit + since);
    CHECK(answered > limit - 2 * a_chunk);
}

TEST_CASE_FIXTURE(redis_fleet, "where anybody may come rows of clients expire, and those of adapters never") {
    for (const bool anybody : {true, false}) {
        counting_server a(redis.address(), folders[anybody ? 0 : 1].path(), logged[0], 100ms, 2s, anybody);
        redis.says({"FLUSHALL"});
        REQUIRE(comes([&] { return a.is_unavailable(most) || sum(a.alice()[0]) > 0; }));
        REQUIRE(a.ask_until_heard(most));
        for (std::size_t i = 0; i < 3; ++i) {
            const std::string key = redis.says({"KEYS", "tensafe:*:c:" + a.alice()[i] + ":0"});
            const long life = std::stol(redis.says({"TTL", key}));
            const long days = !anybody || i == 2 ? 0 : i == 0 ? 1 : 30;
            CHECK((days == 0 ? life == -1 : life > days * 86'400 - 1'000 && life <= days * 86'400));
        }
    }
}

TEST_CASE_FIXTURE(redis_fleet, "after a fail-over by Sentinel the new master learns what it does not have") {
    const redis_process replica({"--replicaof", "127.0.0.1 " + std::to_string(redis.port)});
    const redis_process sentinel("mymaster", redis);
    REQUIRE(comes([&] {
        return contains(sentinel.says({"SENTINEL", "REPLICAS", "mymaster"}), std::to_string(replica.port)) &&
               contains(replica.says({"INFO", "replication"}), "master_link_status:up");
    }));
    redis_address at{{{"127.0.0.1", free_port()}, {"127.0.0.1", sentinel.port}}, "mymaster"};
    counting_server a(at, folders[0].path(), logged[0]);
    counting_server b(at, folders[1].path(), logged[1]);
    std::uint64_t answered = 0;
    const auto both = [&](int count) {
        for (int i = 0; i < count; ++i) {
            answered += a.ask_until_heard(most) ? 10u : 0u;
            answered += b.ask_until_heard(most) ? 10u : 0u;
        }
    };
    both(20);
    redis.kill();
    both(60);
    CHECK(contains(replica.says({"ROLE"}), "master"));
    while (a.ask_until_heard(most)) {
        answered += 10;
    }
    CHECK(answered <= limit);
    CHECK(answered + 2 * a_chunk + 20 >= limit);
    redis.start();  // so that it can be stopped
}
