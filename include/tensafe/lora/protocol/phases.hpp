#pragma once

#include <cstddef>

namespace tensafe::lora {

/// What server::apply does, in this order; the last three for a few products at a time.
enum class server_phase : std::size_t {
    expand,     ///< polynomials from a request's bytes and seed
    multiply,   ///< products with the packed matrix
    protect,    ///< encryptions of zero and floods; none of bare replies
    serialize,  ///< to the small modulus and into bytes
};

/// An observer is called as observer(server_phase) when a phase begins. This one costs nothing.
struct no_observer {
    constexpr void operator()(server_phase) const noexcept {}
};

}  // namespace tensafe::lora
