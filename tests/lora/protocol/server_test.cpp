#include "../../../bench/phase_clock.hpp"
#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

namespace {

template <class Reply>
bool same_replies(const Reply& a, const Reply& b) {
    return a.rank == b.rank && a.d == b.d &&
           std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(),
                      [](const auto& x, const auto& y) { return x.c0 == y.c0 && x.c1 == y.c1; });
}

}  // namespace

TEST_CASE("a workspace and a reply that served other tokens and other shapes change no bit") {
    sides<small> with(1, 2);
    sides<small> twin(1, 2);
    const std::vector<matrix> weights = {random_matrix(12, 300, 1), random_matrix(3, 1500, 2),
                                         random_matrix(1, 7, 3)};
    tiles<4>::workspace kept;
    tiles<4>::reply_type kept_reply;
    std::uint64_t number = 3;
    for (int round = 0; round < 2; ++round) {
        for (const matrix& a : weights) {
            const tiles<4> s(a);
            for (std::uint64_t token = 0; token < 2; ++token) {
                const auto q = with.client.encrypt(s.plan(), random_state(a.columns, token));
                tiles<4>::workspace fresh;
                tiles<4>::reply_type fresh_reply;
                fresh.generator = numbered_generator(number);
                kept.generator = numbered_generator(number++);
                s.apply(q.request, with.pool, kept, kept_reply);
                s.apply(q.request, twin.pool, fresh, fresh_reply);
                CHECK(same_replies(kept_reply, fresh_reply));
            }
        }
    }
}

TEST_CASE("two replies to one request share neither c1 nor c0") {
    sides<small> with = sides_for<tiles<4>>();
    const tiles<4> s(random_matrix(4, 300, 1));
    const auto q = with.client.encrypt(s.plan(), random_state(300, 1));
    const auto first = s.apply(q.request, with.pool);
    const auto second = s.apply(q.request, with.pool);
    CHECK(first.outputs[0].c0 != second.outputs[0].c0);
    CHECK(first.outputs[0].c1 != second.outputs[0].c1);
}

TEST_CASE("one pool serves two servers in any order, filled or not, and a failure in between harms nothing") {
    sides<small> with = sides_for<tiles<4>>();
    const matrix a = random_matrix(6, 300, 1);
    const matrix b = random_matrix(11, 1100, 2);
    const tiles<4> first(a);
    const tiles<4> second(b);
    const std::vector<float> g = random_state(300, 3);
    const std::vector<float> h = random_state(1100, 4);
    with.pool.fill(4);
    const auto to_first = with.client.encrypt(first.plan(), g);
    const auto to_second = with.client.encrypt(second.plan(), h);
    tiles<4>::workspace work;
    tiles<4>::reply_type from_second;
    tiles<4>::reply_type from_first;
    second.apply(to_second.request, with.pool, work, from_second);
    CHECK(with.pool.size() == 1);
    CHECK_THROWS_AS(first.apply(to_second.request, with.pool, work, from_first), shape_error);
    first.apply(to_first.request, with.pool, work, from_first);
    CHECK(with.pool.size() == 0);
    CHECK(error_in_deviations(with.client.decrypt(first.plan(), from_first, to_first), first, a, g) <
          most_deviations);
    CHECK(error_in_deviations(with.client.decrypt(second.plan(), from_second, to_second), second, b, h) <
          most_deviations);
}

TEST_CASE("threads share one server and one pool, each with its own workspace") {
    sides<small> with = sides_for<tiles<4>>();
    const matrix a = random_matrix(10, 600, 1);
    const tiles<4> s(a);
    constexpr std::size_t tokens = 12;
    std::vector<query<small>> queries;
    for (std::size_t token = 0; token < tokens; ++token) {
        queries.push_back(with.client.encrypt(s.plan(), random_state(600, token)));
    }
    with.pool.fill(10);
    std::vector<std::vector<tiles<4>::reply_type>> replies(3, std::vector<tiles<4>::reply_type>(tokens));
    on_threads(replies.size(), [&](std::size_t t) {
        tiles<4>::workspace work;
        for (std::size_t token = 0; token < tokens; ++token) {
            s.apply(queries[token].request, with.pool, work, replies[t][token]);
        }
    });
    for (const auto& own : replies) {
        for (std::size_t token = 0; token < tokens; ++token) {
            const std::vector<float> h = random_state(600, token);
            CHECK(error_in_deviations(with.client.decrypt(s.plan(), own[token], queries[token]), s, a, h) <
                  most_deviations);
        }
    }
}

TEST_CASE("a reply that failed can be started again with the same workspace") {
    sides<small> with = sides_for<narrow>();
    const matrix a = random_matrix(9, 300, 1);
    const narrow s(a);
    const std::vector<float> h = random_state(300, 2);
    const auto query = with.client.encrypt(s.plan(), h);
    narrow::workspace work;
    narrow::reply_type reply;
    // A generator that was moved from throws.
    const tensafe::random::generator taken = std::move(work.generator);
    CHECK_THROWS_AS(s.apply(query.request, with.pool, work, reply), tensafe::error);
    work.generator = tensafe::random::generator();
    s.apply(query.request, with.pool, work, reply);
    CHECK(error_in_deviations(with.client.decrypt(s.plan(), reply, query), s, a, h) < most_deviations);
}

TEST_CASE("an observer sees the phases in their order, and each of them has taken time") {
    sides<small> with = sides_for<narrow>();
    const narrow s(random_matrix(9, 300, 1));
    const auto query = with.client.encrypt(s.plan(), random_state(300, 1));
    narrow::workspace work;
    narrow::reply_type reply;
    std::vector<server_phase> seen;
    s.apply(query.request, with.pool, work, reply, [&](server_phase p) { seen.push_back(p); });
    REQUIRE(seen.size() > 4);
    CHECK(seen.front() == server_phase::expand);
    CHECK(seen.back() == server_phase::serialize);
    CHECK(std::count(seen.begin(), seen.end(), server_phase::expand) == 1);
    // One panel of products for each four outputs; a serialize for each output.
    const auto outputs = static_cast<std::ptrdiff_t>(s.plan().outputs());
    CHECK(std::count(seen.begin(), seen.end(), server_phase::multiply) == (outputs + 3) / 4);
    CHECK(std::count(seen.begin(), seen.end(), server_phase::serialize) == outputs);

    bench::phase_clock clock;
    s.apply(query.request, with.pool, work, reply, clock);
    clock.stop();
    for (const server_phase p :
         {server_phase::expand, server_phase::multiply, server_phase::protect, server_phase::serialize}) {
        CHECK(clock.milliseconds(p) > 0);
    }
}

TEST_CASE(
    "weights that are no numbers are refused by row and column, and a matrix must have all its values") {
    matrix a = random_matrix(4, 50, 1);
    a.row(2)[13] = std::numeric_limits<float>::quiet_NaN();
    CHECK(contains(refusal<encoding_error>([&] { slot_server<> s(a); }),
                   "row 2, column 13 of the matrix is not a number"));
    a.row(2)[13] = std::numeric_limits<float>::infinity();
    CHECK(contains(refusal<encoding_error>([&] { slot_server<> s(a); }), "is infinite"));
    a.values.pop_back();
    CHECK(contains(refusal<shape_error>([&] { slot_server<> s(a); }),
                   "got 199 values for a 4 x 50 matrix, expected 200"));
    CHECK_THROWS_AS(slot_server<>(matrix(0, 5)), shape_error);
    CHECK_THROWS_AS(slot_server<>(matrix(5, 0)), shape_error);
}

TEST_CASE("hidden states, requests and replies of the wrong size are refused") {
    client<small_slots> c;
    const slot_server<> one(random_matrix(8, 300, 1));   // 1 input, 2 products
    const slot_server<> two(random_matrix(8, 1500, 1));  // 2 inputs, 4 products
    CHECK_THROWS_WITH_AS(c.encrypt(one.plan(), std::vector<float>(299)),
                         Contains("got a hidden state of 299 entries, expected 300"), shape_error);
    const auto query = c.encrypt(one.plan(), random_state(300, 1));
    CHECK_THROWS_WITH_AS(
        two.apply(query.request),
        Contains("got a request of 300 entries, 512 in each of 1 ciphertexts, expected 1500 entries, 1024 "
                 "in each of 2 "
                 "ciphertexts"),
        shape_error);
    const auto reply = one.apply(query.request);
    CHECK_THROWS_WITH_AS(
        c.decrypt(two.plan(), reply, query),
        Contains("got a reply for a 8 x 300 matrix in 2 products, expected a 8 x 1500 matrix in 4 products"),
        shape_error);
}

TEST_CASE("requests and replies whose scale was changed are refused") {
    client<small_slots> c;
    const slot_server<> s(random_matrix(8, 300, 1));
    auto query = c.encrypt(s.plan(), random_state(300, 1));
    auto reply = s.apply(query.request);
    for (const double scale : {0.0, -1.0, 2 * small_slots::scale, not_a_number}) {
        reply.outputs.back().scale = scale;
        CHECK_THROWS_AS(c.decrypt(s.plan(), reply, query), parameter_error);
        query.request.inputs.back().scale = scale;
        CHECK_THROWS_AS(s.apply(query.request), parameter_error);
    }
}

static_assert(
    !std::is_constructible_v<slot_server<small_slots>, const matrix&, const ckks::secret_key<small_slots>&>,
    "a server must not take a secret key");
