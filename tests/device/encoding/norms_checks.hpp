#pragma once

#include <tensafe/device/encoding/reals.hpp>

#include "../device_data.hpp"

namespace tests {

template <class Real, class Where>
void check_norms(const Where& where, std::size_t d) {
    CAPTURE(d);
    constexpr std::size_t rows = 3;
    std::vector<Real> values = random_numbers(d).normals<Real>(rows * d);
    std::ranges::for_each(values, [](Real& x) { x += 3; });
    const auto device_values = to_device(where, values);
    auto norms = poisoned<double>(where, rows);
    device::squared_norms(where, device_values.data(), d, rows, norms.data());
    const auto got = to_host(where, norms);
    for (std::size_t r = 0; r < rows; ++r) {
        const auto row = std::span<const Real>(values).subspan(r * d, d);
        CHECK(std::bit_cast<std::uint64_t>(got[r]) ==
              std::bit_cast<std::uint64_t>(encoding::sum_of_squares(row)));
        // The documented order, step by step.
        std::vector<double> sums(256);
        long double exact = 0;
        for (std::size_t k = 0; k < d; ++k) {
            const volatile double square = static_cast<double>(row[k]) * static_cast<double>(row[k]);
            sums[k % 256] += square;
            exact += static_cast<long double>(row[k]) * static_cast<long double>(row[k]);
        }
        while (sums.size() > 1) {
            for (std::size_t t = 0; t < sums.size() / 2; ++t) {
                sums[t] += sums[t + sums.size() / 2];
            }
            sums.resize(sums.size() / 2);
        }
        CHECK(got[r] == sums[0]);
        CHECK(std::fabs(got[r] - static_cast<double>(exact)) <= 1e-14 * static_cast<double>(exact));
    }
}

void check_norms_of_strange_values(const auto& where) {
    std::vector<float> values(3 * 300, 1.0F);
    values[299] = std::numeric_limits<float>::infinity();
    values[600] = std::numeric_limits<float>::quiet_NaN();
    const auto device_values = to_device(where, values);
    auto norms = poisoned<double>(where, 3);
    device::squared_norms(where, device_values.data(), 300, 3, norms.data());
    const auto got = to_host(where, norms);
    CHECK(std::isinf(got[0]));
    CHECK(got[1] == 300);
    CHECK(std::isnan(got[2]));
}

}  // namespace tests
