// What query limits stand on: counts that no crash, full disk or lack of memory makes too small. And the
// memory of sessions. Long for each way to be killed, full or damaged is a case.
#include "../../service/query_counts.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <csignal>
#include <sys/resource.h>

#include "../allocation_count.hpp"
#include "peer.hpp"

using namespace tests;

namespace {

using split::query_counts;
using outcome = query_counts::outcome;
using bits = std::array<std::uint64_t, 3>;
using limits = split::of_each_scope<std::uint64_t>;

const std::string first_line = "tensafe split usage 3\n";

/// A file of these lines, with their checksums.
std::string usage_text(const std::vector<std::string>& lines, const std::string& key) {
    std::string text = first_line;
    std::array<unsigned char, 32> hash{};
    ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(first_line.data()), first_line.size(), hash.data(),
           nullptr);
    std::uint32_t sum = 0;
    std::memcpy(&sum, hash.data(), sizeof sum);
    for (const std::string& line : lines) {
        sum = wire::crc32c({reinterpret_cast<const std::uint8_t*>(line.data()), line.size()}, sum);
        text += std::to_string(sum) + line + "\n";
    }
    return text;
}

/// The name of a client that nobody is.
std::string name_of_nobody(std::size_t i) {
    std::string digits = std::to_string(i);
    return "c" + std::string(64 - digits.size(), '0') + digits;
}

/// Calls `f` while no file may become longer than this, as on a disk that is full.
void with_file_limit(std::size_t bytes_of_file, auto f) {
    rlimit old{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
    rlimit full = old;
    full.rlim_cur = bytes_of_file;
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
    f();
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
    std::signal(SIGXFSZ, handler);
}

struct stored_counts {
    std::filesystem::path usage() const { return folder.path() / "usage"; }
    void put(const std::string& text) const {
        std::filesystem::remove(usage());  // a file that is cut is written at once
        folder.put("usage", text);
    }
    void put_lines(const std::vector<std::string>& lines) const {
        if (!std::filesystem::exists(folder.path() / "usage_key")) {
            static_cast<void>(account_of("anybody"));
        }
        put(usage_text(lines, text_of(folder.path() / "usage_key")));
    }
    query_counts::account account_of(const char* client, const char* tenant = "") const {
        return query_counts(folder.path()).account_of(client, tenant, "kjv");
    }
    /// As if the process were killed now.
    bits after_a_kill(const query_counts::account& of, std::size_t group) const {
        const temporary_directory copy;
        for (const char* name : {"usage", "usage_key"}) {
            std::filesystem::copy_file(folder.path() / name, copy.path() / name);
        }
        return query_counts(copy.path()).used(of, group);
    }
    void check_refused(const std::string& part) const {
        const std::string said = refusal<tensafe::error>([&] { query_counts(folder.path()); });
        INFO("said := ", said);
        CHECK(contains(said, part));
    }
    temporary_directory folder;
};

}  // namespace

TEST_CASE_FIXTURE(stored_counts,
                  "a stop leaves exact counts in a file that names nobody, with a key of its own") {
    {
        query_counts counts(folder.path());
        const auto alice = counts.account_of("alice", "acme", "kjv");
        const auto bob = counts.account_of("bob", "acme", "kjv");
        CHECK(counts.add(alice, 0, 10, {9, {}, {}}) ==
              outcome{outcome::limit_reached, split::scope::client, 10});
        CHECK(counts.rows() == 0);  // what was not counted leaves no row
        CHECK(counts.add(alice, 4'000'000'000, 10, {}) == outcome{});
        counts.take_back(alice, 4'000'000'000, 10);
        CHECK(counts.used(alice, 4'000'000'000) == bits{});
        CHECK(counts.add(alice, 1, 10, {15, 25, 25}) == outcome{});
        CHECK(counts.add(alice, 1, 10, {15, 25, 25}) ==
              outcome{outcome::limit_reached, split::scope::client, 20});
        CHECK(counts.add(bob, 1, 10, {15, 25, 25}) == outcome{});
        CHECK(counts.add(bob, 1, 10, {25, 25, 25}) ==
              outcome{outcome::limit_reached, split::scope::tenant, 30});
        CHECK(counts.add(bob, 1, 10, {std::nullopt, {}, 25}) ==
              outcome{outcome::limit_reached, split::scope::adapter, 30});
        CHECK(counts.used(bob, 1) == bits{10, 20, 20});
        counts.take_back(bob, 1, 10);
        CHECK(counts.used(bob, 1) == bits{0, 10, 10});
        counts.save();
        // Whoever asks all the same is counted.
        CHECK(counts.add(bob, 2, 10, {}) == outcome{});
        CHECK(after_a_kill(bob, 2)[0] >= 10);
        counts.save();
    }
    const std::string text = text_of(usage());
    for (const char* name : {"alice", "acme", "kjv"}) {
        CHECK_FALSE(contains(text, name));
    }
    {
        query_counts counts(folder.path());
        CHECK(counts.rows() == 4);
        CHECK(counts.used(counts.account_of("alice", "acme", "kjv"), 1) == bits{10, 10, 10});
        // A client that has the name of a tenant is another.
        CHECK(counts.used(counts.account_of("acme", "", "kjv"), 1) == bits{0, 0, 10});
    }
    REQUIRE(::chmod((folder.path() / "usage_key").c_str(), 0644) == 0);
    check_refused("0600");
}

TEST_CASE_FIXTURE(stored_counts,
                  "whenever a server is killed, what it counted still is, with a chunk on top at most") {
    for (const limits& of : {limits{}, limits{1000, 2000, 3200}, limits{200, {}, 4'000'000}}) {
        std::uint64_t counted = 0;
        const std::size_t group = of[0].value_or(0);
        query_counts counts(folder.path());
        const auto alice = counts.account_of("alice", "acme", "kjv");
        while (counted < 1200 && counts.add(alice, group, 10, of) == outcome{}) {
            counted += 10;
            const bits left = after_a_kill(alice, group);
            for (std::size_t i = 0; i < left.size(); ++i) {
                CHECK(left[i] >= counted);
                CHECK(left[i] <= std::min(counted + query_counts::chunk(10, of[i]), of[i].value_or(~0u)));
            }
        }
        CHECK(counted == std::min<std::uint64_t>(1200, of[0].value_or(1200)));
    }
}

TEST_CASE_FIXTURE(stored_counts, "a client gets no more than its limit, however often the server is killed") {
    constexpr std::uint64_t limit = 640;
    static_assert(limit / 32 == 20);
    const auto alice = account_of("alice");
    std::uint64_t answered = 0;
    std::size_t lives = 0;
    for (bool goes_on = true; goes_on; ++lives) {
        query_counts counts(folder.path());
        for (int i = 0; i < 3 && goes_on; ++i) {
            goes_on = counts.add(alice, 0, 10, {limit, {}, {}}) == outcome{};
            answered += goes_on ? 10 : 0;
        }
    }
    CHECK(lives > 10);
    CHECK(answered <= limit);
    CHECK(answered + lives * query_counts::chunk(10, limit) >= limit);
}

TEST_CASE_FIXTURE(stored_counts, "threads that count the same and other clients lose nothing") {
    query_counts counts(folder.path());
    const auto count = [&](std::size_t thread) {
        for (std::size_t i = 0; i < 200; ++i) {
            const auto of = counts.account_of(std::to_string(i % 5 + thread), "acme", "kjv");
            if (counts.add(of, i % 3, 10, {1000, 100'000, {}}) == outcome{} && i % 10 == 0) {
                counts.take_back(of, i % 3, 10);
            }
        }
    };
    {
        std::jthread other([&] { count(1); });
        count(0);
    }
    const auto all = counts.account_of("", "acme", "kjv");
    std::uint64_t sum = 0;
    for (std::size_t group = 0; group < 3; ++group) {
        sum += counts.used(all, group)[1];
        CHECK(after_a_kill(all, group)[2] >= counts.used(all, group)[2]);
    }
    CHECK(sum == 2 * 180 * 10);
}

TEST_CASE_FIXTURE(stored_counts, "whatever memory lacks, a request counts in all rows or in none") {
    query_counts counts(folder.path());
    const auto alice = counts.account_of("alice", "acme", "kjv");
    std::size_t failures = 0;
    for (bool counted = false; !counted; failures += counted ? 0 : 1) {
        REQUIRE(failures < 1000);
        allocations_left = failures;
        try {
            counted = counts.add(alice, 7, 10, {1000, 1000, 1000}) == outcome{};
        } catch (const std::bad_alloc&) {
        }
        allocations_left = ~std::size_t{0};
        const std::uint64_t expected = counted ? 10 : 0;
        CHECK(counts.used(alice, 7) == bits{expected, expected, expected});
    }
    CHECK(failures > 3);
    // It is called where an exception would end the process.
    allocations_left = 0;
    counts.take_back(alice, 7, 10);
    const bool had_one_left = allocations_left == 0;
    allocations_left = ~std::size_t{0};
    CHECK(had_one_left);
    CHECK(counts.used(alice, 7) == bits{});
}

TEST_CASE_FIXTURE(stored_counts,
                  "without room on the disk what is reserved is given out, and then nothing is counted") {
    query_counts counts(folder.path());
    const auto alice = counts.account_of("alice", "", "kjv");
    REQUIRE(counts.add(alice, 0, 10, {}) == outcome{});
    const std::string before = text_of(usage());
    std::size_t answers = 1;
    const auto add = [&](std::size_t group) {
        return refusal<io_error>([&] {
            while (answers < 1000 && counts.add(alice, group, 10, {}) == outcome{}) {
                ++answers;
            }
        });
    };
    std::vector<std::string> said;
    with_file_limit(before.size() + 30, [&] { said = {add(0), add(0), add(1)}; });
    for (const std::string& each : said) {
        CHECK(contains(each, "usage\": cannot reserve counts: File too large"));
    }
    CHECK(answers == 65);  // the first one, and a chunk
    CHECK(counts.used(alice, 0) == bits{650, 650, 650});
    CHECK(counts.used(alice, 1) == bits{});
    CHECK(
        text_of(usage()).starts_with(before));  // who reserves ahead may be at it; what is left is read below
    CHECK(counts.add(alice, 1, 10, {}) == outcome{});
    CHECK(after_a_kill(alice, 0)[2] >= 650);
    CHECK(after_a_kill(alice, 1)[2] == 650);
}

TEST_CASE_FIXTURE(stored_counts,
                  "made-up keys lock no client out: those that asked least make room, no tenant") {
    const auto heavy = account_of("heavy");
    const auto light = account_of("light", "acme");
    std::vector<std::string> lines = {" " + heavy[0] + " 7:3", " " + heavy[2] + " 7:90",
                                      " " + light[0] + " 7:1", " " + light[1] + " 7:1"};
    while (lines.size() < query_counts::most_rows) {
        lines.push_back(" " + name_of_nobody(lines.size()) + " 7:2");
    }
    lines.emplace_back();
    // Behind the table one too many: such a row was evicted, and the file was not written anew.
    lines.push_back(" " + name_of_nobody(0) + " 7:2");
    put_lines(lines);
    for (const auto full : {query_counts::when_full::evict, query_counts::when_full::refuse}) {
        CHECK(query_counts(folder.path(), full).rows() <= query_counts::most_rows);
    }
    lines.pop_back();
    put_lines(lines);
    query_counts counts(folder.path(), query_counts::when_full::evict);
    REQUIRE(counts.rows() == query_counts::most_rows);
    CHECK(counts.used(light, 7)[0] == 1);
    const auto fresh = counts.account_of("fresh", "", "kjv");
    REQUIRE(counts.add(fresh, 7, 2, {}) == outcome{});
    CHECK(counts.rows() < query_counts::most_rows);
    CHECK(counts.used(heavy, 7) == bits{3, 3, 92});
    CHECK(counts.used(light, 7) == bits{0, 1, 92});
    CHECK(after_a_kill(fresh, 7)[0] >= 2);
}

TEST_CASE_FIXTURE(stored_counts, "a table full of addresses has room for others, and keeps who asked most") {
    std::vector<std::string> lines;
    const auto all = account_of("", "");
    lines.push_back(" " + all[2] + " 0:90");
    lines.push_back(" " + account_of("", "address heavy")[1] + " 0:80");
    while (lines.size() < query_counts::most_rows) {
        const std::string name = name_of_nobody(lines.size());
        lines.push_back(" " + account_of("", "address heavy")[1].substr(0, 1) + name.substr(1) + " 0:5");
    }
    lines.emplace_back();
    put_lines(lines);
    query_counts counts(folder.path(), query_counts::when_full::evict);
    REQUIRE(counts.rows() == query_counts::most_rows);
    CHECK(counts.add(counts.account_of("fresh", "address fresh", "kjv"), 0, 5, {}).what == outcome::counted);
    CHECK(counts.rows() < query_counts::most_rows);
    CHECK(counts.used(counts.account_of("fresh", "address heavy", "kjv"), 0) == bits{5, 80, 95});
}

TEST_CASE_FIXTURE(stored_counts,
                  "a full table of listed clients refuses further ones, and those it has go on") {
    const auto known = account_of("known");
    std::vector<std::string> lines = {" " + known[0] + " 0:5", " " + known[2] + " 0:5"};
    while (lines.size() < query_counts::most_rows - 2) {
        lines.push_back(" " + name_of_nobody(lines.size()) + " 0:5");
    }
    lines.emplace_back();
    put_lines(lines);
    query_counts counts(folder.path());
    const auto add = [&](const char* client, std::size_t group = 0) {
        return counts.add(counts.account_of(client, "", "kjv"), group, 5, {}).what;
    };
    CHECK(add("fresh") == outcome::no_room);
    CHECK(add("known", 1) == outcome::counted);
    CHECK(counts.used(counts.account_of("fresh", "", "kjv"), 0) == bits{0, 0, 5});
}

TEST_CASE_FIXTURE(stored_counts, "a long file is written anew, with all that is reserved in it") {
    const auto alice = account_of("alice");
    const auto bob = account_of("bob");
    std::string log = " " + alice[0];
    for (std::size_t i = 1; log.size() <= std::size_t{4} << 20; ++i) {
        log += " 3:" + std::to_string(i);
    }
    put_lines({" " + bob[0] + " 1:30", "", log + " 3:77 3:5"});
    query_counts counts(folder.path());
    const std::uint64_t most = counts.used(alice, 3)[0];
    CHECK(most > 1000);
    REQUIRE(counts.add(bob, 2, 10, {}) == outcome{});
    CHECK(std::filesystem::file_size(usage()) < 1000);
    CHECK(after_a_kill(alice, 3) == bits{most, most, 0});
    CHECK(after_a_kill(bob, 1)[0] == 30);
    CHECK(after_a_kill(bob, 2) == bits{650, 650, 650});
}

TEST_CASE_FIXTURE(stored_counts,
                  "counts without their key, a key without its counts, and a folder in use are errors") {
    {
        query_counts first(folder.path());
        check_refused("another server uses this state folder");
        check_refused(folder.path().string());
        REQUIRE(first.add(first.account_of("alice", "", "kjv"), 0, 10, {}) == outcome{});
    }
    std::filesystem::rename(usage(), folder.path() / "away");
    check_refused("usage\": is missing");
    std::filesystem::rename(folder.path() / "away", usage());
    std::filesystem::remove(folder.path() / "usage_key");
    check_refused("usage_key\": is missing");
    folder.put("usage_key", std::string(32, 'x'));
    REQUIRE(::chmod((folder.path() / "usage_key").c_str(), 0600) == 0);
    check_refused("usage\": line 2: is damaged, not whole, or was made with another usage_key");
}

TEST_CASE("a first start that was cut anywhere begins again, and what it left is removed") {
    const std::string nothing = usage_text({""}, "the key of a start that was cut");
    for (const std::map<std::string, std::string>& left :
         {std::map<std::string, std::string>{{"usage.partial-17-0", "tensafe"}},
          {{"usage", nothing}},
          {{"usage", nothing},
           {"usage_key.partial-aB3xYz", "x"},
           {"certificate_key.pem.new.partial-aB3xYz", "x"}}}) {
        const temporary_directory folder;
        for (const auto& [name, text] : left) {
            folder.put(name, text);
        }
        folder.put("notes.partial-1", "of somebody");
        CHECK(query_counts(folder.path()).rows() == 0);
        CHECK(entries(folder.path()) == 3);
        CHECK(text_of(folder.path() / "usage") == usage_text({""}, text_of(folder.path() / "usage_key")));
        CHECK(query_counts(folder.path()).rows() == 0);
    }
}

TEST_CASE_FIXTURE(stored_counts,
                  "a torn last line is dropped, and any other damage is an error with its line") {
    query_counts::account alice;
    {
        query_counts counts(folder.path());
        alice = counts.account_of("alice", "", "kjv");
        REQUIRE(counts.add(alice, 0, 10, {}) == outcome{});
        counts.save();
        REQUIRE(counts.add(alice, 0, 10, {}) == outcome{});
        REQUIRE(counts.add(alice, 1, 10, {}) == outcome{});
    }
    const std::string whole = text_of(usage());
    const std::size_t last = whole.rfind('\n', whole.size() - 2) + 1;
    const std::size_t table = whole.rfind('\n', last - 2) + 1;
    for (std::size_t cut = last; cut <= whole.size(); ++cut) {
        put(whole.substr(0, cut));
        query_counts counts(folder.path());
        CHECK(counts.used(alice, 0)[0] == 660);
        CHECK(counts.used(alice, 1)[0] == (cut == whole.size() ? 650 : 0));
        CHECK(text_of(usage()).size() == (cut == whole.size() ? cut : last));
    }
    std::string torn = whole;
    torn.replace(last + 100, 20, 20, '\0');
    put(torn);
    CHECK(query_counts(folder.path()).used(alice, 1)[0] == 0);
    put(whole.substr(0, last + 3));
    {
        query_counts counts(folder.path());
        REQUIRE(counts.add(alice, 2, 10, {}) == outcome{});
    }
    CHECK(query_counts(folder.path()).used(alice, 2)[0] == 650);  // nothing torn is before it
    for (std::size_t i = 0; i < table; ++i) {
        put(whole.substr(0, i));
        check_refused("usage\": line ");
    }
    for (std::size_t i = 0; i + 1 < whole.size(); ++i) {
        std::string damaged = whole;
        damaged[i] ^= 1;
        put(damaged);
        CAPTURE(i);
        check_refused("usage\": line ");
    }
}

TEST_CASE_FIXTURE(stored_counts, "a usage file that is no list of counts is refused with its line") {
    static_cast<void>(account_of("alice"));
    const std::string name = name_of_nobody(1);
    const std::string good = " " + name + " 1:2";
    put_lines({good + " 3:4611686018427387904" + good, ""});
    CHECK(query_counts(folder.path()).rows() == 1);
    for (const std::string& rows :
         {good + " ", good + " -1", good + "x", good + "  1:2", " " + name + " 1",
          " " + name + " 1:", " " + name + " 1:0", " " + name + " 1:4611686018427387905", " " + name + "1:2",
          std::string(" 1:2"), " b" + name.substr(1) + " 1:2", " " + name.substr(0, 64) + " 1:2",
          " c" + std::string(64, 'A') + " 1:2"}) {
        CAPTURE(rows);
        put_lines({good, rows, ""});
        check_refused("usage\": line 3: is no list of counts, or one too many. Move it and usage_key away");
        put_lines({good, "", rows});
        check_refused("usage\": line 4: is no list of counts");
    }
    put_lines({good});
    check_refused("usage\": line 3: is missing, the end of the table");
    put("tensafe split usage 2\n" + name + " 1:2\n");
    check_refused("usage\": line 1: got version 2, expected 3");
    put("tensafe split usage 4\n");
    check_refused("usage\": line 1: does not say \"tensafe split usage 3\"");
}

namespace {

lora::adapter one_site() {
    lora::adapter result;
    result.sites = {random_site(8, 16, 64, 1)};
    result.sites[0].name = "model.layers.0.self_attn.q_proj";
    return result;
}

/// A server on the folder of the counts.
struct counting_server : server {
    explicit counting_server(const stored_counts& at, const split::limits& allowed = {})
        : server(
              allowed,
              [&](auto& options) {
                  options.state = at.folder.path();
                  options.now = std::chrono::steady_clock::now;
              },
              one_site) {}
};

/// A session of JSON frames, on one connection after the other.
struct json_session : peer {
    explicit json_session(server& s) : peer(s) {
        open(split::frame_form::json, cipher.rerandomization_key(nonce));
        cipher.open(told_as<split::carried_message>(1).message, one_site());
    }
    void resume() {
        connect();
        static_cast<void>(peer::resume(welcome.session));
    }
    static std::string text(const bytes& message, std::uint64_t number) {
        return split::carried_text(split::carried_message::kind::request, message, number);
    }
    /// Whether a message of this number was answered.
    bool ask(const bytes& message, std::uint64_t number) {
        say(text(message, number));
        return answer.frames().size() == 1 && std::holds_alternative<split::carried_message>(told(0));
    }
    encryption cipher;
};

}  // namespace

TEST_CASE_FIXTURE(stored_counts,
                  "whatever memory lacks, an answer that can be asked for again is counted, once") {
    counting_server to(*this, {.shares = {}});
    const std::uint64_t bits = to.bits_of_request();
    json_session s(to);
    std::uint64_t number = 1;
    bytes message;
    std::size_t of_block = 0;
    const auto answer_bytes = [&] { return s.told_as<split::carried_message>(0).message.size(); };
    const auto prepare = [&] {
        REQUIRE(s.ask(s.cipher.ask_for_block(number), number));
        ++number;
        s.cipher.accept_block(s.told_as<split::carried_message>(0).message);
        of_block = of_block > 0 ? of_block : to.held_bytes() - answer_bytes();
    };
    const auto write_token = [&] {
        message = s.cipher.ask_in_block(number, std::vector<float>(64, 1.0F)).message;
    };
    std::uint64_t counted = 0;
    std::size_t failures = 0;
    for (bool failed = true; failed; ++failures) {
        prepare();  // whose reply is longer
        write_token();
        const std::string text = json_session::text(message, number);
        s.answer.clear();
        allocations_left = failures;
        s.side->on_text(text, s.answer);
        failed = allocations_left > failures;
        allocations_left = ~std::size_t{0};
        s.resume();
        if (!s.ask(message, number)) {  // again, or for the first time
            ++number;
            write_token();
            REQUIRE(s.ask(message, number));
        }
        counted += bits;
        CHECK(s.used()[0] == counted);
        CHECK(to.held_bytes() == of_block + answer_bytes());
        ++number;
    }
    CHECK(failures > 5);
}

TEST_CASE_FIXTURE(stored_counts, "what a full disk cannot count is not answered, kept or counted") {
    counting_server to(*this);
    json_session s(to);
    const auto message = s.cipher.ask(1, 0, std::vector<float>(64, 1.0F)).message;
    bool was_answered = true;
    with_file_limit(std::filesystem::file_size(usage()), [&] { was_answered = s.ask(message, 1); });
    CHECK_FALSE(was_answered);
    CHECK(s.told_as<split::refusal>(0).code == split::error_code::internal);
    CHECK(s.used()[0] == 0);
    CHECK(to.held_bytes() == 0);
    s.resume();
    CHECK(s.ask(message, 1));  // its number was not used up
    CHECK(s.used()[0] == to.bits_of_request());
}

TEST_CASE_FIXTURE(stored_counts, "to look at how many zeros are stored makes no place for them") {
    counting_server to(*this);
    const json_session s(to);
    const std::size_t before = allocations;
    CHECK(to.of->sessions().pool_size() == 0);
    CHECK(allocations <= before + 1);  // pointers to sessions
}

TEST_CASE_FIXTURE(stored_counts,
                  "a session keeps the memory of no more used zeros than a thread works with") {
    counting_server to(*this);
    json_session s(to);
    const auto allocated_by_filling = [&] {
        const std::size_t before = allocations;
        while (s.side->idle()) {
        }
        REQUIRE(to.of->sessions().pool_size() == 16);
        return allocations - before;
    };
    const std::size_t first = allocated_by_filling();
    REQUIRE(s.ask(s.cipher.ask_for_block(1), 1));
    CHECK(to.of->sessions().pool_size() == 0);
    constexpr std::size_t buffers = 5;  // of a zero
    CHECK(allocated_by_filling() + 10 * buffers > first);
}
