#include <tensafe/core/fold_case.hpp>

#include <doctest/doctest.h>

#include <string>

using tensafe::fold_case;

TEST_CASE("ASCII letters get small, and no other byte changes") {
    CHECK(fold_case("AZ az @[`{ 09_") == "az az @[`{ 09_");
    CHECK(fold_case("") == "");
    for (int byte = 0; byte < 256; ++byte) {
        const auto c = static_cast<char>(byte);
        const bool is_large = c >= 'A' && c <= 'Z';
        CHECK(fold_case(std::string(1, c)) == std::string(1, is_large ? static_cast<char>(c + 32) : c));
    }
}
