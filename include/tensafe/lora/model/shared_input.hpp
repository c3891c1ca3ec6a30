#pragma once

#include <tensafe/core/text.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace tensafe::lora {

namespace detail {

/// Whether `list`, names between spaces, has this name.
constexpr bool is_listed(std::string_view list, std::string_view name) noexcept {
    if (name.empty() || name.find(' ') != name.npos) {
        return false;
    }
    for (std::size_t at = list.find(name); at != list.npos; at = list.find(name, at + 1)) {
        const std::size_t end = at + name.size();
        if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) {
            return true;
        }
    }
    return false;
}

// Modules by the last part of their names, as they are called in models that people adapt.
inline constexpr std::string_view query_projections = "q_proj q_a_proj q wq to_q";
inline constexpr std::string_view other_attention_inputs =
    "k_proj v_proj kv_proj kv_a_proj_with_mqa k v wk wv to_k to_v "
    "qkv_proj qkv Wqkv query_key_value c_attn "
    "in_proj_qkv in_proj_qkvz in_proj_z in_proj_a in_proj_b in_proj_ba";
inline constexpr std::string_view gates_and_ups = "gate_proj up_proj gate_up_proj w1 w3 wi_0 wi_1";

/// Whether queries are made of one input and keys and values of another.
inline bool is_cross_attention(std::string_view parent) {
    const std::string folded = fold_case(parent);
    for (const std::string_view mark : {"cross", "encoder_attn", "encdec", "attn2", "multihead_attn"}) {
        if (folded.find(mark) != folded.npos) {
            return true;
        }
    }
    return false;
}

constexpr std::string_view last_part(std::string_view path) noexcept {
    const std::size_t dot = path.rfind('.');
    return dot == path.npos ? path : path.substr(dot + 1);
}
constexpr std::string_view without_last_part(std::string_view path) noexcept {
    const std::size_t dot = path.rfind('.');
    return dot == path.npos ? std::string_view() : path.substr(0, dot);
}

/// Whether the parent is BERT's: in other models "key" and "value" have inputs of their own.
constexpr bool is_attention_self(std::string_view parent) noexcept {
    return last_part(parent) == "self" && last_part(without_last_part(parent)).ends_with("attention");
}

/// The name without what stack_adapters adds: of other '/', only one before a path with dots is such.
constexpr std::string_view without_adapter(std::string_view site_name) noexcept {
    const std::size_t slash = site_name.find('/');
    if (slash == site_name.npos || slash != site_name.rfind('/') ||
        site_name.find('.', slash) == site_name.npos) {
        return site_name;
    }
    return site_name.substr(slash + 1);
}

/// The parent of an expert, "x.mlp" of "x.mlp.experts.17", "x.mlp.shared_experts.0" and
/// "x.mlp.shared_expert". Not of "x.mlp.experts":
/// experts in one matrix may get what the model's router has scaled.
constexpr std::string_view without_expert(std::string_view parent) noexcept {
    const std::string_view number = last_part(parent);
    const bool is_number = !number.empty() && std::all_of(number.begin(), number.end(),
                                                          [](char c) { return c >= '0' && c <= '9'; });
    const std::string_view expert = is_number ? without_last_part(parent) : parent;
    if (is_listed(is_number ? "experts shared_experts" : "shared_expert shared_experts", last_part(expert))) {
        return without_last_part(expert);
    }
    return parent;
}

}  // namespace detail

/// The name of the vector that a site multiplies. Sites of one model whose names are equal here see the same
/// hidden state: one encrypted request serves them all.
///
/// An adapter's name in front ("legal/model.layers...", see stack_adapters) is left out: the one '/' of a
/// name, if a path with dots follows. Then, by the last part of the module path, as written:
/// - queries, keys, values and what stands for several of them: parent + ".input". The lists above name them;
///   "query", "key" and "value" count where the parent is BERT's ("attention.self"). In cross attention (a
///   parent with "cross", "encoder_attn", "encdec", "attn2" or "multihead_attn" in it) queries have an input
///   of their own.
/// - gates and ups: parent + ".input", where numbered and shared experts have the input of what holds them:
///   "x.mlp.experts.17.gate_proj", "x.mlp.shared_expert.up_proj" and "x.mlp.up_proj" have "x.mlp.input".
///   "x.mlp.experts.gate_up_proj", of all experts in one, has "x.mlp.experts.input".
/// - everything else, o_proj, down_proj, w2 and unknown names included: an input of its own, the name itself.
///
/// A share that is missed costs bytes. One that is not there gives wrong deltas, and nothing notices: compare
/// with your model's code, and give your own function (model_options::input_of) where names mean something
/// else. Known to: models that add positions to queries and keys but not to values (DETR, the mask decoder of
/// SAM), and resamplers whose queries are latents under plain names (the perceiver of Idefics).
inline std::string shared_input(std::string_view site_name) {
    const std::string_view module = detail::without_adapter(site_name);
    const std::string_view last = detail::last_part(module);
    std::string_view parent = detail::without_last_part(module);
    const bool is_of_bert = detail::is_attention_self(parent);
    const bool is_query =
        detail::is_listed(detail::query_projections, last) || (is_of_bert && last == "query");
    const bool is_key_or_value = detail::is_listed(detail::other_attention_inputs, last) ||
                                 (is_of_bert && detail::is_listed("key value", last));
    const bool is_gate = detail::is_listed(detail::gates_and_ups, last);
    const bool shares = is_gate || (is_query ? !detail::is_cross_attention(parent) : is_key_or_value);
    if (!shares) {
        return std::string(module);
    }
    if (is_gate) {
        parent = detail::without_expert(parent);
    }
    return parent.empty() ? std::string("input") : std::string(parent) + ".input";
}

}  // namespace tensafe::lora
