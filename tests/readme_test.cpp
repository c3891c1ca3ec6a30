#include <tensafe/lora/protocol/cost.hpp>

#include "test.hpp"

using namespace tests;

namespace {

std::string contents(const std::string& path) {
    std::ifstream file(std::string(TENSAFE_TEST_DATA) + "/../../" + path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// As 1,234,567.
std::string with_commas(std::size_t number) {
    std::string digits = std::to_string(number);
    for (std::size_t at = digits.size(); at > 3; at -= 3) {
        digits.insert(at - 3, ",");
    }
    return digits;
}

/// As 2^-37.4.
std::string power_of_two(double x) {
    std::ostringstream text;
    text.precision(1);
    text << std::fixed << "2^" << std::log2(x);
    return text.str();
}

}  // namespace

TEST_CASE("the README shows the program that the build compiles") {
    const std::string readme = contents("README.md");
    const std::string fence = "```cpp\n";
    const auto begin = readme.find(fence);
    REQUIRE(begin != std::string::npos);
    const auto end = readme.find("```\n", begin + fence.size());
    REQUIRE(end != std::string::npos);
    const std::string shown = readme.substr(begin + fence.size(), end - begin - fence.size());

    const std::string program = contents("examples/01_readme.cpp");
    // The file has one line before it, a comment.
    CHECK(program.substr(program.find('\n') + 1) == shown);
}

TEST_CASE("the README and the guide state the costs that the library computes") {
    const std::string readme = contents("README.md");
    const std::string guide = contents("docs/guide.md");
    const auto states = [](const std::string& page, const std::string& number) {
        CAPTURE(number);
        CHECK(page.find(number) != std::string::npos);
    };
    const auto guide_states = [&](const lora::token_cost& cost, bool guaranteed) {
        states(guide, with_commas(cost.bytes_up) + " | " + with_commas(cost.bytes_down) + " | " +
                          with_commas(cost.bytes()));
        if (guaranteed) {
            states(guide, power_of_two(cost.statistical_distance));
        }
    };
    constexpr lora::site_shape shape{32, 2048, 4096};
    using tiles = lora::coefficient_tiles<4>;
    const lora::token_cost of_default = lora::cost_of<ckks::private_n4096, tiles>(shape);
    states(readme, with_commas(of_default.bytes()));
    states(readme, power_of_two(of_default.statistical_distance));
    guide_states(of_default, true);
    guide_states(lora::cost_of<ckks::quantum_n4096, tiles>(shape), true);
    guide_states(
        lora::cost_of<ckks::compact_n4096, tiles, lora::protects_adapter_rows<lora::average_case<6>>>(shape),
        true);
    guide_states(
        lora::cost_of<ckks::minimal_n2048, tiles,
                      lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>>(shape),
        false);

    const auto batch = lora::cost_of<ckks::private_n4096, lora::token_blocks>(shape);
    states(guide, with_commas(batch.bytes_up) + " | " + with_commas(batch.bytes_down) + " | " +
                      with_commas(batch.bytes() / batch.hidden_states) + " a token");
    const auto blind =
        lora::cost_of<ckks::private_n4096, lora::coefficient_tiles<32>>(shape, lora::mode::blind);
    states(guide, with_commas(blind.bytes()));
}
