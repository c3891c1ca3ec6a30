#include <tensafe/device/encoding/slot_transform.hpp>

#include <doctest/doctest.h>

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

TEST_CASE("a degree known at run time takes the same way") {
    const host_blocks where;
    const device::slot_tables<memory::host_space> tables(where, 8);
    const auto coefficients = uneven_reals(256, 8);
    alignas(64) double slots[256];
    device::to_slots(where, tables, coefficients.data(), slots, 1);
    std::vector<std::complex<double>> expected(128);
    encoding::shared_slot_transform(8).to_slots(coefficients, expected);
    CHECK(slots[2 * 77] == expected[77].real());
    CHECK(slots[2 * 77 + 1] == expected[77].imag());
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
