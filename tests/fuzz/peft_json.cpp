// io/json.hpp and io/peft.hpp: a configuration and, after a zero byte, the weights.
// Without one the weights are those of a small adapter.

#include <tensafe/io/json.hpp>
#include <tensafe/io/peft.hpp>

#include <nlohmann/json.hpp>

#include "target.hpp"

namespace {

using namespace tensafe;

const std::vector<std::byte>& small_weights() {
    static const std::vector<std::byte> bytes = [] {
        const std::array<double, 6> values = {1, -2, 0.5, 0.25, 3, -4};
        io::safetensors_writer writer;
        writer.add("base_model.model.layers.0.q_proj.lora_A.weight", io::dtype::f32, {2, 3}, values);
        writer.add("base_model.model.layers.0.q_proj.lora_B.weight", io::dtype::bf16, {3, 2}, values);
        return writer.bytes();
    }();
    return bytes;
}

/// The value in the JSON library's own type.
nlohmann::ordered_json to_library(const io::json_value& value) {
    using kind = io::json_value::kind;
    nlohmann::ordered_json result;
    switch (value.is) {
        case kind::null:
            return nullptr;
        case kind::boolean:
            return value.count == 1;
        case kind::count:
            return value.count;
        case kind::negative:
            return std::stoll(value.text);
        case kind::real:
            return value.number;
        case kind::string:
            return value.text;
        case kind::array:
            result = nlohmann::ordered_json::array();
            for (const io::json_value& item : value.items) {
                result.push_back(to_library(item));
            }
            return result;
        case kind::object:
            result = nlohmann::ordered_json::object();
            for (std::size_t i = 0; i < value.items.size(); ++i) {
                result.emplace(value.keys[i], to_library(value.items[i]));
            }
            return result;
    }
    return result;
}

/// @param is_plain  whether the configuration sees the names of the sites
void check_adapter(const lora::adapter& adapter, const io::peft_config& config, bool is_plain) {
    io::peft_config::usage used;
    fuzz::holds(!adapter.sites.empty(), "an adapter has sites");
    std::set<std::string_view> names;
    for (const lora::adapter_site& site : adapter.sites) {
        fuzz::holds(names.insert(site.name).second, "sites have names of their own");
        site.a.check("A");
        site.b.check("B");
        fuzz::holds(!is_plain || site.rank() == config.settings(site.name, used).rank,
                    "a site has the rank of the configuration");
        fuzz::holds(site.b.columns == site.rank(), "A and B have one rank");
        fuzz::holds(std::isfinite(site.scale), "a scale is finite");
        for (const lora::matrix* matrix : {&site.a, &site.b}) {
            fuzz::holds(!matrix->values.empty() && std::all_of(matrix->values.begin(), matrix->values.end(),
                                                               [](float x) { return std::isfinite(x); }),
                        "entries are finite");
        }
    }
}

}  // namespace

TENSAFE_FUZZ_TARGET(peft_json) {
    const std::string_view text = fuzz::text_of(input);
    const std::size_t zero = std::min(text.find('\0'), text.size());
    const std::string_view config_text = text.substr(0, zero);
    const std::span<const std::byte> weights_bytes =
        zero < text.size() ? std::as_bytes(input.subspan(zero + 1)) : std::span(small_weights());

    const fuzz::memory_limit limit(400 * input.size() + 200'000);
    const auto document =
        fuzz::read_or_refuse([&] { return io::parse_strict_json(config_text, "\"config\""); });
    const auto config =
        fuzz::read_or_refuse([&] { return io::peft_config::parse(config_text, "\"config\""); });
    if (!document) {
        fuzz::holds(!config, "a configuration is strict JSON");
        return;
    }
    fuzz::holds(to_library(*document) == nlohmann::ordered_json::parse(config_text),
                "a document is that of the JSON library's own reader");
    if (!config) {
        return;
    }
    fuzz::took();
    io::peft_config::usage used;
    for (const std::string_view module : {"layers.0.q_proj", "q_proj", ".", "", "a\n", "\xe8\xaf\xad"}) {
        if (const auto settings = fuzz::read_or_refuse([&] { return config->settings(module, used); })) {
            fuzz::holds(settings->rank >= 1, "a rank is positive");
            fuzz::holds(std::isfinite(settings->scale), "a scale is finite");
        }
    }
    const auto weights =
        fuzz::read_or_refuse([&] { return io::safetensors_file::parse(weights_bytes, "weights"); });
    if (!weights) {
        return;
    }
    if (const auto adapter = fuzz::read_or_refuse([&] { return io::parse_peft(config_text, *weights); })) {
        const bool is_plain = config_text.find("target_parameters") == config_text.npos &&
                              fuzz::text_of(input).find("base_layer") == text.npos;
        check_adapter(*adapter, *config, is_plain);
    }
}
