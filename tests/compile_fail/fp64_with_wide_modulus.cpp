// expect: fp64: the modulus must be below 2^50; use shoup for wider primes
#include <tensafe/arith/fp64.hpp>

template class tensafe::arith::fp64<tensafe::arith::runtime_modulus<50>>;

#ifdef TENSAFE_COMPILE_FAIL
template class tensafe::arith::fp64<tensafe::arith::runtime_modulus<51>>;
#endif
