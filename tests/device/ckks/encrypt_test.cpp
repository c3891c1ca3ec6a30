#include <tensafe/device/exec/host_blocks.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#include "encrypt_checks.hpp"

using tensafe::exec::host_blocks;
using tensafe::exec::thread_order;
namespace ckks = tensafe::ckks;

TEST_CASE("secret-key encryption gives the words of the host's, for two keys and shared seeds") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        tests::check_secret_key_encryption<ckks::private_n4096, 1>(host_blocks(order));
    }
    tests::check_secret_key_encryption<ckks::n8192_l4, 2>(host_blocks(thread_order::shuffled));
}

TEST_CASE("a seed for each message gives the ciphertexts of ckks::encrypt") {
    tests::check_seeded_encryption<ckks::private_n4096, 1>(host_blocks());
    tests::check_seeded_encryption<ckks::n8192_l4, 3>(host_blocks(thread_order::shuffled));
}

TEST_CASE("public-key encryption gives the words of the host's") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        tests::check_public_key_encryption<ckks::private_n4096, 1>(host_blocks(order));
    }
    tests::check_public_key_encryption<ckks::n8192_l4, 2>(host_blocks(thread_order::shuffled));
}

TEST_CASE("encryptions that do not fit their keys, seeds or workspace are refused") {
    tests::check_encryption_shapes(host_blocks());
}
