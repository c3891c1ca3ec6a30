#include <tensafe/dp/privacy_budget.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <string>

namespace {

using tensafe::parameter_error;
using tensafe::dp::privacy_budget;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::string message_of(const privacy_budget& budget) {
    try {
        budget.check();
    } catch (const parameter_error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("every positive epsilon and every delta between 0 and 1 is a budget") {
    CHECK_NOTHROW((privacy_budget{1, 1e-5}.check()));
    CHECK_NOTHROW((privacy_budget{std::numeric_limits<double>::denorm_min(), 1e-320}.check()));
    CHECK_NOTHROW((privacy_budget{std::numeric_limits<double>::max(), 1 - 0x1p-53}.check()));
}

TEST_CASE("anything else is refused, and the message says what was given and what is needed") {
    CHECK(message_of({0, 0.5}) == "privacy_budget: epsilon: got 0, expected a positive, finite number");
    CHECK(message_of({-1e-10, 0.5}) ==
          "privacy_budget: epsilon: got -1e-10, expected a positive, finite number");
    CHECK(message_of({not_a_number, 0.5}).find("epsilon: got nan") != std::string::npos);
    CHECK(message_of({infinity, 0.5}).find("epsilon: got inf") != std::string::npos);
    CHECK(message_of({1, 0}) == "privacy_budget: delta: got 0, expected a number above 0 and below 1");
    CHECK(message_of({1, 1}).find("delta: got 1,") != std::string::npos);
    CHECK(message_of({1, -0.5}).find("delta: got -0.5") != std::string::npos);
    CHECK(message_of({1, not_a_number}).find("delta: got nan") != std::string::npos);
}

TEST_CASE("two budgets are equal if both numbers are") {
    CHECK(privacy_budget{1, 1e-5} == privacy_budget{1, 1e-5});
    CHECK(privacy_budget{1, 1e-5} != privacy_budget{2, 1e-5});
    CHECK(privacy_budget{1, 1e-5} != privacy_budget{1, 1e-6});
}
