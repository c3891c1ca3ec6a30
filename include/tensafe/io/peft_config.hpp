#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/json.hpp>
#include <tensafe/io/name_pattern.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::io {

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
    /// @throws format_error if the text is not strict JSON, lacks "peft_type" or has a wrong type of value
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

    /// As lora::adapter::invocation_tokens.
    const std::vector<std::uint32_t>& invocation_tokens() const noexcept { return invocation_tokens_; }

    /// Whether biases of the base model were trained, where it has some.
    bool trains_bias() const noexcept { return trains_bias_; }

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
        const json_value* const bias = document.find("bias");
        trains_bias_ =
            bias != nullptr && !bias->is_null() && bias->checked_string(file_ + ": bias") != "none";
        // As in PEFT, both are 8 where they are missing.
        rank_ = read_patterned<std::size_t>(document, "r", 8, "rank_pattern", &peft_config::read_rank);
        alpha_ = read_patterned<double>(document, "lora_alpha", 8, "alpha_pattern", &peft_config::read_alpha);
        if (const auto* const tokens = document.find("alora_invocation_tokens");
            tokens != nullptr && !tokens->is_null()) {
            const std::string where = file_ + ": alora_invocation_tokens";
            const std::vector<json_value>& items = tokens->checked_array(where);
            tokens->checked(!items.empty() && items.size() <= 1024, where, "1 to 1024 tokens");
            for (const json_value& each : items) {
                each.checked(each.is_count() && each.count < (1U << 31U), where,
                             "whole numbers from 0 to 2^31 - 1");
                invocation_tokens_.push_back(static_cast<std::uint32_t>(each.count));
            }
        }
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

    /// The options of PEFT's LoraConfig that are read here, or that change nothing about A, B and the scale.
    /// fan_in_fan_out is deliberately not looked at: it says that the *base* layer keeps its weight
    /// transposed (as GPT-2's Conv1D does) and matters when an adapter is merged into it. lora_A and lora_B
    /// are weights of ordinary linear layers, rank x d_in and d_out x rank, whatever it says. Which modules
    /// are adapted, and whether biases are, the tensors say.
    static constexpr std::string_view harmless =
        " peft_type r lora_alpha rank_pattern alpha_pattern use_rslora target_parameters init_lora_weights "
        "alora_invocation_tokens bias "
        "lora_bias auto_mapping base_model_name_or_path revision task_type inference_mode peft_version "
        "target_modules exclude_modules layers_to_transform layers_pattern lora_dropout fan_in_fan_out "
        "ensure_weight_tying megatron_core loftq_config eva_config corda_config lora_ga_config "
        "qalora_group_size "
        "runtime_config merge_weights ";

    /// Those that change the formula, and how.
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 12> refused{{
        {"use_dora",
         "DoRA divides each row of W + scale B A by its norm, which depends on A: if that may become public, "
         "convert the adapter with Python's tensafe.dora.convert, else train without it"},
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
        {"megatron_config", "the file holds what one of several machines has"},
        {"enable_lora", "of q, k and v in one layer some have no A and B"},
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
            if (!is_set || (key.find(' ') == key.npos && harmless.find(" " + key + " ") != harmless.npos)) {
                continue;
            }
            const auto* const known = std::find_if(refused.begin(), refused.end(),
                                                   [&](const auto& row) { return row.first == key; });
            refuse(quote(key) + " set: " +
                   std::string(known == refused.end()
                                   ? "an unknown option, which may change what A and B mean"
                                   : known->second));
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
        const std::string& exact = initial.text;
        const std::string name = fold_case(exact);
        if (exact.empty() || exact == "eva" || exact == "orthogonal" || name == "gaussian" ||
            name == "mica") {
            return;
        }
        const std::string what = "\"init_lora_weights\" " + quote(initial.text);
        if (name.starts_with("pissa") || name.starts_with("corda") || name == "olora" || name == "lora_ga") {
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
    patterned<Value> read_patterned(const json_value& document, const char* key, Value where_missing,
                                    const char* pattern_key, Read read) const {
        patterned<Value> result;
        const json_value* const found = document.find(key);
        result.standard = found == nullptr ? where_missing : std::invoke(read, this, key, *found);
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
    bool trains_bias_ = false;
    std::vector<std::uint32_t> invocation_tokens_;
    patterned<std::size_t> rank_;
    patterned<double> alpha_;
    std::map<std::string, std::set<std::string>, std::less<>> parameters_;  // by module
    std::set<std::string> parameters_anywhere_;
};

}  // namespace tensafe::io
