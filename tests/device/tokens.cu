#include <tensafe/ckks/parameters.hpp>
#include <tensafe/lora/packing/protection.hpp>

#include "device_checks.hpp"
#include "lora/token_checks.hpp"

using namespace tests;

using private_range = lora::protects_adapter_rows<>;
using reduced_range = lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>;

DEVICE_CHECK_SMALL(token_checks::check_tokens<ckks::private_n4096, 4, private_range>(where, 6, 1500))
DEVICE_CHECK(token_checks::check_tokens<ckks::private_n4096, 4, private_range>(where, 32, 4096))
DEVICE_CHECK(token_checks::check_states_on_device<ckks::private_n4096, 4, private_range>(where, 2, 1100))
DEVICE_CHECK(token_checks::check_stale_work<ckks::private_n4096, 4, private_range>(where, 2, 500))
DEVICE_CHECK(token_checks::check_malformed_request<ckks::private_n4096, 4, private_range>(where, 2, 1100))
DEVICE_CHECK(token_checks::check_tokens<ckks::minimal_n2048, 4, reduced_range>(where, 5, 700))
// Recorded as graphs and replayed.
DEVICE_CHECK(token_checks::check_tokens<ckks::private_n4096, 4, private_range>(where, 6, 1500,
                                                                               run_recorded()))
DEVICE_CHECK(token_checks::check_stale_work<ckks::private_n4096, 4, private_range>(where, 2, 500,
                                                                                   run_recorded()))
