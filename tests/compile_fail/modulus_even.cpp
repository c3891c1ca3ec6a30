// expect: fixed_modulus: the modulus must be odd and at least 3
#include <tensafe/arith/modulus.hpp>

template struct tensafe::arith::fixed_modulus<3>;

#ifdef TENSAFE_COMPILE_FAIL
template struct tensafe::arith::fixed_modulus<4>;
#endif
