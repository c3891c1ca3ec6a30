#include <tensafe/ckks/parameters.hpp>

#include "device_checks.hpp"
#include "rns/crt_checks.hpp"
#include "rns/pointwise_checks.hpp"
#include "rns/products_checks.hpp"
#include "rns/rescale_checks.hpp"
#include "rns/switch_checks.hpp"

namespace ckks = tensafe::ckks;

DEVICE_CHECK_SMALL(tests::check_crt<ckks::minimal_n2048::basis>(where))
DEVICE_CHECK(tests::check_crt<ckks::n16384_l4::basis>(where))
DEVICE_CHECK(tests::check_crt<tests::uneven_basis>(where))
DEVICE_CHECK(tests::check_stack_operations<tests::long_basis>(where))
DEVICE_CHECK_SMALL(tests::check_stack_operations<tests::short_basis>(where))
DEVICE_CHECK(tests::check_views<tests::long_basis>(where))
DEVICE_CHECK(tests::check_views<tests::short_basis>(where))
DEVICE_CHECK(tests::check_stack_shapes(where))
DEVICE_CHECK_SMALL(tests::check_rescale<ckks::private_n4096::basis>(where))
DEVICE_CHECK(tests::check_rescale_at_ties<ckks::private_n4096::basis>(where))
DEVICE_CHECK(tests::check_rescale<ckks::n8192_l4::basis>(where))
DEVICE_CHECK(tests::check_rescale<ckks::n16384_l4::basis>(where))
DEVICE_CHECK(block_products_checks::check_products(where))
DEVICE_CHECK(block_products_checks::check_refusals(where))
DEVICE_CHECK(block_switch_checks::check_switch(where))
