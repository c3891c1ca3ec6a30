#include <tensafe/arith/prime.hpp>

#include "../../test.hpp"
#include "decode_checks.hpp"
#include "norms_checks.hpp"
#include "rounding_checks.hpp"
#include "slots_checks.hpp"

using namespace tests;

TEST_CASE("the slot transform of kernels gives the bits of the host's, both ways") {
    in_every_order([&](const auto& where) {
        check_slots<1>(where, 3);
        check_slots<5>(where, 3);
        check_slots<6>(where, 3);
        check_slots<7>(where, 3);
        check_slots<11>(where, 2);
        check_slots<12>(where, 2);
        check_slots<14>(where, 2);
        check_slots<15>(where, 2);
        check_slots<17>(where, 1);
    });
}

TEST_CASE("tables of another degree and missing work space are refused") {
    const host_blocks where;
    const device::slot_tables<memory::host_space> tables(where, 11);
    double* const none = nullptr;
    CHECK_THROWS_WITH_AS(device::to_slots<12>(where, tables, none, none, 1),
                         "device::to_slots: got tables for log_n = 11, expected 12", parameter_error);
    const device::slot_tables<memory::host_space> large(where, 15);
    CHECK_THROWS_WITH_AS(
        device::to_coefficients<15>(where, large, device::load_slots{15, none}, none, 3),
        "device::to_coefficients: got no work space, expected N words for each of 3 polynomials, since N is "
        "above 2^14",
        parameter_error);
    using host_tables = device::slot_tables<memory::host_space>;
    CHECK_THROWS_WITH_AS(host_tables(where, 18), "device::slot_tables: log_n: got 18, expected 1 to 17",
                         parameter_error);
}

TEST_CASE("traces are decoded to the bits of decode_trace, in one launch for all outputs") {
    for (const auto order : {thread_order::forward, thread_order::reverse, thread_order::shuffled}) {
        std::size_t launches = 0;
        const host_blocks where(order, &launches);
        check_traces<ckks::n16384_l4, 2>(where);
        CHECK(launches == 6);  // for the degrees from 2 to 64
        check_traces<ckks::minimal_n2048, 1>(where);
    }
}

TEST_CASE("whole polynomials are decoded to the bits of decode_slots") {
    in_every_order([](const auto& where) { check_decode_slots<ckks::private_n4096::basis>(where); });
}

TEST_CASE("tables are for traces of 2 to 64 coefficients") {
    using tables = device::folded_slot_tables<ckks::minimal_n2048::basis, memory::host_space>;
    CHECK_THROWS_WITH_AS(tables(host_blocks{}, 0),
                         "device::folded_slot_tables: log_n: got 0, expected 1 to 6", parameter_error);
    CHECK_THROWS_WITH_AS(tables(host_blocks{}, 7),
                         "device::folded_slot_tables: log_n: got 7, expected 1 to 6", parameter_error);
}

TEST_CASE("reals of every size get the residues that the host gives them, however many steps it takes") {
    const host_blocks where;
    check_residues<17>(where);
    check_residues<ckks::minimal_n2048::basis::prime<0>>(where);
    check_residues<ckks::private_n4096::basis::prime<1>>(where);
    check_residues<ckks::n16384_l4::basis::prime<0>>(where);
    check_residues<arith::ntt_prime_below(arith::word{1} << 61, 14)>(where);
}

TEST_CASE("any double becomes a residue, numbers that are too large and NaN among them") {
    const host_blocks where;
    using primes = ckks::n16384_l4::basis;
    check_any_double<primes::prime<0>, 89>(where);
    check_any_double<primes::prime<1>, 89>(where);
    check_any_double<primes::prime<1>, 112>(where);
    check_any_double<ckks::minimal_n2048::basis::prime<0>, 41>(where);
}

TEST_CASE("rows that a transform loads are the host's encodings, with errors and without") {
    in_every_order([&](const auto& where) {
        check_load_of_rows<ckks::private_n4096::basis>(where);
        check_load_of_rows<ckks::minimal_n2048::basis>(where);
    });
}

TEST_CASE("replicated states become the residues of the host's slot encoding") {
    in_every_order([&](const auto& where) {
        check_replicated<ckks::private_n4096::basis, float>(where, 500, 2);
        check_replicated<ckks::private_n4096::basis, double>(where, 5000, 0);
        check_replicated<ckks::n16384_l4::basis, float>(where, 4096, 1);
    });
}

TEST_CASE("squared norms are summed in the documented order, on the host and in kernels") {
    in_every_order([&](const auto& where) {
        for (const std::size_t d : {1U, 3U, 256U, 257U, 4096U, 5000U}) {
            check_norms<float>(where, d);
            check_norms<double>(where, d);
        }
        check_norms_of_strange_values(where);
    });
}
