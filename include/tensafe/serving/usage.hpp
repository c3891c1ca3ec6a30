#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace tensafe::serving {

/// What was served. 64 bits each; sums stay at the largest value instead of wrapping around.
struct usage {
    std::uint64_t requests = 0;  ///< answered
    std::uint64_t refused = 0;   ///< not answered: malformed, not allowed, no such adapter
    /// Hidden states answered. A generated token of a whole model is one for each of its inputs: 160 of the
    /// default model.
    std::uint64_t tokens = 0;
    std::uint64_t products = 0;    ///< of a plaintext, or a number, with a ciphertext
    std::uint64_t bytes_up = 0;    ///< of requests, refused ones included
    std::uint64_t bytes_down = 0;  ///< of replies

    friend bool operator==(const usage&, const usage&) = default;

    usage& operator+=(const usage& other) noexcept {
        for (const auto counter : {&usage::requests, &usage::refused, &usage::tokens, &usage::products,
                                   &usage::bytes_up, &usage::bytes_down}) {
            const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - this->*counter;
            this->*counter += other.*counter < room ? other.*counter : room;
        }
        return *this;
    }
    friend usage operator+(usage a, const usage& b) noexcept { return a += b; }
};

/// What an answered request used, from the messages and the layout of its server: tiles, slots or column
/// batches.
template <class Request, class Reply, class Layout>
requires requires(const Request& request, const Reply& reply, const Layout& layout) {
    request.tokens;
    request.bytes();
    reply.bytes();
    layout.inputs();
    layout.outputs();
}
usage usage_of(const Request& request, const Reply& reply, const Layout& layout) noexcept {
    usage result;
    result.requests = 1;
    result.tokens = request.tokens;
    result.products = std::uint64_t{layout.inputs()} * layout.outputs();
    result.bytes_up = request.bytes();
    result.bytes_down = reply.bytes();
    return result;
}

/// What a refused request used: its bytes. Nothing that it says of itself is believed.
template <class Request>
requires requires(const Request& request) {
    request.bytes();
}
usage refused_usage_of(const Request& request) noexcept {
    usage result;
    result.refused = 1;
    result.bytes_up = request.bytes();
    return result;
}

}  // namespace tensafe::serving
