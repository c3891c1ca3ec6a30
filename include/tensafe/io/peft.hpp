#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/message.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#if TENSAFE_COMPILED_BODIES
#include <tensafe/io/peft_config.hpp>
#endif

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::io {

/// The longest adapter_config.json that is read, in bytes.
inline constexpr std::size_t max_config_bytes = 1'000'000;

/// Combines a PEFT configuration (the text of adapter_config.json) and its weights.
///
/// Site names are module paths without "base_model.model."; sites stand in the order of the file's bytes.
/// Everything about shapes and ranks is checked before values are decoded. Thread safety: a pure function of
/// its arguments.
/// @throws format_error if the files are malformed or contradict each other, or a value is not finite
/// @throws unsupported_error ("... not supported: ...") for anything but plain LoRA on linear layers: other
/// methods,
///         DoRA, bias, embeddings, fully trained modules, regular-expression patterns, several adapters in
///         one file
TENSAFE_COMPILED_API lora::adapter parse_peft(std::string_view config_text, const safetensors_file& weights,
                                              std::string_view config_name = "adapter_config.json");

/// Loads a LoRA adapter in the layout of Hugging Face PEFT: adapter_config.json and adapter_model.safetensors
/// in one directory. See parse_peft for what is accepted.
/// @throws io_error if a file cannot be read; format_error also if the configuration is longer than 1 MB;
///         otherwise as parse_peft
TENSAFE_COMPILED_API lora::adapter load_peft(const std::filesystem::path& directory);

#if TENSAFE_COMPILED_BODIES
namespace detail {

/// A tensor's name taken apart: "base_model.model." module ".lora_A." [adapter "."] "weight".
struct lora_key {
    std::string_view module;
    std::string_view adapter;  ///< empty in files that PEFT itself saved
    bool is_a;
};

inline lora_key parse_lora_key(std::string_view name, const std::string& file) {
    constexpr std::string_view prefix = "base_model.model.";
    const auto refuse = [&](const char* what) {
        throw unsupported_error(file + ": tensor " + quote(name) + ": not supported: " + what);
    };
    const std::size_t marker = name.rfind(".lora_");
    const std::string_view kind = marker == name.npos ? std::string_view() : name.substr(marker + 1);
    if (kind.starts_with("lora_embedding_")) {
        refuse("adapters of embedding layers");
    }
    if (kind.starts_with("lora_magnitude_vector")) {
        refuse("DoRA");
    }
    const bool is_a = kind.starts_with("lora_A.");
    if (is_a || kind.starts_with("lora_B.")) {
        std::string_view rest = kind.substr(std::string_view("lora_A.").size());
        std::string_view adapter;
        if (const std::size_t dot = rest.find('.'); dot != rest.npos && dot > 0) {
            adapter = rest.substr(0, dot);
            rest.remove_prefix(dot + 1);
        }
        if (rest == "bias") {
            refuse("LoRA with a bias");
        }
        if (rest == "weight" && name.starts_with(prefix) && marker > prefix.size()) {
            return {name.substr(prefix.size(), marker - prefix.size()), adapter, is_a};
        }
    }
    throw format_error(file + ": tensor " + quote(name) +
                       ": unknown, expected \"base_model.model.<module>.lora_A.weight\" or lora_B");
}

struct lora_pair {
    std::string_view module;
    const tensor_info* a = nullptr;
    const tensor_info* b = nullptr;
};

/// The pairs in the order in which the file first names them.
inline std::vector<lora_pair> pair_tensors(const safetensors_file& weights) {
    std::vector<lora_pair> pairs;
    std::map<std::string_view, std::size_t> index;
    std::optional<std::string_view> adapter;
    for (const tensor_info& tensor : weights.tensors()) {
        const lora_key key = parse_lora_key(tensor.name, weights.quoted_name());
        if (adapter.value_or(key.adapter) != key.adapter) {
            throw unsupported_error(weights.quoted_name() + ": tensor " + quote(tensor.name) +
                                    ": not supported: several adapters in one file, here " + quote(*adapter) +
                                    " and " + quote(key.adapter));
        }
        adapter = key.adapter;
        const auto [place, is_new] = index.emplace(key.module, pairs.size());
        if (is_new) {
            pairs.push_back({key.module, nullptr, nullptr});
        }
        // One adapter name and unique tensor names leave one tensor for each place.
        (key.is_a ? pairs[place->second].a : pairs[place->second].b) = &tensor;
    }
    return pairs;
}

inline void check_pair(const lora_pair& pair, std::size_t wanted_rank, const std::string& file) {
    const std::string where = file + ": site " + quote(pair.module) + ": ";
    if (pair.a == nullptr || pair.b == nullptr) {
        throw format_error(where + "lora_" + (pair.a == nullptr ? "A" : "B") + " is missing, only lora_" +
                           (pair.a == nullptr ? "B" : "A") + " is there");
    }
    for (const tensor_info* tensor : {pair.a, pair.b}) {
        const std::string what = tensor == pair.a ? "lora_A" : "lora_B";
        if (tensor->shape.size() > 2) {
            throw unsupported_error(where + "not supported: " + what + " with shape " +
                                    shape_text(tensor->shape) + ", only linear layers (two dimensions)");
        }
        if (tensor->shape.size() < 2 || tensor->size() == 0) {
            throw format_error(where + what + ": got shape " + shape_text(tensor->shape) +
                               ", expected two dimensions that are not zero");
        }
    }
    const std::size_t rows = pair.a->shape[0];
    const std::size_t columns = pair.b->shape[1];
    if (rows != columns) {
        throw format_error(where + "lora_A has rank " + std::to_string(rows) + " but lora_B has rank " +
                           std::to_string(columns));
    }
    if (rows != wanted_rank) {
        throw format_error(where + "the matrices have rank " + std::to_string(rows) +
                           ", but the configuration says " + std::to_string(wanted_rank));
    }
}

}  // namespace detail

inline lora::adapter parse_peft(std::string_view config_text, const safetensors_file& weights,
                                std::string_view config_name) {
    const peft_config config = peft_config::parse(config_text, quote(config_name));
    const std::vector<detail::lora_pair> pairs = detail::pair_tensors(weights);
    if (pairs.empty()) {
        throw format_error(weights.quoted_name() + ": holds no LoRA matrices");
    }
    for (const detail::lora_pair& pair : pairs) {
        detail::check_pair(pair, config.rank(pair.module), weights.quoted_name());
    }
    lora::adapter result;
    result.sites.reserve(pairs.size());
    for (const detail::lora_pair& pair : pairs) {
        lora::adapter_site site;
        site.name = pair.module;
        site.a = weights.read_matrix(pair.a->name);
        site.b = weights.read_matrix(pair.b->name);
        site.scale = config.scale(pair.module);
        result.sites.push_back(std::move(site));
    }
    return result;
}

inline lora::adapter load_peft(const std::filesystem::path& directory) {
    const std::filesystem::path config_path = directory / "adapter_config.json";
    input_file config(config_path);
    if (config.size() > max_config_bytes) {
        throw format_error(quote(config_path.string()) + ": got " + std::to_string(config.size()) +
                           " bytes, expected at most " + std::to_string(max_config_bytes));
    }
    std::string text(config.size(), '\0');
    config.read(std::as_writable_bytes(std::span<char>(text)));
    return parse_peft(text, safetensors_file::open(directory / "adapter_model.safetensors"),
                      config_path.string());
}
#endif

}  // namespace tensafe::io
