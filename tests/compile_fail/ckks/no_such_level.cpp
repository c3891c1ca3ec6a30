// expect: ckks::ciphertext: the parameter set has no such level
#include <tensafe/ckks/ciphertext.hpp>

namespace ckks = tensafe::ckks;

ckks::ciphertext<ckks::n8192_l4, 3> highest;

#ifdef TENSAFE_COMPILE_FAIL
ckks::ciphertext<ckks::n8192_l4, 4> higher;
#endif
