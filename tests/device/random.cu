#include "device_checks.hpp"
#include "random/samplers_checks.hpp"

using namespace tests;

DEVICE_CHECK_SMALL(check_vectors_of_the_page(where))
DEVICE_CHECK(check_uniform_widths(where))
DEVICE_CHECK(check_uniform_moduli(where))
DEVICE_CHECK(check_small_values(where))
DEVICE_CHECK(check_floods(where))
DEVICE_CHECK_SMALL(check_groups(where, launches))
DEVICE_CHECK(check_refusals(where, launches))
