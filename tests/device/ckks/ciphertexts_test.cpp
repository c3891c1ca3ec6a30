#include "decrypt_checks.hpp"
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

TEST_CASE("decryption gives the words of the host's, in both forms, for two keys") {
    in_every_order([](const auto& where) { check_decryption<ckks::private_n4096, 1, 2>(where); });
    check_decryption<ckks::n8192_l4, 2, 2>(host_blocks(thread_order::shuffled));
}

TEST_CASE("traced decryption gives the block sums of the host's for every degree of a subring") {
    in_every_order([](const auto& where) { check_traces<ckks::private_n4096, 1, 2>(where); });
    check_traces<ckks::n16384_l4, 2, 1>(host_blocks(thread_order::shuffled));
}

TEST_CASE(
    "traces of rings smaller than a thread block, and of primes so wide that sums are reduced in between") {
    using small = ckks::parameters<10, ckks::limb_bits<60, 40>, 40, ckks::insecure_for_tests>;
    check_traces<small, 1, 2>(host_blocks(thread_order::shuffled));
    using narrow_ring = ckks::parameters<10, ckks::limb_bits<61>, 40, ckks::insecure_for_tests>;
    check_traces<narrow_ring, 0, 1>(host_blocks(thread_order::forward));
    using wide = ckks::parameters<17, ckks::limb_bits<61>, 40, ckks::insecure_for_tests>;
    check_traces<wide, 0, 1>(host_blocks(thread_order::forward), 1, 2);
}

TEST_CASE("operations on stacks of ciphertexts give those of single ones") {
    in_every_order([](const auto& where) { check_ciphertext_operations<ckks::private_n4096, 1>(where); });
}
