#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/request.hpp>

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
    return wire_messages::some_block_request(plan, 1);
}
lora::block_reply some_block_reply() {
    return wire_messages::some_block_reply(plan, 2);
}
lora::token_request some_token_request() {
    return wire_messages::some_token_request(plan, 17, 3);
}
lora::token_reply some_token_reply() {
    return wire_messages::some_token_reply(plan, 17, 4);
}

template <class Message, class Write>
byte_vector written(const Message& message, std::uint64_t number, Write write) {
    byte_vector m;
    write(message, wire::envelope{number, 3}, m);
    return m;
}
byte_vector block_request_message() {
    return written(some_block_request(), 7, wire::write_block_request<small, protects>);
}
byte_vector block_reply_message() {
    return written(some_block_reply(), 7, wire::write_block_reply<small, protects>);
}
byte_vector token_request_message() {
    return written(some_token_request(), 8, wire::write_token_request<small, protects>);
}
byte_vector token_reply_message() {
    return written(some_token_reply(), 8, wire::write_token_reply<small, protects>);
}

void read_block_request(const byte_vector& m) {
    static_cast<void>(wire::read_block_request(m, plan));
}
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

TEST_CASE("messages of blocks are as long as the cost of a site says, checksum rows included") {
    const auto check = [](const auto& of) {
        const lora::token_cost cost = lora::cost_of(of);
        const std::size_t up = wire_messages::some_token_request(of, 0, 1).bytes();
        const std::size_t down = wire_messages::some_token_reply(of, 0, 1).bytes();
        CHECK(cost.online_up == up);
        CHECK(cost.online_down == down);
        CHECK(cost.bytes_up == wire_messages::some_block_request(of, 1).bytes() + 32 * up);
        CHECK(cost.bytes_down == wire_messages::some_block_reply(of, 1).bytes() + 32 * down);
    };
    for (const std::size_t rank : {1U, 6U, 33U}) {
        check(block_plan(rank, 300, 32));
        check(block_plan<narrow>(rank, 300, 32));
    }
}

TEST_CASE("parts of blocks come back as they were, and others than there are are refused") {
    const auto many = block_plan(20, 300, 32);
    auto asked = wire_messages::some_block_request(many, 1);
    asked.outputs = 4;
    asked.first = 16;
    const auto write = wire::write_block_request<small, protects>;
    const byte_vector m = golden("block_request_part_n1024_d300_t32", written(asked, 7, write));
    CHECK(m.size() == asked.bytes());
    const lora::block_request got = wire::read_block_request(m, many);
    CHECK(got.seed == asked.seed);
    CHECK(got.outputs == 4);
    CHECK(got.first == 16);
    CHECK_THROWS_AS(static_cast<void>(wire::read_block_request(m, plan)), shape_error);
    CHECK_THROWS_AS(static_cast<void>(wire::read_block_request(with_number(m, 56, std::uint32_t{5}), many)),
                    shape_error);
    CHECK_THROWS_AS(static_cast<void>(wire::read_block_request(with_number(m, 56, std::uint32_t{0}), many)),
                    format_error);
    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    for (const std::uint32_t first : {std::uint32_t{17}, most}) {
        CHECK_THROWS_AS(static_cast<void>(wire::read_block_request(with_number(m, 92, first), many)),
                        shape_error);
    }
    lora::block_reply part = wire_messages::some_block_reply(many, 2);
    part.c1.erase(part.c1.begin(), part.c1.begin() + 16);
    const byte_vector reply = written(part, 7, wire::write_block_reply<small, protects>);
    lora::block_reply read;
    wire::read_block_reply(reply, many, 16, 4, read);
    CHECK(read.first == 16);
    CHECK(read.c1 == part.c1);
    CHECK_THROWS_AS(wire::read_block_reply(reply, many, 8, 8, read), format_error);
    CHECK_THROWS_AS(wire::read_block_reply(reply, many, read), format_error);
}

TEST_CASE("shapes that lie are refused, and what was there before stays") {
    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    const auto refused = [](const byte_vector& good, auto read, std::initializer_list<std::size_t> places) {
        for (const std::size_t at : places) {
            for (const std::uint32_t value : {std::uint32_t{31}, std::uint32_t{33}, most}) {
                CHECK_THROWS_AS(read(with_number(good, at, value)), shape_error);
            }
        }
    };
    refused(block_request_message(), read_block_request, {48, 52, 56});
    refused(block_reply_message(), read_block_reply, {48, 52, 56});
    refused(token_request_message(), read_token_request, {48});
    for (const std::uint32_t position : {std::uint32_t{32}, most}) {
        CHECK_THROWS_AS(read_token_request(with_number(token_request_message(), 52, position)), shape_error);
    }
    refused(token_reply_message(), read_token_reply, {48, 52, 56});
    read_token_request(with_number(token_request_message(), 52, std::uint32_t{31}));  // the last position

    lora::block_reply c1 = some_block_reply();
    byte_vector bad = block_reply_message();
    std::fill(bad.end() - 4 - 100, bad.end() - 4, std::uint8_t{0});
    CHECK(takes(read_block_reply, sealed(bad)) == 1);
    const auto last = static_cast<std::ptrdiff_t>(c1.c1.back().size());
    std::fill(bad.end() - 4 - last, bad.end() - 4, std::uint8_t{0});
    CHECK(contains(refusal<format_error>([&] { wire::read_block_reply(sealed(bad), plan, c1); }),
                   "the c1 of product 5 is zero"));
    CHECK(c1.c1 == some_block_reply().c1);
    lora::token_request state = some_token_request();
    bad = token_request_message();
    bad.resize(bad.size() - 1);
    CHECK_THROWS_AS(wire::read_token_request(sealed(bad), plan, state), format_error);
    CHECK(state.c0 == some_token_request().c0);
    CHECK(state.position == 17);
}

TEST_CASE("what no reader takes is not written") {
    if (two_to_32 == 0) {
        return;
    }
    byte_vector m;
    auto asked = some_block_request();
    asked.tokens = two_to_32;
    CHECK_THROWS_AS((wire::write_block_request<small, protects>(asked, {}, m)), parameter_error);
    auto ahead = some_block_reply();
    ahead.rank = two_to_32;
    CHECK_THROWS_AS((wire::write_block_reply<small, protects>(ahead, {}, m)), parameter_error);
    auto token = some_token_request();
    token.position = two_to_32;
    CHECK_THROWS_AS((wire::write_token_request<small, protects>(token, {}, m)), parameter_error);
    auto answers = some_token_reply();
    answers.d = two_to_32;
    CHECK_THROWS_AS((wire::write_token_reply<small, protects>(answers, {}, m)), parameter_error);
}

TEST_CASE("messages of blocks for something else are refused, and both are named") {
    const auto other = block_plan(6, 300, 8);
    CHECK(contains(refusal<shape_error>(
                       [&] { static_cast<void>(wire::read_block_request(block_request_message(), other)); }),
                   "block request: tokens: got 32, expected 8"));
    lora::block_reply c1;
    CHECK_THROWS_AS(wire::read_block_reply(block_reply_message(), block_plan(7, 300, 32), c1), shape_error);
    lora::token_request state;
    CHECK(contains(
        refusal<shape_error>([&] { wire::read_token_request(token_request_message(), other, state); }),
        "token request: got position 17, expected one below 8"));
    lora::token_reply answers;
    CHECK_THROWS_AS(wire::read_token_reply(token_reply_message(), plan, 16, answers), shape_error);
    CHECK_THROWS_AS(wire::read_token_reply(token_request_message(), plan, 17, answers), tensafe::error);
    auto erased = some_block_reply();
    std::fill(erased.c1[2].begin(), erased.c1[2].end(), std::uint8_t{0});
    byte_vector m;
    CHECK_THROWS_AS((wire::write_block_reply<small, protects>(erased, {}, m)), parameter_error);
}
