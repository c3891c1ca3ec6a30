#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#if TENSAFE_COMPILED_BODIES
#include <tensafe/io/json.hpp>
#endif

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
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
/// Everything about shapes and ranks is checked before values are decoded. Thread-safe: a pure function.
/// @throws format_error if the files are malformed or contradict each other, or a value is not finite
/// @throws unsupported_error ("... not supported: ...") for anything but plain LoRA on linear layers: other
///         methods, DoRA, bias, embeddings, fully trained modules, regular-expression patterns, several
///         adapters in one file
TENSAFE_COMPILED_API lora::adapter parse_peft(std::string_view config_text, const safetensors_file& weights,
                                              std::string_view config_name = "adapter_config.json");

/// Loads a LoRA adapter in the layout of Hugging Face PEFT: adapter_config.json and adapter_model.safetensors
/// in one directory. See parse_peft for what is accepted.
/// @throws io_error if a file cannot be read; format_error also if the configuration is longer than 1 MB;
///         otherwise as parse_peft
TENSAFE_COMPILED_API lora::adapter load_peft(const std::filesystem::path& directory);

#if TENSAFE_COMPILED_BODIES
/// The part of an adapter_config.json that concerns the sites of a LoRA adapter. Anything that would change
/// the adapter's output and is not represented here is refused when the text is parsed.
///
/// A value type; parse does all the checking, const members may be called from any thread.
class peft_config {
  public:
    /// Parses the text of an adapter_config.json.
    /// @param file how messages call the text, already quoted
    /// @throws format_error if the text is not strict JSON, or a key is missing or of the wrong type
    /// @throws unsupported_error ("... not supported: ...") for anything but plain LoRA on linear layers
    static peft_config parse(std::string_view text, std::string_view file) {
        const json_value document = parse_strict_json(text, file);
        return peft_config(document.checked(document.is_object(), std::string(file), "an object"),
                           std::string(file));
    }

    /// The rank that the module's matrices must have.
    std::size_t rank(std::string_view module) const { return rank_.value_for(module); }

    /// The scale of a module: lora_alpha / rank, or lora_alpha / sqrt(rank) with use_rslora.
    double scale(std::string_view module) const {
        const double rank_value = static_cast<double>(rank(module));
        return alpha_.value_for(module) / (rank_stabilised_ ? std::sqrt(rank_value) : rank_value);
    }

  private:
    /// A value for all modules, with exceptions by name pattern. PEFT matches a pattern P as the regular
    /// expression `(.*\.)?(P)$` and takes the first that fits, in the order of the file. Here P is a plain
    /// path, its dots are dots: it fits a module of that name or one that ends with "." + P.
    template <class Value>
    struct patterned {
        struct exception {
            std::size_t position;
            Value value;
        };

        Value standard{};
        std::map<std::string, exception, std::less<>> exceptions;

        Value value_for(std::string_view module) const {
            const exception* first = nullptr;
            for (std::string_view suffix = module;;) {
                const auto found = exceptions.find(suffix);
                if (found != exceptions.end() &&
                    (first == nullptr || found->second.position < first->position)) {
                    first = &found->second;
                }
                const std::size_t dot = suffix.find('.');
                if (dot == suffix.npos) {
                    return first == nullptr ? standard : first->value;
                }
                suffix.remove_prefix(dot + 1);
            }
        }
    };

    peft_config(const json_value& document, std::string file) : file_(std::move(file)) {
        const std::string& type = document.at("peft_type", file_).checked_string(file_ + ": peft_type");
        if (type != "LORA") {
            refuse("peft_type " + quote(type) + ", only \"LORA\"");
        }
        refuse_variants(document);
        rank_stabilised_ = flag(document, "use_rslora");
        rank_ = read_patterned<std::size_t>(document, "r", "rank_pattern", &peft_config::read_rank);
        alpha_ = read_patterned<double>(document, "lora_alpha", "alpha_pattern", &peft_config::read_alpha);
    }

    /// Refuses variants of LoRA. fan_in_fan_out is deliberately not looked at: it says that the *base* layer
    /// keeps its weight transposed (as GPT-2's Conv1D does) and matters when an adapter is merged into it.
    /// lora_A and lora_B are weights of ordinary linear layers, rank x d_in and d_out x rank, whatever it
    /// says.
    void refuse_variants(const json_value& document) const {
        for (std::size_t i = 0; i < document.keys.size(); ++i) {
            const std::string& key = document.keys[i];
            const json_value& value = document.items[i];
            // use_dora, use_qalora and whatever comes next: each changes what is done with A and B.
            const bool variant_flag = key.starts_with("use_") && key != "use_rslora";
            const bool is_set = value.is_boolean() ? value.count == 1 : !value.is_null();
            if ((variant_flag || key == "lora_bias") && is_set) {
                refuse(quote(key) + " set");
            }
        }
        for (const char* key : {"modules_to_save", "trainable_token_indices", "target_parameters",
                                "layer_replication", "alora_invocation_tokens"}) {
            const json_value* const found = document.find(key);
            const bool is_container = found != nullptr && (found->is_array() || found->is_object());
            if (found != nullptr && !found->is_null() && !(is_container && found->items.empty())) {
                refuse(quote(key) + " that is not empty");
            }
        }
        if (const auto* const bias = document.find("bias"); bias != nullptr && !is_text(*bias, "none")) {
            refuse("\"bias\" other than \"none\"");
        }
        // PiSSA, OLoRA, CorDA, LoftQ and their like replace the base weights: B * A is relative to those, not
        // to the published model.
        const json_value* const initial = document.find("init_lora_weights");
        if (initial != nullptr && initial->is_string() && !is_text(*initial, "gaussian") &&
            !is_text(*initial, "orthogonal") && !is_text(*initial, "eva")) {
            refuse("\"init_lora_weights\" " + quote(initial->text) +
                   " (the base weights were changed as well)");
        }
    }

    static bool is_text(const json_value& value, std::string_view text) {
        return value.is_string() && value.text == text;
    }

    bool flag(const json_value& document, const char* key) const {
        const json_value* const found = document.find(key);
        return found != nullptr &&
               found->checked(found->is_boolean(), file_ + ": " + key, "true or false").count == 1;
    }

    std::size_t read_rank(const std::string& key, const json_value& value) const {
        return value.checked(value.is_count() && value.count > 0, file_ + ": " + key, "a positive integer")
            .count;
    }

    double read_alpha(const std::string& key, const json_value& value) const {
        return value
            .checked(value.is_number() && std::isfinite(value.number), file_ + ": " + key, "a finite number")
            .number;
    }

    template <class Value, class Read>
    patterned<Value> read_patterned(const json_value& document, const char* key, const char* pattern_key,
                                    Read read) const {
        patterned<Value> result;
        result.standard = std::invoke(read, this, key, document.at(key, file_));
        const json_value* const patterns = document.find(pattern_key);
        if (patterns == nullptr || patterns->is_null()) {
            return result;
        }
        patterns->checked(patterns->is_object(), file_ + ": " + pattern_key, "an object");
        for (std::size_t i = 0; i < patterns->keys.size(); ++i) {
            const std::string& pattern = patterns->keys[i];
            const std::string where = std::string(pattern_key) + " " + quote(pattern);
            if (pattern.empty() || pattern.find_first_of("\\^$*+?()[]{}|") != pattern.npos) {
                refuse(where + ": a regular expression, only a module path or its last components");
            }
            result.exceptions.emplace(pattern, typename patterned<Value>::exception{
                                                   i, std::invoke(read, this, where, patterns->items[i])});
        }
        return result;
    }

    [[noreturn]] void refuse(const std::string& what) const {
        throw unsupported_error(file_ + ": not supported: " + what);
    }

    std::string file_;
    bool rank_stabilised_ = false;
    patterned<std::size_t> rank_;
    patterned<double> alpha_;
};

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

/// Pairs A and B in the order in which the file first names them.
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

inline void check_pair(const lora_pair& pair, std::size_t expected_rank, const std::string& file) {
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
    if (rows != expected_rank) {
        throw format_error(where + "the matrices have rank " + std::to_string(rows) +
                           ", but the configuration says " + std::to_string(expected_rank));
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
    const auto text = read_file<std::string>(config_path, max_config_bytes);
    return parse_peft(text, safetensors_file::open(directory / "adapter_model.safetensors"),
                      config_path.string());
}
#endif

}  // namespace tensafe::io
