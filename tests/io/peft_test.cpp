#include <tensafe/io/peft.hpp>

#include "file_builder.hpp"

using namespace tests;
using namespace tensafe::io;
using tensafe::lora::adapter_site;

namespace {

const std::filesystem::path test_data = TENSAFE_TEST_DATA;

std::vector<double> counting(std::size_t count) {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<double>(i);
    }
    return values;
}

void add_site(safetensors_writer& writer, const std::string& module, std::size_t rank,
              const std::string& adapter = "") {
    const std::string stem = "base_model.model." + module + ".lora_";
    writer.add(stem + "A." + adapter + "weight", dtype::f32, {rank, 3}, counting(rank * 3));
    writer.add(stem + "B." + adapter + "weight", dtype::f32, {5, rank}, counting(rank * 5));
}

/// Three sites of rank 2.
safetensors_file three_sites() {
    safetensors_writer writer;
    add_site(writer, "model.layers.1.self_attn.q_proj", 2);
    add_site(writer, "model.layers.0.self_attn.q_proj", 2);
    add_site(writer, "model.layers.0.mlp.up_proj", 2);
    return safetensors_file::parse(writer.bytes());
}

std::vector<double> scales(const std::string& config) {
    std::vector<double> result;
    for (const adapter_site& site : parse_peft(config, three_sites()).sites) {
        result.push_back(site.scale);
    }
    return result;
}

/// scale * B * (A * h) in double precision.
std::vector<double> delta(const adapter_site& site, std::span<const double> hidden) {
    std::vector<double> result(site.d_out());
    for (std::size_t r = 0; r < site.rank(); ++r) {
        double inner = 0;
        for (std::size_t j = 0; j < site.d_in(); ++j) {
            inner += static_cast<double>(site.a.row(r)[j]) * hidden[j];
        }
        for (std::size_t i = 0; i < site.d_out(); ++i) {
            result[i] += site.scale * static_cast<double>(site.b.row(i)[r]) * inner;
        }
    }
    return result;
}

/// The largest error over all tokens of a site, relative to the largest expected value.
double worst_error(const adapter_site& site, std::span<const double> hidden,
                   std::span<const double> expected) {
    double error = 0;
    double largest = 0;
    for (std::size_t token = 0; token * site.d_in() < hidden.size(); ++token) {
        const std::vector<double> got = delta(site, hidden.subspan(token * site.d_in(), site.d_in()));
        for (std::size_t i = 0; i < site.d_out(); ++i) {
            const double value = expected[token * site.d_out() + i];
            error = std::max(error, std::abs(got[i] - value));
            largest = std::max(largest, std::abs(value));
        }
    }
    return error / largest;
}

}  // namespace

TEST_CASE("the adapter of another program gives that program's results at every site") {
    const auto adapter = load_peft(test_data / "qwen_rank32");
    const auto hidden = safetensors_file::open(test_data / "qwen_rank32" / "hidden_states.safetensors");
    const auto expected = safetensors_file::open(test_data / "qwen_rank32" / "expected_delta.safetensors");
    REQUIRE(adapter.sites.size() == 7);
    REQUIRE(expected.tensors().size() == 7);
    for (const auto& tensor : expected.tensors()) {
        CAPTURE(tensor.name);
        const adapter_site& site = adapter.site(tensor.name);
        CHECK(site.rank() == 32);
        CHECK(site.scale == 2.0);
        const auto states = hidden.read_doubles(tensor.name);
        const auto values = expected.read_doubles(tensor.name);
        REQUIRE(states.size() == 16 * site.d_in());
        REQUIRE(values.size() == 16 * site.d_out());
        CHECK(worst_error(site, states, values) < 1e-13);
    }
}

TEST_CASE("sites stand in the order of the file and are named without PEFT's prefix") {
    const auto adapter = parse_peft(R"({"peft_type":"LORA","r":2,"lora_alpha":2})", three_sites());
    REQUIRE(adapter.sites.size() == 3);
    CHECK(adapter.sites[0].name == "model.layers.1.self_attn.q_proj");
    CHECK(adapter.sites[1].name == "model.layers.0.self_attn.q_proj");
    CHECK(adapter.sites[2].name == "model.layers.0.mlp.up_proj");
    CHECK(adapter.sites[2].d_in() == 3);
    CHECK(adapter.sites[2].d_out() == 5);
    CHECK(adapter.sites[2].b.row(4)[1] == 9.0f);
}

TEST_CASE("an adapter name in the keys is accepted") {
    safetensors_writer writer;
    add_site(writer, "q_proj", 2, "default.");
    const auto adapter =
        parse_peft(R"({"peft_type":"LORA","r":2,"lora_alpha":2})", safetensors_file::parse(writer.bytes()));
    CHECK(adapter.site("q_proj").rank() == 2);
}

TEST_CASE("the scale is alpha / r, or alpha / sqrt(r) when rank-stabilised") {
    CHECK(scales(R"({"peft_type":"LORA","r":2,"lora_alpha":3})") == std::vector<double>(3, 1.5));
    CHECK(scales(R"({"peft_type":"LORA","r":2,"lora_alpha":0.25})") == std::vector<double>(3, 0.125));
    CHECK(scales(R"({"peft_type":"LORA","r":2,"lora_alpha":3,"use_rslora":true})") ==
          std::vector<double>(3, 3.0 / std::sqrt(2.0)));
}

TEST_CASE("fan_in_fan_out describes the base layer and changes nothing about A and B") {
    const auto plain = parse_peft(R"({"peft_type":"LORA","r":2,"lora_alpha":2})", three_sites());
    const auto turned =
        parse_peft(R"({"peft_type":"LORA","r":2,"lora_alpha":2,"fan_in_fan_out":true})", three_sites());
    for (std::size_t i = 0; i < plain.sites.size(); ++i) {
        CHECK(turned.sites[i].a.rows == plain.sites[i].a.rows);
        CHECK(turned.sites[i].a.values == plain.sites[i].a.values);
        CHECK(turned.sites[i].b.values == plain.sites[i].b.values);
    }
}

TEST_CASE("alpha_pattern names whole path components, and the first that fits wins") {
    const std::string head = R"({"peft_type":"LORA","r":2,"lora_alpha":2,"alpha_pattern":)";
    CHECK(scales(head + R"({"q_proj":8}})") == std::vector<double>{4, 4, 1});
    CHECK(scales(head + R"({"layers.0.self_attn.q_proj":8}})") == std::vector<double>{1, 4, 1});
    CHECK(scales(head + R"({"model.layers.1.self_attn.q_proj":8}})") == std::vector<double>{4, 1, 1});
    CHECK(scales(head + R"({"proj":8,"up_pro":8,"layers.0":8}})") == std::vector<double>{1, 1, 1});
    CHECK(scales(head + R"({"q_proj":8,"0.self_attn.q_proj":16}})") == std::vector<double>{4, 4, 1});
    CHECK(scales(head + R"({"0.self_attn.q_proj":16,"q_proj":8}})") == std::vector<double>{4, 8, 1});
    CHECK(scales(head + "null}") == std::vector<double>{1, 1, 1});
}

TEST_CASE("rank_pattern sets the rank that a site must have, and its scale") {
    safetensors_writer writer;
    add_site(writer, "layers.0.q_proj", 2);
    add_site(writer, "layers.0.v_proj", 4);
    const auto weights = safetensors_file::parse(writer.bytes());
    const auto adapter =
        parse_peft(R"({"peft_type":"LORA","r":2,"lora_alpha":8,"rank_pattern":{"v_proj":4}})", weights);
    CHECK(adapter.site("q_proj").scale == 4.0);
    CHECK(adapter.site("v_proj").scale == 2.0);
    CHECK_THROWS_WITH_AS(
        parse_peft(R"({"peft_type":"LORA","r":2,"lora_alpha":8})", weights),
        R"("memory": site "layers.0.v_proj": the matrices have rank 4, but the configuration says 2)",
        format_error);
}

TEST_CASE("settings that change nothing about the result are accepted") {
    CHECK(scales(R"({"peft_type":"LORA","r":2,"lora_alpha":2,"bias":"none","lora_bias":false,"use_dora":false,
                     "modules_to_save":[],"rank_pattern":{},"target_parameters":null,"init_lora_weights":"gaussian",
                     "loftq_config":{},"target_modules":["q_proj"],"layers_to_transform":null,"lora_dropout":0.1,
                     "task_type":null,"revision":"main"})") == std::vector<double>(3, 1.0));
}

TEST_CASE("a directory with a file missing is an io_error that names the file") {
    const temporary_directory directory;
    CHECK_THROWS_WITH_AS(load_peft(directory.path()), Contains("adapter_config.json\": cannot open"),
                         io_error);
    directory.put("adapter_config.json", R"({"peft_type":"LORA","r":2,"lora_alpha":2})");
    CHECK_THROWS_WITH_AS(load_peft(directory.path()), Contains("adapter_model.safetensors\": cannot open"),
                         io_error);
}

TEST_CASE("a configuration longer than a megabyte is not read") {
    const temporary_directory directory;
    directory.put("adapter_config.json", std::string(1'000'001, ' '));
    CHECK_THROWS_WITH_AS(load_peft(directory.path()),
                         Contains("adapter_config.json\": got 1000001 bytes, expected at most 1000000"),
                         format_error);
}

TEST_CASE("a configuration with 90,000 patterns is read") {
    // In a moment: a search through all earlier keys for each new one, as the JSON library does it, takes 20
    // s here.
    std::string config = R"({"peft_type":"LORA","r":2,"lora_alpha":2,"rank_pattern":{"k":2)";
    for (int i = 0; i < 90'000; ++i) {
        config += ",\"" + std::to_string(i) + "\":2";
    }
    CHECK(scales(config + "}}") == std::vector<double>(3, 1.0));
}
