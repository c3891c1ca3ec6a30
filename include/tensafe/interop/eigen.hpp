#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

// Nothing here runs on the device, and nvcc cannot compile Eigen's device annotations without warnings.
#if defined(__CUDACC__) && !defined(EIGEN_NO_CUDA)
#define EIGEN_NO_CUDA
#endif
#include <Eigen/Core>

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

/// Eigen at the library's borders. `as_...` and `row_span` are views: no copy, valid while the memory they
/// show is; `to_...` copies. A whole encrypted token with `Eigen::VectorXf h`:
///
///     const auto query = client.encrypt(plan, interop::as_span(h));
///     const auto product = client.decrypt(plan, server.apply(query.request, pool), query);
///     const Eigen::VectorXd delta = interop::to_vector(lora::apply_b(site, product));
///
/// All functions are thread-safe for reading, as Eigen is, and cost O(1) unless they copy.
namespace tensafe::interop {

/// A row-major batch of single-precision values: the storage of lora::matrix.
using matrix_rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

namespace detail {
template <class Derived>
inline constexpr bool has_memory = (static_cast<int>(Derived::Flags) &
                                    static_cast<int>(Eigen::DirectAccessBit)) != 0;

template <class Derived>
inline constexpr bool is_real =
    std::is_same_v<typename Derived::Scalar, float> || std::is_same_v<typename Derived::Scalar, double>;

/// Whether neighbours stand next to each other. Eigen says 0 for expressions without memory.
template <class Derived>
inline constexpr bool is_contiguous = static_cast<int>(Derived::InnerStrideAtCompileTime) == 1;
}  // namespace detail

/// The entries of a vector: an Eigen vector, array, Map, Ref, or a contiguous part of one. What is not
/// contiguous for sure, or is not in memory yet, does not compile.
template <class Derived>
std::span<const typename Derived::Scalar> as_span(const Eigen::DenseBase<Derived>& vector) noexcept {
    static_assert(detail::is_real<Derived>,
                  "interop::as_span: the entries must be float or double; use cast<float>() and evaluate "
                  "into a vector first");
    static_assert(
        Derived::IsVectorAtCompileTime,
        "interop::as_span: this is a matrix; for one hidden state of a batch use row_span(batch, i)");
    static_assert(detail::has_memory<Derived>,
                  "interop::as_span: an expression has no memory to show; evaluate it into a vector first");
    static_assert(!detail::has_memory<Derived> || detail::is_contiguous<Derived>,
                  "interop::as_span: the entries are not next to each other in memory (a row of a "
                  "column-major matrix?); evaluate it into a vector first");
    return {vector.derived().data(), static_cast<std::size_t>(vector.size())};
}

/// Row i of a row-major batch (tokens x d): a matrix, Map, Ref or block of rows.
/// @throws shape_error if there is no such row
template <class Derived>
std::span<const typename Derived::Scalar> row_span(const Eigen::DenseBase<Derived>& batch, Eigen::Index i) {
    static_assert(detail::is_real<Derived>, "interop::row_span: the entries must be float or double");
    static_assert(detail::has_memory<Derived>,
                  "interop::row_span: an expression has no memory to show; evaluate it into a matrix first");
    static_assert(!detail::has_memory<Derived> || (Derived::IsRowMajor && detail::is_contiguous<Derived>),
                  "interop::row_span: the rows are not contiguous; declare the batch as Eigen::Matrix<float, "
                  "Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>");
    require<shape_error>(i >= 0 && i < batch.rows(),
                         {"interop::row_span: got row ", i, ", expected one of the batch's ", batch.rows()});
    return {batch.derived().data() + i * batch.derived().outerStride(),
            static_cast<std::size_t>(batch.cols())};
}

/// A lora::matrix as an Eigen matrix, to read or, if it is not const, to write: `as_matrix(site.a) = a;`
/// @throws shape_error if the number of values is not rows * columns
inline Eigen::Map<const matrix_rows> as_matrix(const lora::matrix& m) {
    m.check("interop::as_matrix");
    return {m.values.data(), static_cast<Eigen::Index>(m.rows), static_cast<Eigen::Index>(m.columns)};
}
inline Eigen::Map<matrix_rows> as_matrix(lora::matrix& m) {
    const Eigen::Map<const matrix_rows> checked = as_matrix(static_cast<const lora::matrix&>(m));
    return {m.values.data(), checked.rows(), checked.cols()};
}
void as_matrix(const lora::matrix&&) = delete;  // keep the matrix in a variable: the view does not own it

/// Decrypted products and deltas as an Eigen vector.
inline Eigen::Map<const Eigen::VectorXd> as_vector(std::span<const double> values) noexcept {
    return {values.data(), static_cast<Eigen::Index>(values.size())};
}
void as_vector(const std::vector<double>&&) =
    delete;  // keep the result in a variable, or copy it: to_vector()

/// Decrypted products and deltas as a copy, for results that are not kept in a variable. O(size).
/// @throws std::bad_alloc
inline Eigen::VectorXd to_vector(std::span<const double> values) {
    return as_vector(values);
}

}  // namespace tensafe::interop
