// expect: no 128-bit security estimate is tabulated for this degree
#include <tensafe/ckks/parameters.hpp>

namespace ckks = tensafe::ckks;

using for_tests = ckks::parameters<16, ckks::limb_bits<60, 40>, 40, ckks::insecure_for_tests>;
static_assert(for_tests::limbs == 2);

#ifdef TENSAFE_COMPILE_FAIL
using unknown = ckks::parameters<16, ckks::limb_bits<60, 40>, 40>;
static_assert(unknown::limbs == 2);
#endif
