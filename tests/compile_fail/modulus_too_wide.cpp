// expect: runtime_modulus: the width must be in [2, 61] bits
#include <tensafe/arith/modulus.hpp>

template class tensafe::arith::runtime_modulus<61>;

#ifdef TENSAFE_COMPILE_FAIL
template class tensafe::arith::runtime_modulus<62>;
#endif
