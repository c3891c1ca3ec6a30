#pragma once

#include <tensafe/arith/scalar_lanes.hpp>
#include <tensafe/arith/x86/barrett_fp64_avx512.hpp>
#include <tensafe/arith/x86/ifma52_avx512.hpp>
#include <tensafe/arith/x86/lanes_avx512.hpp>
#include <tensafe/simd/x86/target_avx512.hpp>

#include <type_traits>

#if TENSAFE_X86_64

namespace tensafe::arith {

template <>
struct lanes_of<simd::avx512> {
    using sums = avx512::sums;
    using bound_check = avx512::bound_check;
    template <arith::modulus M>
    using products = typename std::conditional_t<(M::bits <= 50), std::type_identity<avx512::ifma52<M>>,
                                                 std::type_identity<avx512::barrett_fp64<M>>>::type;
    template <arith::modulus M>
    using factors = products<M>;
    template <arith::modulus M>
    using reduction = std::conditional_t<(M::bits >= 16), avx512::reduction, scalar::factors<M>>;
};

}  // namespace tensafe::arith

#endif
