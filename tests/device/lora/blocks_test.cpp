#include "../exec/recording_blocks.hpp"
#include "block_checks.hpp"

using namespace tests;
using namespace tests::block_checks;

namespace {

using private_range = lora::protects_adapter_rows<>;
using narrow_range = lora::protects_adapter_rows<lora::average_case<6>>;

// What nobody gets to see: an explicit instantiation may name private members.
using sides_type = both_sides<two_limbs, private_range, host_blocks>;
template <class Tag, typename Tag::type Member>
struct opened {
    friend typename Tag::type member_of(Tag) { return Member; }
};
struct zeros_tag {
    using type = memory::buffer<word, memory::host_space, memory::wipe_on_release>
        device::server_block<two_limbs, host_blocks>::*;
    friend type member_of(zeros_tag);
};
struct block_replies_tag {
    using type = memory::buffer<std::uint8_t> sides_type::device_server::preparation::*;
    friend type member_of(block_replies_tag);
};
struct replies_tag {
    using type =
        device::staging_area<host_blocks>::piece<std::uint8_t> sides_type::device_server::workspace::*;
    friend type member_of(replies_tag);
};
template struct opened<zeros_tag, &device::server_block<two_limbs, host_blocks>::zeros_>;
template struct opened<block_replies_tag, &sides_type::device_server::preparation::replies_>;
template struct opened<replies_tag, &sides_type::device_server::workspace::replies_>;

bool all_zeros(const auto& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

}  // namespace

TEST_CASE("blocks and answers of several sessions are the host's, byte for byte") {
    in_every_order([](const auto& where) {
        check_blocks<two_limbs, private_range>(where, 8, 6, 301, {1, 3, 4, 5});
        check_blocks<one_limb, private_range>(where, 5, 3, 65, {2, 7});
        check_blocks<two_limbs, narrow_range>(where, 2, 5, 33, {4});
    });
}

TEST_CASE("blocks of named sets are the host's, byte for byte") {
    check_blocks<ckks::private_n4096, private_range>(host_blocks(thread_order::shuffled), 38, 5, 777, {9});
    check_blocks<ckks::minimal_n2048, narrow_range>(host_blocks(thread_order::reverse), 32, 4, 333, {5, 1});
}

TEST_CASE("more answers than a thread block has threads, and more entries than a sum has room for") {
    const host_blocks where(thread_order::shuffled);
    check_blocks<one_limb, private_range>(where, 16, 261, 5, {1, 18});
    // Of 60 bits 64 products fit a sum.
    check_blocks<one_limb, private_range>(where, 2, 1, 2500, {4});
}

TEST_CASE("a batch that cannot be answered uses up no position") {
    check_refusals<two_limbs, private_range>(host_blocks());
}

TEST_CASE("malformed requests spoil their own replies, and work without staging gives zeros") {
    in_every_order([](const auto& where) { check_spoilt_work<two_limbs, private_range>(where); });
    const recording_blocks where{host_blocks(), nullptr};
    check_spoilt_work<two_limbs, private_range>(where, run_recorded());
    check_blocks<two_limbs, private_range>(where, 8, 2, 50, {3, 1, 3}, run_recorded());
}

TEST_CASE("the words of a position are wiped when it is answered, and no others") {
    sides_type sides(host_blocks(), 4, 3, 37, 1, 1);
    sides.prepare({0});
    const auto& words = sides.sessions[0].on_device.*member_of(zeros_tag());
    REQUIRE(words.size() == 2 * 4 * 3);
    sides.answer(sides.tokens(1));
    for (std::size_t k = 0; k < words.size(); ++k) {
        CHECK((words[k] == 0) == (k % 12 < 3));
    }
}

TEST_CASE("replayed work and malformed requests leave nothing but zeros") {
    in_every_order([](const host_blocks& where) {
        sides_type sides(where, 4, 3, 37, 1, 1);
        sides.prepare({0});
        const auto& of_blocks = sides.ahead.*member_of(block_replies_tag());
        const auto& of_tokens = (sides.online.*member_of(replies_tag())).host;
        CHECK(!all_zeros(of_blocks));
        sides.on_device.prepare(where, sides.ahead);
        CHECK(all_zeros(of_blocks));

        sides.answer(sides.tokens(1));
        CHECK(!all_zeros(of_tokens));
        sides.on_device.answer(where, sides.online);
        CHECK(all_zeros(of_tokens));
        sides.answer(sides.tokens(1));
        CHECK(!all_zeros(of_tokens));
        auto malformed = sides.tokens(1);
        std::fill_n(malformed.queries[0].request.c0.end() - 8, 8, std::uint8_t{0xff});
        sides.answer(malformed);
        CHECK(all_zeros(of_tokens));
        const auto& words = sides.sessions[0].on_device.*member_of(zeros_tag());
        for (std::size_t k = 0; k < words.size(); ++k) {
            CHECK((words[k] == 0) == (k % 12 < 9));
        }
    });
}

TEST_CASE("blocks take the launches that docs/gpu.md counts") {
    std::size_t launches = 0;
    const host_blocks where(thread_order::forward, &launches);
    CHECK(launches_of_blocks<two_limbs, private_range>(where, launches) == std::array<std::size_t, 2>{8, 3});
}
