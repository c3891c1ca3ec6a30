#pragma once

#include <tensafe/ckks/parameters.hpp>

// Small sets that switch keys: one prime in a digit and one special prime, as SEAL has them, and three.

namespace fixture {

using one_a_digit =
    tensafe::ckks::parameters<10, tensafe::ckks::scaled_limbs<50, 3, 40>, 40,
                              tensafe::ckks::insecure_for_tests,
                              tensafe::ckks::key_switching<1, tensafe::ckks::special_bits<54>>>;
using three_a_digit =
    tensafe::ckks::parameters<11, tensafe::ckks::scaled_limbs<50, 4, 40>, 40,
                              tensafe::ckks::insecure_for_tests,
                              tensafe::ckks::key_switching<3, tensafe::ckks::special_bits<48, 48, 48>>>;
/// With primes of 60 bits, which kernels of narrow ones do not multiply.
using wide_limbs =
    tensafe::ckks::parameters<10, tensafe::ckks::limb_bits<60, 40, 40>, 40, tensafe::ckks::insecure_for_tests,
                              tensafe::ckks::key_switching<1, tensafe::ckks::special_bits<61>>>;

}  // namespace fixture

#define KEY_SWITCHING_SETS fixture::one_a_digit, fixture::three_a_digit, fixture::wide_limbs
