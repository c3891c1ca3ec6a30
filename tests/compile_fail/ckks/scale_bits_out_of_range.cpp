// expect: ckks::parameters: scale_bits must be in [1, 62]
#include <tensafe/ckks/parameters.hpp>

namespace ckks = tensafe::ckks;

using largest = ckks::parameters<13, ckks::limb_bits<60, 60>, 62>;
static_assert(largest::scale == 0x1p62);

#ifdef TENSAFE_COMPILE_FAIL
using larger = ckks::parameters<13, ckks::limb_bits<60, 60>, 63>;
static_assert(larger::limbs == 2);
#endif
