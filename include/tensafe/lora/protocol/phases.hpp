#pragma once

#include <cstddef>

namespace tensafe::lora {

/// The phases of server::apply, in this order; the last three for a few products at a time.
enum class server_phase : std::size_t {
    expand,     ///< polynomials from a request's bytes and seed
    multiply,   ///< products with the packed matrix
    protect,    ///< adds encryptions of zero and floods; not of bare replies
    serialize,  ///< switches to the small modulus and writes bytes
};

/// An observer, called as observer(server_phase) when a phase begins, that does nothing and costs nothing.
struct no_observer {
    constexpr void operator()(server_phase) const noexcept {}
};

}  // namespace tensafe::lora
