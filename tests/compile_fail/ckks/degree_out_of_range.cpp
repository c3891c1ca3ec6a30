// expect: ckks::parameters: log_n must be in [10, 17]
#include <tensafe/ckks/parameters.hpp>

namespace ckks = tensafe::ckks;

using smallest = ckks::parameters<10, ckks::limb_bits<26>, 20>;
static_assert(smallest::limbs == 1);

#ifdef TENSAFE_COMPILE_FAIL
using smaller = ckks::parameters<9, ckks::limb_bits<26>, 20, ckks::insecure_for_tests>;
static_assert(smaller::limbs == 1);
#endif
