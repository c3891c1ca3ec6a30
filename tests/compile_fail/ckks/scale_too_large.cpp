// expect: the scale must be smaller than the modulus
#include <tensafe/ckks/parameters.hpp>

namespace ckks = tensafe::ckks;

using largest = ckks::parameters<14, ckks::limb_bits<40>, 39>;
static_assert(largest::limbs == 1);

#ifdef TENSAFE_COMPILE_FAIL
using too_large = ckks::parameters<14, ckks::limb_bits<40>, 40>;
static_assert(too_large::limbs == 1);
#endif
