#include <tensafe/ckks/parameters.hpp>
#include <tensafe/lora/protection.hpp>

#include "../lora/block_token_checks.hpp"
#include "device_checks.hpp"

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;
using private_range = lora::protects_adapter_rows<>;

DEVICE_CHECK_SMALL(block_token::check_tokens<ckks::private_n4096, 4, private_range>(where, 6, 1500))
DEVICE_CHECK(block_token::check_tokens<ckks::private_n4096, 4, private_range>(where, 32, 4096))
DEVICE_CHECK(block_token::check_states_on_device<ckks::private_n4096, 4, private_range>(where, 2, 1100))
DEVICE_CHECK(block_token::check_stale_work<ckks::private_n4096, 4, private_range>(where, 2, 500))
DEVICE_CHECK(block_token::check_malformed_request<ckks::private_n4096, 4, private_range>(where, 2, 1100))
