#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/serving/meter.hpp>

#include "../small_sets.hpp"
#include "../test.hpp"

using namespace tests;
using serving::usage;

namespace {

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

/// Messages of the right sizes for a layout, made without any cryptography.
void check_against_the_cost_model() {
    constexpr lora::site_shape shape{.rank = 6, .d_in = 300, .d_out = 9};
    using tiles = lora::coefficient_tiles<4>;
    const lora::layout<small, tiles, lora::protects_adapter_rows<>> layout{shape.rank, shape.d_in, 1};
    const auto cost = lora::cost_of<small, tiles>(shape);
    lora::request<small> request;
    request.inputs.assign(layout.inputs(),
                          std::vector<std::uint8_t>(lora::packed_residues_bytes<small>(small::degree)));
    lora::reply<small, tiles, lora::protects_adapter_rows<>> reply;
    const auto budget = layout.budget();
    for (std::size_t o = 0; o < layout.outputs(); ++o) {
        const int bits = layout.reply_bits(budget, o);
        reply.outputs.push_back(
            {std::vector<std::uint8_t>(tensafe::memory::packed_bytes(layout.targets(o), bits)),
             std::vector<std::uint8_t>(tensafe::memory::packed_bytes(small::degree, bits))});
    }
    const usage used = serving::usage_of(request, reply, layout);
    CHECK(used.requests == 1);
    CHECK(used.refused == 0);
    CHECK(used.tokens == 1);
    CHECK(used.products == cost.server.products);
    CHECK(used.bytes_up == cost.bytes_up);
    CHECK(used.bytes_down == cost.bytes_down);
    const usage refused = serving::refused_usage_of(request);
    CHECK(refused == usage{0, 1, 0, 0, cost.bytes_up, 0});
}

void check_blocks_against_the_cost_model() {
    constexpr lora::site_shape shape{.rank = 6, .d_in = 300, .d_out = 9};
    const auto layout = lora::layout<small, lora::token_blocks, lora::protects_adapter_rows<>>::of(
        shape.rank, shape.d_in, 1, 32);
    const auto cost = lora::cost_of<small, lora::token_blocks>(shape);
    lora::block_reply of_block;
    of_block.c1.resize(layout.outputs() / 2);  // a part
    CHECK(serving::usage_of(lora::block_request{}, of_block, layout).products == cost.server.products / 2);
    of_block.c1.resize(layout.outputs());
    const usage ahead = serving::usage_of(lora::block_request{}, of_block, layout);
    CHECK(ahead.tokens == 0);
    CHECK(ahead.products == cost.server.products);
    const usage token = serving::usage_of(lora::token_request{}, lora::token_reply{}, layout);
    CHECK(token.requests == 1);
    CHECK(token.tokens == 1);
    CHECK(token.products == 0);
}

}  // namespace

TEST_CASE("what a request used is what the cost model says") {
    check_against_the_cost_model();
    check_blocks_against_the_cost_model();
}

TEST_CASE("usages add up counter by counter and stay at the largest value") {
    usage a{1, 2, 3, 4, 5, 6};
    const usage b{10, 20, 30, 40, 50, 60};
    CHECK(a + b == usage{11, 22, 33, 44, 55, 66});
    a += {most - 1, most - 2, most - 2, most, 0, most - 7};
    CHECK(a == usage{most, most, most, most, 5, most - 1});
    CHECK(a + a == usage{most, most, most, most, 10, most});
}
