// expect: the modulus is too wide for 128-bit security at this degree
#include <tensafe/ckks/parameters.hpp>

namespace ckks = tensafe::ckks;

using widest = ckks::parameters<13, ckks::limb_bits<60, 40, 54, 60>, 40>;
static_assert(widest::limbs == 4);

#ifdef TENSAFE_COMPILE_FAIL
using too_wide = ckks::parameters<13, ckks::limb_bits<60, 40, 55, 60>, 40>;
static_assert(too_wide::limbs == 4);
#endif
