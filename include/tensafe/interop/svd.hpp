#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/interop/eigen.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <Eigen/Dense>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

// Smaller ranks for adapters whose product scale * B * A has little weight in its last directions: pure
// functions, in double precision. Costs are for d = max(d_in, d_out) and rank r.

namespace tensafe::interop {

/// The report of a truncation. The singular values are those of the product scale * B * A.
struct svd_report {
    std::vector<double> singular_values;  ///< descending; min(r, d_in, d_out) of the original site
    double variance_kept = 1;   ///< sum of the kept singular values' squares over the sum of all squares
    double relative_error = 0;  ///< error of the product in the Frobenius norm: sqrt(1 - variance_kept)
};

/// A site of smaller rank, and what the truncation did to it.
struct svd_truncation {
    lora::adapter_site site;
    svd_report report;
};

/// The errors |delta' - delta| / |delta| of a truncated site on given activations, in Euclidean norms.
struct activation_report {
    double mean = 0;            ///< over the activations
    double worst = 0;           ///< the largest
    std::size_t worst_row = 0;  ///< the activation that has it
};

namespace detail {

using svd_matrix = Eigen::MatrixXd;

inline void check_finite(const char* what, const lora::matrix& m) {
    m.check(what);
    for (std::size_t i = 0; i < m.values.size(); ++i) {
        if (!std::isfinite(m.values[i])) {
            throw parameter_error({what, ": got ", m.values[i], " in row ", i / m.columns, ", column ",
                                   i % m.columns, ", expected a finite number"});
        }
    }
}

inline void check_site(const lora::adapter_site& site) {
    require<shape_error>(
        site.a.rows == site.b.columns && site.a.rows != 0 && site.a.columns != 0 && site.b.rows != 0,
        {"svd: got A ", site.a.rows, " x ", site.a.columns, " and B ", site.b.rows, " x ", site.b.columns,
         ", expected rank x d_in and d_out x rank, none of them 0"});
    check_finite("svd: A", site.a);
    check_finite("svd: B", site.b);
    require<parameter_error>(std::isfinite(site.scale),
                             {"svd: got the scale ", site.scale, ", expected a finite number"});
}

/// Thin QR, m = q * r, of a matrix of any shape: q has min(rows, columns) columns.
struct thin_qr {
    explicit thin_qr(const svd_matrix& m) {
        const Eigen::Index k = std::min(m.rows(), m.cols());
        const Eigen::HouseholderQR<svd_matrix> qr(m);
        q = qr.householderQ() * svd_matrix::Identity(m.rows(), k);
        r = qr.matrixQR().topRows(k).template triangularView<Eigen::Upper>();
    }
    svd_matrix q;
    svd_matrix r;
};

/// The singular value decomposition of a site's product without the product: B = Q_B R_B and A^T = Q_A R_A
/// give B A = Q_B (R_B R_A^T) Q_A^T, and the core in the middle is at most r x r.
class site_svd {
  public:
    explicit site_svd(const lora::adapter_site& site) : site_(site) {
        check_site(site);
        const thin_qr b(as_matrix(site.b).cast<double>());
        const thin_qr a(as_matrix(site.a).transpose().cast<double>());
        const Eigen::JacobiSVD<svd_matrix> core(b.r * a.r.transpose(),
                                                Eigen::ComputeThinU | Eigen::ComputeThinV);
        left_ = b.q * core.matrixU();
        right_ = a.q * core.matrixV();
        values_ = core.singularValues();
        const double rounding = static_cast<double>(site.rank()) * std::numeric_limits<double>::epsilon() *
                                a.r.norm() * b.r.norm();
        require<parameter_error>(
            site.scale != 0 && values_(0) > rounding,
            {"svd: got a site whose product scale * B * A is zero, expected one that does something"});
        constexpr auto float_limit = static_cast<double>(std::numeric_limits<float>::max());
        require<parameter_error>(
            std::sqrt(values_(0)) <= float_limit && std::isfinite(values_(0) * site.scale),
            {"svd: got a product scale * B * A of norm 2^",
             std::log2(values_(0)) + std::log2(std::fabs(site.scale)), ", too large for weights in float"});
        squares_ = (values_ / values_(0)).cwiseAbs2();
    }

    /// The number of singular values, min(r, d_in, d_out).
    std::size_t size() const noexcept { return static_cast<std::size_t>(values_.size()); }
    /// The part of the variance in the first `rank` directions, 1 <= rank <= size().
    double variance(std::size_t rank) const noexcept {
        return squares_.head(static_cast<Eigen::Index>(rank)).sum() / squares_.sum();
    }

    /// The site with its first `rank` directions, 1 <= rank <= size().
    svd_truncation keep(std::size_t rank) const {
        svd_truncation result{
            {site_.name, lora::matrix(rank, site_.d_in()), lora::matrix(site_.d_out(), rank), site_.scale},
            {}};
        const auto kept = static_cast<Eigen::Index>(rank);
        const Eigen::VectorXd half = values_.head(kept).cwiseSqrt();
        as_matrix(result.site.a) = (right_.leftCols(kept) * half.asDiagonal()).transpose().cast<float>();
        as_matrix(result.site.b) = (left_.leftCols(kept) * half.asDiagonal()).cast<float>();
        for (const double value : values_) {
            result.report.singular_values.push_back(value * std::fabs(site_.scale));
        }
        result.report.variance_kept = variance(rank);
        // Not sqrt(1 - variance_kept), which would lose the digits of a small rest.
        result.report.relative_error = std::sqrt(squares_.tail(values_.size() - kept).sum() / squares_.sum());
        return result;
    }

  private:
    const lora::adapter_site& site_;
    svd_matrix left_;          // d_out x size()
    svd_matrix right_;         // d_in x size()
    Eigen::VectorXd values_;   // of B * A
    Eigen::VectorXd squares_;  // of value / largest value
};

}  // namespace detail

/// Returns the best approximation of a site's product scale * B * A of this rank, in the Frobenius and in
/// the spectral norm (Eckart and Young, 1936).
///
/// The scale stays; do not derive it from the new rank. Row i of the new A and column i of the new B have the
/// same norm, the root of the i-th singular value of B * A; rounding to float changes the product by about
/// 1e-7 of its norm on top of report.relative_error. The new rank is at most d_in and d_out: nothing is lost
/// by that. Cost: O(d r^2 + r^3) time, O(d r) memory.
/// @param rank  in [1, the site's rank]
/// @throws parameter_error for another rank, what is no finite number, or a product that is 0 as far as
///         double precision can tell, or too large for weights in float; shape_error if A or B is empty or
///         they do not fit each other
inline svd_truncation truncate_to_rank(const lora::adapter_site& site, std::size_t rank) {
    require<parameter_error>(rank != 0 && rank <= site.rank(),
                             {"truncate_to_rank: got rank ", rank, ", expected 1 to ", site.rank()});
    const detail::site_svd svd(site);
    return svd.keep(std::min(rank, svd.size()));
}

/// Truncates to the smallest rank that keeps this part of the sum of the singular values' squares. The
/// relative error that this allows is sqrt(1 - kept): 22 % for kept = 0.95, 1 % for 0.9999. A few roundings
/// count as kept: with kept = 1 singular values below 6e-8 of the norm may go.
/// @param kept  in (0, 1]
/// @throws parameter_error for another `kept`; otherwise as truncate_to_rank
inline svd_truncation truncate_to_variance(const lora::adapter_site& site, double kept) {
    require<parameter_error>(kept > 0 && kept <= 1,
                             {"truncate_to_variance: got ", kept,
                              " as the part of the variance to keep, expected more than 0 and at most 1"});
    const detail::site_svd svd(site);
    const double wanted = kept * (1 - 16 * std::numeric_limits<double>::epsilon());
    std::size_t rank = 1;
    while (rank < svd.size() && svd.variance(rank) < wanted) {
        ++rank;
    }
    return svd.keep(rank);
}

/// The error of a truncated site on activations that matter: an adapter may lose much of its norm and little
/// of what it does, or the other way round. 0 where both deltas are 0, infinite where only the original's is.
/// Cost: O(count d r) time, O((count + r) d) memory.
/// @param activations  count x d_in, one hidden state in each row
/// @throws shape_error if there is no activation, or the dimensions do not agree; parameter_error if a value
///         is NaN or infinite
inline activation_report activation_error(const lora::adapter_site& original,
                                          const lora::adapter_site& truncated,
                                          const lora::matrix& activations) {
    detail::check_site(original);
    detail::check_site(truncated);
    require<shape_error>(
        truncated.d_in() == original.d_in() && truncated.d_out() == original.d_out(),
        {"activation_error: got a truncated site from ", truncated.d_in(), " to ", truncated.d_out(),
         " entries, expected from ", original.d_in(), " to ", original.d_out(), " as the original"});
    require<shape_error>(activations.rows != 0 && activations.columns == original.d_in(),
                         {"activation_error: got ", activations.rows, " x ", activations.columns,
                          " activations, expected at least one row of ", original.d_in()});
    detail::check_finite("activation_error: activations", activations);

    // A h for every activation, then one delta at a time.
    const auto products = [&](const lora::adapter_site& site) -> detail::svd_matrix {
        return site.scale *
               (as_matrix(site.a).cast<double>() * as_matrix(activations).cast<double>().transpose());
    };
    const detail::svd_matrix wanted = products(original);
    const detail::svd_matrix got = products(truncated);
    const detail::svd_matrix b_wanted = as_matrix(original.b).cast<double>();
    const detail::svd_matrix b_got = as_matrix(truncated.b).cast<double>();
    activation_report report;
    double sum = 0;
    for (std::size_t i = 0; i < activations.rows; ++i) {
        const auto column = static_cast<Eigen::Index>(i);
        const Eigen::VectorXd delta = b_wanted * wanted.col(column);
        const double error = (b_got * got.col(column) - delta).norm();
        const double relative = error == 0 ? 0 : error / delta.norm();
        sum += relative;
        if (relative > report.worst) {
            report.worst = relative;
            report.worst_row = i;
        }
    }
    report.mean = sum / static_cast<double>(activations.rows);
    return report;
}

}  // namespace tensafe::interop
