#include "../../../bench/phase_clock.hpp"
#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

namespace {

random_source::seed numbered(std::uint8_t number) {
    random_source::seed seed;
    seed.bytes[0] = number;
    return seed;
}

template <class Reply>
bool same_replies(const Reply& a, const Reply& b) {
    return a.rank == b.rank && a.d == b.d &&
           std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(),
                      [](const auto& x, const auto& y) { return x.c0 == y.c0 && x.c1 == y.c1; });
}

}  // namespace

TEST_CASE("a workspace and a reply that served other tokens and other shapes change no bit") {
    client<small> c;
    const random_source::seed nonce = numbered(1);
    const auto key = c.rerandomization_key(nonce);
    zeros_of_small first(nonce, key, 2, random_source::generator(numbered(2)));
    zeros_of_small second(nonce, key, 2, random_source::generator(numbered(2)));
    const std::vector<matrix> weights = {random_matrix(12, 300, 1), random_matrix(3, 1500, 2),
                                         random_matrix(1, 7, 3)};
    tiles<4>::workspace kept;
    tiles<4>::reply_type kept_reply;
    std::uint8_t number = 3;
    for (int round = 0; round < 2; ++round) {
        for (const matrix& a : weights) {
            const tiles<4> s(a);
            for (std::uint64_t token = 0; token < 2; ++token) {
                const auto q = c.encrypt(s.plan(), random_state(a.columns, token));
                tiles<4>::workspace fresh;
                tiles<4>::reply_type fresh_reply;
                fresh.generator = random_source::generator(numbered(number));
                kept.generator = random_source::generator(numbered(number++));
                s.apply(q.request, first, kept, kept_reply);
                s.apply(q.request, second, fresh, fresh_reply);
                CHECK(same_replies(kept_reply, fresh_reply));
            }
        }
    }
}

TEST_CASE("two replies to one request share neither c1 nor c0") {
    session with = session_for<tiles<4>>();
    const tiles<4> s(random_matrix(4, 300, 1));
    const auto q = with.key_holder.encrypt(s.plan(), random_state(300, 1));
    const auto first = s.apply(q.request, with.zeros);
    const auto second = s.apply(q.request, with.zeros);
    CHECK(first.outputs[0].c0 != second.outputs[0].c0);
    CHECK(first.outputs[0].c1 != second.outputs[0].c1);
}

TEST_CASE("one pool serves two servers in any order, filled or not, and a failure in between harms nothing") {
    session with = session_for<tiles<4>>();
    const matrix a = random_matrix(6, 300, 1);
    const matrix b = random_matrix(11, 1100, 2);
    const tiles<4> first(a);
    const tiles<4> second(b);
    const std::vector<float> g = random_state(300, 3);
    const std::vector<float> h = random_state(1100, 4);
    with.zeros.fill(4);
    const auto to_first = with.key_holder.encrypt(first.plan(), g);
    const auto to_second = with.key_holder.encrypt(second.plan(), h);
    tiles<4>::workspace work;
    tiles<4>::reply_type from_second;
    tiles<4>::reply_type from_first;
    second.apply(to_second.request, with.zeros, work, from_second);
    CHECK(with.zeros.size() == 1);
    CHECK_THROWS_AS(first.apply(to_second.request, with.zeros, work, from_first), shape_error);
    first.apply(to_first.request, with.zeros, work, from_first);
    CHECK(with.zeros.size() == 0);
    CHECK(error_in_deviations(with.key_holder.decrypt(first.plan(), from_first, to_first), first, a, g) <
          most_deviations);
    CHECK(error_in_deviations(with.key_holder.decrypt(second.plan(), from_second, to_second), second, b, h) <
          most_deviations);
}

TEST_CASE("threads share one server and one pool, each with its own workspace") {
    session with = session_for<tiles<4>>();
    const matrix a = random_matrix(10, 600, 1);
    const tiles<4> s(a);
    constexpr std::size_t tokens = 12;
    std::vector<query<small>> queries;
    for (std::size_t token = 0; token < tokens; ++token) {
        queries.push_back(with.key_holder.encrypt(s.plan(), random_state(600, token)));
    }
    with.zeros.fill(10);
    std::vector<std::vector<tiles<4>::reply_type>> replies(3, std::vector<tiles<4>::reply_type>(tokens));
    on_threads(replies.size(), [&](std::size_t t) {
        tiles<4>::workspace work;
        for (std::size_t token = 0; token < tokens; ++token) {
            s.apply(queries[token].request, with.zeros, work, replies[t][token]);
        }
    });
    for (const auto& own : replies) {
        for (std::size_t token = 0; token < tokens; ++token) {
            const std::vector<float> h = random_state(600, token);
            CHECK(error_in_deviations(with.key_holder.decrypt(s.plan(), own[token], queries[token]), s, a,
                                      h) < most_deviations);
        }
    }
}

TEST_CASE("a reply that failed can be started again with the same workspace") {
    session with = session_for<narrow>();
    const matrix a = random_matrix(9, 300, 1);
    const narrow s(a);
    const std::vector<float> h = random_state(300, 2);
    const auto query = with.key_holder.encrypt(s.plan(), h);
    narrow::workspace work;
    narrow::reply_type reply;
    // A generator that was moved from throws.
    const tensafe::random::generator taken = std::move(work.generator);
    CHECK_THROWS_AS(s.apply(query.request, with.zeros, work, reply), tensafe::error);
    work.generator = tensafe::random::generator();
    s.apply(query.request, with.zeros, work, reply);
    CHECK(error_in_deviations(with.key_holder.decrypt(s.plan(), reply, query), s, a, h) < most_deviations);
}

TEST_CASE("an observer sees the phases in their order, and each of them has taken time") {
    session with = session_for<narrow>();
    const narrow s(random_matrix(9, 300, 1));
    const auto query = with.key_holder.encrypt(s.plan(), random_state(300, 1));
    narrow::workspace work;
    narrow::reply_type reply;
    std::vector<server_phase> seen;
    s.apply(query.request, with.zeros, work, reply, [&](server_phase p) { seen.push_back(p); });
    REQUIRE(seen.size() > 4);
    CHECK(seen.front() == server_phase::expand);
    CHECK(seen.back() == server_phase::serialize);
    CHECK(std::count(seen.begin(), seen.end(), server_phase::expand) == 1);
    // One panel of products for each four outputs; a serialize for each output.
    const auto outputs = static_cast<std::ptrdiff_t>(s.plan().outputs());
    CHECK(std::count(seen.begin(), seen.end(), server_phase::multiply) == (outputs + 3) / 4);
    CHECK(std::count(seen.begin(), seen.end(), server_phase::serialize) == outputs);

    bench::phase_clock clock;
    s.apply(query.request, with.zeros, work, reply, clock);
    clock.stop();
    for (const server_phase p :
         {server_phase::expand, server_phase::multiply, server_phase::protect, server_phase::serialize}) {
        CHECK(clock.milliseconds(p) > 0);
    }
}
