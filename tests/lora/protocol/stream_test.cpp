#include <tensafe/lora/protocol/block_server.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/request.hpp>

#include "../tiles_fixture.hpp"

// A stream from fixed seeds has the same bytes on each machine. The digests are of the first run of this
// test, on x86-64.

namespace {

using namespace tests;
namespace lora = tensafe::lora;
namespace wire = tensafe::wire;
using bytes = std::vector<std::uint8_t>;

tensafe::random::seed numbered(std::uint8_t number) {
    tensafe::random::seed seed;
    seed.bytes.fill(number);
    return seed;
}

/// The digest D of tests/data/random_streams.json, of everything that was added.
class digest {
  public:
    template <class Values>
    void add(const Values& values) {
        for (const auto x : values) {
            value_ = value_ * 0x9e3779b97f4a7c15U + std::uint64_t{x};
        }
    }
    std::uint64_t value() const noexcept { return value_; }

  private:
    std::uint64_t value_ = 0;
};

}  // namespace

TEST_CASE_TEMPLATE("a stream has the same bytes on each machine", P, ckks::private_n4096,
                   ckks::minimal_n2048) {
    using protection =
        std::conditional_t<std::is_same_v<P, ckks::private_n4096>, lora::protects_adapter_rows<>,
                           lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>>;
    constexpr std::size_t rank = 6;
    constexpr std::size_t d = 300;
    lora::matrix a(rank, d);
    std::vector<float> h(d);
    for (std::size_t k = 0; k < rank * d; ++k) {
        a.values[k] = static_cast<float>(k * k % 257) / 1024 - 0.125F;
        h[k % d] = static_cast<float>(k * 31 % 1009) / 64 - 8;
    }
    const lora::server<P, lora::token_blocks, protection> server(a, 16);
    const auto& plan = server.plan();
    lora::client<P> client(ckks::secret_key<P>(numbered(1)), tensafe::random::generator(numbered(2)));
    const auto key = client.rerandomization_key(numbered(3));
    auto zeros = server.pool(numbered(3), key, tensafe::random::generator(numbered(4)));
    typename lora::server<P, lora::token_blocks, protection>::workspace work;
    work.generator = tensafe::random::generator(numbered(5));

    digest of_messages;
    bytes message;
    auto block = client.prepare(plan);
    wire::write_block_request<P, protection>(block.request(), {7, 3}, message);
    of_messages.add(message);
    lora::server_block<P> prepared;
    lora::block_reply ahead;
    server.prepare(block.request(), zeros, work, prepared, ahead);
    wire::write_block_reply<P, protection>(ahead, {7, 3}, message);
    of_messages.add(message);
    client.accept(block, ahead);
    digest of_answers;
    for (std::uint64_t t = 0; t < 3; ++t) {
        lora::token_query query;
        lora::token_reply reply;
        block.encrypt(h, query);
        wire::write_token_request<P, protection>(query.request, {8 + t, 3}, message);
        of_messages.add(message);
        server.answer(prepared, query.request, work, reply);
        wire::write_token_reply<P, protection>(reply, {8 + t, 3}, message);
        of_messages.add(message);
        std::vector<double> answers(rank);
        block.decrypt(reply, query, answers);
        for (std::size_t r = 0; r < rank; ++r) {
            double exact = 0;
            for (std::size_t k = 0; k < d; ++k) {
                exact += double{a.values[r * d + k]} * double{h[k]};
            }
            CHECK(std::fabs(answers[r] - exact) < 0.05);
            of_answers.add(std::array{bit_cast<std::uint64_t>(answers[r])});
        }
    }
    constexpr bool is_private = std::is_same_v<P, ckks::private_n4096>;
    CHECK(of_messages.value() == (is_private ? 0x4518be26328f2384U : 0x179e101ee41c8d1eU));
    CHECK(of_answers.value() == (is_private ? 0x4cb491f10f2130cdU : 0x37126f14c884422dU));
}
