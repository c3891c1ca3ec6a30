#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/packing/protection.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/scheme.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::wire {

namespace detail {

inline bool has_scaled_columns(const lora::model_layout& layout) noexcept {
    return std::any_of(layout.groups.begin(), layout.groups.end(),
                       [](const auto& group) { return !group.column_exponents.empty(); });
}

}  // namespace detail

/// Writes what a client has to know of a model as a message: kind model_layout, the ids of the set and of the
/// scheme of its decode replies, so that a client of other types is told so before it sends anything. Body,
/// in docs/wire-format.md: mode, tokens_ahead, groups with input, d, row_norm, sites and, where columns are
/// scaled, column_exponents; of each site name, rank, d_out, scale.
/// @throws as model_layout::check; parameter_error for a tokens_ahead that passes 32 bits
template <ckks::parameter_set P, class Packing, lora::reply_protection Protection>
std::vector<std::uint8_t> write_model_layout(const lora::model_layout& layout, const envelope& from = {}) {
    layout.check();
    const std::uint32_t tokens_ahead =
        detail::count_field("write_model_layout", "tokens_ahead", layout.tokens_ahead);
    const bool scaled = detail::has_scaled_columns(layout);
    std::size_t bytes = 3 * 4;
    for (const auto& group : layout.groups) {
        bytes +=
            detail::name_bytes(group.input) + 4 + 8 + 4 + (scaled ? 4 + group.column_exponents.size() : 0);
        for (const auto& site : group.sites) {
            bytes += detail::name_bytes(site.name) + 4 + 4 + 8;
        }
    }
    std::vector<std::uint8_t> message;
    write_message(
        {kind::model_layout, set_id<P>, scheme_id<Packing, Protection>, from.number, from.group, bytes},
        message, [&](byte_writer& body) {
            body.number<std::uint32_t>((layout.mode == lora::mode::blind ? 1U : 0U) + (scaled ? 2U : 0U));
            body.number<std::uint32_t>(tokens_ahead);
            // check() keeps all of these below 2^32.
            body.number<std::uint32_t>(static_cast<std::uint32_t>(layout.groups.size()));
            for (const auto& group : layout.groups) {
                detail::write_name(body, group.input);
                body.number<std::uint32_t>(static_cast<std::uint32_t>(group.d));
                body.number<double>(group.row_norm);
                body.number<std::uint32_t>(static_cast<std::uint32_t>(group.sites.size()));
                for (const auto& site : group.sites) {
                    detail::write_name(body, site.name);
                    body.number<std::uint32_t>(static_cast<std::uint32_t>(site.rank));
                    body.number<std::uint32_t>(static_cast<std::uint32_t>(site.d_out));
                    body.number<double>(site.scale);
                }
                if (scaled) {
                    body.number<std::uint32_t>(static_cast<std::uint32_t>(group.column_exponents.size()));
                    body.bytes({reinterpret_cast<const std::uint8_t*>(group.column_exponents.data()),
                                group.column_exponents.size()});
                }
            }
        });
    return message;
}

/// Reads a model layout. Memory follows from the bytes that are there, about fifteen times as many at most:
/// limit the size of messages that you take. What depends on the set beyond its id, model_client checks.
/// @throws as open_frame; format_error for a body that ends early or goes on, or an unknown mode; as
///         model_layout::check
template <ckks::parameter_set P, class Packing, lora::reply_protection Protection>
lora::model_layout read_model_layout(std::span<const std::uint8_t> message) {
    byte_reader body = detail::open_scheme<P, Packing, Protection>(message, kind::model_layout);
    lora::model_layout layout;
    const std::uint32_t mode = body.number<std::uint32_t>();
    require<format_error>(mode <= 3,
                          {"read_model_layout: got mode number ", mode,
                           ", expected 0 (client_held_b) or 1 (blind), and 2 more for scaled columns"});
    const bool scaled = mode >= 2;
    layout.mode = mode % 2 == 1 ? lora::mode::blind : lora::mode::client_held_b;
    layout.tokens_ahead = body.number<std::uint32_t>();
    const std::uint32_t groups = body.number<std::uint32_t>();
    std::size_t all_sites = 0;
    for (std::uint32_t g = 0; g < groups; ++g) {
        lora::model_layout::group group;
        group.input = detail::read_name(body, "an input", lora::model_layout::longest_name);
        group.d = body.number<std::uint32_t>();
        group.row_norm = body.number<double>();
        const std::uint32_t sites = body.number<std::uint32_t>();
        require<shape_error>(sites <= lora::model_layout::most_sites - all_sites,
                             {"read_model_layout: got ", all_sites, " + ", sites,
                              " sites or more, expected at most ", lora::model_layout::most_sites});
        all_sites += sites;
        for (std::uint32_t s = 0; s < sites; ++s) {
            lora::model_layout::site site;
            site.name = detail::read_name(body, "a site", lora::model_layout::longest_name);
            site.rank = body.number<std::uint32_t>();
            site.d_out = body.number<std::uint32_t>();
            site.scale = body.number<double>();
            group.sites.push_back(std::move(site));
        }
        if (scaled) {
            const auto exponents = body.bytes(body.number<std::uint32_t>());
            group.column_exponents.assign(exponents.begin(), exponents.end());
        }
        layout.groups.push_back(std::move(group));
    }
    body.finish();
    require<format_error>(scaled == detail::has_scaled_columns(layout),
                          {"read_model_layout: got mode number ", mode,
                           " and no scaled columns, expected their exponents in a group"});
    layout.check();
    return layout;
}

}  // namespace tensafe::wire
