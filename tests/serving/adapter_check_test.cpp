#include <tensafe/core/error.hpp>
#include <tensafe/core/quoted_name.hpp>
#include <tensafe/serving/adapter_check.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

using namespace tensafe;
using serving::check_adapter;

namespace {

lora::adapter two_sites() {
    lora::adapter result;
    for (const char* name : {"layers.0.q_proj", "layers.0.v_proj"}) {
        lora::adapter_site site;
        site.name = name;
        site.a = lora::matrix(2, 3);
        site.b = lora::matrix(5, 2);
        result.sites.push_back(site);
    }
    return result;
}

template <class Break>
std::string refusal(Break break_it) {
    lora::adapter broken = two_sites();
    break_it(broken);
    try {
        check_adapter(broken);
    } catch (const error& e) {
        return e.what();
    }
    return "";
}

TEST_CASE("check_adapter: a whole adapter passes") {
    CHECK_NOTHROW(check_adapter(two_sites()));
}

TEST_CASE("check_adapter: sites need names of their own") {
    CHECK_THROWS_AS(check_adapter({}), parameter_error);
    CHECK(refusal([](auto& a) { a.sites[1].name.clear(); }).find("no name") != std::string::npos);
    CHECK(refusal([](auto& a) { a.sites[1].name = a.sites[0].name; }) ==
          "adapter: site \"layers.0.q_proj\": the name occurs twice");
}

TEST_CASE("check_adapter: a message about a hostile site name is short and printable") {
    const auto message = refusal([](auto& a) {
        a.sites[0].name = "\x1b[31m\nq\xc2\x9b" + std::string(100'000, 'x');
        a.sites[0].scale = NAN;
    });
    CHECK(message ==
          "adapter: site \"?[31m?q??" + std::string(71, 'x') + "...\": the scale is not a finite number");
}

TEST_CASE("a quoted name keeps any script, and is cut between characters") {
    using lora::detail::quoted_name;
    CHECK(quoted_name("") == "\"\"");
    CHECK(quoted_name("r\xc3\xa9sum\xc3\xa9") == "\"r\xc3\xa9sum\xc3\xa9\"");
    CHECK(quoted_name("r\xc3\xa9sum\xc3") == "\"r??sum?\"");  // torn
    CHECK(quoted_name("a\x7f") == "\"a?\"");
    CHECK(quoted_name(std::string(80, 'x')) == "\"" + std::string(80, 'x') + "\"");
    CHECK(quoted_name(std::string(81, 'x')) == "\"" + std::string(80, 'x') + "...\"");
    const std::string grin = "\xf0\x9f\x98\x80";
    CHECK(quoted_name(std::string(77, 'x') + grin) == "\"" + std::string(77, 'x') + "...\"");
    CHECK(quoted_name(std::string(76, 'x') + grin) == "\"" + std::string(76, 'x') + grin + "\"");
    CHECK(quoted_name(std::string(76, 'x') + grin + "y") == "\"" + std::string(76, 'x') + grin + "...\"");
    CHECK(quoted_name(std::string(100'000, '\x80')) == "\"...\"");
}

TEST_CASE("check_adapter: matrices that are empty, torn or do not fit are refused by name") {
    CHECK(refusal([](auto& a) { a.sites[1].a.values.pop_back(); }).find("v_proj\": A") != std::string::npos);
    CHECK(refusal([](auto& a) { a.sites[1].b.rows = 6; }).find("v_proj\": B") != std::string::npos);
    CHECK(refusal([](auto& a) { a.sites[0].a = {}; }).find("A 0 x 0") != std::string::npos);
    CHECK(refusal([](auto& a) { a.sites[0].b = lora::matrix(0, 2); }).find("B 0 x 2") != std::string::npos);
    CHECK(refusal([](auto& a) { a.sites[0].b = lora::matrix(5, 3); }) ==
          "adapter: site \"layers.0.q_proj\": got A 2 x 3 and B 5 x 3, wanted rank x d_in and d_out x rank");
}

TEST_CASE("check_adapter: values that are no numbers are refused by place") {
    const float infinity = std::numeric_limits<float>::infinity();
    CHECK(refusal([&](auto& a) { a.sites[1].a.values[4] = infinity; }).find("A[1][1]") != std::string::npos);
    CHECK(refusal([&](auto& a) { a.sites[1].b.values[9] = -infinity; }).find("B[4][1]") != std::string::npos);
    CHECK(refusal([](auto& a) { a.sites[0].b.values[0] = NAN; }).find("B[0][0]") != std::string::npos);
    CHECK(refusal([](auto& a) { a.sites[0].scale = NAN; }).find("scale") != std::string::npos);
}

}  // namespace
