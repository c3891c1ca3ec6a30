#include <tensafe/wire/wire.hpp>

#include "../allocation_count.hpp"
#include "../backends.hpp"
#include "sample_messages.hpp"
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

/// The largest allocation of a refusal.
template <class Error, class Read>
std::size_t largest_of_a_refusal(Read read, std::vector<std::uint8_t> message) {
    message = sample_messages::resealed(std::move(message));
    largest_allocation = 0;
    CHECK_THROWS_AS(read(message), Error);
    return largest_allocation;
}
template <class Read>
void check_refusals(const std::vector<std::uint8_t>& good, Read read) {
    using sample_messages::with_size;
    using tensafe::format_error;
    constexpr std::size_t text = 2048;
    CHECK(largest_of_a_refusal<format_error>(read, with_size(good, good.size() - 1)) < text);
    CHECK(largest_of_a_refusal<format_error>(read, with_size(good, good.size() + 1)) < text);
    CHECK(largest_of_a_refusal<tensafe::parameter_error>(
              read, wire_fixture::with_number(good, 8, std::uint64_t{1})) < text);
    for (const std::size_t at : {48U, 52U, 60U}) {  // level, zeros, and number of keys or nothing
        if (at < 60 || good[5] == 6) {
            CHECK(largest_of_a_refusal<format_error>(
                      read, wire_fixture::with_number(good, at, std::uint32_t{0x10000000})) < text);
        }
    }
    largest_allocation = 0;
    read(good);
    CHECK(largest_allocation > 10'000);
}

}  // namespace

TEST_CASE("an evaluation key of another level, set, number or length is refused before memory is taken") {
    using namespace sample_messages;
    check_refusals(wire::write_relinearization_key(relinearization_key()),
                   [](const bytes& m) { wire::read_relinearization_key<switching>(m); });
    check_refusals(wire::write_galois_keys(galois_keys()), [](const bytes& m) {
        wire::read_galois_keys<switching, 0, ckks::rotations<1>, ckks::conjugation>(m);
    });
}

TEST_CASE("a first message allocates, and those after it allocate nothing") {
    const std::size_t before = allocations;
    for_each_backend([](tensafe::exec::backend) {
        CHECK(allocations_of_a_message<tiles, protects>() == 0);
        CHECK(allocations_of_a_message<tiles, bare>() == 0);
        CHECK(allocations_of_a_token() == 0);
    });
    CHECK(allocations > before);
}
