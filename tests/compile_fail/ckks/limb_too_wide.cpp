// expect: ckks::parameters: each limb must be wider than log_n + 1 bits and at most 61 bits
#include <tensafe/ckks/parameters.hpp>

namespace ckks = tensafe::ckks;

using widest = ckks::parameters<12, ckks::limb_bits<61>, 40>;
static_assert(widest::limbs == 1);

#ifdef TENSAFE_COMPILE_FAIL
using wider = ckks::parameters<12, ckks::limb_bits<62>, 40>;
static_assert(wider::limbs == 1);
#endif
