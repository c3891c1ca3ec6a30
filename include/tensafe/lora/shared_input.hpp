#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace tensafe::lora {

namespace detail {

/// `list` holds names between spaces.
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
inline constexpr std::string_view query_projections = "q_proj q_a_proj query q wq to_q";
inline constexpr std::string_view other_attention_inputs =
    "k_proj v_proj kv_proj kv_a_proj_with_mqa key value k v wk wv to_k to_v "
    "qkv_proj qkv Wqkv query_key_value c_attn "
    "in_proj_qkv in_proj_qkvz in_proj_z in_proj_a in_proj_b in_proj_ba";
inline constexpr std::string_view gates_and_ups = "gate_proj up_proj gate_up_proj w1 w3 wi_0 wi_1";

/// Whether queries are made of one input and keys and values of another.
inline bool is_cross_attention(std::string_view parent) {
    std::string folded(parent);
    std::transform(folded.begin(), folded.end(), folded.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
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

/// "x.mlp" of "x.mlp.experts.17", "x.mlp.experts" and "x.mlp.shared_expert".
constexpr std::string_view without_expert(std::string_view parent) noexcept {
    const std::string_view number = last_part(parent);
    const bool is_number = !number.empty() && std::all_of(number.begin(), number.end(),
                                                          [](char c) { return c >= '0' && c <= '9'; });
    const std::string_view expert = is_number ? without_last_part(parent) : parent;
    if (is_listed(is_number ? "experts shared_experts" : "experts shared_expert shared_experts",
                  last_part(expert))) {
        return without_last_part(expert);
    }
    return parent;
}

}  // namespace detail

/// The name of the vector that a site multiplies. Sites of one model whose names are equal here see the same
/// hidden state, so that one encrypted request serves them all (site_stack, model_server).
///
/// What an adapter's name puts in front ("legal/model.layers...", see stack_adapters) is left out: inputs
/// belong to the base model. Then, by the last part of the module path:
/// - queries, keys, values and what stands for several of them (q_proj k_proj v_proj, query key value, q k v,
/// wq wk
///   wv, to_q to_k to_v, qkv_proj, qkv, Wqkv, query_key_value, c_attn, kv_proj, q_a_proj, kv_a_proj_with_mqa;
///   of linear attention in_proj_qkv, _qkvz, _z, _a, _b, _ba): parent + ".input". In cross attention (a
///   parent with "cross", "encoder_attn", "encdec", "attn2" or "multihead_attn" in it) queries have an input
///   of their own.
/// - gates and ups (gate_proj up_proj gate_up_proj, w1 w3, wi_0 wi_1): parent + ".input", where experts share
/// the
///   input of what holds them: "x.mlp.experts.17.gate_proj", "x.mlp.shared_expert.up_proj" and
///   "x.mlp.up_proj" have the input "x.mlp.input".
/// - everything else, o_proj, down_proj, w2 and unknown names included: an input of its own, the name itself.
///
/// A share that is missed costs bytes. One that is not there costs correctness: the list is short, and for a
/// model whose names mean something else give your own function (model_options::input_of).
///
/// Letters count as they are written. Pure; cost linear in the name's length.
inline std::string shared_input(std::string_view site_name) {
    const std::size_t slash = site_name.find('/');
    const std::string_view module = slash == site_name.npos ? site_name : site_name.substr(slash + 1);
    const std::string_view last = detail::last_part(module);
    std::string_view parent = detail::without_last_part(module);
    const bool is_query = detail::is_listed(detail::query_projections, last);
    const bool is_gate = detail::is_listed(detail::gates_and_ups, last);
    const bool shares = is_gate || (is_query ? !detail::is_cross_attention(parent)
                                             : detail::is_listed(detail::other_attention_inputs, last));
    if (!shares) {
        return std::string(module);
    }
    if (is_gate) {
        parent = detail::without_expert(parent);
    }
    return parent.empty() ? std::string("input") : std::string(parent) + ".input";
}

}  // namespace tensafe::lora
