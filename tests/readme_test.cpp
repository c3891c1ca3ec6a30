#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace {

std::string contents(const std::string& path) {
    std::ifstream file(std::string(TENSAFE_TEST_DATA) + "/../../" + path);
    std::ostringstream text;
    text << file.rdbuf();
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

    const std::string program = contents("examples/readme.cpp");
    // The file has one line before it, a comment.
    CHECK(program.substr(program.find('\n') + 1) == shown);
}
