#include <tensafe/ckks/parameters.hpp>

#include "device_checks.hpp"
#include "rns/crt_checks.hpp"
#include "rns/pointwise_checks.hpp"
#include "rns/products_checks.hpp"
#include "rns/rescale_checks.hpp"
#include "rns/switch_checks.hpp"

using namespace tests;

DEVICE_CHECK_SMALL(check_crt<ckks::minimal_n2048::basis>(where))
DEVICE_CHECK(check_crt<ckks::n16384_l4::basis>(where))
DEVICE_CHECK(check_crt<uneven_basis>(where))
DEVICE_CHECK(check_stack_operations<long_basis>(where))
DEVICE_CHECK_SMALL(check_stack_operations<short_basis>(where))
DEVICE_CHECK(check_views<long_basis>(where))
DEVICE_CHECK(check_views<short_basis>(where))
DEVICE_CHECK(check_stack_shapes(where))
DEVICE_CHECK_SMALL(check_rescale<ckks::private_n4096::basis>(where))
DEVICE_CHECK(check_rescale_at_ties<ckks::private_n4096::basis>(where))
DEVICE_CHECK(check_rescale<ckks::n8192_l4::basis>(where))
DEVICE_CHECK(check_rescale<ckks::n16384_l4::basis>(where))
DEVICE_CHECK(product_checks::check_products(where))
DEVICE_CHECK(product_checks::check_refusals(where))
DEVICE_CHECK(switch_checks::check_switch(where))
