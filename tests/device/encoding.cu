#include <tensafe/ckks/parameters.hpp>

#include "device_checks.hpp"
#include "encoding/decode_checks.hpp"
#include "encoding/norms_checks.hpp"
#include "encoding/rounding_checks.hpp"
#include "encoding/slots_checks.hpp"

using namespace tests;

DEVICE_CHECK_SMALL(check_slots<1>(where, 3))
DEVICE_CHECK(check_slots<6>(where, 3))
DEVICE_CHECK_SMALL(check_slots<11>(where, 2))
DEVICE_CHECK(check_slots<12>(where, 2))
DEVICE_CHECK(check_slots<14>(where, 200))
DEVICE_CHECK(check_slots<15>(where, 5))
DEVICE_CHECK(check_traces<ckks::n16384_l4, 2>(where))
DEVICE_CHECK_SMALL(check_traces<ckks::minimal_n2048, 1>(where))
DEVICE_CHECK(check_decode_slots<ckks::private_n4096::basis>(where))
DEVICE_CHECK(check_decode_slots<ckks::n16384_l4::basis>(where))
DEVICE_CHECK_SMALL(check_norms<float>(where, 1000))
DEVICE_CHECK(check_norms<double>(where, 4096))
DEVICE_CHECK(check_norms_of_strange_values(where))
DEVICE_CHECK(check_residues<17>(where))
DEVICE_CHECK(check_residues<ckks::private_n4096::basis::prime<1>>(where))
DEVICE_CHECK(check_residues<ckks::n16384_l4::basis::prime<0>>(where))
DEVICE_CHECK(check_any_double<ckks::n16384_l4::basis::prime<1>, 89>(where))
DEVICE_CHECK(check_any_double<ckks::minimal_n2048::basis::prime<0>, 41>(where))
DEVICE_CHECK(check_load_of_rows<ckks::private_n4096::basis>(where))
DEVICE_CHECK_SMALL(check_load_of_rows<ckks::minimal_n2048::basis>(where))
DEVICE_CHECK(check_replicated<ckks::private_n4096::basis, double>(where, 5000, 0))
DEVICE_CHECK(check_replicated<ckks::n16384_l4::basis, float>(where, 4096, 1))
