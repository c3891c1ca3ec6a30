#include <tensafe/wire/block.hpp>

#include "golden_message.hpp"
#include "wire_fixture.hpp"
#include "wire_messages.hpp"

using namespace tests;
using namespace wire_messages;
using namespace wire_fixture;
namespace wire = tensafe::wire;

namespace {



const auto plan = block_plan(6, 300, 32);

lora::block_request some_block_request() {
    const auto like = some_request(plan, 1, 1);
    return {plan.d(), 32, like.seed};
}
lora::block_reply some_block_reply() {
    const auto like = some_reply(plan, 1, 2);
    lora::block_reply r{6, 300, 32, {}};
    for (const auto& output : like.outputs) {
        r.c1.push_back(output.c1);
    }
    return r;
}
lora::token_request some_token_request() {
    return {300, 17, 0x1122334455667788, some_request(plan, 1, 3).inputs[0]};
}
lora::token_reply some_token_reply() {
    std::mt19937_64 generator(4);
    const int bits = plan.reply_bits(0);
    return {6, 300, 17, packed<std::uint32_t>(generator, 6, bits, word{1} << bits)};
}

byte_vector block_request_message() {
    byte_vector m;
    wire::write_block_request<small, protects>(some_block_request(), {7, 3}, m);
    return m;
}
byte_vector block_reply_message() {
    byte_vector m;
    wire::write_block_reply<small, protects>(some_block_reply(), {7, 3}, m);
    return m;
}
byte_vector token_request_message() {
    byte_vector m;
    wire::write_token_request<small, protects>(some_token_request(), {8, 3}, m);
    return m;
}
byte_vector token_reply_message() {
    byte_vector m;
    wire::write_token_reply<small, protects>(some_token_reply(), {8, 3}, m);
    return m;
}

void read_block_request(const byte_vector& m) { static_cast<void>(wire::read_block_request(m, plan)); }
void read_block_reply(const byte_vector& m) {
    lora::block_reply r;
    wire::read_block_reply(m, plan, r);
}
void read_token_request(const byte_vector& m) {
    lora::token_request r;
    wire::read_token_request(m, plan, r);
}
void read_token_reply(const byte_vector& m) {
    lora::token_reply r;
    wire::read_token_reply(m, plan, 17, r);
}

}  // namespace

TEST_CASE("messages of blocks come back bit for bit, in as many bytes as they say") {
    const byte_vector asked = golden("block_request_n1024_d300_t32", block_request_message());
    CHECK(asked.size() == some_block_request().bytes());
    CHECK(wire::read_block_request(asked, plan).seed == some_block_request().seed);
    const byte_vector ahead = golden("block_reply_n1024_r6_d300_t32", block_reply_message());
    CHECK(ahead.size() == some_block_reply().bytes());
    lora::block_reply c1;
    wire::read_block_reply(ahead, plan, c1);
    CHECK(c1.c1 == some_block_reply().c1);
    const byte_vector token = golden("token_request_n1024_d300_t32", token_request_message());
    CHECK(token.size() == some_token_request().bytes());
    lora::token_request state;
    wire::read_token_request(token, plan, state);
    CHECK(state.c0 == some_token_request().c0);
    CHECK(state.position == 17);
    CHECK(state.block == 0x1122334455667788);
    const byte_vector answer = golden("token_reply_n1024_r6_d300_t32", token_reply_message());
    CHECK(answer.size() == some_token_reply().bytes());
    lora::token_reply answers;
    wire::read_token_reply(answer, plan, 17, answers);
    CHECK(answers.c0 == some_token_reply().c0);
    CHECK(wire::read_header(answer).what == wire::kind::token_reply);
    CHECK(wire::read_header(answer).envelope() == wire::envelope{8, 3});
}

TEST_CASE("messages of blocks that are cut, lengthened or changed by one bit are refused") {
    every_truncation_is_refused(block_request_message(), read_block_request);
    every_flipped_bit_is_refused(block_request_message(), read_block_request);
    every_truncation_is_refused(token_request_message(), read_token_request);
    every_flipped_bit_is_refused(token_request_message(), read_token_request);
    every_truncation_is_refused(token_reply_message(), read_token_reply);
    every_flipped_bit_is_refused(token_reply_message(), read_token_reply);
    every_truncation_is_refused(block_reply_message(), read_block_reply);
}

TEST_CASE("messages of blocks for something else are refused, and both are named") {
    const auto other = block_plan(6, 300, 8);
    CHECK(contains(refusal<shape_error>(
                       [&] { static_cast<void>(wire::read_block_request(block_request_message(), other)); }),
                   "got 300, 32, 0 for its shape, expected 300, 8, 0"));
    lora::block_reply c1;
    CHECK_THROWS_AS(wire::read_block_reply(block_reply_message(), block_plan(7, 300, 32), c1), shape_error);
    lora::token_request state;
    CHECK(contains(refusal<shape_error>(
                       [&] { wire::read_token_request(token_request_message(), other, state); }),
                   "got position 17 of a hidden state of 300 entries, expected one below 8"));
    lora::token_reply answers;
    CHECK_THROWS_AS(wire::read_token_reply(token_reply_message(), plan, 16, answers), shape_error);
    CHECK_THROWS_AS(wire::read_token_reply(token_request_message(), plan, 17, answers), tensafe::error);
    auto erased = some_block_reply();
    std::fill(erased.c1[2].begin(), erased.c1[2].end(), std::uint8_t{0});
    byte_vector m;
    CHECK_THROWS_AS((wire::write_block_reply<small, protects>(erased, {}, m)), parameter_error);
}
