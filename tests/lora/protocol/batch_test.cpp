#include <tensafe/exec/host_parallel.hpp>

#include "../../backends.hpp"
#include "../../exec/thread_sanitizer.hpp"
#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;
namespace exec = tensafe::exec;

namespace {

using block_server = server<small, token_blocks, protects_adapter_rows<>>;

/// Two clients with their zeros, everything from fixed seeds, and what they ask of one server.
template <class Server>
struct conversation {
    explicit conversation(const Server& s) {
        for (std::size_t t = 0; t < tokens; ++t) {
            if (t < 2) {
                clients.push_back(std::make_unique<sides<small>>(t, s.layout().subring_log_n()));
            }
            states.push_back(random_state(s.layout().d, t));
            queries.push_back(clients[t % 2]->client.encrypt(s.plan(), states[t]));
        }
        work.generator = numbered_generator(50);
        replies.resize(tokens);
    }

    std::vector<typename Server::task> tasks() {
        std::vector<typename Server::task> result;
        for (std::size_t t = 0; t < tokens; ++t) {
            result.push_back({&queries[t].request, &clients[t % 2]->pool, &replies[t]});
        }
        return result;
    }

    static constexpr std::size_t tokens = 5;
    std::vector<std::unique_ptr<sides<small>>> clients;
    std::vector<std::vector<float>> states;
    std::vector<query<small>> queries;
    typename Server::workspace work;
    std::vector<typename Server::reply_type> replies;
};

template <class Reply>
bool same(const std::vector<Reply>& a, const std::vector<Reply>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Reply& x, const Reply& y) {
        return std::equal(x.outputs.begin(), x.outputs.end(), y.outputs.begin(), y.outputs.end(),
                          [](const auto& p, const auto& q) { return p.c0 == q.c0 && p.c1 == q.c1; });
    });
}

}  // namespace

TEST_CASE("threads and batches do not change a byte of any reply") {
    const matrix a = random_matrix(23, 700, 1);
    const tiles<4> s(a);
    conversation<tiles<4>> one_by_one(s);
    for (const auto& t : one_by_one.tasks()) {
        s.apply(std::span(&t, 1), one_by_one.work);
    }
    for (std::size_t t = 0; t < one_by_one.tokens; ++t) {
        const auto answers =
            one_by_one.clients[t % 2]->client.decrypt(s.plan(), one_by_one.replies[t], one_by_one.queries[t]);
        CHECK(error_in_deviations(answers, s, a, one_by_one.states[t]) < most_deviations);
    }
    for_each_backend([&](exec::backend) {
        conversation<tiles<4>> batch(s);
        s.apply(batch.tasks(), batch.work);
        CHECK(same(batch.replies, one_by_one.replies));
        for (const int threads : {1, 2, 3}) {
            CAPTURE(threads);
            const exec::host_parallel parallel(threads);
            conversation<tiles<4>> again(s);
            again.clients[1]->pool.fill(3);  // of one panel some made before, some not
            s.apply(parallel, again.tasks(), again.work);
            CHECK(same(again.replies, one_by_one.replies));
        }
    });
}

TEST_CASE("requests that go through a large matrix together get the bytes of requests that come alone") {
    // 264 products of 2048 words: too many for one request to have them in cache by itself.
    const matrix a = random_matrix(132, 2048, 3);
    const tiles<4> s(a);
    REQUIRE(s.layout().inputs() * s.layout().outputs() * 2048 > std::size_t{1} << 19);
    conversation<tiles<4>> one_by_one(s);
    for (const auto& t : one_by_one.tasks()) {
        s.apply(std::span(&t, 1), one_by_one.work);
    }
    conversation<tiles<4>> batch(s);
    s.apply(batch.tasks(), batch.work);
    CHECK(same(batch.replies, one_by_one.replies));
    conversation<tiles<4>> threaded(s);
    s.apply(exec::host_parallel(2), threaded.tasks(), threaded.work);
    CHECK(same(threaded.replies, one_by_one.replies));
    const auto answers = batch.clients[0]->client.decrypt(s.plan(), batch.replies[4], batch.queries[4]);
    CHECK(error_in_deviations(answers, s, a, batch.states[4]) < most_deviations);
}

TEST_CASE("the same holds for other packings and for bare replies") {
    const matrix a = random_matrix(9, 300, 4);
    const exec::host_parallel parallel(2);
    const auto check = [&]<class Server>(const Server& s) {
        conversation<Server> serial(s);
        conversation<Server> threaded(s);
        s.apply(serial.tasks(), serial.work);
        s.apply(parallel, threaded.tasks(), threaded.work);
        CHECK(serial.replies[4].outputs.size() == s.layout().outputs());
        if constexpr (std::is_same_v<Server, bare>) {
            for (std::size_t t = 0; t < serial.tokens; ++t) {
                for (std::size_t o = 0; o < s.layout().outputs(); ++o) {
                    CHECK(serial.replies[t].outputs[o].c1 == threaded.replies[t].outputs[o].c1);
                    for (std::size_t limb = 0; limb < 2; ++limb) {
                        const auto& one = serial.replies[t].outputs[o].c0[limb];
                        const auto& other = threaded.replies[t].outputs[o].c0[limb];
                        CHECK(std::equal(one.begin(), one.end(), other.begin(), other.end()));
                    }
                }
            }
        } else {
            CHECK(same(serial.replies, threaded.replies));
        }
    };
    check(server<small, replicated_slots<>>(a));
    check(tiles<16>(a));
    check(bare(a));
}

TEST_CASE("one bad request of a batch takes no encryption of zero from anybody") {
    const matrix a = random_matrix(8, 300, 2);
    const tiles<4> s(a);
    conversation<tiles<4>> with(s);
    with.clients[0]->pool.fill(3);
    with.clients[1]->pool.fill(3);
    auto& bytes = with.queries[3].request.inputs[0];
    const std::vector<std::uint8_t> before = bytes;
    std::fill(bytes.begin(), bytes.end(), std::uint8_t{0xff});
    CHECK_THROWS_AS(s.apply(with.tasks(), with.work), format_error);
    CHECK_THROWS_AS(s.apply(exec::host_parallel(2), with.tasks(), with.work), format_error);
    bytes.pop_back();
    CHECK_THROWS_AS(s.apply(with.tasks(), with.work), shape_error);
    CHECK(with.clients[0]->pool.size() == 3);
    CHECK(with.clients[1]->pool.size() == 3);
    bytes = before;
    s.apply(with.tasks(), with.work);
    CHECK(error_in_deviations(with.clients[1]->client.decrypt(s.plan(), with.replies[3], with.queries[3]), s,
                              a, with.states[3]) < most_deviations);
}

TEST_CASE("a task that lacks a part is refused by its number") {
    const tiles<4> s(random_matrix(4, 300, 1));
    conversation<tiles<4>> with(s);
    auto tasks = with.tasks();
    tasks[3].zeros = nullptr;
    CHECK_THROWS_WITH_AS(s.apply(tasks, with.work),
                         "server::apply: task 3 has no encryptions of zero (zeros)", parameter_error);
    tasks[2].to = nullptr;
    CHECK_THROWS_WITH_AS(s.apply(tasks, with.work), "server::apply: task 2 has no reply (to)",
                         parameter_error);
    tasks[0] = {};
    CHECK_THROWS_WITH_AS(s.apply(tasks, with.work), "server::apply: task 0 has no request (from)",
                         parameter_error);
}

TEST_CASE("one workspace serves protected and bare servers of any shape in turn") {
    const matrix a = random_matrix(9, 300, 1);
    const matrix b = random_matrix(17, 700, 2);
    const tiles<4> hidden(a);
    const bare open(b);
    conversation<tiles<4>> with(hidden);
    conversation<bare> beside(open);
    for (int round = 0; round < 2; ++round) {
        hidden.apply(with.queries[0].request, with.clients[0]->pool, with.work, with.replies[0]);
        open.apply(beside.queries[0].request, with.work, beside.replies[0]);
        CHECK(error_in_deviations(
                  with.clients[0]->client.decrypt(hidden.plan(), with.replies[0], with.queries[0]), hidden, a,
                  with.states[0]) < most_deviations);
        CHECK(largest_difference(
                  beside.clients[0]->client.decrypt(open.plan(), beside.replies[0], beside.queries[0]),
                  product(b, beside.states[0])) < 1e-2);
    }
}

TEST_CASE("threads, and a workspace that served other shapes, change no byte of a block") {
    const auto check = [](block_server::workspace& kept, const auto& where, std::size_t tokens,
                          std::size_t rank, std::size_t d) {
        const block_server s(random_matrix(rank, d, 1), tokens);
        const auto prepared = [&](const auto& here, block_server::workspace& work) {
            sides<small> with(1, s.plan().subring_log_n());
            const auto of_client = with.client.prepare(s.plan());
            work.generator = numbered_generator(5);
            server_block<small> block;
            block_reply reply;
            s.prepare(here, of_client.request(), with.pool, work, block, reply);
            return reply.c1;
        };
        block_server::workspace fresh;
        CHECK(prepared(where, kept) == prepared(exec::host{}, fresh));
    };
    block_server::workspace kept;
    const exec::host_parallel two(2);
    const exec::host_parallel three(3);
    check(kept, two, 8, 5, 300);
    check(kept, exec::host{}, 32, 9, 70);
    check(kept, three, 4, 130, 10);
    check(kept, two, 1024, 1, 3);
    check(kept, exec::host{}, 8, 5, 300);
}
