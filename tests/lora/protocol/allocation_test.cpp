#include <tensafe/serving/meter.hpp>
#include <tensafe/tensafe.hpp>

#include "../../allocation_count.hpp"
#include "../../backends.hpp"
#include "../../random_values.hpp"
#include "../../sides.hpp"
#include "../../test.hpp"

using namespace tests;

namespace {

template <class P, class Packing, class Protection>
struct token_path {
    using server_type = lora::server<P, Packing, Protection>;

    token_path() : server(random_matrix(32, 512, 1)), h(random_matrix(1, 512, 2)), answers(32) {}

    void apply() {
        if constexpr (Protection::protects) {
            server.apply(query.request, with.pool, work, reply);
        } else {
            server.apply(query.request, work, reply);
        }
    }
    void read() { with.client.decrypt(server.plan(), reply, query, reading, answers); }
    void run() {
        with.client.encrypt(server.plan(), h.row(0), query);
        apply();
        read();
    }

    /// Allocations of a token after another.
    std::size_t allocations_of_a_token() {
        run();
        const std::size_t before = allocations;
        run();
        return allocations - before;
    }

    server_type server;
    lora::matrix h;
    sides<P> with{server.layout().subring_log_n()};
    typename server_type::workspace work;
    typename server_type::reply_type reply;
    lora::query<P> query;
    lora::decryption_workspace<P> reading;
    std::vector<double> answers;
};

using worst_case = lora::protects_adapter_rows<>;
using average_case = lora::protects_adapter_rows<lora::average_case<6>>;

}  // namespace

TEST_CASE("the counter sees an allocation") {
    const std::size_t before = allocations;
    const std::vector<int> some(1000);
    CHECK(some.size() == 1000);
    CHECK(allocations > before);
}

TEST_CASE_TEMPLATE("a second token allocates nothing", Path,
                   token_path<ckks::private_n4096, lora::coefficient_tiles<4>, worst_case>,
                   token_path<ckks::compact_n4096, lora::coefficient_tiles<32>, average_case>,
                   token_path<ckks::private_n4096, lora::replicated_slots<>, worst_case>,
                   token_path<ckks::private_n4096, lora::coefficient_tiles<4>, lora::reveals_adapter_rows>) {
    for_each_backend([](tensafe::exec::backend) {
        Path path;
        CHECK(path.allocations_of_a_token() == 0);
    });
}

TEST_CASE("nor does one whose encryptions of zero were made before") {
    token_path<ckks::private_n4096, lora::coefficient_tiles<4>, worst_case> path;
    path.run();
    path.with.pool.fill(path.server.layout().outputs());
    const std::size_t before = allocations;
    path.run();
    CHECK(allocations - before == 0);
}

TEST_CASE_TEMPLATE("after memory ran out, wherever, a request is answered with the same workspace", Path,
                   token_path<ckks::private_n4096, lora::coefficient_tiles<4>, worst_case>,
                   token_path<ckks::private_n4096, lora::coefficient_tiles<4>, lora::reveals_adapter_rows>) {
    Path path;
    path.run();  // plans and shared tables
    const auto reply = path.answers;
    for (std::size_t n = 0;; ++n) {
        path.work = {};
        path.reply = {};
        allocations_left = n;
        bool failed = false;
        try {
            path.apply();
        } catch (const std::bad_alloc&) {
            failed = true;
        }
        allocations_left = ~std::size_t{0};
        if (!failed) {
            CHECK(n > 10);
            break;
        }
        path.apply();
        path.read();
        for (std::size_t i = 0; i < reply.size(); ++i) {
            CHECK(path.answers[i] == doctest::Approx(reply[i]).epsilon(0.01).scale(1));
        }
    }
}

TEST_CASE(
    "nor does a token of a block, the first of a next block and another matrix in its memory included") {
    using P = ckks::private_n4096;
    using server_type = lora::server<P, lora::token_blocks>;
    for_each_backend([](tensafe::exec::backend) {
        const server_type large(random_matrix(32, 512, 1), 32);
        const server_type small(random_matrix(17, 300, 1), 32);
        const lora::matrix states = random_matrix(1, 512, 2);
        sides<P> with(large.plan().subring_log_n());
        server_type::workspace work;
        lora::server_block<P> of_server;
        lora::block_reply ahead;
        lora::token_query query;
        lora::token_reply reply;
        for (int round = 0; round < 4; ++round) {
            const server_type& server = round % 2 == 0 ? large : small;
            const auto h = states.row(0).first(server.plan().d());
            std::vector<double> answers(server.plan().rank());
            auto block = with.client.prepare(server.plan());
            server.prepare(block.request(), with.pool, work, of_server, ahead);
            with.client.accept(block, ahead);
            for (std::size_t t = 0; t < 4; ++t) {
                const std::size_t before = allocations;
                block.encrypt(h, query);
                server.answer(of_server, query.request, work, reply);
                block.decrypt(reply, query, answers);
                CHECK((allocations == before || (round == 0 && t == 0)));
            }
        }
    });
}

TEST_CASE("making a classic request again allocates nothing") {
    using P = ckks::n8192_l4;
    const lora::server<P, lora::replicated_slots<>, lora::reveals_adapter_rows> server(
        random_matrix(32, 512, 1));
    const lora::matrix h = random_matrix(1, 512, 2);
    lora::client<P> client;
    decltype(server)::workspace work;
    decltype(server)::reply_type reply;
    decltype(server)::plan_type::query_type query;
    std::size_t before = 0;
    for (int token = 0; token < 3; ++token) {
        before = allocations;
        client.encrypt(server.plan(), h.row(0), query);
        server.apply(query.request, work, reply);
    }
    CHECK(allocations - before == 0);
}

TEST_CASE("a meter that knows adapter and client allocates nothing for another record") {
    serving::meter meter;
    meter.record("an adapter with a long name", "a client with a long name", {.tokens = 1});
    const std::size_t before = allocations;
    meter.record("an adapter with a long name", "a client with a long name", {.tokens = 1});
    CHECK(allocations - before == 0);
    CHECK(meter.snapshot().total().tokens == 2);
}
