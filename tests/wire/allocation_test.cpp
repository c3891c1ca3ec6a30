#include <tensafe/wire/wire.hpp>

#include "../allocation_count.hpp"
#include "../backends.hpp"
#include "wire_messages.hpp"

using namespace tests;
using namespace wire_messages;

namespace {

/// Allocations of the third of three messages there and back, into memory that is used again.
template <class Packing, class Protection>
std::size_t allocations_of_a_message() {
    const lora::packing_plan<small, Packing, Protection> l(6, 300, 1);
    const auto request = some_request(l, 1);
    const auto reply = some_reply(l, 1);
    std::vector<std::uint8_t> up;
    std::vector<std::uint8_t> down;
    lora::request<small> arrived;
    lora::reply<small, Packing, Protection> returned;
    std::size_t before = 0;
    for (std::uint64_t number = 1; number <= 3; ++number) {
        before = allocations;
        wire::write_request<Packing, Protection>(request, {number, 0}, up);
        wire::read_request(up, l, arrived);
        wire::write_reply(reply, {number, 0}, down);
        wire::read_reply(down, l, returned);
    }
    const std::size_t counted = allocations - before;
    CHECK(same(arrived, request));
    CHECK(same(returned, reply));
    return counted;
}

/// The same for the tokens of a block.
std::size_t allocations_of_a_token() {
    const auto l = block_plan(6, 300, 32);
    const auto request = some_token_request(l, 5, 1);
    const auto reply = some_token_reply(l, 5, 1);
    std::vector<std::uint8_t> up;
    std::vector<std::uint8_t> down;
    lora::token_request arrived;
    lora::token_reply returned;
    std::size_t before = 0;
    for (std::uint64_t number = 1; number <= 3; ++number) {
        before = allocations;
        wire::write_token_request<small, protects>(request, {number, 0}, up);
        wire::read_token_request(up, l, arrived);
        wire::write_token_reply<small, protects>(reply, {number, 0}, down);
        wire::read_token_reply(down, l, 5, returned);
    }
    const std::size_t counted = allocations - before;
    CHECK(arrived.c0 == request.c0);
    CHECK(returned.c0 == reply.c0);
    return counted;
}

}  // namespace

TEST_CASE("a first message allocates, and those after it allocate nothing") {
    const std::size_t before = allocations;
    for_each_backend([](tensafe::exec::backend) {
        CHECK(allocations_of_a_message<tiles, protects>() == 0);
        CHECK(allocations_of_a_message<tiles, bare>() == 0);
        CHECK(allocations_of_a_token() == 0);
    });
    CHECK(allocations > before);
}
