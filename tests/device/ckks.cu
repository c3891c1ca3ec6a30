#include <tensafe/ckks/parameters.hpp>

#include "ckks/decrypt_checks.hpp"
#include "ckks/encrypt_checks.hpp"
#include "device_checks.hpp"

using namespace tests;

DEVICE_CHECK_SMALL(check_decryption<ckks::private_n4096, 1, 2>(where))
DEVICE_CHECK(check_decryption<ckks::n16384_l4, 2, 2>(where))
DEVICE_CHECK(check_traces<ckks::private_n4096, 1, 2>(where))
DEVICE_CHECK(check_traces<ckks::n16384_l4, 2, 1>(where))
DEVICE_CHECK(check_ciphertext_operations<ckks::private_n4096, 1>(where))
DEVICE_CHECK_SMALL(check_secret_key_encryption<ckks::private_n4096, 1>(where))
DEVICE_CHECK(check_secret_key_encryption<ckks::n16384_l4, 3>(where))
DEVICE_CHECK(check_seeded_encryption<ckks::private_n4096, 1>(where))
DEVICE_CHECK(check_public_key_encryption<ckks::private_n4096, 1>(where))
DEVICE_CHECK(check_public_key_encryption<ckks::n8192_l4, 2>(where))
DEVICE_CHECK(check_encryption_shapes(where))
