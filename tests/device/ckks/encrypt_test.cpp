
#include <doctest/doctest.h>

#include "encrypt_checks.hpp"

using namespace tests;

TEST_CASE("secret-key encryption gives the words of the host's, for two keys and shared seeds") {
    in_every_order([](const auto& where) { check_secret_key_encryption<ckks::private_n4096, 1>(where); });
    check_secret_key_encryption<ckks::n8192_l4, 2>(host_blocks(thread_order::shuffled));
}

TEST_CASE("a seed for each message gives the ciphertexts of ckks::encrypt") {
    check_seeded_encryption<ckks::private_n4096, 1>(host_blocks());
    check_seeded_encryption<ckks::n8192_l4, 3>(host_blocks(thread_order::shuffled));
}

TEST_CASE("public-key encryption gives the words of the host's") {
    in_every_order([](const auto& where) { check_public_key_encryption<ckks::private_n4096, 1>(where); });
    check_public_key_encryption<ckks::n8192_l4, 2>(host_blocks(thread_order::shuffled));
}

TEST_CASE("encryptions that do not fit their keys, seeds or workspace are refused") {
    check_encryption_shapes(host_blocks());
}
