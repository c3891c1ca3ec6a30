#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace tensafe::lora {

namespace detail {
/// Multiplies out = scale * m * x in double precision. Four rows at a time: the sums of one wait for each
/// other.
/// @pre x has a column for each entry, out one for each row
template <class Real>
void multiply(const matrix& m, double scale, std::span<const Real> x, std::span<double> out) noexcept {
    std::size_t k = 0;
    for (; k + 4 <= m.rows; k += 4) {
        const float* const rows = m.values.data() + k * m.columns;
        double sums[4] = {};
        for (std::size_t r = 0; r < x.size(); ++r) {
            for (std::size_t i = 0; i < 4; ++i) {
                sums[i] += static_cast<double>(rows[i * m.columns + r]) * static_cast<double>(x[r]);
            }
        }
        for (std::size_t i = 0; i < 4; ++i) {
            out[k + i] = sums[i] * scale;
        }
    }
    for (; k < m.rows; ++k) {
        double sum = 0;
        for (std::size_t r = 0; r < x.size(); ++r) {
            sum += static_cast<double>(m.row(k)[r]) * static_cast<double>(x[r]);
        }
        out[k] = sum * scale;
    }
}

/// Returns scale * m * x in double precision.  @throws shape_error unless the sizes fit each other
template <class Real>
std::vector<double> multiply(const char* what, const matrix& m, double scale, std::span<const Real> x) {
    m.check(what);
    require<shape_error>(x.size() == m.columns,
                         {what, ": got a vector of ", x.size(), " entries, expected ", m.columns});
    std::vector<double> result(m.rows);
    multiply(m, scale, x, std::span<double>(result));
    return result;
}
}  // namespace detail

/// Returns scale * B * product (d_out entries), for a client that holds B, of the decrypted A*h (rank
/// entries). Entries of a B from somebody who may see the time should be 0 or at least 2^-100, as those that
/// a model_client takes are: smaller ones can make products subnormal.
/// @throws shape_error if product.size() != rank
inline std::vector<double> apply_b(const adapter_site& site, std::span<const double> product) {
    return detail::multiply("apply_b", site.b, site.scale, product);
}

/// Returns scale * B * (A * h) without encryption, in double precision: the result to compare with.
/// @throws shape_error if h.size() != d_in
inline std::vector<double> plain_delta(const adapter_site& site, std::span<const float> h) {
    return apply_b(site, detail::multiply("plain_delta", site.a, 1, h));
}

}  // namespace tensafe::lora
