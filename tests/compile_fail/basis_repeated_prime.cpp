// expect: rns::basis: the primes of a chain must be distinct
#include <tensafe/rns/basis.hpp>

template struct tensafe::rns::basis<3, 97, 113, 193>;

#ifdef TENSAFE_COMPILE_FAIL
template struct tensafe::rns::basis<3, 97, 113, 97>;
#endif
