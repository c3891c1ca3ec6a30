#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tensafe::lora {

namespace detail {
/// m * x in double precision.
template <class Real>
std::vector<double> multiply(const char* what, const matrix& m, std::span<const Real> x) {
    m.check(what);
    if (x.size() != m.columns) {
        throw shape_error(std::string(what) + ": got a vector of " + std::to_string(x.size()) +
                          " entries, expected " + std::to_string(m.columns));
    }
    std::vector<double> result(m.rows);
    for (std::size_t r = 0; r < m.rows; ++r) {
        const std::span<const float> row = m.row(r);
        double sum = 0;
        for (std::size_t k = 0; k < x.size(); ++k) {
            sum += static_cast<double>(row[k]) * static_cast<double>(x[k]);
        }
        result[r] = sum;
    }
    return result;
}
}  // namespace detail

/// scale * B * product: what a client that holds B does with the decrypted A*h (rank entries); d_out entries.
/// @throws shape_error if product.size() != rank
inline std::vector<double> apply_b(const adapter_site& site, std::span<const double> product) {
    std::vector<double> delta = detail::multiply("apply_b", site.b, product);
    for (double& x : delta) {
        x *= site.scale;
    }
    return delta;
}

/// scale * B * (A * h) without encryption, in double precision: the result to compare with.
/// @throws shape_error if h.size() != d_in
inline std::vector<double> plain_delta(const adapter_site& site, std::span<const float> h) {
    return apply_b(site, detail::multiply("plain_delta", site.a, h));
}

}  // namespace tensafe::lora
