#pragma once

#include <tensafe/device/encoding/slot_transform.hpp>

#include "../device_data.hpp"

namespace tests {

/// Numbers of very different sizes and both signs, some of them zeros.
inline std::vector<double> uneven_reals(std::size_t count, std::uint64_t seed) {
    random_numbers generator(seed);
    std::normal_distribution<double> distribution;
    std::vector<double> values(count);
    for (double& x : values) {
        x = distribution(generator) * static_cast<double>(1 + (generator() % 1000) * (generator() % 1000));
        if (generator() % 16 == 0) {
            x = generator() % 2 == 0 ? 0.0 : -0.0;
        }
    }
    return values;
}

inline std::size_t different_bits(const std::vector<double>& a, const std::vector<double>& b) {
    std::size_t different = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
        different += std::bit_cast<std::uint64_t>(a[i]) != std::bit_cast<std::uint64_t>(b[i]) ? 1U : 0U;
    }
    return different;
}

template <int LogN, class Where>
void check_slots(const Where& where, std::size_t count) {
    using namespace tensafe::encoding;
    CAPTURE(LogN);
    constexpr std::size_t degree = std::size_t{1} << LogN;
    const slot_transform& host = shared_slot_transform(LogN);
    const device::slot_tables<typename Where::space> tables(where, LogN);
    const auto values = uneven_reals(count * degree, 100 + LogN);
    const auto device_values = to_device(where, values);
    auto device_out = poisoned<double>(where, count * degree);
    std::vector<double> expected(count * degree);
    std::vector<std::complex<double>> slots(degree / 2);

    device::to_slots<LogN>(where, tables, device_values.data(), device_out.data(), count);
    for (std::size_t p = 0; p < count; ++p) {
        host.to_slots(std::span(values).subspan(p * degree, degree), slots);
        for (std::size_t j = 0; j < degree / 2; ++j) {
            expected[p * degree + 2 * j] = slots[j].real();
            expected[p * degree + 2 * j + 1] = slots[j].imag();
        }
    }
    CHECK(different_bits(to_host(where, device_out), expected) == 0);

    device_out = poisoned<double>(where, count * degree);
    auto work = poisoned<double>(where, LogN > 14 ? count * degree : 1);
    device::to_coefficients<LogN>(where, tables, device::load_slots{LogN, device_values.data()},
                                  device_out.data(), count, work.data());
    for (std::size_t p = 0; p < count; ++p) {
        for (std::size_t j = 0; j < degree / 2; ++j) {
            slots[j] = {values[p * degree + 2 * j], values[p * degree + 2 * j + 1]};
        }
        host.to_coefficients(slots, std::span(expected).subspan(p * degree, degree));
    }
    CHECK(different_bits(to_host(where, device_out), expected) == 0);
}

}  // namespace tests
