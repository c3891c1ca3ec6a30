#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#if TENSAFE_COMPILED_BODIES
#include <tensafe/io/json.hpp>
#include <tensafe/io/name_pattern.hpp>
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tensafe::io {

/// The longest adapter_config.json that is read, in bytes.
inline constexpr std::size_t max_config_bytes = 1'000'000;

/// The most experts of one parameter that are loaded as sites.
inline constexpr std::size_t max_experts = 4096;

/// Combines a PEFT configuration (the text of adapter_config.json) and its weights, in one file or several.
///
/// Site names are module paths without "base_model.model."; sites stand in the order of the files' bytes. The
/// experts that `target_parameters` names become sites MODULE.0, MODULE.1 and so on, or MODULE.PARAMETER.0
/// where several parameters of a module are adapted. What was left out harmlessly stands in `notes`.
/// Everything about shapes and ranks is checked before values are decoded. Thread-safe: a pure function.
/// @throws format_error if the files are malformed or contradict each other, a pattern fits no site, or a
/// value
///         is not finite
/// @throws unsupported_error ("... not supported: ...") for anything but plain LoRA on linear layers: other
///         methods, DoRA, bias, embeddings, fully trained modules, options that are unknown and set, several
///         adapters in one file
TENSAFE_COMPILED_API lora::adapter parse_peft(std::string_view config_text,
                                              std::span<const safetensors_file> weights,
                                              std::string_view config_name = "adapter_config.json");

inline lora::adapter parse_peft(std::string_view config_text, const safetensors_file& weights,
                                std::string_view config_name = "adapter_config.json") {
    return parse_peft(config_text, std::span(&weights, 1), config_name);
}

/// Loads a LoRA adapter in the layout of Hugging Face PEFT: adapter_config.json in one directory with
/// adapter_model.safetensors, or with adapter_model.safetensors.index.json and the files that it names. See
/// parse_peft for what is accepted.
/// @throws io_error if a file cannot be read; format_error also if the configuration is longer than 1 MB, or
///         the index names other tensors than its files hold; unsupported_error also for other layouts, by
///         name; otherwise as parse_peft
TENSAFE_COMPILED_API lora::adapter load_peft(const std::filesystem::path& directory);

#if TENSAFE_COMPILED_BODIES
/// The part of an adapter_config.json that concerns the sites of a LoRA adapter. Anything that would change
/// the adapter's output and is not represented here is refused when the text is parsed.
///
/// A value type; parse does all the checking, const members may be called from any thread.
class peft_config {
  public:
    /// What the patterns have matched so far.
    struct usage {
        name_patterns::usage rank;
        name_patterns::usage alpha;
    };
    struct site_settings {
        std::size_t rank;
        double scale;  ///< lora_alpha / rank, or lora_alpha / sqrt(rank) with use_rslora
    };

    /// Parses the text of an adapter_config.json.
    /// @param file how messages call the text, already quoted
    /// @throws format_error if the text is not strict JSON, or a key is missing or of the wrong type
    /// @throws unsupported_error ("... not supported: ...") for anything but plain LoRA on linear layers
    static peft_config parse(std::string_view text, std::string_view file) {
        const json_value document = parse_strict_json(text, file);
        return peft_config(document.checked(document.is_object(), std::string(file), "an object"),
                           std::string(file));
    }

    /// The rank that the matrices of a module or parameter must have, and their scale.
    /// @throws unsupported_error as name_patterns::first
    site_settings settings(std::string_view module, usage& used) const {
        const std::size_t rank = rank_.value_for(module, used.rank);
        const auto r = static_cast<double>(rank);
        return {rank, alpha_.value_for(module, used.alpha) / (rank_stabilised_ ? std::sqrt(r) : r)};
    }

    /// Checks that each pattern fitted a module.  @throws format_error naming the first one that did not
    void check_used(const usage& used) const {
        rank_.check_used(used.rank, file_ + ": rank_pattern ");
        alpha_.check_used(used.alpha, file_ + ": alpha_pattern ");
    }

    /// Which parameters of a module `target_parameters` names: as PEFT, whose entries are the ends of
    /// "MODULE.PARAMETER" from a dot on.
    std::set<std::string_view> parameters_of(std::string_view module) const {
        std::set<std::string_view> result;
        for (std::string_view end = module;; end.remove_prefix(end.find('.') + 1)) {
            if (const auto found = parameters_.find(end); found != parameters_.end()) {
                result.insert(found->second.begin(), found->second.end());
            }
            if (end.find('.') == end.npos) {
                return result;
            }
        }
    }

    /// Entries of `target_parameters` without a module: those of any module that has such a parameter.
    const std::set<std::string>& parameters_anywhere() const noexcept { return parameters_anywhere_; }

  private:
    /// A value for all modules, with exceptions by name pattern, of which the first that fits counts.
    template <class Value>
    struct patterned {
        Value standard{};
        std::vector<std::string> keys;
        std::vector<Value> values;
        name_patterns patterns;

        Value value_for(std::string_view module, name_patterns::usage& used) const {
            const auto found = patterns.first(module, used);
            return found ? values[*found] : standard;
        }
        void check_used(const name_patterns::usage& used, const std::string& where) const {
            for (std::size_t i = 0; i < keys.size(); ++i) {
                if (!used.fitted[i]) {
                    throw format_error(where + quote(keys[i]) +
                                       ": fits no site, expected a pattern of the names of some");
                }
            }
        }
    };

    peft_config(const json_value& document, std::string file) : file_(std::move(file)) {
        if (document.find("peft_type") == nullptr && document.find("lora_parameters") != nullptr) {
            refuse("a configuration of MLX, only of PEFT");
        }
        const std::string& type = document.at("peft_type", file_).checked_string(file_ + ": peft_type");
        if (type != "LORA") {
            refuse("peft_type " + quote(type) + ", only \"LORA\"");
        }
        refuse_variants(document);
        rank_stabilised_ = flag(document, "use_rslora");
        rank_ = read_patterned<std::size_t>(document, "r", "rank_pattern", &peft_config::read_rank);
        alpha_ = read_patterned<double>(document, "lora_alpha", "alpha_pattern", &peft_config::read_alpha);
        if (const auto* const targets = document.find("target_parameters");
            targets != nullptr && !targets->is_null()) {
            for (const json_value& each : targets->checked_array(file_ + ": target_parameters")) {
                const std::string& name = each.checked_string(file_ + ": target_parameters");
                if (name.ends_with("bias")) {
                    refuse("\"target_parameters\" " + quote(name) + ": no weight of a linear layer");
                }
                const std::size_t dot = name.rfind('.');
                auto& of_module = dot == name.npos ? parameters_anywhere_ : parameters_[name.substr(0, dot)];
                of_module.insert(name.substr(dot + 1));
                if (of_module.size() > 16) {
                    refuse("\"target_parameters\" " + quote(name) + ": more than 16 of one module");
                }
            }
        }
    }

    struct option {
        std::string_view key;
        std::string_view why;  ///< empty: it changes nothing about A, B and the scale
    };

    /// The options of PEFT's LoraConfig that are not read above. fan_in_fan_out is deliberately not looked
    /// at: it says that the *base* layer keeps its weight transposed (as GPT-2's Conv1D does) and matters
    /// when an adapter is merged into it. lora_A and lora_B are weights of ordinary linear layers, rank x
    /// d_in and d_out x rank, whatever it says. Which modules are adapted the tensors say; of biases, too.
    static constexpr std::array<option, 45> options{{
        {"peft_type", ""},
        {"r", ""},
        {"lora_alpha", ""},
        {"rank_pattern", ""},
        {"alpha_pattern", ""},
        {"use_rslora", ""},
        {"target_parameters", ""},
        {"init_lora_weights", ""},
        {"bias", ""},
        {"lora_bias", ""},
        {"auto_mapping", ""},
        {"base_model_name_or_path", ""},
        {"revision", ""},
        {"task_type", ""},
        {"inference_mode", ""},
        {"peft_version", ""},
        {"target_modules", ""},
        {"exclude_modules", ""},
        {"layers_to_transform", ""},
        {"layers_pattern", ""},
        {"lora_dropout", ""},
        {"fan_in_fan_out", ""},
        {"ensure_weight_tying", ""},
        {"megatron_core", ""},
        {"loftq_config", ""},
        {"eva_config", ""},
        {"corda_config", ""},
        {"lora_ga_config", ""},
        {"qalora_group_size", ""},
        {"runtime_config", ""},
        {"use_dora",
         "DoRA divides each row of W + scale B A by its norm, which depends on A: train without it"},
        {"use_qalora", "QALoRA averages groups of the input before A"},
        {"use_bdlora", "A or B stands for a matrix of blocks"},
        {"arrow_config", "a router weighs several adapters by the input"},
        {"kasa_config", "a diagonal stands between A and B, and the base weights were changed"},
        {"velora_config", "VeLoRA keeps more than A and B"},
        {"monteclora_config", "MonteCLoRA keeps more than A and B"},
        {"modules_to_save",
         "layers that were trained whole belong into the base model: save the adapter with "
         "modules_to_save=None"},
        {"trainable_token_indices",
         "embeddings that were trained belong into the base model: save the adapter without them"},
        {"layer_replication", "the base model gets more layers"},
        {"alora_invocation_tokens", "the delta would apply only after these tokens"},
        {"megatron_config", "the file holds what one of several machines has"},
        {"enable_lora", "of q, k and v in one layer some have no A and B"},
        {"merge_weights", ""},
        {"modules_to_tie", ""},
    }};

    void refuse_variants(const json_value& document) const {
        for (std::size_t i = 0; i < document.keys.size(); ++i) {
            const std::string& key = document.keys[i];
            const json_value& value = document.items[i];
            // To PEFT an object of options is set even where it is empty.
            const bool is_set = value.is_string()  ? !value.text.empty()
                                : value.is_array() ? !value.items.empty()
                                : value.is_object()
                                    ? !value.items.empty() || key.ends_with("_config") || key == "use_bdlora"
                                : value.is_number()  ? value.number != 0
                                : value.is_boolean() ? value.count == 1
                                                     : false;
            const auto* const known =
                std::find_if(options.begin(), options.end(), [&](const option& o) { return o.key == key; });
            if (is_set && (known == options.end() || !known->why.empty())) {
                refuse(quote(key) + " set: " +
                       std::string(known == options.end()
                                       ? "an unknown option, which may change what A and B mean"
                                       : known->why));
            }
        }
        if (const json_value* const initial = document.find("init_lora_weights")) {
            check_initial(*initial);
        }
    }

    /// PiSSA, OLoRA, CorDA, LoRA-GA and LoftQ replace the base weights: B * A is relative to those, not to
    /// the published model.
    void check_initial(const json_value& initial) const {
        if (!initial.is_string()) {
            initial.checked(initial.is_boolean() || initial.is_null(), file_ + ": init_lora_weights",
                            "true, false or the name of an initialization");
            return;
        }
        const std::string name = fold_case(initial.text);
        const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
            return std::find(names.begin(), names.end(), name) != names.end();
        };
        if (is_one_of({"", "true", "false", "gaussian", "orthogonal", "eva", "mica"})) {
            return;
        }
        const std::string what = "\"init_lora_weights\" " + quote(initial.text);
        if (name.starts_with("pissa") || name.starts_with("corda") || is_one_of({"olora", "lora_ga"})) {
            refuse(what +
                   ": the base weights were changed as well; convert the adapter with "
                   "save_pretrained(folder, path_initial_model_for_weight_conversion=...)");
        }
        refuse(what + (name == "loftq" ? ": the base weights were changed as well, and PEFT converts it not"
                                       : ": an unknown initialization, which may change the base weights"));
    }

    bool flag(const json_value& document, const char* key) const {
        const json_value* const found = document.find(key);
        return found != nullptr && !found->is_null() &&
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
        const std::string where = file_ + ": " + pattern_key;
        patterns->checked(patterns->is_object(), where, "an object");
        result.keys = patterns->keys;
        for (std::size_t i = 0; i < result.keys.size(); ++i) {
            result.values.push_back(std::invoke(
                read, this, std::string(pattern_key) + " " + quote(result.keys[i]), patterns->items[i]));
        }
        result.patterns = name_patterns(result.keys, where);
        return result;
    }

    [[noreturn]] void refuse(const std::string& what) const {
        throw unsupported_error(file_ + ": not supported: " + what);
    }

    std::string file_;
    bool rank_stabilised_ = false;
    patterned<std::size_t> rank_;
    patterned<double> alpha_;
    std::map<std::string, std::set<std::string>, std::less<>> parameters_;  // by module
    std::set<std::string> parameters_anywhere_;
};

namespace detail {

/// A tensor's name taken apart: "base_model.model." module ".lora_A." [adapter "."] "weight".
struct lora_key {
    std::string_view module;
    std::string_view adapter;  ///< empty in files that PEFT itself saved
    bool is_a;
};

inline constexpr std::string_view peft_prefix = "base_model.model.";

/// Whether a tensor is a copy of the base model's own weight, which PEFT adds when embeddings are adapted or
/// the vocabulary has another size.
inline bool is_base_copy(std::string_view name) {
    constexpr std::array<std::string_view, 8> embeddings = {"embed_tokens",    "lm_head",     "wte",
                                                            "word_embeddings", "shared",      "embed_in",
                                                            "embed_out",       "output_layer"};
    if (!name.starts_with(peft_prefix) || !name.ends_with(".weight")) {
        return name.starts_with(peft_prefix) && name.ends_with("lm_head.base_layer.bias");
    }
    name.remove_suffix(std::string_view(".weight").size());
    const std::string_view last = name.substr(name.rfind('.') + 1);
    return last == "base_layer" || std::find(embeddings.begin(), embeddings.end(), last) != embeddings.end();
}

inline lora_key parse_lora_key(std::string_view name, const std::string& file) {
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
    if (name.find(".modules_to_save.") != name.npos) {
        refuse("layers trained whole; save the adapter with modules_to_save=None");
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
        if (rest == "weight" && name.starts_with(peft_prefix) && marker > peft_prefix.size()) {
            return {name.substr(peft_prefix.size(), marker - peft_prefix.size()), adapter, is_a};
        }
    } else if (kind.empty() && name.ends_with(".bias")) {
        refuse("a trained bias of the base model (\"bias\" other than \"none\")");
    }
    throw format_error(file + ": tensor " + quote(name) +
                       ": unknown, expected \"base_model.model.<module>.lora_A.weight\" or lora_B");
}

/// A and B of a module or of the experts of a parameter, each with the file that holds it.
struct lora_pair {
    std::string_view module;
    const tensor_info* a = nullptr;
    const tensor_info* b = nullptr;
    const safetensors_file* file_of_a = nullptr;
    const safetensors_file* file_of_b = nullptr;
    std::string name{};         ///< of the site; of experts the part before their number
    bool of_parameter = false;  ///< A and B hold all experts
    std::size_t experts = 1;
    peft_config::site_settings settings{};

    std::string where() const {
        return (a != nullptr ? file_of_a : file_of_b)->quoted_name() + ": site " + quote(module) + ": ";
    }
};

/// Pairs A and B in the order in which the files first name them.
inline std::vector<lora_pair> pair_tensors(std::span<const safetensors_file> files,
                                           std::vector<std::string>& notes) {
    std::vector<lora_pair> pairs;
    std::map<std::string_view, std::size_t> index;
    std::optional<std::string_view> adapter;
    for (const safetensors_file& file : files) {
        std::size_t copies = 0;
        std::string_view a_copy;
        for (const tensor_info& tensor : file.tensors()) {
            if (is_base_copy(tensor.name)) {
                ++copies;
                a_copy = tensor.name;
                continue;
            }
            const lora_key key = parse_lora_key(tensor.name, file.quoted_name());
            if (adapter.value_or(key.adapter) != key.adapter) {
                throw unsupported_error(file.quoted_name() + ": tensor " + quote(tensor.name) +
                                        ": not supported: several adapters in one file, here " +
                                        quote(*adapter) + " and " + quote(key.adapter));
            }
            adapter = key.adapter;
            const auto [place, is_new] = index.emplace(key.module, pairs.size());
            if (is_new) {
                pairs.push_back({key.module});
            }
            // One adapter name and unique tensor names leave one tensor for each place.
            lora_pair& pair = pairs[place->second];
            (key.is_a ? pair.a : pair.b) = &tensor;
            (key.is_a ? pair.file_of_a : pair.file_of_b) = &file;
        }
        if (copies > 0) {
            notes.push_back(file.quoted_name() + ": " + std::to_string(copies) +
                            " tensors left out that are copies of the base model's own, for example " +
                            quote(a_copy) +
                            "; where the vocabulary was resized, put them into the base model");
        }
    }
    return pairs;
}

/// Finds out which pairs hold experts, and names the sites; returns the names that PEFT's patterns see.
///
/// PEFT wraps a module once for each parameter, the one that the module registered first innermost, as
/// MODULE.base_layer or MODULE.base_layer.base_layer. The order is that of the model's class, and known for
/// the parameters that models have.
inline std::vector<std::string> name_sites(std::vector<lora_pair>& pairs, const peft_config& config) {
    constexpr std::array<std::string_view, 7> registered = {"gate_up_proj", "gate_proj", "up_proj", "w1",
                                                            "v1",           "down_proj", "w2"};
    constexpr std::string_view wrapped = ".base_layer";
    std::map<std::string_view, std::size_t> wrappers;
    std::vector<std::pair<std::string_view, std::size_t>>
        places;  // the module, and how deep inside its wrappers
    for (const lora_pair& pair : pairs) {
        std::string_view module = pair.module;
        std::size_t depth = 0;
        for (; module.ends_with(wrapped); module.remove_suffix(wrapped.size())) {
            ++depth;
        }
        ++wrappers[module];
        places.emplace_back(module, depth);
    }
    std::vector<std::string> seen;
    peft_config::usage ignored;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        const auto [module, depth] = places[i];
        const std::size_t count = wrappers[module];
        std::set<std::string_view> named = config.parameters_of(module);
        if (const auto& anywhere = config.parameters_anywhere();
            !anywhere.empty() &&
            (count > 1 || (pairs[i].a != nullptr && !pairs[i].a->shape.empty() &&
                           pairs[i].a->shape[0] != config.settings(module, ignored).rank))) {
            named.insert(anywhere.begin(), anywhere.end());
        }
        std::vector<std::string_view> parameters(named.begin(), named.end());
        const auto order = [&](std::string_view name) {
            return std::find(registered.begin(), registered.end(), name) - registered.begin();
        };
        std::sort(parameters.begin(), parameters.end(),
                  [&](std::string_view x, std::string_view y) { return order(x) < order(y); });
        if ((parameters.empty() && (count > 1 || depth > 0)) ||
            (!parameters.empty() && count > parameters.size()) || depth >= count) {
            throw format_error(pairs[i].where() + "lies within " + std::to_string(depth) +
                               " wrappers, but \"target_parameters\" names " +
                               std::to_string(parameters.size()) + " parameters of this module");
        }
        if (parameters.size() > 1 &&
            (count != parameters.size() || order(parameters.back()) == std::ssize(registered))) {
            throw unsupported_error(
                pairs[i].where() +
                "not supported: \"target_parameters\" names several parameters of this module, " +
                "and nothing tells whose matrices these are");
        }
        pairs[i].of_parameter = !parameters.empty();
        pairs[i].name = module;
        // The attention of torch is one module to PEFT, its last layer inside.
        seen.emplace_back(module.substr(0, module.find(".base_layer.")));
        if (pairs[i].of_parameter) {
            const std::string_view parameter = parameters[count - 1 - depth];
            (seen.back() += '.') += parameter;
            if (count > 1) {
                (pairs[i].name += '.') += parameter;
            }
        }
    }
    return seen;
}

inline void check_pair(lora_pair& pair) {
    const std::string where = pair.where();
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
    const std::size_t rank = pair.settings.rank;
    if (rows != columns) {
        throw format_error(where + "lora_A has rank " + std::to_string(rows) + " but lora_B has rank " +
                           std::to_string(columns));
    }
    if (pair.of_parameter && rows % rank == 0) {
        pair.experts = rows / rank;
    }
    if (rows != rank * pair.experts) {
        throw format_error(where + "the matrices have rank " + std::to_string(rows) +
                           ", but the configuration says " + std::to_string(rank) +
                           (pair.of_parameter ? " for each expert" : ""));
    }
    if (pair.experts > max_experts || (pair.experts > 1 && pair.name.size() > 200)) {
        throw unsupported_error(where + "not supported: got " + std::to_string(pair.experts) +
                                " experts and a name of " + std::to_string(pair.name.size()) +
                                " bytes, expected at most " + std::to_string(max_experts) + " and 200");
    }
}

/// Adds the sites of a pair: of E experts expert e has rows e r to (e + 1) r of A, and columns e, e + E,
/// e + 2 E and so on of B.
inline void add_sites(const lora_pair& pair, lora::adapter& to) {
    lora::matrix a = pair.file_of_a->read_matrix(pair.a->name);
    lora::matrix b = pair.file_of_b->read_matrix(pair.b->name);
    if (pair.experts == 1) {
        to.sites.push_back({pair.name, std::move(a), std::move(b), pair.settings.scale});
        return;
    }
    const std::size_t rank = pair.settings.rank;
    for (std::size_t e = 0; e < pair.experts; ++e) {
        lora::adapter_site site{pair.name + "." + std::to_string(e), lora::matrix(rank, a.columns),
                                lora::matrix(b.rows, rank), pair.settings.scale};
        std::copy_n(a.row(e * rank).begin(), rank * a.columns, site.a.values.begin());
        for (std::size_t k = 0; k < b.rows; ++k) {
            for (std::size_t r = 0; r < rank; ++r) {
                site.b.row(k)[r] = b.row(k)[r * pair.experts + e];
            }
        }
        to.sites.push_back(std::move(site));
    }
}

/// The longest index of several files that is read, in bytes.
inline constexpr std::size_t max_index_bytes = 16'000'000;

/// Opens the files that an index names, in the order of their names.
inline std::vector<safetensors_file> open_shards(const std::filesystem::path& index) {
    const std::string where = quote(index.string());
    const json_value document = parse_strict_json(read_file<std::string>(index, max_index_bytes), where);
    document.checked(document.is_object(), where, "an object");
    const json_value& places = document.at("weight_map", where);
    places.checked(places.is_object() && !places.items.empty(), where + ": weight_map",
                   "an object with members");
    std::map<std::string, std::vector<const std::string*>> tensors;  // by file
    for (std::size_t i = 0; i < places.keys.size(); ++i) {
        const std::string& file =
            places.items[i].checked_string(where + ": weight_map " + quote(places.keys[i]));
        if (file.starts_with('.') || file.find('/') != file.npos || file.find('\0') != file.npos ||
            !file.ends_with(".safetensors")) {
            throw format_error(where + ": weight_map " + quote(places.keys[i]) + ": got " + quote(file) +
                               ", expected the name of a safetensors file in this folder");
        }
        tensors[file].push_back(&places.keys[i]);
    }
    std::vector<safetensors_file> result;
    for (const auto& [name, expected] : tensors) {
        const safetensors_file& file =
            result.emplace_back(safetensors_file::open(index.parent_path() / name));
        for (const std::string* tensor : expected) {
            if (file.find(*tensor) == nullptr) {
                throw format_error(where + ": tensor " + quote(*tensor) + ": is not in " +
                                   file.quoted_name() + ", where the index says");
            }
        }
        if (file.tensors().size() != expected.size()) {
            throw format_error(where + ": names " + std::to_string(expected.size()) + " tensors of " +
                               file.quoted_name() + ", which holds " + std::to_string(file.tensors().size()));
        }
    }
    return result;
}

/// Names what a folder holds instead of PEFT's files, where people are known to meet it.
inline void refuse_other_layouts(const std::filesystem::path& directory) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 7> layouts{
        {{"adapter_model.bin",
          "a pickle, which is not read; save the adapter as safetensors "
          "(save_pretrained with safe_serialization=True)"},
         {"adapters.safetensors", "the layout of MLX, which keeps A and B transposed; convert it to PEFT's"},
         {"adapters.npz", "the layout of MLX, which keeps A and B transposed; convert it to PEFT's"},
         {"pytorch_lora_weights.safetensors", "the layout of Diffusers; convert it to PEFT's"},
         {".gguf", "GGUF, which is not read; save the adapter with PEFT"},
         {".safetensors",
          "not adapter_model.safetensors, and no adapter_model.safetensors.index.json is there"},
         {".bin", "a pickle, which is not read; save the adapter as safetensors"}}};
    std::vector<std::string> names;
    std::error_code failure;
    std::filesystem::directory_iterator each(directory, failure);
    for (const std::filesystem::directory_iterator end; !failure && each != end && names.size() < 1000;
         each.increment(failure)) {
        names.push_back(each->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    for (const auto& [end, what] : layouts) {
        for (const std::string& name : names) {
            if (end.starts_with('.') ? name.ends_with(end) : name == end) {
                throw unsupported_error(quote((directory / name).string()) +
                                        ": not supported: " + std::string(what));
            }
        }
    }
}

/// Where a folder has no adapter_config.json but one of its folders does, names that.
inline void refuse_folder_above(const std::filesystem::path& directory) {
    std::string found;
    std::size_t seen = 0;
    std::error_code failure;
    std::filesystem::directory_iterator each(directory, failure);
    for (const std::filesystem::directory_iterator end; !failure && each != end && ++seen < 1000;
         each.increment(failure)) {
        std::error_code ignored;
        const std::string name = each->path().filename().string();
        if (std::filesystem::exists(each->path() / "adapter_config.json", ignored) &&
            (found.empty() || name < found)) {
            found = name;
        }
    }
    if (!found.empty()) {
        throw io_error(quote((directory / "adapter_config.json").string()) +
                       ": cannot open: is not here, but in the folder " + quote(found) + " below");
    }
}

}  // namespace detail

inline lora::adapter parse_peft(std::string_view config_text, std::span<const safetensors_file> weights,
                                std::string_view config_name) {
    const peft_config config = peft_config::parse(config_text, quote(config_name));
    lora::adapter result;
    std::vector<detail::lora_pair> pairs = detail::pair_tensors(weights, result.notes);
    if (pairs.empty()) {
        throw format_error((weights.empty() ? quote(config_name) : weights[0].quoted_name()) +
                           ": holds no LoRA matrices");
    }
    const std::vector<std::string> seen = detail::name_sites(pairs, config);
    peft_config::usage used;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        pairs[i].settings = config.settings(seen[i], used);
    }
    config.check_used(used);
    std::size_t sites = 0;
    for (detail::lora_pair& pair : pairs) {
        detail::check_pair(pair);
        sites += pair.experts;
    }
    result.sites.reserve(sites);
    for (const detail::lora_pair& pair : pairs) {
        detail::add_sites(pair, result);
    }
    std::vector<std::string_view> names;
    for (const lora::adapter_site& site : result.sites) {
        names.push_back(site.name);
    }
    std::sort(names.begin(), names.end());
    if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
        throw format_error(weights[0].quoted_name() + ": site " + quote(*twice) +
                           ": is an expert and a module");
    }
    return result;
}

inline lora::adapter load_peft(const std::filesystem::path& directory) {
    const std::filesystem::path config_path = directory / "adapter_config.json";
    const std::filesystem::path weights = directory / "adapter_model.safetensors";
    const std::filesystem::path index = directory / "adapter_model.safetensors.index.json";
    std::error_code ignored;
    if (!std::filesystem::exists(config_path, ignored)) {
        detail::refuse_folder_above(directory);
    }
    const auto text = read_file<std::string>(config_path, max_config_bytes);
    if (!std::filesystem::exists(weights, ignored)) {
        if (std::filesystem::exists(index, ignored)) {
            return parse_peft(text, detail::open_shards(index), config_path.string());
        }
        detail::refuse_other_layouts(directory);
    }
    return parse_peft(text, safetensors_file::open(weights), config_path.string());
}
#endif

}  // namespace tensafe::io
