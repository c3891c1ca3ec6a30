// expect: ckks::parameters: there are fewer NTT primes of this width; use wider limbs
#include <tensafe/ckks/parameters.hpp>

namespace ckks = tensafe::ckks;

// 12289 is the only prime of 14 bits that is 1 modulo 2048.
using only = ckks::parameters<10, ckks::limb_bits<14>, 10>;
static_assert(only::basis::prime<0> == 12289);

#ifdef TENSAFE_COMPILE_FAIL
using two = ckks::parameters<10, ckks::limb_bits<14, 14>, 10, ckks::insecure_for_tests>;
static_assert(two::limbs == 2);
#endif
