// expect: barrett::multiply: call reduce<To>() on the operand first
#include <tensafe/arith/barrett.hpp>

using modulus = tensafe::arith::fixed_modulus<1152921504606846975>;
constexpr tensafe::arith::barrett<modulus> policy;
constexpr auto fits = policy.multiply(tensafe::arith::below<8, modulus>{1}, 1);

#ifdef TENSAFE_COMPILE_FAIL
constexpr auto too_wide = policy.multiply(tensafe::arith::below<9, modulus>{1}, 1);
#endif
