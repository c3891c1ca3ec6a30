#pragma once

#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tensafe::io {

/// The SHA-256 over everything that packed words depend on: the identity (library, parameter set, packing,
/// protection, options) and the adapter: names, shapes, scales and all entries of A and B. Lengths stand
/// before whatever has one, so that no two adapters have the same message.
/// Cost: one pass over the adapter.
inline sha256_digest packed_key(std::string_view identity, const lora::adapter& adapter) {
    sha256 hash;
    const auto number = [&](std::uint64_t x) {
        hash.update(std::bit_cast<std::array<std::byte, sizeof(x)>>(x));
    };
    const auto text = [&](std::string_view x) {
        number(x.size());
        hash.update(std::as_bytes(std::span(x)));
    };
    const auto matrix = [&](const lora::matrix& x) {
        number(x.rows);
        number(x.columns);
        number(x.values.size());
        hash.update(std::as_bytes(std::span(x.values)));
    };
    text("tensafe packed adapter");
    number(1);  // version of this message
    text(identity);
    number(adapter.sites.size());
    for (const lora::adapter_site& site : adapter.sites) {
        text(site.name);
        matrix(site.a);
        matrix(site.b);
        number(std::bit_cast<std::uint64_t>(site.scale));
    }
    return hash.finish();
}

}  // namespace tensafe::io
