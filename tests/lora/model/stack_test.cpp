#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/stack.hpp>

#include "../../random_values.hpp"
#include "../../test.hpp"

using namespace tests;
using tensafe::lora::adapter_site;
using tensafe::lora::site_stack;

namespace {

using site_references = std::vector<std::reference_wrapper<const adapter_site>>;

adapter_site named_site(const std::string& name, std::size_t rank, std::size_t d_in) {
    adapter_site site = random_site(5, rank, d_in, rank * 100 + d_in);
    site.name = name;
    return site;
}

}  // namespace

TEST_CASE("the rows of a stack are the rows of its sites, one after the other") {
    const adapter_site q = named_site("q_proj", 4, 6);
    const adapter_site k = named_site("k_proj", 1, 6);
    const adapter_site v = named_site("v_proj", 3, 6);
    const site_stack stack({q, k, v});
    CHECK(stack.sites() == 3);
    CHECK(stack.rows().rows == 8);
    CHECK(stack.rows().columns == 6);
    std::vector<float> expected = q.a.values;
    expected.insert(expected.end(), k.a.values.begin(), k.a.values.end());
    expected.insert(expected.end(), v.a.values.begin(), v.a.values.end());
    CHECK(stack.rows().values == expected);
}

TEST_CASE("each part of the stacked product is the product of that site alone") {
    const adapter_site q = named_site("q_proj", 4, 9);
    const adapter_site k = named_site("k_proj", 2, 9);
    const adapter_site v = named_site("v_proj", 4, 9);
    const site_stack stack(site_references{q, k, v});
    const std::vector<float> h = random_state(9, 3);
    const std::vector<double> stacked = product(stack.rows(), h);
    const std::vector<const adapter_site*> sites = {&q, &k, &v};
    for (std::size_t i = 0; i < sites.size(); ++i) {
        const auto part = stack.part(stacked, i);
        CHECK(std::vector<double>(part.begin(), part.end()) == product(sites[i]->a, h));
    }
    CHECK(stack.part(stacked, 1).data() == stacked.data() + 4);
}

TEST_CASE("a stack keeps its rows when the sites change") {
    adapter_site q = named_site("q_proj", 2, 3);
    const std::vector<float> before = q.a.values;
    const site_stack stack(site_references{q});
    q.a.values.assign(6, 0.0F);
    CHECK(stack.rows().values == before);
}

TEST_CASE("one site may stand in a stack twice") {
    const adapter_site q = named_site("q_proj", 2, 3);
    const site_stack stack(site_references{q, q});
    CHECK(stack.rows().rows == 4);
    const std::vector<double> numbers = {1, 2, 3, 4};
    CHECK(stack.part(numbers, 1)[0] == 3);
}

TEST_CASE("no site, and sites with different inputs, are refused by name") {
    CHECK_THROWS_AS(site_stack(site_references{}), shape_error);
    const adapter_site q = named_site("q_proj", 4, 6);
    const adapter_site o = named_site("o_proj", 4, 7);
    const std::string message = refusal<shape_error>([&] { site_stack(site_references{q, o}); });
    CHECK(contains(message, "\"o_proj\" has 7 inputs, expected 6 as site \"q_proj\""));
}

TEST_CASE("part refuses a site that is not there and a product of another size") {
    const adapter_site q = named_site("q_proj", 4, 6);
    const site_stack stack(site_references{q});
    CHECK_THROWS_AS(stack.part(std::vector<double>(4), 1), shape_error);
    CHECK_THROWS_AS(stack.part(std::vector<double>(3), 0), shape_error);
    const std::string message = refusal<shape_error>([&] { stack.part(std::vector<double>(5), 0); });
    CHECK(contains(message, "5 entries, expected a site below 1 and 4 entries"));
}
