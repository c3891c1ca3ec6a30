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

/// Loads what a folder has, as if it were somewhere without folders.
tensafe::lora::adapter load_by_names(const std::filesystem::path& folder, std::string* asked = nullptr) {
    return load_peft("there", [&](const std::string& name, std::size_t largest) {
        if (asked != nullptr) {
            *asked += name + (largest == std::numeric_limits<std::size_t>::max()
                                  ? "; "
                                  : " " + std::to_string(largest) + "; ");
        }
        std::optional<std::vector<std::byte>> bytes;
        if (std::filesystem::exists(folder / name)) {
            bytes = read_file<std::vector<std::byte>>(folder / name, largest);
        }
        return bytes;
    });
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

TEST_CASE("r and lora_alpha are 8 where they are missing, as in PEFT") {
    CHECK(scales(R"({"peft_type":"LORA","r":2})") == std::vector<double>(3, 4.0));
    safetensors_writer writer;
    add_site(writer, "q_proj", 8);
    const auto weights = safetensors_file::parse(writer.bytes());
    CHECK(parse_peft(R"({"peft_type":"LORA","lora_alpha":4})", weights).sites[0].scale == 0.5);
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
    for (const std::string key : {"proj", "up_pro", "layers.0"}) {
        CHECK_THROWS_WITH_AS(scales(head + "{\"q_proj\":8,\"" + key + "\":8}}"),
                             Contains("\": fits no site, expected a pattern of the names of some"),
                             format_error);
    }
    CHECK(scales(head + R"({"q_proj":8,"0.self_attn.q_proj":16}})") == std::vector<double>{4, 4, 1});
    CHECK(scales(head + R"({"0.self_attn.q_proj":16,"q_proj":8}})") == std::vector<double>{4, 8, 1});
    CHECK(scales(head + "null}") == std::vector<double>{1, 1, 1});
}

TEST_CASE("patterns are regular expressions, whose dots are any character") {
    const std::string head = R"({"peft_type":"LORA","r":2,"lora_alpha":2,"alpha_pattern":)";
    CHECK(scales(head + R"({"^model.layers.0.self_attn.q_proj":8}})") == std::vector<double>{1, 4, 1});
    CHECK(scales(head + R"({"model\\.layers\\.0\\..*":8}})") == std::vector<double>{1, 4, 4});
    CHECK(scales(head + R"({"(q|up)_proj":8}})") == std::vector<double>{4, 4, 4});
    CHECK(scales(head + R"({"self.attn.q_proj":8}})") == std::vector<double>{4, 4, 1});
    CHECK(scales(head + R"({"self.attn.q_proj":8,"q_proj":16}})") == std::vector<double>{4, 4, 1});
    CHECK(scales(head + R"({"layers.[1-9].*q_proj":8,"q_proj":16}})") == std::vector<double>{4, 8, 1});
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
                     "modules_to_save":[],"rank_pattern":{},"target_parameters":null,"init_lora_weights":"Gaussian",
                     "loftq_config":{},"target_modules":["q_proj"],"layers_to_transform":null,"lora_dropout":0.1,
                     "task_type":null,"revision":"main","use_rslora":null,"eva_config":{"rho":2},"arrow_config":null,
                     "megatron_core":"megatron.core","qalora_group_size":16,"runtime_config":{"x":1},
                     "of the future":null,"also":false,"lists":[],"texts":"","numbers":0})") ==
          std::vector<double>(3, 1.0));
    for (const std::string initial : {"true", "false", "null", "\"mica\"", "\"eva\"", "\"orthogonal\""}) {
        CHECK(scales(R"({"peft_type":"LORA","r":2,"lora_alpha":2,"init_lora_weights":)" + initial + "}") ==
              std::vector<double>(3, 1.0));
    }
    // Where no layer has a bias, none was trained.
    CHECK(scales(R"({"peft_type":"LORA","r":2,"lora_alpha":2,"bias":"lora_only"})") ==
          std::vector<double>(3, 1.0));
}

TEST_CASE("the tokens that activate an adapter are kept") {
    for (const auto& [text, tokens] : std::vector<std::pair<std::string, std::vector<std::uint32_t>>>{
             {"null", {}}, {"[0,2147483647,7]", {0, 2147483647, 7}}}) {
        const auto adapter =
            parse_peft(R"({"peft_type":"LORA","r":2,"lora_alpha":2,"alora_invocation_tokens":)" + text + "}",
                       three_sites());
        CHECK(adapter.invocation_tokens == tokens);
        CHECK(adapter.notes.size() == (tokens.empty() ? 0 : 1));
    }
}

TEST_CASE("copies of the base model's weights are left out with a note") {
    safetensors_writer writer;
    add_site(writer, "lm_head", 2);
    writer.add("base_model.model.lm_head.base_layer.weight", dtype::f32, {5, 3}, counting(15));
    writer.add("base_model.model.model.embed_tokens.weight", dtype::f32, {5, 3}, counting(15));
    writer.add("base_model.model.lm_head.base_layer.bias", dtype::f32, {5}, counting(5));
    const auto weights = safetensors_file::parse(writer.bytes(), "w");
    const auto adapter = parse_peft(R"({"peft_type":"LORA","r":2,"lora_alpha":2,"bias":null})", weights);
    CHECK(adapter.sites.size() == 1);
    REQUIRE(adapter.notes.size() == 1);
    CHECK(adapter.notes[0] ==
          "\"w\": left out as a copy of the base model's own: \"base_model.model.lm_head.base_layer.weight\" "
          "and 2 more; "
          "where the vocabulary was resized, put it into the base model");
    CHECK_THROWS_WITH_AS(parse_peft(R"({"peft_type":"LORA","r":2,"lora_alpha":2,"bias":"all"})", weights),
                         Contains("lm_head.base_layer.bias\": not supported: a trained bias"),
                         unsupported_error);
}

TEST_CASE("a tensor that two files hold is refused") {
    const std::vector<safetensors_file> files = {three_sites(), three_sites()};
    CHECK_THROWS_WITH_AS(parse_peft(R"({"peft_type":"LORA","r":2,"lora_alpha":2})", files),
                         Contains("lora_A.weight\": is in another file too"), format_error);
}

TEST_CASE("experts of a parameter are sites, with rows of A and every E-th column of B") {
    safetensors_writer writer;
    const std::string stem = "base_model.model.layers.0.experts.";
    writer.add(stem + "base_layer.lora_A.weight", dtype::f32, {6, 2}, counting(12));
    writer.add(stem + "base_layer.lora_B.weight", dtype::f32, {1, 6}, counting(6));
    writer.add(stem + "lora_A.weight", dtype::f32, {3, 1}, counting(3));
    writer.add(stem + "lora_B.weight", dtype::f32, {2, 3}, counting(6));
    add_site(writer, "layers.0.q_proj", 2);
    const auto weights = safetensors_file::parse(writer.bytes());
    const std::string head =
        R"({"peft_type":"LORA","r":2,"lora_alpha":2,"rank_pattern":{"experts.down_proj":1},)"
        R"("alpha_pattern":{"0.experts.gate_up_proj":6},"target_parameters":)";
    const auto adapter = parse_peft(head + R"(["experts.down_proj","0.experts.gate_up_proj"]})", weights);
    REQUIRE(adapter.sites.size() == 7);
    const adapter_site& up = adapter.site("experts.gate_up_proj.1");
    CHECK(up.name == "layers.0.experts.gate_up_proj.1");
    CHECK(up.a.values == std::vector<float>{4, 5, 6, 7});
    CHECK(up.b.values == std::vector<float>{1, 4});
    CHECK(up.scale == 3.0);
    const adapter_site& down = adapter.site("experts.down_proj.2");
    CHECK(down.a.values == std::vector<float>{2});
    CHECK(down.b.values == std::vector<float>{2, 5});
    CHECK(down.scale == 2.0);
    CHECK(adapter.site("q_proj").rank() == 2);

    CHECK_THROWS_WITH_AS(parse_peft(head + R"(["experts.down_proj","experts.other"]})", weights),
                         Contains("nothing tells whose matrices these are"), unsupported_error);
    CHECK_THROWS_WITH_AS(parse_peft(head + R"(["experts.down_proj"]})", weights),
                         Contains("lies within 1 wrappers, but \"target_parameters\" names 1"), format_error);
    CHECK_THROWS_WITH_AS(parse_peft(head + R"(["experts.down_proj","k.gate_up_proj"]})", weights),
                         Contains("names 1 parameters of this module"), format_error);
}

TEST_CASE(
    "experts of a module's only parameter are numbered, and too many are refused before their sites are "
    "made") {
    const auto load = [](std::size_t experts, std::size_t rank) {
        safetensors_writer writer;
        add_site(writer, "experts", experts * rank);
        add_site(writer, "q_proj", rank);
        return parse_peft("{\"peft_type\":\"LORA\",\"lora_alpha\":2,\"target_parameters\":[\"w\"],\"r\":" +
                              std::to_string(rank) + "}",
                          safetensors_file::parse(writer.bytes()));
    };
    CHECK(load(3, 2).sites[2].name == "experts.2");
    CHECK(load(1, 2).sites[0].name == "experts");
    CHECK(load(4096, 1).sites.size() == 4097);
    CHECK_THROWS_WITH_AS(load(4097, 1), Contains("got 4097 experts"), unsupported_error);
    CHECK_THROWS_WITH_AS(load(1'000'000, 1), Contains("got 1000000 experts"), unsupported_error);
}

TEST_CASE("an expert and a module of one name are refused") {
    safetensors_writer writer;
    add_site(writer, "experts", 2);
    add_site(writer, "experts.1", 1);
    CHECK_THROWS_WITH_AS(
        parse_peft(R"({"peft_type":"LORA","r":1,"lora_alpha":2,"target_parameters":["experts.w"]})",
                   safetensors_file::parse(writer.bytes())),
        Contains("site \"experts.1\": is an expert and a module"), format_error);
}

TEST_CASE("an adapter in several files is the one in a single file, and an index that lies is refused") {
    const temporary_directory directory;
    const std::string head = R"({"weight_map":{)";
    const std::string stem = "\"base_model.model.q_proj.lora_";
    const auto load = [&](const std::string& index) {
        directory.put("adapter_model.safetensors.index.json", head + index + "}}");
        return load_peft(directory.path());
    };
    directory.put("adapter_config.json", R"({"peft_type":"LORA","r":2,"lora_alpha":2})");
    const std::vector<double> a = counting(6);
    const std::vector<double> b = counting(10);
    safetensors_writer{}
        .add("base_model.model.q_proj.lora_A.weight", dtype::f32, {2, 3}, a)
        .write(directory.path() / "one.safetensors");
    safetensors_writer{}
        .add("base_model.model.q_proj.lora_B.weight", dtype::f32, {5, 2}, b)
        .write(directory.path() / "two.safetensors");
    const std::string first = stem + "A.weight\":\"one.safetensors\"";
    const std::string second = stem + "B.weight\":\"two.safetensors\"";
    const auto adapter = load(first + "," + second);
    REQUIRE(adapter.sites.size() == 1);
    CHECK(adapter.sites[0].a.row(1)[2] == 5);
    CHECK(adapter.sites[0].b.row(4)[1] == 9);
    CHECK(load_by_names(directory.path()).sites[0].b.row(4)[1] == 9);

    const auto refused = [&](const std::string& index, const char* piece) {
        CHECK_THROWS_WITH_AS(load(index), Contains(piece), format_error);
        CHECK_THROWS_WITH_AS(load_by_names(directory.path()), Contains(piece), format_error);
    };
    refused("", "expected an object with members");
    refused(first, "lora_B is missing");
    refused(first + "," + stem + "B.weight\":\"one.safetensors\"", "is not in \"");
    refused(first + "," + stem + "A.weight\":\"two.safetensors\"", "duplicate key");
    refused(first + "," + second + ",\"x\":\"two.safetensors\"", "tensor \"x\": is not in");
    refused(first + "," + stem + "B.weight\":\"../two.safetensors\"",
            "expected the name of a safetensors file");
    std::filesystem::create_directory(directory.path() / "sub");
    std::filesystem::copy(directory.path() / "two.safetensors", directory.path() / "sub");
    refused(first + "," + stem + "B.weight\":\"sub/two.safetensors\"",
            "expected the name of a safetensors file");
    refused(first + "," + stem + "B.weight\":\"two.bin\"", "expected the name of a safetensors file");
    refused(first + "," + stem + "B.weight\":7", "expected a string");
    safetensors_writer{}
        .add("base_model.model.q_proj.lora_B.weight", dtype::f32, {5, 2}, b)
        .add("base_model.model.q_proj.lora_A.weight", dtype::f32, {2, 3}, a)
        .write(directory.path() / "two.safetensors");
    refused(first + "," + second, "names 1 tensors of");
}

TEST_CASE("an adapter without a folder is the one of the folder, and what it lacks is said") {
    std::string asked;
    const auto in_folder = load_peft(test_data / "qwen_rank32");
    const auto by_names = load_by_names(test_data / "qwen_rank32", &asked);
    CHECK(asked == "adapter_config.json 1000000; adapter_model.safetensors; ");
    REQUIRE(by_names.sites.size() == in_folder.sites.size());
    for (std::size_t i = 0; i < in_folder.sites.size(); ++i) {
        CHECK(by_names.sites[i].name == in_folder.sites[i].name);
        CHECK(by_names.sites[i].scale == in_folder.sites[i].scale);
        CHECK(by_names.sites[i].a.values == in_folder.sites[i].a.values);
        CHECK(by_names.sites[i].b.values == in_folder.sites[i].b.values);
    }
    const temporary_directory directory;
    const auto lacks = [&](const char* piece) {
        asked.clear();
        CHECK_THROWS_WITH_AS(load_by_names(directory.path(), &asked), Contains(piece), tensafe::io_error);
    };
    lacks("\"there/adapter_config.json\": is not there");
    CHECK(asked == "adapter_config.json 1000000; ");
    directory.put("adapter_config.json", R"({"peft_type":"LORA","r":2,"lora_alpha":2})");
    lacks("\"there/adapter_model.safetensors.index.json\": is not there");
    CHECK(asked ==
          "adapter_config.json 1000000; adapter_model.safetensors; "
          "adapter_model.safetensors.index.json 16000000; ");
    directory.put("adapter_model.safetensors.index.json", R"({"weight_map":{"x":"one.safetensors"}})");
    lacks("\"there/one.safetensors\": is not there");
    directory.put("adapter_model.safetensors", "12345678");
    CHECK_THROWS_WITH_AS(load_by_names(directory.path()), Contains("\"there/adapter_model.safetensors\": "),
                         format_error);
}

TEST_CASE("other layouts of a folder are refused by name") {
    const auto refused = [](const std::string& name, const std::string& piece) {
        const temporary_directory directory;
        directory.put("adapter_config.json", R"({"peft_type":"LORA","r":2,"lora_alpha":2})");
        directory.put(name, "x");
        CHECK_THROWS_WITH_AS(load_peft(directory.path()),
                             Contains((name + "\": not supported: " + piece).c_str()), unsupported_error);
    };
    refused("adapter_model.bin", "a pickle, which is not read; save the adapter as safetensors");
    refused("adapters.safetensors", "the layout of MLX");
    refused("adapters.npz", "the layout of MLX");
    refused("pytorch_lora_weights.safetensors", "the layout of Diffusers");
    refused("lora-f16.gguf", "GGUF");
    refused("adapter_model-00001-of-00002.safetensors", "not adapter_model.safetensors");
    refused("pytorch_model.bin", "a pickle");
    const temporary_directory above;
    for (const std::string name : {"second", "first"}) {
        std::filesystem::create_directory(above.path() / name);
        std::ofstream(above.path() / name / "adapter_config.json") << "{}";
    }
    const temporary_directory dangling;
    dangling.put("adapter_config.json", R"({"peft_type":"LORA","r":2,"lora_alpha":2})");
    std::filesystem::create_symlink("gone", dangling.path() / "adapter_model.safetensors");
    CHECK_THROWS_WITH_AS(load_peft(dangling.path()), Contains("adapter_model.safetensors\": cannot open"),
                         io_error);
    CHECK_THROWS_WITH_AS(load_peft(above.path()), Contains("is not here, but in the folder \"first\" below"),
                         io_error);
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

TEST_CASE("a configuration with 90,000 patterns is matched") {
    // In a moment: a search through all earlier keys for each new one, as the JSON library does it, takes 20
    // s here.
    std::string config = R"({"peft_type":"LORA","r":2,"lora_alpha":2,"rank_pattern":{"k":2)";
    for (int i = 0; i < 90'000; ++i) {
        config += ",\"" + std::to_string(i) + "\":2";
    }
    CHECK_THROWS_WITH_AS(scales(config + "}}"), Contains("rank_pattern \"k\": fits no site"), format_error);
}
