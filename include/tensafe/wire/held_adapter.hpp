#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/packing/layout.hpp>
#include <tensafe/wire/bytes.hpp>
#include <tensafe/wire/message.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::wire {

namespace detail {

/// Throws for what no client_part gives: a site has B alone, or A and B that fit.
inline void check_held_site(const char* who, const lora::adapter_site& site, std::set<std::string>& names) {
    lora::detail::check_name(site.name, "a site", lora::model_layout::longest_name);
    require<parameter_error>(names.insert(site.name).second,
                             {who, ": site ", in_quotes(site.name), ": the name occurs twice"});
    require<parameter_error>(std::isfinite(site.scale),
                             {who, ": site ", in_quotes(site.name), ": the scale is not a finite number"});
    const auto fits = [](std::size_t n) { return n >= 1 && n <= lora::detail::largest_dimension; };
    const bool alone = site.a.rows == 0 && site.a.columns == 0;
    require<shape_error>(fits(site.b.rows) && fits(site.b.columns) &&
                             (alone || (fits(site.a.columns) && site.a.rows == site.b.columns)),
                         {who, ": site ", in_quotes(site.name), ": got A ", site.a.rows, " x ",
                          site.a.columns, " and B ", site.b.rows, " x ", site.b.columns,
                          ", expected rank x d_in, or nothing, and d_out x rank, from 1 to ",
                          lora::detail::largest_dimension, " each"});
}

inline std::span<const std::uint8_t> bytes_of(const lora::matrix& m) noexcept {
    return {reinterpret_cast<const std::uint8_t*>(m.values.data()), m.values.size() * sizeof(float)};
}

/// Reads the entries of a matrix, whose dimensions have been checked: the product does not wrap.
inline void read_values(byte_reader& body, lora::matrix& m) {
    const auto bytes = body.bytes(m.rows * m.columns * sizeof(float));  // before memory is taken
    m.values.resize(m.rows * m.columns);
    if (!bytes.empty()) {
        std::memcpy(m.values.data(), bytes.data(), bytes.size());
    }
}

}  // namespace detail

/// Writes an adapter as a message, all of it: kind held_adapter, no set and no scheme. Body: the number of
/// sites; of each its name, scale, the shapes of A and B, and their entries as IEEE singles, row after row.
/// **Whatever secrets are in it go out with it**: for a client write_held_adapter, below, looks first.
/// @throws parameter_error or shape_error, naming the site, for what no client_part gives; encoding_error for
///         an entry that is no finite number
inline std::vector<std::uint8_t> write_whole_adapter(const lora::adapter& held, const envelope& from = {}) {
    constexpr const char* who = "write_whole_adapter";
    const std::uint32_t sites = detail::count_field(who, "the number of sites", held.sites.size());
    std::size_t bytes = 4;
    std::set<std::string> names;
    for (const auto& site : held.sites) {
        detail::check_held_site(who, site, names);
        const std::string of_site = " of site " + quote(site.name);
        site.a.check(std::string(who) + ": A" + of_site);
        site.b.check(std::string(who) + ": B" + of_site);
        lora::detail::check_entries(who, site);
        bytes += detail::name_bytes(site.name) + 8 + 4 * 4 +
                 (site.a.values.size() + site.b.values.size()) * sizeof(float);
    }
    std::vector<std::uint8_t> message;
    write_message(
        {kind::held_adapter, 0, 0, from.number, from.group, bytes}, message, [&](byte_writer& body) {
            body.number<std::uint32_t>(sites);
            for (const auto& site : held.sites) {
                detail::write_name(body, site.name);
                body.number<double>(site.scale);
                for (const std::size_t x : {site.a.rows, site.a.columns, site.b.rows, site.b.columns}) {
                    body.number<std::uint32_t>(static_cast<std::uint32_t>(x));
                }
                body.bytes(detail::bytes_of(site.a));
                body.bytes(detail::bytes_of(site.b));
            }
        });
    return message;
}

/// Writes what the client of this model holds, and refuses what is the server's secret of a site that the
/// layout names, which is A, and in mode blind all of it. lora::client_part gives what passes.
/// @throws as write_whole_adapter; parameter_error also, naming the site, for such a secret
inline std::vector<std::uint8_t> write_held_adapter(const lora::adapter& held, const lora::model_layout& of,
                                                    const envelope& from = {}) {
    const bool blind = of.mode == lora::mode::blind;
    std::set<std::string_view> served;
    for (const auto& group : of.groups) {
        for (const auto& site : group.sites) {
            served.insert(site.name);
        }
    }
    for (const auto& site : held.sites) {
        require<parameter_error>((!blind && site.a.values.empty()) || !served.contains(site.name),
                                 {"write_held_adapter: site ", in_quotes(site.name),
                                  blind ? " is there in mode blind" : " has an A",
                                  ", which the server keeps to itself; give what client_part makes"});
    }
    return write_whole_adapter(held, from);
}

/// Reads a held adapter. Memory follows from the bytes that are there, not from what they announce: limit the
/// size of messages that you take. Whether sites and shapes are those of a model, model_client checks.
/// @throws as open_frame; format_error for a body that ends early or goes on; as write_whole_adapter
inline lora::adapter read_held_adapter(std::span<const std::uint8_t> message) {
    constexpr const char* who = "read_held_adapter";
    byte_reader body = open_frame(message, kind::held_adapter, {}).body;
    lora::adapter held;
    std::set<std::string> names;
    const std::uint32_t sites = body.number<std::uint32_t>();
    for (std::uint32_t s = 0; s < sites; ++s) {
        lora::adapter_site site;
        site.name = detail::read_name(body, "a site", lora::model_layout::longest_name);
        site.scale = body.number<double>();
        for (std::size_t* x : {&site.a.rows, &site.a.columns, &site.b.rows, &site.b.columns}) {
            *x = body.number<std::uint32_t>();
        }
        detail::check_held_site(who, site, names);
        detail::read_values(body, site.a);
        detail::read_values(body, site.b);
        lora::detail::check_entries(who, site);
        held.sites.push_back(std::move(site));
    }
    body.finish();
    return held;
}

}  // namespace tensafe::wire
