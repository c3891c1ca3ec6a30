// From the tensors of PEFT's files to sites, with the layouts of folders: one file, in the order of loading.
#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#if TENSAFE_COMPILED_BODIES
#include <tensafe/io/json.hpp>
#include <tensafe/io/peft_config.hpp>
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
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
/// The most sites of an adapter, experts counted one by one.
inline constexpr std::size_t max_sites = std::size_t{1} << 17;

/// Combines a PEFT configuration (the text of adapter_config.json) and its weights, in one file or several.
///
/// Site names are module paths without "base_model.model."; sites stand in the order of the files' bytes. The
/// experts that `target_parameters` names become sites MODULE.0, MODULE.1 and so on, or MODULE.PARAMETER.0
/// where several parameters of a module are adapted. What was left out harmlessly stands in `notes`.
/// Everything about shapes and ranks is checked before values are decoded. Thread-safe: a pure function.
/// @throws format_error if the files are malformed or contradict each other, a pattern fits no site, or a
///         value is not finite
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

/// Reads a file by its name, without a folder: its bytes, at most `largest`, or nothing if it is not there.
using peft_reader =
    std::function<std::optional<std::vector<std::byte>>(const std::string& name, std::size_t largest)>;

/// Reads a file that must be there.
/// @param where  names in messages what holds it
/// @throws io_error if it is not there; what `read` throws
inline std::vector<std::byte> read_needed(const std::filesystem::path& where, const peft_reader& read,
                                          const std::string& name, std::size_t largest) {
    auto bytes = read(name, largest);
    require<io_error>(bytes.has_value(), {in_quotes((where / name).native()), ": is not there"});
    return std::move(*bytes);
}

/// As read_needed, as text.
inline std::string read_needed_text(const std::filesystem::path& where, const peft_reader& read,
                                    const std::string& name, std::size_t largest) {
    const std::vector<std::byte> bytes = read_needed(where, read, name, largest);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Loads a LoRA adapter in this layout from files that are in no directory. They are read one after the
/// other, and held in memory until the adapter is made.
/// @param where  names in messages what holds the files
/// @throws io_error if a file is not there; what `read` throws; otherwise as load_peft of a directory
TENSAFE_COMPILED_API lora::adapter load_peft(const std::filesystem::path& where, const peft_reader& read);

#if TENSAFE_COMPILED_BODIES
namespace detail {

/// A tensor's name taken apart: "base_model.model." module ".lora_A." [adapter "."] "weight".
struct lora_key {
    std::string_view module;
    std::string_view adapter;  ///< empty in files that PEFT itself saved
    bool is_a;
};

inline constexpr std::string_view peft_prefix = "base_model.model.";

/// Whether a tensor is a copy of the base model's own, which PEFT adds where embeddings are adapted or the
/// vocabulary has another size.
/// @param trains_bias  whether biases of the base model were trained
inline bool is_base_copy(std::string_view name, bool trains_bias) {
    constexpr std::string_view layers =
        " base_layer embed_tokens lm_head wte word_embeddings shared embed_in embed_out output_layer ";
    const std::size_t end = name.rfind('.');
    const bool fits = name.starts_with(peft_prefix) &&
                      (name.ends_with(".weight") || (name.ends_with(".bias") && !trains_bias));
    const std::string_view path = name.substr(0, end);
    const std::string_view last = path.substr(path.rfind('.') + 1);
    return fits && last.find(' ') == last.npos && layers.find(" " + std::string(last) + " ") != layers.npos;
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
        refuse("DoRA, though \"use_dora\" is not set");
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
inline std::vector<lora_pair> pair_tensors(std::span<const safetensors_file> files, bool trains_bias,
                                           std::vector<std::string>& notes) {
    std::vector<lora_pair> pairs;
    std::map<std::string_view, std::size_t> index;
    std::optional<std::string_view> adapter;
    for (const safetensors_file& file : files) {
        std::size_t copies = 0;
        std::string_view a_copy;
        for (const tensor_info& tensor : file.tensors()) {
            if (is_base_copy(tensor.name, trains_bias)) {
                a_copy = copies++ == 0 ? tensor.name : a_copy;
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
            // One adapter name and unique tensor names leave one tensor of a file for each place.
            lora_pair& pair = pairs[place->second];
            if ((key.is_a ? pair.a : pair.b) != nullptr) {
                throw format_error(file.quoted_name() + ": tensor " + quote(tensor.name) +
                                   ": is in another file too");
            }
            (key.is_a ? pair.a : pair.b) = &tensor;
            (key.is_a ? pair.file_of_a : pair.file_of_b) = &file;
        }
        if (copies > 0) {
            notes.push_back(file.quoted_name() +
                            ": left out as a copy of the base model's own: " + quote(a_copy) +
                            (copies > 1 ? " and " + std::to_string(copies - 1) + " more" : "") +
                            "; where the vocabulary was resized, put it into the base model");
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

/// The files that an index names, opened by their names in the order of these.
template <class Open>
std::vector<safetensors_file> open_shards(const std::string& index, const std::string& where, Open open) {
    const json_value document = parse_strict_json(index, where);
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
        const safetensors_file& file = result.emplace_back(open(name));
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

/// The names of what a folder holds, sorted, a thousand at most.
inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
    std::vector<std::string> names;
    std::error_code failure;
    std::filesystem::directory_iterator each(directory, failure);
    for (const std::filesystem::directory_iterator end; !failure && each != end && names.size() < 1000;
         each.increment(failure)) {
        names.push_back(each->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

/// Names what a folder holds instead of PEFT's weights, where people are known to meet it.
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
    const std::vector<std::string> names = names_in(directory);
    for (const auto& [end, what] : layouts) {
        for (const std::string& name : names) {
            if (end.starts_with('.') ? name.ends_with(end) : name == end) {
                throw unsupported_error(quote((directory / name).string()) +
                                        ": not supported: " + std::string(what));
            }
        }
    }
}

}  // namespace detail

inline lora::adapter parse_peft(std::string_view config_text, std::span<const safetensors_file> weights,
                                std::string_view config_name) {
    const peft_config config = peft_config::parse(config_text, quote(config_name));
    lora::adapter result;
    std::vector<detail::lora_pair> pairs = detail::pair_tensors(weights, config.trains_bias(), result.notes);
    result.invocation_tokens = config.invocation_tokens();
    if (!result.invocation_tokens.empty()) {
        result.notes.push_back(quote(config_name) +
                               ": the adapter applies from its alora_invocation_tokens on, which clients "
                               "must see to");
    }
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
        if (sites > max_sites) {
            throw unsupported_error({"load_peft: not supported: got more than ", max_sites, " sites"});
        }
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
    const auto is_there = [&](const std::filesystem::path& path) {
        return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
    };
    if (!is_there(config_path)) {
        for (const std::string& name : detail::names_in(directory)) {
            if (is_there(directory / name / "adapter_config.json")) {
                throw io_error(quote(config_path.string()) +
                               ": cannot open: is not here, but in the folder " + quote(name) + " below");
            }
        }
    }
    const auto text = read_file<std::string>(config_path, max_config_bytes);
    if (!is_there(weights)) {
        if (is_there(index)) {
            const auto open = [&](const std::string& name) {
                return safetensors_file::open(directory / name);
            };
            const auto names = read_file<std::string>(index, detail::max_index_bytes);
            return parse_peft(text, detail::open_shards(names, quote(index.string()), open),
                              config_path.string());
        }
        detail::refuse_other_layouts(directory);
    }
    return parse_peft(text, safetensors_file::open(weights), config_path.string());
}

inline lora::adapter load_peft(const std::filesystem::path& where, const peft_reader& read) {
    constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
    const std::string config = (where / "adapter_config.json").string();
    const std::string text = read_needed_text(where, read, "adapter_config.json", max_config_bytes);
    const std::string whole = "adapter_model.safetensors";
    if (auto weights = read(whole, any)) {
        return parse_peft(text, safetensors_file::adopt(std::move(*weights), (where / whole).string()),
                          config);
    }
    const std::string index = whole + ".index.json";
    const std::string names = read_needed_text(where, read, index, detail::max_index_bytes);
    const auto open = [&](const std::string& name) {
        return safetensors_file::adopt(read_needed(where, read, name, any), (where / name).string());
    };
    return parse_peft(text, detail::open_shards(names, quote((where / index).string()), open), config);
}
#endif

}  // namespace tensafe::io
