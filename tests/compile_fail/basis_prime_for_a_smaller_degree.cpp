// expect: rns::basis: every modulus must be a prime that is 1 modulo 2N
#include <tensafe/rns/basis.hpp>

template struct tensafe::rns::basis<4, 97>;

#ifdef TENSAFE_COMPILE_FAIL
template struct tensafe::rns::basis<5, 97>;
#endif
