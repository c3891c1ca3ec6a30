#include <tensafe/lora/adapter/adapter.hpp>

#include "../../random_values.hpp"
#include "../../test.hpp"

using namespace tests;
using namespace tensafe::lora;

namespace {

adapter with_sites(const std::vector<std::string>& names) {
    adapter result;
    for (const std::string& name : names) {
        adapter_site site;
        site.name = name;
        result.sites.push_back(site);
    }
    return result;
}

}  // namespace

TEST_CASE("a matrix starts as zeros and its rows follow one another in memory") {
    matrix m(2, 3);
    CHECK(m.values == std::vector<float>(6, 0.0F));
    m.row(1)[2] = 5;
    CHECK(m.values == std::vector<float>{0, 0, 0, 0, 0, 5});
    const matrix& same = m;
    CHECK(same.row(1).data() == m.values.data() + 3);
    CHECK(same.row(1).size() == 3);
}

TEST_CASE("a site takes its dimensions from A and B") {
    adapter_site site;
    site.a = matrix(4, 7);
    site.b = matrix(9, 4);
    CHECK(site.rank() == 4);
    CHECK(site.d_in() == 7);
    CHECK(site.d_out() == 9);
}

TEST_CASE("a site is found by its whole name and by the last components of its name") {
    const adapter a = with_sites({"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj"});
    CHECK(&a.site("model.layers.0.self_attn.k_proj") == &a.sites[1]);
    CHECK(&a.site("self_attn.q_proj") == &a.sites[0]);
    CHECK(&a.site("k_proj") == &a.sites[1]);
}

TEST_CASE("a part of a component finds no site") {
    const adapter a = with_sites({"model.layers.0.q_proj"});
    CHECK_THROWS_AS(a.site("proj"), parameter_error);
    CHECK_THROWS_AS(a.site("ayers.0.q_proj"), parameter_error);
    CHECK_THROWS_AS(a.site("model.layers.0"), parameter_error);
    CHECK_THROWS_AS(a.site(""), parameter_error);
    CHECK_THROWS_AS(a.site(".q_proj"), parameter_error);
}

TEST_CASE("a whole name wins over longer names that end with it, wherever it stands") {
    const adapter two = with_sites({"q_proj", "layers.1.q_proj"});
    CHECK(two.site("q_proj").name == "q_proj");
    const adapter three = with_sites({"layers.0.q_proj", "layers.1.q_proj", "q_proj"});
    CHECK(three.site("q_proj").name == "q_proj");
}

TEST_CASE("an ambiguous suffix lists the sites that match and no other") {
    const adapter a = with_sites({"layers.0.q_proj", "layers.0.k_proj", "layers.1.q_proj"});
    const std::string message = refusal<parameter_error>([&] { a.site("q_proj"); });
    CHECK(contains(message, "\"q_proj\" matches 2 sites"));
    CHECK(contains(message, "\n  \"layers.0.q_proj\""));
    CHECK(contains(message, "\n  \"layers.1.q_proj\""));
    CHECK_FALSE(contains(message, "k_proj"));
}

TEST_CASE("a suffix that matches nothing lists all sites") {
    const adapter a = with_sites({"layers.0.q_proj", "layers.0.k_proj"});
    const std::string message = refusal<parameter_error>([&] { a.site("v_proj"); });
    CHECK(contains(message, "\"v_proj\" matches 0 sites"));
    CHECK(contains(message, "\n  \"layers.0.q_proj\""));
    CHECK(contains(message, "\n  \"layers.0.k_proj\""));
    const adapter none;
    CHECK_THROWS_AS(none.site("q_proj"), parameter_error);
}

TEST_CASE("a matrix too large for memory is refused, and so are values that do not fill it") {
    constexpr std::size_t root = std::size_t{1} << (std::numeric_limits<std::size_t>::digits / 2 + 1);
    CHECK_THROWS_AS(matrix(root, root), shape_error);
    matrix m(3, 4);
    m.check("here");
    m.values.pop_back();
    CHECK_THROWS_WITH_AS(m.check("here"), "here: got 11 values for a 3 x 4 matrix, expected 12", shape_error);
}
