// expect: ckks::parameters: the security tag must be secure_128 or insecure_for_tests
#include <tensafe/ckks/parameters.hpp>

namespace ckks = tensafe::ckks;

struct secure_enough {};

using checked = ckks::parameters<13, ckks::limb_bits<60, 40>, 40, ckks::secure_128>;
static_assert(checked::limbs == 2);

#ifdef TENSAFE_COMPILE_FAIL
using unknown = ckks::parameters<13, ckks::limb_bits<60, 40>, 40, secure_enough>;
static_assert(unknown::limbs == 2);
#endif
