#include "device_checks.hpp"
#include "random/samplers_checks.hpp"

DEVICE_CHECK_SMALL(tests::check_vectors_of_the_page(where))
DEVICE_CHECK(tests::check_uniform_widths(where))
DEVICE_CHECK(tests::check_uniform_moduli(where))
DEVICE_CHECK(tests::check_small_values(where))
DEVICE_CHECK(tests::check_floods(where))
DEVICE_CHECK_SMALL(tests::check_groups(where, launches))
DEVICE_CHECK(tests::check_refusals(where, launches))
