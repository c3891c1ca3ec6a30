#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/io/json.hpp>
#include <tensafe/io/message.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace tensafe::io {

/// What an adapter_config.json says about the sites of a LoRA adapter. Anything that would change the
/// adapter's output and is not represented here is refused when the text is parsed.
///
/// A value type; parse does all the checking, const members may be called from any thread.
class peft_config {
  public:
    /// @param file how messages call the text, already quoted
    /// @throws format_error if the text is not strict JSON, or a key is missing or of the wrong type
    /// @throws unsupported_error ("... not supported: ...") for anything but plain LoRA on linear layers
    static peft_config parse(std::string_view text, std::string_view file) {
        const nlohmann::ordered_json document = parse_strict_json(text, file);
        if (!document.is_object()) {
            throw format_error(std::string(file) + ": got " + document.type_name() + ", expected an object");
        }
        return peft_config(document, std::string(file));
    }

    /// The rank that the module's matrices must have.
    std::size_t rank(std::string_view module) const { return rank_.value_for(module); }

    /// lora_alpha / rank, or lora_alpha / sqrt(rank) with use_rslora.
    double scale(std::string_view module) const {
        const double rank_value = static_cast<double>(rank(module));
        return alpha_.value_for(module) / (rank_stabilised_ ? std::sqrt(rank_value) : rank_value);
    }

  private:
    using json = nlohmann::ordered_json;

    /// A value for all modules, with exceptions by name pattern. PEFT matches a pattern P as the regular
    /// expression
    /// `(.*\.)?(P)$` and takes the first that fits, in the order of the file. Here P is a plain path, its
    /// dots are dots: it fits a module of that name or one that ends with "." + P.
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

    peft_config(const json& document, std::string file) : file_(std::move(file)) {
        const json& type = required(document, "peft_type");
        if (!type.is_string()) {
            wrong_type("peft_type", type, "a string");
        }
        if (!is_text(type, "LORA")) {
            refuse("peft_type " + quote(type.get_ref<const std::string&>()) + ", only \"LORA\"");
        }
        refuse_variants(document);
        rank_stabilised_ = flag(document, "use_rslora");
        rank_ = read_patterned<std::size_t>(document, "r", "rank_pattern", &peft_config::read_rank);
        alpha_ = read_patterned<double>(document, "lora_alpha", "alpha_pattern", &peft_config::read_alpha);
    }

    /// fan_in_fan_out is deliberately not looked at: it says that the *base* layer keeps its weight
    /// transposed (as GPT-2's Conv1D does) and matters when an adapter is merged into it. lora_A and lora_B
    /// are weights of ordinary linear layers, rank x d_in and d_out x rank, whatever it says.
    void refuse_variants(const json& document) const {
        for (const auto& [key, value] : document.get_ref<const json::object_t&>()) {
            // use_dora, use_qalora and whatever comes next: each changes what is done with A and B.
            const bool variant_flag = key.starts_with("use_") && key != "use_rslora";
            const auto* const flag = value.get_ptr<const json::boolean_t*>();
            const bool is_set = flag != nullptr ? *flag : !value.is_null();
            if ((variant_flag || key == "lora_bias") && is_set) {
                refuse(quote(key) + " set");
            }
        }
        for (const char* key : {"modules_to_save", "trainable_token_indices", "target_parameters",
                                "layer_replication", "alora_invocation_tokens"}) {
            const auto found = document.find(key);
            if (found != document.end() && !found->empty()) {  // null is empty, too
                refuse(quote(key) + " that is not empty");
            }
        }
        if (const auto bias = document.find("bias"); bias != document.end() && !is_text(*bias, "none")) {
            refuse("\"bias\" other than \"none\"");
        }
        // PiSSA, OLoRA, CorDA, LoftQ and their like replace the base weights: B * A is relative to those, not
        // to the published model.
        const auto initial = document.find("init_lora_weights");
        if (initial != document.end() && initial->is_string() && !is_text(*initial, "gaussian") &&
            !is_text(*initial, "orthogonal") && !is_text(*initial, "eva")) {
            refuse("\"init_lora_weights\" " + quote(initial->get_ref<const std::string&>()) +
                   " (the base weights were changed as well)");
        }
    }

    static bool is_text(const json& value, std::string_view text) {
        const auto* const found = value.get_ptr<const std::string*>();
        return found != nullptr && *found == text;
    }

    bool flag(const json& document, const char* key) const {
        const auto found = document.find(key);
        if (found == document.end()) {
            return false;
        }
        if (!found->is_boolean()) {
            wrong_type(key, *found, "true or false");
        }
        return found->get_ref<const json::boolean_t&>();
    }

    std::size_t read_rank(const std::string& key, const json& value) const {
        if (!value.is_number_unsigned()) {
            wrong_type(key, value, "a positive integer");
        }
        const std::size_t rank = value.get_ref<const json::number_unsigned_t&>();
        if (rank == 0) {
            throw format_error(file_ + ": " + key + ": got rank 0, expected a positive integer");
        }
        return rank;
    }

    double read_alpha(const std::string& key, const json& value) const {
        if (!value.is_number()) {
            wrong_type(key, value, "a finite number");
        }
        const double alpha = value.is_number_float() ? value.get_ref<const json::number_float_t&>()
                             : value.is_number_unsigned()
                                 ? static_cast<double>(value.get_ref<const json::number_unsigned_t&>())
                                 : static_cast<double>(value.get_ref<const json::number_integer_t&>());
        if (!std::isfinite(alpha)) {
            throw format_error(file_ + ": " + key + ": got " + number_text(alpha) +
                               ", expected a finite number");
        }
        return alpha;
    }

    template <class Value, class Read>
    patterned<Value> read_patterned(const json& document, const char* key, const char* pattern_key,
                                    Read read) const {
        patterned<Value> result;
        result.standard = std::invoke(read, this, key, required(document, key));
        const auto patterns = document.find(pattern_key);
        if (patterns == document.end() || patterns->is_null()) {
            return result;
        }
        if (!patterns->is_object()) {
            wrong_type(pattern_key, *patterns, "an object");
        }
        for (const auto& [pattern, value] : patterns->get_ref<const json::object_t&>()) {
            const std::string where = std::string(pattern_key) + " " + quote(pattern);
            if (pattern.empty() || pattern.find_first_of("\\^$*+?()[]{}|") != pattern.npos) {
                refuse(where + ": a regular expression, only a module path or its last components");
            }
            result.exceptions.emplace(
                pattern, typename patterned<Value>::exception{result.exceptions.size(),
                                                              std::invoke(read, this, where, value)});
        }
        return result;
    }

    const json& required(const json& document, const char* key) const {
        const auto found = document.find(key);
        if (found == document.end()) {
            throw format_error(file_ + ": missing key " + quote(key));
        }
        return *found;
    }

    [[noreturn]] void wrong_type(const std::string& key, const json& value, const char* wanted) const {
        // A short value says more than its type; a container could be as long as the file.
        const std::string got = value.is_structured()
                                    ? value.type_name()
                                    : quote(value.dump(-1, ' ', true, json::error_handler_t::replace));
        throw format_error(file_ + ": " + key + ": got " + got + ", expected " + wanted);
    }

    [[noreturn]] void refuse(const std::string& what) const {
        throw unsupported_error(file_ + ": not supported: " + what);
    }

    std::string file_;
    bool rank_stabilised_ = false;
    patterned<std::size_t> rank_;
    patterned<double> alpha_;
};

}  // namespace tensafe::io
