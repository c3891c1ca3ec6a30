// expect: rns::basis: the modulus chain needs at least one prime
#include <tensafe/rns/basis.hpp>

template struct tensafe::rns::basis<3, 97>;

#ifdef TENSAFE_COMPILE_FAIL
template struct tensafe::rns::basis<3>;
#endif
