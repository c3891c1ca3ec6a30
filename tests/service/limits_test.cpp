// What a client may ask for: rates, and queries of each input over sessions, tenants and addresses.
#include "../../service/limits.hpp"

#include <tensafe/lora/packing/plan.hpp>

#include <deque>

#include "../../service/client_list.hpp"
#include "../../studies/few_bits.hpp"
#include "peer.hpp"

using namespace tests;

namespace {

using namespace std::chrono_literals;
using enum split::error_code;
using left = std::vector<std::uint64_t>;

/// What a number of bits would tell of others.
bool tells_a_number(const split::refusal& said) {
    return said.message.find_first_of("0123456789") != said.message.npos;
}

}  // namespace

TEST_CASE("a bucket lets so many through at once, refills with time, and unknown names cannot fill memory") {
    split::rate_limiter limiter(10, 2, 3);
    const split::time_point begin{std::chrono::hours(1)};
    CHECK(limiter.take("a", begin) == 0ms);
    CHECK(limiter.take("a", begin) == 0ms);
    CHECK(limiter.take("a", begin) == 100ms);
    CHECK(limiter.take("b", begin) == 0ms);
    CHECK(limiter.take("a", begin + 40ms) == 60ms);
    CHECK(limiter.take("a", begin + 100ms) == 0ms);
    CHECK(limiter.take("a", begin + 100ms) == 100ms);
    CHECK(limiter.take("c", begin + 100ms) == 0ms);
    CHECK(limiter.take("d", begin + 100ms) == 0ms);  // b is full again and makes room
    CHECK(limiter.names() == 3);
    CHECK(limiter.take("e", begin + 100ms) == 0ms);  // these share
    CHECK(limiter.take("f", begin + 100ms) == 0ms);
    CHECK(limiter.take("g", begin + 100ms) == 100ms);
    CHECK(limiter.names() == 3);
    limiter.sweep(begin + 100ms);
    CHECK(limiter.names() == 3);
    limiter.sweep(begin + 1h);
    CHECK(limiter.names() == 0);
    split::rate_limiter paid(10, 2);
    CHECK(paid.take("a", begin) == 0ms);
    paid.pay("a", 11, begin);
    CHECK(paid.take("a", begin) == 1100ms);
    CHECK(paid.take("a", begin + 1s) == 100ms);
    paid.pay("a", -1, begin + 1s);
    CHECK(paid.take("a", begin + 1s) == 0ms);
    split::rate_limiter backwards(10, 1);
    CHECK(backwards.take("a", begin) == 0ms);
    CHECK(backwards.take("a", begin - 1h) == 100ms);
}

TEST_CASE("the work of preparing blocks counts, and the limit of queries holds for positions") {
    opened slow({.shares = {}, .work_per_second = 0.001});
    CHECK(slow.p.prepares(1));
    CHECK(slow.p.code_of(block_request_message(2)) == rate_limit);

    opened few({.shares = {three_requests, {}, {}}});
    peer& q = few.p;
    REQUIRE(q.prepares(1));
    std::uint32_t position = 0;
    while (q.asks_at(2 + position, 1, position)) {
        ++position;
    }
    CHECK(q.refused().code == query_limit);
    CHECK(position == static_cast<std::uint32_t>(2048 * three_requests) / few.s.bits_of_request());
    CHECK(q.code_of(token_request_message(60, 1, position)) == query_limit);  // still open
    // No block is made where no token would be answered.
    CHECK(q.code_of(block_request_message(61)) == query_limit);
    CHECK(
        contains(q.refused().message, "this client has had 3 of 3 answers to hidden states of this input: "));
    CHECK(q.prepares(62, 1));
}

TEST_CASE(
    "an address, or a listed client, that does not use its blocks is refused more, and answers give more") {
    constexpr std::uint32_t tokens = 38;
    const auto waster = fresh_key();
    const auto other = fresh_key();
    for (const bool are_listed : {false, true}) {
        CAPTURE(are_listed);
        server s(
            {.shares = {}, .handshakes_at_once = 10'000, .block_bytes = 16 * 200'000}, [&](auto& options) {
                if (are_listed) {
                    options.clients =
                        split::client_list{{waster->verifying().hex(), {}}, {other->verifying().hex(), {}}};
                }
            });
        const auto wastes = [&](const auto& of_client, const char* from) {
            peer p(s, of_client, from);
            const bool all = p.prepares(1) && p.prepares(2) && p.prepares(3, 1) && p.prepares(4, 1);
            p.say(R"({"type":"bye"})");
            return all;
        };
        peer user(s, other, "10.0.0.2");
        REQUIRE(user.prepares(1));
        REQUIRE(user.prepares(2));
        int sessions = 0;
        while (sessions < 300 && wastes(waster, "10.0.0.2")) {
            ++sessions;
        }
        CHECK(sessions > 50);
        CHECK(sessions < 300);
        CHECK(wastes(waster, "10.0.0.3") != are_listed);
        CHECK(wastes(other, "10.0.0.2") == are_listed);
        // Whoever uses them does not notice.
        std::uint64_t number = 3;
        for (std::uint32_t block = 1, next = 2; number < 200;) {
            for (std::uint32_t position = 0; position < tokens; ++position) {
                REQUIRE(user.asks_at(number++, block, position));
            }
            REQUIRE(user.prepares(number));
            block = std::exchange(next, static_cast<std::uint32_t>(number++));
        }
        // Answers without blocks count too.
        peer p(s, waster, "10.0.0.2");
        CHECK(p.code_of(block_request_message(1)) == block_limit);
        CHECK(contains(p.refused().message, "not used"));
        for (std::uint64_t n = 2; n < 2 + 5 * tokens; ++n) {
            REQUIRE(p.asks(n));
        }
        CHECK(wastes(waster, "10.0.0.2"));
        CHECK_FALSE(wastes(waster, "10.0.0.2"));
        s.now += 10min;
        CHECK(wastes(waster, "10.0.0.2"));
    }
}

TEST_CASE("a reply that is asked for again is not refused for a rate, and is paid for") {
    opened both({.shares = {}, .requests_per_second = 1});
    REQUIRE(both.p.asks(1));
    const bytes reply = both.p.said();
    const auto q = both.p.resumed();
    REQUIRE(q->asks(1));
    CHECK(q->said() == reply);
    both.s.now += 1s;
    CHECK(q->code_of(request_message(2)) == rate_limit);
    both.s.now += 1s;
    CHECK(q->asks(2));
}

TEST_CASE("the bytes that an address gets again are limited, and what waits is not lost") {
    opened both({.shares = {}, .repeated_bytes = 300'000});
    auto& [s, p] = both;
    REQUIRE(p.prepares(1));
    const bytes reply = p.said();
    std::size_t repeated = 0;
    for (; p.resumed()->prepares(1); repeated += reply.size()) {
        REQUIRE(repeated < 1'000'000);
    }
    CHECK(repeated >= 300'000);
    CHECK(p.resumed("10.0.0.2")->prepares(1));
    const auto q = p.resumed();
    REQUIRE(q->code_of(block_request_message(1)) == rate_limit);
    s.now += std::chrono::milliseconds(q->refused().retry_after_ms.value());
    CHECK(q->prepares(1));
    CHECK(q->said() == reply);
}

TEST_CASE("of more inputs than a text has numbers for, one says what is left of all") {
    for (const std::size_t more : {0u, 1u}) {
        const auto with_inputs = [&] {
            tensafe::lora::adapter result;
            for (std::size_t i = 0; i < split::most_limits + more; ++i) {
                result.sites.push_back(random_site(8, 4, 64, 1));
                result.sites.back().name = "model.layers." + std::to_string(i) + ".self_attn.q_proj";
            }
            return result;
        };
        server s({.tokens_ahead = 1}, {}, with_inputs);
        peer p(s, fresh_key());
        CHECK(p.welcome.queries_left == left(more == 0 ? split::most_limits : 1, 8));
        CHECK(p.asks(1, 7));
        peer q(s);
        q.key = p.key;
        const auto now = q.resume(p.welcome.session).queries_left;
        CHECK(now.size() == p.welcome.queries_left.size());
        CHECK(now[more == 0 ? 7 : 0] == 7);
    }
}

TEST_CASE("the query limit holds for a group over sessions, after forgetting, and after a restart") {
    const temporary_directory folder;
    const auto start = [&] {
        return std::make_unique<server>(split::limits{.shares = {three_requests, {}, {}}},
                                        [&](auto& options) { options.state = folder.path(); });
    };
    const auto key = fresh_key();
    {
        const auto s = start();
        peer p(*s, key);
        for (const std::uint64_t n : {1u, 2u, 3u}) {
            REQUIRE(p.asks(n));
        }
        CHECK(p.code_of(request_message(4)) == query_limit);
        CHECK(p.used() == std::array<std::uint64_t, 3>{192, 192, 192});  // no row has more of it
        CHECK(p.asks(4, 1));                                             // another input
        CHECK(s->of->used().snapshot().of_client(p.name()).requests == 4);
        p.say(R"({"type":"forget"})");
        CHECK_NOTHROW(p.told_as<split::forgotten>(0));
        CHECK(p.answer.closing());
        CHECK(s->of->sessions().size() == 0);
        CHECK(s->of->used().snapshot().of_client(p.name()).requests == 0);
        CHECK_FALSE(contains(s->of->metrics_text(), p.name()));
    }
    const auto s = start();
    peer p(*s, key);
    REQUIRE(p.welcome.queries_left.size() == 2);
    CHECK(p.welcome.queries_left[0] == 0);
    CHECK(p.welcome.queries_left[1] > 0);  // what was reserved for it counts, too
    CHECK(p.welcome.queries_left[1] <= 2);
    CHECK(p.code_of(request_message(1)) == query_limit);
}

TEST_CASE("limits are shares of the entropy of the A of all sites of a group, and requests count in bits") {
    // 16 values, equally frequent: 4 bits an entry, 1024 of an A. Two sites share the input.
    tensafe::lora::adapter few = small_adapter();
    few.sites.push_back(few.sites[0]);
    few.sites[2].name = "model.layers.0.self_attn.k_proj";
    for (auto& site : few.sites) {
        for (std::size_t i = 0; i < site.a.values.size(); ++i) {
            site.a.values[i] = static_cast<float>(i % 16) - 7.5F;
        }
    }
    const auto few_values = [&] { return few; };
    server s({}, {}, few_values);
    const auto groups = s.of->adapters().find("kjv")->groups;
    REQUIRE(groups.size() == 2);
    CHECK(groups[0].limits == split::of_each_scope<std::uint64_t>{512, 1024, 2048});
    CHECK(groups[1].limits == split::of_each_scope<std::uint64_t>{256, 512, 1024});
    const tensafe::lora::packing_plan<split::params, split::packing, split::protection> rows_of_four(4, 64,
                                                                                                     1);
    const double bits = rows_of_four.budget().channel_bits();
    CHECK(groups[1].request == static_cast<std::uint64_t>(std::ceil(4 * bits)));
    CHECK(groups[0].request == static_cast<std::uint64_t>(std::ceil(8 * bits)));

    server none({.shares = {}}, {}, few_values);
    CHECK(none.of->adapters().find("kjv")->groups[1].limits == split::of_each_scope<std::uint64_t>{});
    server tight({.shares = {0.25, 0.05, {}}});
    check_refusal<tensafe::parameter_error>(
        "got --tenant-share 0.05, which is 102 bits of its A, expected at least those of one request, 127",
        [&] { pack_and_serve(tight.of->adapters(), "kjv", few_values); });
    CHECK(tight.of->adapters().find("kjv")->version == 1);  // the old one serves on
}

TEST_CASE("by default no client reads more than its share of an A of 4 bits, whatever has a scale") {
    for (const std::size_t piece : {2048u, 64u}) {  // entries of a row
        CAPTURE(piece);
        const studies::few_bit_matrix wanted(32, 2048, 7, 1, piece);
        const split::limits defaults;
        server s(defaults, {}, [&] {
            tensafe::lora::adapter one;
            one.sites = {{"layer.0.q_proj", wanted.a, random_matrix(8, 32, 2), 1.0}};
            return one;
        });
        const auto bits = s.of->adapters().find("kjv")->groups.at(0);
        const std::size_t requests = *bits.limits[0] / bits.request;
        const tensafe::lora::server<split::params, split::packing, split::protection> of_a(wanted.a);
        tensafe::lora::client<split::params> client;
        const auto nonce = tensafe::random::fresh_seed();
        tensafe::lora::rerandomization_pool<split::params> zeros(nonce, client.rerandomization_key(nonce),
                                                                 of_a.layout().subring_log_n());
        const auto read = studies::read_few_bits(of_a, client, zeros, wanted, 4, requests);
        const double share = static_cast<double>(read.exact) / static_cast<double>(wanted.q.size());
        MESSAGE("a scale for ", piece, " entries: ", requests, " requests, ", read.exact, " entries, ",
                share);
        CHECK(read.requests == requests);
        CHECK(share < *defaults.shares[0]);
        CHECK(share > 0.7 * *defaults.shares[0]);  // it is counted as what it is, and no more
    }
}

TEST_CASE("an A under two names has one limit, and a name keeps its own over other adapters") {
    server s({.shares = {three_requests, {}, {}}});
    const auto key = fresh_key();
    auto other = small_adapter();
    other.sites[0].b.values[0] = 1;  // A is the same
    pack_and_serve(s.of->adapters(), "again", [&] { return other; });
    peer p(s, key);
    CHECK(p.asks(1));
    peer q(s);
    q.key = key;
    q.adapter = "again";
    q.open();
    CHECK(q.welcome.queries_left == left{2, 3});
    CHECK(q.asks(1));
    CHECK(q.asks(2));
    CHECK(p.code_of(request_message(2)) == query_limit);
    CHECK(s.of->used_share("again") == s.of->used_share("kjv"));
    other.sites[0].a.values[0] = 1;
    pack_and_serve(s.of->adapters(), "kjv", [&] { return other; });
    CHECK(peer(s, key).welcome.queries_left == left{0, 3});
    pack_and_serve(s.of->adapters(), "third", [&] { return other; });  // of "kjv", which had it first
    s.of->adapters().unload("kjv");
    q.connect();
    q.adapter = "third";
    q.open();
    CHECK(q.welcome.queries_left == left{0, 3});
}

TEST_CASE("clients of one tenant share its limit, and a client without one is a tenant of its own") {
    const std::array keys{fresh_key(), fresh_key(), fresh_key()};
    const auto name = [&](std::size_t i) { return keys[i]->verifying().hex(); };
    server s({.shares = {std::nullopt, three_requests, {}}}, [&](auto& options) {
        options.clients = split::client_list{{name(0), {"acme"}}, {name(1), {"acme"}}, {name(2), {}}};
    });
    peer p(s, keys[0]);
    CHECK(p.asks(1));
    CHECK(p.asks(2));
    peer q(s, keys[1]);
    CHECK(q.welcome.queries_left.empty());  // it would tell what the other client did
    CHECK(q.asks(1));
    for (peer* each : {&p, &q}) {
        CHECK(each->code_of(request_message(3)) == query_limit);
        CHECK(contains(each->refused().message,
                       "this client's tenant has had all answers to hidden states of this input: only a "
                       "larger --tenant-share"));
        CHECK_FALSE(tells_a_number(each->refused()));
    }
    peer r(s, keys[2]);
    CHECK(r.welcome.queries_left == left{3, 3});
    for (const std::uint64_t n : {1u, 2u, 3u}) {
        CHECK(r.asks(n));
    }
    CHECK(contains(r.refusal_of(request_message(4)).message, "this client's tenant has had all answers"));
}

TEST_CASE("a tenant with a share of its own has that, and uses up nothing of what all others have") {
    const std::array keys{fresh_key(), fresh_key(), fresh_key(), fresh_key(), fresh_key()};
    const temporary_directory folder;
    const auto list_with = [&](const std::optional<split::share_limit>& of_acme,
                               const std::optional<split::share_limit>& of_emca) {
        split::client_list result;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            const std::array<split::client_tenant, 3> tenants{{{"acme", of_acme}, {"emca", of_emca}, {}}};
            result.emplace(keys[i]->verifying().hex(), tenants[i / 2]);
        }
        return result;
    };
    const split::share_limit of_three = three_requests;
    const split::share_limit of_five = 0.17;
    const auto start = [&](const split::share_limit& of_acme) {
        return std::make_unique<server>(
            split::limits{.shares = {three_requests / 3, three_requests / 3, three_requests / 3}},
            [&](auto& options) {
                options.state = folder.path();
                options.clients = list_with(of_acme, of_five);
            });
    };
    const auto answers = [](peer& p) {
        std::uint64_t count = 0;
        while (count < 100 && p.asks(p.next_number++)) {
            ++count;
        }
        return count;
    };
    const auto used_of = [&](server& s, std::size_t client, const std::string& tenant) {
        const auto& counts = s.of->counts();
        const auto used = counts.used(counts.account_of(keys[client]->verifying().hex(), tenant, "kjv"), 0);
        return std::array{used[0] / s.bits_of_request(), used[1] / s.bits_of_request(),
                          used[2] / s.bits_of_request()};
    };
    {
        const auto s = start(std::nullopt);
        peer lifted(*s, keys[0]);
        CHECK(lifted.welcome.queries_left.empty());
        CHECK(answers(lifted) == 100);
        CHECK(answers(*std::make_unique<peer>(*s, keys[1])) == 100);
        // A number is the limit of the tenant, and of each of its clients.
        peer first(*s, keys[2]);
        CHECK(first.welcome.queries_left == left{5, 5});
        CHECK((first.asks(1) && first.asks(2)));
        peer second(*s, keys[3]);
        CHECK(second.welcome.queries_left == left{5, 5});
        REQUIRE(second.prepares(second.next_number++));
        std::uint32_t position = 0;
        while (second.asks_at(second.next_number++, 1, position)) {
            ++position;
        }
        CHECK(position == 3);
        CHECK(contains(second.refused().message,
                       "this client's tenant has had all answers to hidden states of this input: only a "
                       "larger share in --clients of the server gives more"));
        CHECK(second.code_of(block_request_message(second.next_number++)) == query_limit);
        CHECK(used_of(*s, 0, "acme") == std::array<std::uint64_t, 3>{100, 200, 0});
        CHECK(used_of(*s, 3, "emca") == std::array<std::uint64_t, 3>{3, 5, 0});
        CHECK(s->of->used_share("kjv") == 0);
        // Without one the server's limits hold.
        peer other(*s, keys[4]);
        CHECK(other.welcome.queries_left == left{1, 1});
        CHECK(answers(other) == 1);
        CHECK(used_of(*s, 4, "") == std::array<std::uint64_t, 3>{1, 1, 1});
        s->of->counts().save();
    }
    // After a restart a number holds for what was asked without one.
    const auto s = start(of_three);
    CHECK(peer(*s, keys[0]).welcome.queries_left == left{0, 3});
    CHECK(used_of(*s, 0, "acme") == std::array<std::uint64_t, 3>{100, 200, 1});
}

TEST_CASE("a tenant's share is raised, lowered and taken away while its clients are there") {
    const auto key = fresh_key();
    const auto stays = fresh_key();
    const auto list_with = [&](const std::optional<split::share_limit>& share) {
        return split::client_list{{key->verifying().hex(), {"acme", share}}, {stays->verifying().hex(), {}}};
    };
    server s({.shares = {std::nullopt, three_requests, {}}},
             [&](auto& options) { options.clients = list_with(split::share_limit(0.05)); });
    peer other(s, stays);
    const std::string before = s.of->limits_text();
    auto p = std::make_unique<peer>(s, key);
    CHECK(p->asks(1));
    CHECK(p->code_of(request_message(2)) == query_limit);
    const auto relist = [&](const std::optional<split::share_limit>& share, const left& expected) {
        s.of->relist(list_with(share));
        s.of->expire_sessions();
        CHECK(p->connection->ended == 1);
        CHECK_FALSE(p->asks(3));
        p = std::make_unique<peer>(s, key);
        CHECK(p->welcome.queries_left == expected);
        CHECK(s.of->limits_text() != before);  // so that several servers show where their lists differ
    };
    relist(split::share_limit(0.17), {4, 5});
    CHECK((p->asks(1) && p->asks(2)));
    relist(split::share_limit(), {});
    CHECK(p->asks(1));
    relist(split::share_limit(0.09), {0, 2});
    CHECK(p->code_of(request_message(1)) == query_limit);
    relist(std::nullopt, {});  // the tenant's limit is the server's again, and what it had counts
    CHECK(p->code_of(request_message(1)) == query_limit);
    CHECK(contains(p->refused().message, "larger --tenant-share"));
    CHECK(other.connection->ended == 0);
    CHECK(other.asks(1));
}

TEST_CASE("where pages come, the clients of an address share its limit, wherever they resume") {
    server s({.shares = {std::nullopt, three_requests, {}}},
             [](auto& options) { options.addresses_are_tenants = true; });
    peer first(s, fresh_key());
    CHECK(first.welcome.queries_left.empty());
    CHECK(first.asks(1));
    CHECK(first.asks(2));
    peer second(s, fresh_key());
    CHECK(second.asks(1));
    CHECK(contains(second.refusal_of(request_message(2)).message, "this address has had all answers"));
    CHECK_FALSE(tells_a_number(second.refused()));
    CHECK(peer(s, fresh_key(), "10.0.0.2").asks(1));
    CHECK(first.resumed("10.0.0.3")->code_of(request_message(3)) == query_limit);
}

TEST_CASE("all clients share the limit of the adapter, and refused requests use up nothing of theirs") {
    server s({.shares = {std::nullopt, {}, three_requests}});
    for (int client = 0; client < 3; ++client) {
        CHECK(peer(s, fresh_key()).asks(1));
    }
    peer p(s, fresh_key());
    CHECK(p.welcome.queries_left.empty());
    CHECK(p.code_of(request_message(1)) == query_limit);
    CHECK(contains(p.refused().message, "all clients together have had all answers"));
    CHECK_FALSE(tells_a_number(p.refused()));
    CHECK_FALSE(tells_a_number(p.refusal_of(block_request_message(2))));
    CHECK(p.used() == std::array<std::uint64_t, 3>{0, 0, 192});
    CHECK(s.of->used_share("kjv").value() == doctest::Approx(192 / (2048 * three_requests)).epsilon(0.01));
    CHECK_FALSE(s.of->used_share("none"));
    CHECK_FALSE(server({.shares = {}}).of->used_share("kjv"));
    CHECK(p.asks(2, 1));
}

TEST_CASE("work beyond the rate is refused, whatever the number of requests") {
    opened both({.shares = {}, .work_per_second = 0.001});
    CHECK(both.p.asks(1));
    CHECK(both.p.code_of(request_message(2)) == rate_limit);
    CHECK(contains(both.p.refused().message, "milliseconds of work for this client"));
    CHECK(peer(both.s, fresh_key()).asks(1));
}

TEST_CASE("requests beyond the rate are refused with the time to wait, and use up nothing") {
    opened both({.shares = {}, .requests_per_second = 2});
    auto& [s, p] = both;
    CHECK(p.welcome.queries_left.empty());
    p.send(request_message(1));
    CHECK(p.asks(2));
    CHECK(p.code_of(request_message(3)) == rate_limit);
    CHECK(p.refused().retry_after_ms == 500);
    s.now += 500ms;
    CHECK(p.asks(3));
    p.say(R"({"type":"forget"})");
    peer q(s, p.key);
    // To be forgotten gives no new requests.
    CHECK(q.code_of(request_message(1)) == rate_limit);
    s.now += 1s;
    s.of->expire_sessions();
    CHECK(q.asks(1));
}

TEST_CASE("less than a sixteenth of a rate is not told to other servers, however long it lasts") {
    split::rate_limiter limiter(32, 32);
    double told = 0;
    std::size_t calls = 0;
    const split::shared_buckets buckets = [&](std::string_view, double, const auto& taken) {
        ++calls;
        told += taken[0].second;
        return std::vector<double>(taken.size(), 0);
    };
    split::time_point now{std::chrono::hours(1)};
    const auto takes_each_second = [&](int count) {
        for (int second = 0; second < 60; ++second) {
            for (int i = 0; i < count; ++i) {
                CHECK(limiter.take("a", now) == 0ms);
            }
            now += 1s;
            limiter.share(buckets, "requests", now);
        }
    };
    limiter.share(buckets, "requests", now);
    takes_each_second(1);
    CHECK(calls == 0);
    takes_each_second(4);
    CHECK(told == 240);
    limiter.pay("a", -1, now);  // of a full bucket, for which others shall not pay
    limiter.pay("a", 2, now);
    limiter.share(buckets, "requests", now);
    CHECK(told == 242);
    limiter.pay("a", -1, now);
    limiter.share(buckets, "requests", now);
    CHECK(told == 242);
    limiter.pay("a", -1, now);
    limiter.share(buckets, "requests", now);
    CHECK(told == 240);
}

TEST_CASE(
    "servers that share a rate do not forget what is not told yet, nor charge for the time until then") {
    struct shared {
        double lacks = 0;
        split::time_point at{std::chrono::hours(1)};
    } of_all;
    split::time_point now = of_all.at;
    const split::shared_buckets buckets = [&](std::string_view, double rate, const auto& taken) {
        const double seconds = std::chrono::duration<double>(now - std::exchange(of_all.at, now)).count();
        of_all.lacks = std::max(0.0, of_all.lacks - rate * seconds) + taken[0].second;
        return std::vector<double>{of_all.lacks};
    };
    const auto taken_in_100_seconds = [&](std::deque<split::rate_limiter>& servers, int at_most) {
        int all = 0;
        for (auto& each : servers) {
            each.share(buckets, "handshakes", now);
        }
        for (int second = 0; second < 100; ++second) {
            for (auto& each : servers) {
                for (int i = 0; i < at_most && each.take("a", now) == 0ms; ++i) {
                    ++all;
                }
            }
            now += 1s;
            for (auto& each : servers) {
                each.share(buckets, "handshakes", now);
                each.sweep(now);
            }
        }
        return all;
    };
    std::deque<split::rate_limiter> ten;
    for (int i = 0; i < 10; ++i) {
        ten.emplace_back(20, 200);
    }
    CHECK(taken_in_100_seconds(ten, 12) <= 100 * 20 * 26 / 16 + 10 * 200);
    of_all.lacks = 0;
    std::deque<split::rate_limiter> one;
    one.emplace_back(50, 50);
    CHECK(taken_in_100_seconds(one, 45) == 4'500);
}

TEST_CASE("servers that share rates let through together, after a while, what one would") {
    std::map<std::string, double> lacking;
    bool is_away = false;
    const split::shared_buckets buckets = [&](std::string_view limit, double, const auto& taken) {
        tensafe::require<tensafe::io_error>(!is_away, {"away"});
        std::vector<double> lacks;
        for (const auto& [name, amount] : taken) {
            lacks.push_back(lacking[std::string(limit) + " " + name] += amount);
        }
        return lacks;
    };
    const auto share = [&](split::service_options& options) { options.rates = buckets; };
    server s({.shares = {}, .requests_per_second = 4}, share);
    server t({.shares = {}, .requests_per_second = 4}, share);
    const auto key = fresh_key();
    peer p(s, key);
    peer q(t, key);
    CHECK((p.asks(1) && p.asks(2) && q.asks(1)));
    s.of->expire_sessions();
    t.of->expire_sessions();
    const double& all = lacking.at("requests " + key->verifying().hex());
    CHECK(all == 3);
    CHECK(q.asks(2));
    CHECK(q.code_of(request_message(3)) == rate_limit);
    CHECK(p.asks(3));  // it has not heard of q
    s.of->expire_sessions();
    CHECK(all == 4);
    CHECK(p.code_of(request_message(4)) == rate_limit);
    t.of->expire_sessions();
    CHECK(all == 5);
    CHECK(q.code_of(request_message(3)) == rate_limit);
    CHECK(q.refused().retry_after_ms == 500);
    is_away = true;
    s.now += 500ms;
    CHECK((p.asks(4) && p.asks(5)));
    s.of->expire_sessions();
    CHECK(p.code_of(request_message(6)) == rate_limit);
}

TEST_CASE("handshakes of one address, of IPv6 of one /64, are limited, those of another are not") {
    using split::limited_address;
    CHECK(limited_address("10.0.0.1") == "10.0.0.1");
    CHECK(limited_address("2001:db8:1:2::1") == limited_address("2001:db8:1:2:ffff::2"));
    CHECK(limited_address("2001:db8:1:2::1") != limited_address("2001:db8:1:3::1"));
    CHECK(limited_address("fe80::1%eth0") == limited_address("fe80::2"));
    CHECK(limited_address("::ffff:10.0.0.1") == "10.0.0.1");
    server s({.handshakes_per_second = 1, .handshakes_at_once = 1});
    for (const auto& [first, second] :
         {std::pair("10.0.0.1", "10.0.0.1"), std::pair("2001:db8::1", "2001:db8::2")}) {
        peer p(s, fresh_key(), first);
        peer q(s, second);
        CHECK(q.code_of(q.hello()) == rate_limit);
        CHECK(q.refused().retry_after_ms == 1000);
    }
    peer(s, fresh_key(), "10.0.0.2");
    // Of connections, twice as many.
    for (const char* address : {"::ffff:10.0.0.1", "10.0.0.1"}) {
        CHECK(s.of->take_connection(address));
    }
    CHECK_FALSE(s.of->take_connection("10.0.0.1"));
    CHECK(s.of->take_connection("10.0.0.2"));
}
