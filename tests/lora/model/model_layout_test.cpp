#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_layout.hpp>

#include "../../random_values.hpp"
#include "../../test.hpp"

using namespace tests;
namespace lora = tensafe::lora;

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
    return lora::group_sites(one_layer(), {}).layout;
}

template <class E, class Change>
std::string refusal_of(Change change) {
    lora::model_layout l = valid();
    change(l);
    return refusal<E>([&] { l.check(); });
}

template <class E, class Change>
void refused(const char* piece, Change change) {
    const std::string message = refusal_of<E>(change);
    INFO(message);
    CHECK(contains(message, piece));
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
    CHECK(l.at("model.layers.3.self_attn.v_proj") == lora::model_layout::place{0, 2});
    CHECK_THROWS_WITH_AS(l.at("v_proj"), Contains("got site \"v_proj\""), parameter_error);
    CHECK(&l.at(3) == &l.groups[3]);
    CHECK_THROWS_WITH_AS(l.at(4), Contains("got group 4"), parameter_error);
}

TEST_CASE("a predicate chooses the sites, and a function of the user's their inputs") {
    lora::model_options options;
    options.protect = [](const lora::adapter_site& s) { return s.d_in() == 30; };
    options.input_of = [](std::string_view) { return std::string("h"); };
    const lora::model_layout l = lora::group_sites(one_layer(), options).layout;
    REQUIRE(l.groups.size() == 1);
    CHECK(l.groups[0].input == "h");
    CHECK(l.groups[0].sites.size() == 5);
    CHECK(l.find("model.layers.3.self_attn.o_proj") == std::nullopt);
}

TEST_CASE("sites of one input with hidden states of different lengths are refused, and both named") {
    lora::adapter from = one_layer();
    from.sites[2].a.columns = 31;
    const std::string message = refusal<shape_error>([&] { lora::group_sites(from, {}); });
    CHECK(contains(message, "self_attn.k_proj\" has 31 inputs"));
    CHECK(contains(message, "expected 30 as site \"model.layers.3.self_attn.q_proj\""));
    from = one_layer();
    from.sites[1].b.columns = 5;
    CHECK_THROWS_WITH_AS(lora::group_sites(from, {}), Contains("o_proj\" has a B of 5 columns, expected 4"),
                         shape_error);
    from = one_layer();
    from.sites[1].name = from.sites[0].name;
    from.sites[1].a.columns = 30;
    CHECK_THROWS_WITH_AS(lora::group_sites(from, {}), Contains("twice"), parameter_error);
    from = one_layer();
    from.sites[0].scale = not_a_number;
    CHECK_THROWS_WITH_AS(lora::group_sites(from, {}), Contains("scale"), parameter_error);
}

TEST_CASE("in mode blind a scale is a power of two, and not beyond 2^256 either way") {
    lora::model_options options;
    options.mode = lora::mode::blind;
    lora::adapter from = one_layer();
    from.sites[0].scale = 0.7;  // a LoRA scale: merged with B before the server takes a size out
    lora::model_layout l = lora::group_sites(from, options).layout;
    CHECK(l.groups[0].sites[0].scale == 1);
    double& scale = l.groups[3].sites[0].scale;
    for (const double power : {0x1p-256, 0x1p-1, 1.0, 4.0, 0x1p256}) {
        scale = power;
        CHECK_NOTHROW(l.check());
    }
    for (const double wrong :
         {0.0, -1.0, 3.0, 0.7, 0x1p-257, 0x1p257, 0x1p-1074, 0x1p1000, 0x1.8p256, infinity, not_a_number}) {
        CAPTURE(wrong);
        scale = wrong;
        CHECK_THROWS_WITH_AS(l.check(), Contains("mlp.experts.7.down_proj\" has "), parameter_error);
    }
    from.sites[0].scale = infinity;
    CHECK_THROWS_WITH_AS(lora::group_sites(from, options), Contains("scale"), parameter_error);
}

TEST_CASE("a name that cannot be shown is refused, and never part of the message") {
    using layout = lora::model_layout;
    for (const std::string name : {"evil\nname", "evil\x1b[2Jname", "evil\xff name", "evil\x7f"}) {
        const std::string of_site =
            refusal_of<parameter_error>([&](layout& l) { l.groups[2].sites[1].name = name; });
        const std::string of_input =
            refusal_of<parameter_error>([&](layout& l) { l.groups[1].input = name; });
        CHECK(contains(of_site, "a site with a name of " + std::to_string(name.size()) + " bytes"));
        CHECK(contains(of_input, "an input with a name of "));
        CHECK_FALSE(contains(of_site + of_input, "evil"));
        // Nor is that of an adapter, whatever else is wrong with it.
        lora::adapter from = one_layer();
        from.sites[2].name = name;
        from.sites[2].b.columns = 99;
        CHECK_FALSE(contains(refusal<parameter_error>([&] { lora::group_sites(from, {}); }), "evil"));
    }
    lora::model_layout l = valid();
    l.groups[1].input = "\xC3\xA9 \xF0\x9F\x98\x80";
    CHECK_NOTHROW(l.check());
}

TEST_CASE("docs/serving.md separates experts: one input for gate and up of each") {
    lora::adapter from;
    for (const char* expert : {"6", "7"}) {
        for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
            from.sites.push_back(shape_of(std::string("model.layers.3.mlp.experts.") + expert + "." + name, 4,
                                          name[0] == 'd' ? 20 : 30, 20));
        }
    }
    CHECK(lora::group_sites(from, {}).layout.groups.size() == 3);
    lora::model_options options;
    options.input_of = [](std::string_view site) {
        const bool is_of_expert = site.find(".experts.") != site.npos && !site.ends_with(".down_proj");
        return is_of_expert ? std::string(site.substr(0, site.rfind('.'))) + ".input"
                            : lora::shared_input(site);
    };
    const lora::model_layout l = lora::group_sites(from, options).layout;
    REQUIRE(l.groups.size() == 4);
    CHECK(l.groups[0].input == "model.layers.3.mlp.experts.6.input");
    CHECK(l.groups[0].sites.size() == 2);
    CHECK(l.groups[1].input == "model.layers.3.mlp.experts.6.down_proj");
    CHECK(l.groups[2].input == "model.layers.3.mlp.experts.7.input");
}

TEST_CASE("a layout that no server has is refused, whatever part of it is wrong") {
    using layout = lora::model_layout;
    CHECK_NOTHROW(valid().check());
    CHECK_NOTHROW(layout{}.check());  // of a model without protected sites
    refused<parameter_error>("7", [](auto& l) { l.mode = static_cast<lora::mode>(7); });
    refused<parameter_error>("two groups have the input \"model.layers.3.self_attn.input\"",
                             [](auto& l) { l.groups[1].input = l.groups[0].input; });
    refused<parameter_error>("0 bytes", [](auto& l) { l.groups[1].input.clear(); });
    refused<parameter_error>("4097 bytes", [](auto& l) { l.groups[1].input.assign(4097, 'x'); });
    CHECK_NOTHROW([] {
        layout l = valid();
        l.groups[1].input.assign(4096, 'x');
        l.check();
    }());
    refused<shape_error>("has no site", [](auto& l) { l.groups[1].sites.clear(); });
    // Names of others are cut in messages.
    CHECK(refusal_of<shape_error>([](layout& l) {
              l.groups[1].input.assign(4096, 'x');
              l.groups[1].sites.clear();
          }).size() < 300);
    CHECK(refusal_of<shape_error>([](layout& l) {
              l.groups[0].sites[1].name.assign(4096, 'x');
              l.groups[0].sites[1].rank = 0;
          }).size() < 300);
    refused<parameter_error>("a site", [](auto& l) { l.groups[2].sites[1].name.clear(); });
    refused<parameter_error>("q_proj\" is there twice",
                             [](auto& l) { l.groups[2].sites[1].name = l.groups[0].sites[0].name; });
    refused<shape_error>("k_proj", [](auto& l) { l.groups[0].sites[1].rank = 0; });
    refused<shape_error>("k_proj", [](auto& l) { l.groups[0].sites[1].d_out = 0; });
    refused<shape_error>("k_proj", [](auto& l) { l.groups[0].sites[1].rank = ~std::size_t{0}; });
    refused<shape_error>(
        "k_proj", [](auto& l) { l.groups[0].sites[1].d_out = tensafe::lora::detail::largest_dimension + 1; });
    refused<shape_error>("input \"model.layers.3.self_attn.input\"", [](auto& l) {
        l.groups[0].sites[0].rank = tensafe::lora::detail::largest_dimension;  // 9 more rows of k and v
    });
    refused<shape_error>("down_proj", [](auto& l) { l.groups[3].d = 0; });
    refused<shape_error>("down_proj",
                         [](auto& l) { l.groups[3].d = tensafe::lora::detail::largest_dimension + 1; });
    for (const double norm : {-1.0, not_a_number, infinity, 0x1p101, 0x1p-101}) {
        refused<parameter_error>("down_proj", [&](auto& l) { l.groups[3].row_norm = norm; });
    }
    for (const double scale : {not_a_number, -infinity, 0x1p65, -0x1p-65, 1e-310}) {
        refused<parameter_error>("scale", [&](auto& l) { l.groups[3].sites[0].scale = scale; });
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
