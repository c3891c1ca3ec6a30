#include <tensafe/ckks/parameters.hpp>
#include <tensafe/session/block_policy.hpp>

#include "../test.hpp"

using namespace tests;
using session::block_policy;

namespace {

using params = ckks::private_n4096;

lora::token_cost cost_alone(std::size_t rank, std::size_t d) {
    return lora::cost_of<params, lora::coefficient_tiles<4>>(lora::site_shape{rank, d, 4 * d});
}
lora::token_cost cost_in_blocks(std::size_t rank, std::size_t d, std::size_t tokens) {
    return lora::cost_of<params, lora::token_blocks, lora::protects_adapter_rows<>>(
        lora::site_shape{rank, d, 4 * d}, lora::mode::client_held_b, tokens);
}

/// Message by message: a block's request and its reply, and those of the tokens in it.
std::size_t bytes_sent(const lora::token_cost& block, std::size_t tokens) {
    std::size_t up = block.bytes_up;
    std::size_t down = block.bytes_down;
    for (std::size_t t = 0; t < block.hidden_states; ++t) {
        up -= block.online_up;
        down -= block.online_down;
    }
    for (std::size_t t = 0; t < tokens; ++t) {
        up += block.online_up;
        down += block.online_down;
    }
    return up + down;
}

struct shape {
    std::size_t rank, d, tokens;
};
constexpr shape shapes[] = {{1, 256, 2},    {16, 256, 8},    {16, 1024, 32},  {32, 2048, 16},
                            {32, 2048, 32}, {96, 2048, 128}, {64, 4096, 128}, {8, 512, 64}};

/// All bytes of so many hidden states, when a client asks for a block whenever there is none and the policy
/// finds it worth while, and asks ahead when so few positions are left.
std::size_t bytes_of_client(const block_policy& policy, const lora::token_cost& alone,
                            const lora::token_cost& block, std::size_t tokens, std::size_t ask_ahead_at) {
    std::size_t bytes = 0;
    std::size_t left = 0;
    const auto ask_for_block = [&] {
        left += block.hidden_states;
        bytes += bytes_sent(block, 0);
    };
    for (std::size_t asked = 0; asked < tokens;) {
        if (left == 0 && policy.is_worth(alone, block, asked, 0)) {
            ask_for_block();
        }
        if (left > 0) {
            --left;
            bytes += block.online_up + block.online_down;
        } else {
            bytes += alone.bytes();
        }
        ++asked;
        if (left > 0 && left <= ask_ahead_at && policy.is_worth(alone, block, asked, left)) {
            ask_for_block();
        }
    }
    return bytes;
}

}  // namespace

// Known to the compiler. Ahead of a block go 200 bytes, and with each of its 8 tokens 15.
constexpr lora::token_cost made_up(std::size_t states, std::size_t ahead, std::size_t up, std::size_t down) {
    lora::token_cost result;
    result.hidden_states = states;
    result.online_up = up;
    result.online_down = down;
    result.bytes_up = ahead / 4 + states * up;
    result.bytes_down = ahead - ahead / 4 + states * down;
    return result;
}
constexpr lora::token_cost alone_of_100 = made_up(1, 0, 60, 40);
constexpr lora::token_cost block_of_8 = made_up(8, 200, 10, 5);

static_assert(!block_policy().uses(0) && !block_policy().uses(1));
static_assert(block_policy().uses(2) && block_policy().uses(128) && !block_policy().uses(256));
static_assert(!block_policy{100, 1}.uses(2) && block_policy{0, 4096}.uses(4096));
static_assert(!block_policy::saves_bytes(alone_of_100, block_of_8, 0));
static_assert(!block_policy::saves_bytes(alone_of_100, block_of_8, 2));
static_assert(block_policy::saves_bytes(alone_of_100, block_of_8, 3));
static_assert(block_policy().is_worth(alone_of_100, block_of_8, 1000, 8));
static_assert(block_policy{1000}.is_worth(alone_of_100, block_of_8, 989, 8));
static_assert(!block_policy{1000}.is_worth(alone_of_100, block_of_8, 990, 8));
static_assert(!block_policy{1000}.is_worth(alone_of_100, block_of_8, 1000, 0));
static_assert(block_policy::ask_ahead_at(0, 1, 32) == 8 && block_policy::ask_ahead_at(159, 160, 32) == 23);
// A line of 100 Mbit/s is full for a round trip of 80 ms.
static_assert(session::reply_window >= 100'000'000 / 8 * 80 / 1000);

TEST_CASE("a block saves bytes when its messages have fewer than those of the hidden states alone") {
    for (const shape& s : shapes) {
        CAPTURE(s.rank);
        CAPTURE(s.d);
        CAPTURE(s.tokens);
        const auto alone = cost_alone(s.rank, s.d);
        const auto block = cost_in_blocks(s.rank, s.d, s.tokens);
        REQUIRE(block.hidden_states == s.tokens);
        bool saved = false;
        for (std::size_t t = 0; t <= s.tokens; ++t) {
            std::size_t bytes_alone = 0;
            for (std::size_t k = 0; k < t; ++k) {
                bytes_alone += alone.bytes_up + alone.bytes_down;
            }
            const bool saves = block_policy::saves_bytes(alone, block, t);
            REQUIRE(saves == (bytes_sent(block, t) < bytes_alone));
            CHECK((saves || !saved));  // one more token in it does not spoil it
            saved = saves;
        }
    }
}

TEST_CASE("a block is worth while for what is to come beyond earlier blocks, and whole if nobody knows") {
    random_numbers generator(1);
    const auto below = [&](std::size_t n) { return generator() % (n + 1); };
    for (const shape& s : shapes) {
        const auto alone = cost_alone(s.rank, s.d);
        const auto block = cost_in_blocks(s.rank, s.d, s.tokens);
        for (int i = 0; i < 500; ++i) {
            const std::size_t expected = below(4 * s.tokens);
            const std::size_t asked = below(5 * s.tokens);  // more than expected, too
            const std::size_t left = below(2 * s.tokens);
            const auto to_come =
                static_cast<std::ptrdiff_t>(expected) - static_cast<std::ptrdiff_t>(asked + left);
            const auto in_it = static_cast<std::size_t>(
                std::clamp<std::ptrdiff_t>(to_come, 0, static_cast<std::ptrdiff_t>(s.tokens)));
            REQUIRE(block_policy{expected}.is_worth(alone, block, asked, left) ==
                    (bytes_sent(block, in_it) < in_it * alone.bytes()));
            REQUIRE(block_policy().is_worth(alone, block, asked, left) ==
                    block_policy::saves_bytes(alone, block, s.tokens));
        }
        constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
        CHECK(!block_policy{5}.is_worth(alone, block, all, all));
        CHECK(!block_policy().is_worth(alone, block, all, all));
    }
}

TEST_CASE(
    "a client that knows what it expects never sends more bytes than without blocks or in whole blocks") {
    for (const shape& s : shapes) {
        const auto alone = cost_alone(s.rank, s.d);
        const auto block = cost_in_blocks(s.rank, s.d, s.tokens);
        for (std::size_t tokens = 1; tokens <= 3 * s.tokens + 1; ++tokens) {
            CAPTURE(tokens);
            const std::size_t ahead = block_policy::ask_ahead_at(tokens % 12, 12, s.tokens);
            const std::size_t sent = bytes_of_client({tokens}, alone, block, tokens, ahead);
            const std::size_t blocks = (tokens + s.tokens - 1) / s.tokens;
            REQUIRE(sent <= tokens * alone.bytes());
            REQUIRE(sent <= blocks * bytes_sent(block, 0) + tokens * (block.online_up + block.online_down));
            REQUIRE(sent == bytes_of_client({tokens}, alone, block, tokens, 0));  // ahead is not more
        }
    }
}

TEST_CASE(
    "groups ask ahead from a quarter to three quarters of a block, as few of them at one token as can be") {
    for (std::size_t tokens = 2; tokens <= 256; tokens *= 2) {
        for (std::size_t groups = 1; groups <= 300; ++groups) {
            CAPTURE(tokens);
            CAPTURE(groups);
            std::map<std::size_t, std::size_t> asking;
            std::size_t before = 0;
            for (std::size_t g = 0; g < groups; ++g) {
                const std::size_t at = block_policy::ask_ahead_at(g, groups, tokens);
                REQUIRE(at >= tokens / 4);
                REQUIRE(at <= 3 * tokens / 4);
                REQUIRE(at < tokens);
                REQUIRE(at >= before);
                before = at;
                ++asking[at];
            }
            const std::size_t places = tokens / 2;
            for (const auto& [at, count] : asking) {
                REQUIRE(count <= (groups + places - 1) / places);
            }
            REQUIRE(asking.size() == std::min(groups, places));
        }
    }
}
