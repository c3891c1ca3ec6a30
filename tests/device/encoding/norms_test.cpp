
#include <doctest/doctest.h>

#include "norms_checks.hpp"

using namespace tests;

TEST_CASE("squared norms are summed in the documented order, on the host and in kernels") {
    in_every_order([&](const auto& where) {
        for (const std::size_t d : {1U, 3U, 256U, 257U, 4096U, 5000U}) {
            check_norms<float>(where, d);
            check_norms<double>(where, d);
        }
        check_norms_of_strange_values(where);
    });
}
