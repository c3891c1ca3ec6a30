#pragma once

#include <tensafe/device/arith/balanced.hpp>
#include <tensafe/device/arith/signed_montgomery.hpp>

#include <type_traits>

namespace tensafe::ntt {

/// What the transforms of block kernels compute with, by the width of the prime: doubles below 2^50, signed
/// 32-bit digits above. docs/design/device.md counts the instructions of the alternatives.
template <arith::word Q>
using block_arithmetic =
    typename std::conditional_t<(Q < (arith::word{1} << 50)), std::type_identity<arith::balanced<Q>>,
                                std::type_identity<arith::signed_montgomery<Q>>>::type;

}  // namespace tensafe::ntt
