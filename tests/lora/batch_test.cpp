#include <tensafe/exec/host_parallel.hpp>

#include <memory>

#include "../backends.hpp"
#include "../exec/thread_sanitizer.hpp"
#include "tiles_fixture.hpp"

using namespace tiles_fixture;
namespace exec = tensafe::exec;

namespace {

random_source::seed numbered(std::uint8_t number) {
    random_source::seed seed;
    seed.bytes.fill(number);
    return seed;
}

/// Two clients with their zeros, everything from fixed seeds, and what they ask of one server.
template <class Server>
struct conversation {
    explicit conversation(const Server& s) {
        for (std::uint8_t c = 0; c < 2; ++c) {
            clients.emplace_back(ckks::secret_key<small>(numbered(static_cast<std::uint8_t>(10 + c))),
                                 random_source::generator(numbered(static_cast<std::uint8_t>(20 + c))));
            const auto nonce = numbered(static_cast<std::uint8_t>(30 + c));
            pools.push_back(std::make_unique<zeros_of_small>(
                nonce, clients[c].zero_key(host{}, nonce), s.layout().fold_log_n(),
                random_source::generator(numbered(static_cast<std::uint8_t>(40 + c)))));
        }
        for (std::size_t t = 0; t < tokens; ++t) {
            states.push_back(random_state(s.layout().d, t));
            queries.push_back(clients[t % 2].encrypt(host{}, s.layout(), view(states[t])));
        }
        work.generator = random_source::generator(numbered(50));
        replies.resize(tokens);
    }

    std::vector<typename Server::task> tasks() {
        std::vector<typename Server::task> result;
        for (std::size_t t = 0; t < tokens; ++t) {
            result.push_back({&queries[t].request, pools[t % 2].get(), &replies[t]});
        }
        return result;
    }

    static constexpr std::size_t tokens = 5;
    std::vector<client<small>> clients;
    std::vector<std::unique_ptr<zeros_of_small>> pools;
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
        s.apply(host{}, std::span(&t, 1), one_by_one.work);
    }
    for (std::size_t t = 0; t < one_by_one.tokens; ++t) {
        const auto answers = one_by_one.clients[t % 2].decrypt(host{}, s.layout(), one_by_one.replies[t],
                                                               one_by_one.queries[t].scale);
        CHECK(largest_difference(answers, product(a, one_by_one.states[t])) <
              most_deviations * deviation(s.layout(), norm(view(one_by_one.states[t]))));
    }
    tests::for_each_backend([&](exec::backend) {
        conversation<tiles<4>> batch(s);
        s.apply(host{}, batch.tasks(), batch.work);
        CHECK(same(batch.replies, one_by_one.replies));
        for (const int threads : {1, 2, 3}) {
            CAPTURE(threads);
            const exec::host_parallel parallel(threads);
            conversation<tiles<4>> again(s);
            again.pools[1]->fill(host{}, 4);  // some made before, some not
            s.apply(parallel, again.tasks(), again.work);
            CHECK(same(again.replies, one_by_one.replies));
        }
    });
}

TEST_CASE("the same holds for other packings and for bare replies") {
    const matrix a = random_matrix(9, 300, 4);
    const exec::host_parallel parallel(2);
    const auto check = [&]<class Server>(const Server& s) {
        conversation<Server> serial(s);
        conversation<Server> threaded(s);
        if constexpr (requires { s.apply(host{}, serial.queries[0].request); }) {
            s.apply(host{}, serial.queries[0].request, serial.work, serial.replies[0]);
            s.apply(parallel, threaded.queries[0].request, threaded.work, threaded.replies[0]);
            CHECK(serial.replies[0].outputs.size() == s.layout().outputs());
            for (std::size_t o = 0; o < s.layout().outputs(); ++o) {
                CHECK(serial.replies[0].outputs[o].c1 == threaded.replies[0].outputs[o].c1);
            }
        } else {
            s.apply(host{}, serial.tasks(), serial.work);
            s.apply(parallel, threaded.tasks(), threaded.work);
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
    with.pools[0]->fill(host{}, 3);
    with.pools[1]->fill(host{}, 3);
    auto& bytes = with.queries[3].request.inputs[0];
    const std::vector<std::uint8_t> before = bytes;
    std::fill(bytes.begin(), bytes.end(), std::uint8_t{0xff});
    CHECK_THROWS_AS(s.apply(host{}, with.tasks(), with.work), format_error);
    CHECK_THROWS_AS(s.apply(exec::host_parallel(2), with.tasks(), with.work), format_error);
    bytes.pop_back();
    CHECK_THROWS_AS(s.apply(host{}, with.tasks(), with.work), shape_error);
    CHECK(with.pools[0]->size() == 3);
    CHECK(with.pools[1]->size() == 3);
    bytes = before;
    s.apply(host{}, with.tasks(), with.work);
    CHECK(largest_difference(
              with.clients[1].decrypt(host{}, s.layout(), with.replies[3], with.queries[3].scale),
              product(a, with.states[3])) <
          most_deviations * deviation(s.layout(), norm(view(with.states[3]))));
}

TEST_CASE("a column batch on two threads gives the bytes of one") {
    using columns = server<small, column_batched>;
    const matrix a = random_matrix(3, 40, 5);
    const columns s(a);
    const matrix states = random_matrix(7, 40, 6);
    client<small> key_holder(ckks::secret_key<small>(numbered(1)), random_source::generator(numbered(2)));
    const auto query = key_holder.encrypt(host{}, s.layout(), states);
    std::vector<columns::reply_type> replies(2);
    for (std::size_t i = 0; i < 2; ++i) {
        auto pool = s.zeros_for(numbered(3), key_holder.zero_key(host{}, numbered(3)),
                                random_source::generator(numbered(4)));
        columns::workspace work;
        work.generator = random_source::generator(numbered(5));
        if (i == 0) {
            s.apply(host{}, query.request, pool, work, replies[i]);
        } else {
            s.apply(exec::host_parallel(2), query.request, pool, work, replies[i]);
        }
    }
    // The zero keys differ in their noise, so the zeros do: what is equal is what they hide.
    const auto one = key_holder.decrypt(host{}, s.layout(), replies[0], query.scales);
    const auto two = key_holder.decrypt(host{}, s.layout(), replies[1], query.scales);
    for (std::size_t t = 0; t < states.rows; ++t) {
        const std::vector<double> exact = product(a, row_of(states, t));
        CHECK(largest_difference(one[t], exact) < 1e-2);
        CHECK(largest_difference(two[t], exact) < 1e-2);
    }
}
