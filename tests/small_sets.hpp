#pragma once

#include <tensafe/ckks/parameters.hpp>

namespace tests {

/// The small parameter set of tests: two limbs, as the sets that protect an adapter have, over a ring that is
/// too small to be secure.
using small =
    tensafe::ckks::parameters<10, tensafe::ckks::limb_bits<45, 44>, 30, tensafe::ckks::insecure_for_tests>;
/// The same but for its scale.
using small_of_other_scale =
    tensafe::ckks::parameters<10, tensafe::ckks::limb_bits<45, 44>, 31, tensafe::ckks::insecure_for_tests>;
/// With a special prime, for products and rotations.
using small_switching =
    tensafe::ckks::parameters<10, tensafe::ckks::limb_bits<45, 44>, 30, tensafe::ckks::insecure_for_tests,
                              tensafe::ckks::key_switching<1, tensafe::ckks::special_bits<46>>>;
/// Four limbs and 1024 slots.
using small_slots = tensafe::ckks::parameters<11, tensafe::ckks::limb_bits<60, 40, 40, 60>, 40,
                                              tensafe::ckks::insecure_for_tests>;

}  // namespace tests
