#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter.hpp>
#include <tensafe/lora/model_layout.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "random_values.hpp"

namespace lora = tensafe::lora;
using tensafe::parameter_error;
using tensafe::shape_error;

namespace {

/// A site with rows and columns but no values.
lora::adapter_site shape_of(std::string name, std::size_t rank, std::size_t d_in, std::size_t d_out) {
    lora::adapter_site site;
    site.name = std::move(name);
    site.a.rows = rank;
    site.a.columns = d_in;
    site.b.rows = d_out;
    site.b.columns = rank;
    site.scale = 2;
    return site;
}

lora::adapter one_layer() {
    return {{shape_of("model.layers.3.self_attn.q_proj", 4, 30, 60),
             shape_of("model.layers.3.self_attn.o_proj", 4, 60, 30),
             shape_of("model.layers.3.self_attn.k_proj", 5, 30, 10),
             shape_of("model.layers.3.mlp.experts.7.gate_proj", 4, 30, 20),
             shape_of("model.layers.3.mlp.experts.7.down_proj", 4, 20, 30),
             shape_of("model.layers.3.self_attn.v_proj", 6, 30, 10),
             shape_of("model.layers.3.mlp.experts.7.up_proj", 4, 30, 20)}};
}

lora::model_layout valid() {
    return lora::detail::group_sites(one_layer(), {}).layout;
}

template <class E, class Change>
std::string refusal(Change change) {
    lora::model_layout l = valid();
    change(l);
    return message_of<E>([&] { l.check(); });
}

}  // namespace

TEST_CASE("the seven sites of a layer have four inputs, in the adapter's order") {
    const lora::model_layout l = valid();
    REQUIRE(l.groups.size() == 4);
    const std::vector<std::string> inputs{"model.layers.3.self_attn.input", "model.layers.3.self_attn.o_proj",
                                          "model.layers.3.mlp.input",
                                          "model.layers.3.mlp.experts.7.down_proj"};
    for (std::size_t g = 0; g < 4; ++g) {
        CHECK(l.groups[g].input == inputs[g]);
    }
    REQUIRE(l.groups[0].sites.size() == 3);
    CHECK(l.groups[0].sites[0] == lora::model_layout::site{"model.layers.3.self_attn.q_proj", 4, 60, 2});
    CHECK(l.groups[0].sites[1].name == "model.layers.3.self_attn.k_proj");
    CHECK(l.groups[0].sites[2].name == "model.layers.3.self_attn.v_proj");
    CHECK(l.groups[0].d == 30);
    CHECK(l.groups[1].d == 60);
    CHECK(l.groups[0].rows(lora::mode::client_held_b) == 15);
    CHECK(l.groups[0].rows(lora::mode::blind) == 80);
    CHECK(l.find("model.layers.3.self_attn.v_proj") == lora::model_layout::place{0, 2});
    CHECK(l.find("model.layers.3.mlp.experts.7.up_proj") == lora::model_layout::place{2, 1});
    CHECK(l.find("v_proj") == std::nullopt);  // whole names only
    CHECK(&l.at(3) == &l.groups[3]);
    CHECK(contains(message_of<parameter_error>([&] { static_cast<void>(l.at(4)); }), "got group 4"));
}

TEST_CASE("a predicate chooses the sites, and a function of the user's their inputs") {
    lora::model_options options;
    options.protect = [](const lora::adapter_site& s) { return s.d_in() == 30; };
    options.input_of = [](std::string_view) { return std::string("h"); };
    const lora::model_layout l = lora::detail::group_sites(one_layer(), options).layout;
    REQUIRE(l.groups.size() == 1);
    CHECK(l.groups[0].input == "h");
    CHECK(l.groups[0].sites.size() == 5);
    CHECK(l.find("model.layers.3.self_attn.o_proj") == std::nullopt);
}

TEST_CASE("sites of one input with hidden states of different lengths are refused, and both named") {
    lora::adapter from = one_layer();
    from.sites[2].a.columns = 31;
    const std::string message = message_of<shape_error>([&] { lora::detail::group_sites(from, {}); });
    CHECK(contains(message, "self_attn.k_proj has 31 inputs"));
    CHECK(contains(message, "wanted 30 as site model.layers.3.self_attn.q_proj"));
    from = one_layer();
    from.sites[1].b.columns = 5;
    CHECK(contains(message_of<shape_error>([&] { lora::detail::group_sites(from, {}); }),
                   "o_proj has a B of 5 columns, wanted 4"));
    from = one_layer();
    from.sites[1].name = from.sites[0].name;
    from.sites[1].a.columns = 30;
    CHECK(contains(message_of<parameter_error>([&] { lora::detail::group_sites(from, {}); }), "twice"));
    from = one_layer();
    from.sites[0].scale = std::numeric_limits<double>::quiet_NaN();
    CHECK(contains(message_of<parameter_error>([&] { lora::detail::group_sites(from, {}); }), "scale"));
}

TEST_CASE("a layout that no server has is refused, whatever part of it is wrong") {
    using layout = lora::model_layout;
    CHECK_NOTHROW(valid().check());
    CHECK_NOTHROW(layout{}.check());  // of a model without protected sites
    CHECK(contains(refusal<parameter_error>([](layout& l) { l.mode = static_cast<lora::mode>(7); }), "7"));
    CHECK(contains(refusal<parameter_error>([](layout& l) { l.groups[1].input = l.groups[0].input; }),
                   "two groups have the input model.layers.3.self_attn.input"));
    CHECK(contains(refusal<parameter_error>([](layout& l) { l.groups[1].input.clear(); }), "0 bytes"));
    CHECK(contains(refusal<parameter_error>([](layout& l) { l.groups[1].input.assign(4097, 'x'); }),
                   "4097 bytes"));
    CHECK_NOTHROW([] {
        layout l = valid();
        l.groups[1].input.assign(4096, 'x');
        l.check();
    }());
    CHECK(contains(refusal<shape_error>([](layout& l) { l.groups[1].sites.clear(); }), "has no site"));
    CHECK(contains(refusal<parameter_error>([](layout& l) { l.groups[2].sites[1].name.clear(); }), "a site"));
    CHECK(contains(
        refusal<parameter_error>([](layout& l) { l.groups[2].sites[1].name = l.groups[0].sites[0].name; }),
        "q_proj is there twice"));
    CHECK(contains(refusal<shape_error>([](layout& l) { l.groups[0].sites[1].rank = 0; }), "k_proj"));
    CHECK(contains(refusal<shape_error>([](layout& l) { l.groups[0].sites[1].d_out = 0; }), "k_proj"));
    CHECK(contains(refusal<shape_error>([](layout& l) { l.groups[0].sites[1].rank = ~std::size_t{0}; }),
                   "k_proj"));
    CHECK(contains(refusal<shape_error>([](layout& l) { l.groups[0].sites[1].d_out = (1U << 24) + 1; }),
                   "k_proj"));
    CHECK(contains(refusal<shape_error>([](layout& l) {
                       l.groups[0].sites[0].rank = std::size_t{1} << 24;  // 9 more rows of k and v
                   }),
                   "input model.layers.3.self_attn.input"));
    CHECK(contains(refusal<shape_error>([](layout& l) { l.groups[3].d = 0; }), "down_proj"));
    CHECK(contains(refusal<shape_error>([](layout& l) { l.groups[3].d = (1U << 24) + 1; }), "down_proj"));
    for (const double norm : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity(), std::ldexp(1, 101)}) {
        CHECK(
            contains(refusal<parameter_error>([&](layout& l) { l.groups[3].row_norm = norm; }), "down_proj"));
    }
    for (const double scale :
         {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
        CHECK(contains(refusal<parameter_error>([&](layout& l) { l.groups[3].sites[0].scale = scale; }),
                       "scale"));
    }
}

TEST_CASE("the layer of a site is the first whole number among the parts of its name") {
    CHECK(lora::layer_of("model.layers.3.mlp.experts.7.up_proj") == 3);
    CHECK(lora::layer_of("39") == 39);
    CHECK(lora::layer_of("legal/model.layers.12") == 12);
    CHECK(lora::layer_of("h.x3.4y.5") == 5);
    CHECK(lora::layer_of("model.embed") == std::nullopt);
    CHECK(lora::layer_of("") == std::nullopt);
    CHECK(lora::layer_of("a..b.") == std::nullopt);
    CHECK(lora::layer_of("a.-1.b") == std::nullopt);
    CHECK(lora::layer_of("a.99999999999999999999999.7") == 7);
}
