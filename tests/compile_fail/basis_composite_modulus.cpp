// expect: rns::basis: every modulus must be a prime that is 1 modulo 2N
#include <tensafe/rns/basis.hpp>

template struct tensafe::rns::basis<3, 97, 113>;

#ifdef TENSAFE_COMPILE_FAIL
template struct tensafe::rns::basis<3, 97, 97 * 113>;
#endif
