#include <tensafe/interop/svd.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/plain.hpp>

#include <Eigen/Dense>

#include "../random_values.hpp"
#include "../test.hpp"

using namespace tests;
using namespace tensafe::interop;
using namespace tensafe::lora;

namespace {

Eigen::MatrixXd dense(const matrix& m) {
    Eigen::MatrixXd result(m.rows, m.columns);
    for (std::size_t r = 0; r < m.rows; ++r) {
        for (std::size_t c = 0; c < m.columns; ++c) {
            result(static_cast<Eigen::Index>(r), static_cast<Eigen::Index>(c)) =
                static_cast<double>(m.row(r)[c]);
        }
    }
    return result;
}

/// scale * B * A, the matrix that the library never forms.
Eigen::MatrixXd full_product(const adapter_site& site) {
    return site.scale * (dense(site.b) * dense(site.a));
}

double relative_difference(const adapter_site& truncated, const adapter_site& original) {
    const Eigen::MatrixXd expected = full_product(original);
    return (full_product(truncated) - expected).norm() / expected.norm();
}

struct shape {
    std::size_t d_out, rank, d_in;
};
const std::vector<shape> shapes = {{20, 6, 30}, {30, 6, 20},  {6, 6, 6},  {4, 6, 30}, {30, 6, 4},
                                   {3, 7, 5},   {40, 32, 40}, {1, 3, 10}, {10, 3, 1}, {1, 1, 1}};

/// A site whose product has these singular values: B = (sigma_1 e_1, sigma_2 e_2, ...), A the first unit
/// rows.
adapter_site diagonal_site(const std::vector<float>& sigma, std::size_t d_out = 9, std::size_t d_in = 8) {
    adapter_site site{"q_proj", matrix(sigma.size(), d_in), matrix(d_out, sigma.size()), 1.0};
    for (std::size_t i = 0; i < sigma.size(); ++i) {
        site.a.row(i)[i] = 1;
        site.b.row(i)[i] = sigma[i];
    }
    return site;
}

}  // namespace

TEST_CASE("singular values equal those of the full product, for wide, tall and thin sites") {
    for (const shape& s : shapes) {
        INFO("s.d_out := ", s.d_out, ", s.rank := ", s.rank, ", s.d_in := ", s.d_in);
        const adapter_site site = random_site(s.d_out, s.rank, s.d_in, s.d_in + s.rank);
        const Eigen::VectorXd expected =
            Eigen::JacobiSVD<Eigen::MatrixXd>(full_product(site)).singularValues();
        const std::vector<double> got = truncate_to_rank(site, 1).report.singular_values;
        REQUIRE(got.size() == std::min({s.d_out, s.rank, s.d_in}));
        for (std::size_t i = 0; i < got.size(); ++i) {
            CHECK(std::fabs(got[i] - expected(static_cast<Eigen::Index>(i))) < 1e-13 * expected(0));
        }
        CHECK(std::is_sorted(got.rbegin(), got.rend()));
    }
}

TEST_CASE("each truncation is as close as the best approximation that the full decomposition gives") {
    for (const shape& s : shapes) {
        const adapter_site site = random_site(s.d_out, s.rank, s.d_in, 6);
        const Eigen::MatrixXd expected = full_product(site);
        const Eigen::JacobiSVD<Eigen::MatrixXd> svd(expected, Eigen::ComputeThinU | Eigen::ComputeThinV);
        for (std::size_t rank = 1; rank <= std::min({s.d_out, s.rank, s.d_in}); ++rank) {
            const auto k = static_cast<Eigen::Index>(rank);
            const Eigen::MatrixXd best = svd.matrixU().leftCols(k) *
                                         svd.singularValues().head(k).asDiagonal() *
                                         svd.matrixV().leftCols(k).transpose();
            CHECK((full_product(truncate_to_rank(site, rank).site) - best).norm() < 2e-7 * expected.norm());
        }
    }
}

TEST_CASE("the reported error is the measured one and falls with the rank") {
    const adapter_site site = random_site(40, 12, 50, 7);
    double last = 1;
    for (std::size_t rank = 1; rank <= 12; ++rank) {
        const svd_truncation result = truncate_to_rank(site, rank);
        CHECK(result.site.rank() == rank);
        CHECK(std::fabs(relative_difference(result.site, site) - result.report.relative_error) < 1e-7);
        CHECK(result.report.relative_error < last);
        CHECK(std::fabs(1 - result.report.variance_kept -
                        result.report.relative_error * result.report.relative_error) < 1e-14);
        last = result.report.relative_error;
    }
    CHECK(last == 0);
}

TEST_CASE("name and scale stay, also a negative scale") {
    adapter_site site = random_site(10, 4, 12, 8);
    for (const double scale : {2.0, -0.5, 1e-3}) {
        site.scale = scale;
        const svd_truncation result = truncate_to_rank(site, 3);
        CHECK(result.site.scale == scale);
        CHECK(result.site.name == site.name);
        CHECK(result.site.d_in() == 12);
        CHECK(result.site.d_out() == 10);
        CHECK(std::fabs(relative_difference(result.site, site) - result.report.relative_error) < 1e-7);
        CHECK(result.report.singular_values[0] > 0);
    }
}

TEST_CASE(
    "rows of the new A and columns of the new B have the same norms, even if the old ones were far apart") {
    adapter_site site = random_site(15, 4, 20, 9);
    scale(site.a.values, 1e6F);
    const svd_truncation result = truncate_to_rank(site, 4);
    const Eigen::MatrixXd a = dense(result.site.a);
    const Eigen::MatrixXd b = dense(result.site.b);
    for (Eigen::Index i = 0; i < 4; ++i) {
        const double root =
            std::sqrt(result.report.singular_values[static_cast<std::size_t>(i)] / site.scale);
        CHECK(a.row(i).norm() == doctest::Approx(root).epsilon(1e-6));
        CHECK(b.col(i).norm() == doctest::Approx(root).epsilon(1e-6));
    }
}

TEST_CASE(
    "where d_in or d_out is smaller than the rank, truncating to the rank gives the smaller number of rows") {
    CHECK(truncate_to_rank(random_site(4, 6, 30, 1), 6).site.rank() == 4);
    CHECK(truncate_to_rank(random_site(30, 6, 5, 1), 6).site.rank() == 5);
    CHECK(truncate_to_rank(random_site(30, 6, 5, 1), 3).site.rank() == 3);
}

TEST_CASE("a part of the variance asks for the smallest rank that keeps it") {
    // Squares 16, 9, 4, 1 of 30.
    const adapter_site site = diagonal_site({1, 4, 2, 3});
    CHECK(truncate_to_variance(site, 1e-9).site.rank() == 1);
    CHECK(truncate_to_variance(site, 16.0 / 30).site.rank() == 1);
    CHECK(truncate_to_variance(site, 16.0 / 30 + 1e-9).site.rank() == 2);
    CHECK(truncate_to_variance(site, 25.0 / 30).site.rank() == 2);
    CHECK(truncate_to_variance(site, 25.0 / 30 + 1e-9).site.rank() == 3);
    CHECK(truncate_to_variance(site, 29.0 / 30 + 1e-9).site.rank() == 4);
    CHECK(truncate_to_variance(site, 1).site.rank() == 4);
    const svd_truncation two = truncate_to_variance(site, 0.8);
    CHECK(two.report.variance_kept == doctest::Approx(25.0 / 30).epsilon(1e-14));
    CHECK(two.report.relative_error == doctest::Approx(std::sqrt(5.0 / 30)).epsilon(1e-14));
    CHECK(two.report.singular_values.size() == 4);
    CHECK(two.report.singular_values[3] == doctest::Approx(1).epsilon(1e-14));
}

TEST_CASE("keeping all the variance drops the directions that have none") {
    adapter_site site = random_site(20, 6, 30, 11);
    for (std::size_t k = 0; k < 30; ++k) {
        site.a.row(5)[k] = site.a.row(1)[k];
        site.a.row(3)[k] = 0;
    }
    const svd_truncation result = truncate_to_variance(site, 1);
    CHECK(result.site.rank() == 4);
    CHECK(relative_difference(result.site, site) < 1.5e-7);
}

TEST_CASE("ranks and parts outside their range are refused with what came and what was needed") {
    const adapter_site site = random_site(10, 4, 12, 12);
    CHECK_THROWS_WITH_AS(truncate_to_rank(site, 0), Contains("got rank 0, expected 1 to 4"), parameter_error);
    CHECK_THROWS_WITH_AS(truncate_to_rank(site, 5), Contains("got rank 5, expected 1 to 4"), parameter_error);
    for (const double kept : {0.0, -0.1, 1.0000001, not_a_number}) {
        CHECK_THROWS_AS(truncate_to_variance(site, kept), parameter_error);
    }
    CHECK_THROWS_WITH_AS(truncate_to_variance(site, 1.5), Contains("got 1.5"), parameter_error);
}

TEST_CASE("a product that is zero is refused, however it comes about") {
    adapter_site site = random_site(10, 4, 12, 13);
    site.scale = 0;
    CHECK_THROWS_WITH_AS(truncate_to_rank(site, 1), Contains("is zero"), parameter_error);
    site = random_site(10, 4, 12, 13);
    std::fill(site.b.values.begin(), site.b.values.end(), 0.0F);
    CHECK_THROWS_AS(truncate_to_variance(site, 0.9), parameter_error);
    // Neither is zero, but what B reads A does not write.
    site = random_site(10, 2, 12, 13);
    for (std::size_t k = 0; k < 12; ++k) {
        site.a.row(1)[k] = site.a.row(0)[k];
    }
    for (std::size_t k = 0; k < 10; ++k) {
        site.b.row(k)[1] = -site.b.row(k)[0];
    }
    CHECK_THROWS_AS(truncate_to_rank(site, 1), parameter_error);
}

TEST_CASE("tiny and huge weights keep their product as well as ordinary ones") {
    for (const float factor : {1e-17F, 1e17F}) {
        adapter_site site = random_site(10, 4, 12, 14);
        scale(site.a.values, factor);
        scale(site.b.values, factor);
        CHECK(relative_difference(truncate_to_rank(site, 4).site, site) < 1.5e-7);
    }
}

TEST_CASE("weights whose balanced product passes the range of float are refused") {
    adapter_site site = random_site(10, 4, 12, 14);
    std::fill(site.a.values.begin(), site.a.values.end(), 3e38F);
    std::fill(site.b.values.begin(), site.b.values.end(), 3e38F);
    CHECK_THROWS_WITH_AS(truncate_to_rank(site, 1), Contains("too large for weights in float"),
                         parameter_error);
}

TEST_CASE("values that are no numbers and shapes that do not fit are refused by name") {
    const auto said = []<class E>(const E&, auto change) {
        adapter_site site = random_site(10, 4, 12, 15);
        change(site);
        return refusal<E>([&] { truncate_to_rank(site, 1); });
    };
    const parameter_error value("");
    const shape_error shape("");
    CHECK(contains(said(value, [](auto& s) { s.b.row(7)[2] = NAN; }), "B: got nan in row 7, column 2"));
    CHECK(
        contains(said(value, [](auto& s) { s.a.row(3)[11] = HUGE_VALF; }), "A: got inf in row 3, column 11"));
    CHECK(said(value, [](auto& s) { s.scale = infinity; }) != "nothing was thrown");
    CHECK(contains(said(shape, [](auto& s) { s.a.values.pop_back(); }), "got 47 values for a 4 x 12 matrix"));
    CHECK(contains(said(shape, [](auto& s) { s.b = random_matrix(10, 3, 1); }), "got A 4 x 12 and B 10 x 3"));
    CHECK(said(shape, [](auto& s) { s.a = matrix(4, 0); }) != "nothing was thrown");
}

TEST_CASE("the activation error equals the deltas' differences, computed one by one") {
    const adapter_site site = random_site(25, 8, 30, 16);
    const adapter_site truncated = truncate_to_rank(site, 3).site;
    const matrix activations = random_matrix(20, 30, 17);
    double sum = 0;
    double worst = 0;
    std::size_t worst_row = 0;
    for (std::size_t i = 0; i < 20; ++i) {
        const std::vector<double> expected = plain_delta(site, activations.row(i));
        std::vector<double> difference = plain_delta(truncated, activations.row(i));
        for (std::size_t k = 0; k < 25; ++k) {
            difference[k] -= expected[k];
        }
        const double error = norm(difference) / norm(expected);
        sum += error;
        if (error > worst) {
            worst = error;
            worst_row = i;
        }
    }
    const activation_report report = activation_error(site, truncated, activations);
    CHECK(report.mean == doctest::Approx(sum / 20).epsilon(1e-12));
    CHECK(report.worst == doctest::Approx(worst).epsilon(1e-12));
    CHECK(report.worst_row == worst_row);
}

TEST_CASE(
    "activations of which nothing comes have no error, unless the truncated site makes something of them") {
    const adapter_site site = diagonal_site({5, 4});
    matrix activations(2, 8);
    activations.row(1)[5] = 1;
    CHECK(activation_error(site, truncate_to_rank(site, 1).site, activations).worst == 0);
    adapter_site other = site;
    other.a.row(0)[5] = 1;
    const activation_report report = activation_error(site, other, activations);
    CHECK(std::isinf(report.worst));
    CHECK(report.worst_row == 1);
}

TEST_CASE("activations and sites that do not fit are refused") {
    const adapter_site site = random_site(10, 4, 12, 18);
    CHECK_THROWS_AS(activation_error(site, site, matrix(0, 12)), shape_error);
    CHECK_THROWS_WITH_AS(activation_error(site, site, matrix(2, 11)),
                         Contains("got 2 x 11 activations, expected at least one row of 12"), shape_error);
    CHECK_THROWS_AS(activation_error(site, random_site(10, 4, 11, 1), matrix(2, 12)), shape_error);
    CHECK_THROWS_AS(activation_error(site, random_site(9, 4, 12, 1), matrix(2, 12)), shape_error);
    matrix activations(2, 12);
    activations.row(1)[3] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_WITH_AS(activation_error(site, site, activations), Contains("in row 1, column 3"),
                         parameter_error);
}
