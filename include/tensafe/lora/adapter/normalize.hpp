#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/encoding/norm.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tensafe::lora {

/// The side that applies B. `client_held_b`: the server holds A, the reply is A*h, and the client multiplies
/// by scale * B. `blind`: the server holds scale * B * A, the reply is the delta, and messages are longer.
enum class mode { client_held_b, blind };

/// The rows of the matrix that a server holds: A has rank of them, scale * B * A has d_out.
constexpr std::size_t served_rows(mode m, std::size_t rank, std::size_t d_out) noexcept {
    return m == mode::client_held_b ? rank : d_out;
}

namespace detail {

/// Checks the shapes of both matrices.  @throws shape_error unless they are the site's
inline void check_matrices(const char* who, const adapter_site& site) {
    site.a.check(text_of({who, ": A of site ", in_quotes(site.name)}));
    site.b.check(text_of({who, ": B of site ", in_quotes(site.name)}));
    require<shape_error>(site.b.columns == site.a.rows,
                         {who, ": site ", in_quotes(site.name), " has a B of ", site.b.columns,
                          " columns, expected ", site.a.rows, ", the rank"});
}

/// Multiplies column r of a site's B by norms[r], the norm that row r of its A gave up.
/// @throws encoding_error if an entry passes float
inline void carry_norms(adapter_site& site, std::span<const double> norms) {
    for (std::size_t k = 0; k < site.d_out(); ++k) {
        const std::span<float> row = site.b.row(k);
        for (std::size_t r = 0; r < row.size(); ++r) {
            const float before = row[r];
            row[r] = static_cast<float>(static_cast<double>(before) * norms[r]);
            if (!std::isfinite(row[r]) && std::isfinite(before)) {
                throw encoding_error({"normalize_rows: row ", k, ", column ", r, " of B of site ",
                                      in_quotes(site.name),
                                      " passes the range of float once it carries the norm of its row of A"});
            }
        }
    }
}

/// Brings the rows to norm 1 and returns their norms; rows of norm 0 and of none stay, and have the norm 1.
inline std::vector<double> take_norms(matrix& rows) {
    std::vector<double> norms(rows.rows, 1);
    for (std::size_t r = 0; r < rows.rows; ++r) {
        const double norm = std::sqrt(encoding::sum_of_squares<float>(rows.row(r)));
        if (!(norm > 0) || !std::isfinite(norm)) {
            continue;  // the server refuses what is no number, and names it
        }
        for (float& x : rows.row(r)) {
            x = static_cast<float>(static_cast<double>(x) / norm);
        }
        norms[r] = norm;
    }
    return norms;
}

/// The largest power of two, either way, that a column is scaled by.
inline constexpr int largest_column_exponent = 120;

/// Scales each column by the power of two that brings its norm next to that of a typical one, and returns the
/// exponents: the error of an answer, which follows the norm of the hidden state, then follows that of the
/// entries that count. Columns of zeros have the largest exponent. Exact, but for entries below 2^-126.
inline std::vector<std::int8_t> scale_columns(matrix& m) {
    std::vector<double> squares(m.columns, 0);
    double sum = 0;
    for (std::size_t r = 0; r < m.rows; ++r) {
        for (std::size_t t = 0; t < m.columns; ++t) {
            const auto x = static_cast<double>(m.row(r)[t]);
            squares[t] += x * x;
            sum += x * x;
        }
    }
    std::vector<std::int8_t> exponents(m.columns, 0);
    if (!(sum > 0) || !std::isfinite(sum)) {
        return exponents;
    }
    for (std::size_t t = 0; t < m.columns; ++t) {
        const double octaves = std::log2(sum / static_cast<double>(m.columns) / squares[t]) / 2;
        exponents[t] = static_cast<std::int8_t>(
            std::lround(std::clamp<double>(octaves, -largest_column_exponent, largest_column_exponent)));
        for (std::size_t r = 0; r < m.rows; ++r) {
            m.row(r)[t] = std::ldexp(m.row(r)[t], exponents[t]);
        }
    }
    return exponents;
}

}  // namespace detail

/// Returns the site with A's rows at norm 1 and their norms in B: integers of one size then serve all rows
/// equally well, and no norm of A travels. Rows of norm 0 stay. Deltas change by about 1e-7 of their norm.
/// @throws shape_error unless the matrices have the site's shape; encoding_error if an entry of B passes
///         float
inline adapter_site normalize_rows(adapter_site site) {
    detail::check_matrices("normalize_rows", site);
    detail::carry_norms(site, detail::take_norms(site.a));
    return site;
}

/// The product scale * B * A, d_out x d_in, which a server of mode `blind` holds.
/// @throws shape_error unless both matrices have the site's shape
inline matrix merge(const adapter_site& site) {
    detail::check_matrices("merge", site);
    matrix product(site.d_out(), site.d_in());
    std::vector<double> row(site.d_in());
    for (std::size_t k = 0; k < site.d_out(); ++k) {
        row.assign(site.d_in(), 0);
        for (std::size_t r = 0; r < site.rank(); ++r) {
            const double factor = site.scale * static_cast<double>(site.b.row(k)[r]);
            const std::span<const float> a = site.a.row(r);
            for (std::size_t t = 0; t < row.size(); ++t) {
                row[t] += factor * static_cast<double>(a[t]);
            }
        }
        for (std::size_t t = 0; t < row.size(); ++t) {
            product.row(k)[t] = static_cast<float>(row[t]);
        }
    }
    return product;
}

}  // namespace tensafe::lora
