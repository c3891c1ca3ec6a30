// expect: below<K>: K*q may pass the word
#include <tensafe/arith/below.hpp>

using modulus = tensafe::arith::runtime_modulus<60>;
constexpr tensafe::arith::below<8, modulus> x{1};
constexpr auto fits = x + x;

#ifdef TENSAFE_COMPILE_FAIL
constexpr auto too_wide = fits + x;
#endif
