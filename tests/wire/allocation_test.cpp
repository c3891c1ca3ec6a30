#include <tensafe/wire/wire.hpp>

#include "../allocation_count.hpp"
#include "../backends.hpp"
#include "wire_messages.hpp"

using namespace tests;
using namespace wire_messages;

namespace {

/// Allocations of the third of three messages there and back, into memory that is used again.
template <class Packing, class Protection>
std::size_t allocations_of_a_message(std::size_t tokens) {
    const lora::packing_plan<small, Packing, Protection> l(6, 300, 1);
    const auto request = some_request(l, tokens, 1);
    const auto reply = some_reply(l, tokens, 1);
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
        wire::read_reply(down, l, tokens, returned);
    }
    const std::size_t counted = allocations - before;
    CHECK(same(arrived, request));
    CHECK(same(returned, reply));
    return counted;
}

}  // namespace

TEST_CASE("a first message allocates, and those after it allocate nothing") {
    const std::size_t before = allocations;
    for_each_backend([](tensafe::exec::backend) {
        CHECK(allocations_of_a_message<tiles, protects>(1) == 0);
        CHECK(allocations_of_a_message<tiles, bare>(1) == 0);
    });
    CHECK(allocations > before);
}
