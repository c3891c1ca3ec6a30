// What no packing can hide: answers are linear in h. A client that follows the protocol solves for A when it
// has seen about d of them. No attack on the protection, but the reason for query limits: docs/security.md.

#include <tensafe/interop/svd.hpp>
#include <tensafe/lora/adapter/normalize.hpp>

#include <Eigen/Dense>

#include "attack.hpp"

namespace {

using namespace attacks;

constexpr std::size_t d = 64;
constexpr std::size_t rank = 8;
constexpr std::size_t d_out = 32;

Eigen::MatrixXd dense(const matrix& m) {
    return Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
               m.values.data(), static_cast<Eigen::Index>(m.rows), static_cast<Eigen::Index>(m.columns))
        .cast<double>();
}

constexpr std::size_t curve[] = {1, 8, 16, 32, 48, 56, 60, 62, 63, 64, 65, 66, 68, 72, 80, 96, 128, 192, 256};

struct tokens {
    Eigen::MatrixXd states;   ///< d x tokens
    Eigen::MatrixXd answers;  ///< rows x tokens, as the client decrypts them
};

tokens ask(const matrix& a, std::size_t count) {
    const tile_server server(a);
    sides<P> s(14, server.layout().subring_log_n());
    tokens result{Eigen::MatrixXd(d, count), Eigen::MatrixXd(a.rows, count)};
    for (std::size_t t = 0; t < count; ++t) {
        const std::vector<float> h = random_state(d, 500 + t);
        const auto query = s.client.encrypt(server.plan(), h);
        tile_server::reply_type reply;
        server.apply(query.request, s.pool, s.work, reply);
        const auto answers = s.client.decrypt(server.plan(), reply, query);
        for (std::size_t k = 0; k < d; ++k) {
            result.states(static_cast<Eigen::Index>(k), static_cast<Eigen::Index>(t)) =
                static_cast<double>(h[k]);
        }
        for (std::size_t k = 0; k < answers.size(); ++k) {
            result.answers(static_cast<Eigen::Index>(k), static_cast<Eigen::Index>(t)) = answers[k];
        }
    }
    return result;
}

/// The shortest A, or the one of least squares, that fits the first `count` tokens.
Eigen::MatrixXd solved(const tokens& seen, std::size_t count) {
    const auto t = static_cast<Eigen::Index>(count);
    return seen.states.leftCols(t)
        .transpose()
        .completeOrthogonalDecomposition()
        .solve(seen.answers.leftCols(t).transpose())
        .transpose();
}

double relative_error(const Eigen::MatrixXd& found, const Eigen::MatrixXd& truth) {
    return (found - truth).norm() / truth.norm();
}

/// Of an unknown matrix the part in the span of t random states is known: 1 - t/d of its square is not.
double before_d(std::size_t t) {
    return std::sqrt(1 - static_cast<double>(t) / d);
}
/// Of least squares with t > d + 1 random states (Wishart), for answers with this relative error.
double after_d(std::size_t t, double answer_error) {
    return answer_error * std::sqrt(static_cast<double>(d) / static_cast<double>(t - d - 1));
}

}  // namespace

TEST_CASE(
    "d + a few honest tokens determine A to the answers' precision; fewer show their span and no more") {
    const matrix a = random_matrix(rank, d, 1);
    const Eigen::MatrixXd truth = dense(a);
    const double precision =
        lora::layout<P, lora::coefficient_tiles<4>, lora::protects_adapter_rows<>>::of(rank, d, 1)
            .budget()
            .relative_error;
    const tokens seen = ask(a, 4 * d);
    std::string table;
    for (const std::size_t t : curve) {
        table += "\n" + std::to_string(t) + " " + std::to_string(relative_error(solved(seen, t), truth));
    }
    MESSAGE("answers' error ", precision, "; tokens, relative error of A:", table);
    for (const std::size_t t : {8U, 16U, 32U, 48U, 60U}) {
        CAPTURE(t);
        CHECK(relative_error(solved(seen, t), truth) > 0.7 * before_d(t));
        CHECK(relative_error(solved(seen, t), truth) < 1.3 * before_d(t));
    }
    CHECK(relative_error(solved(seen, d + 8), truth) < 4 * after_d(d + 8, precision));
    CHECK(relative_error(solved(seen, 2 * d), truth) < 1.5 * after_d(2 * d, precision));
    CHECK(relative_error(solved(seen, 2 * d), truth) > 0.3 * after_d(2 * d, precision));
}

TEST_CASE("blind mode: answers span rank dimensions, that of B after rank tokens; B*A takes d tokens too") {
    const lora::adapter_site site = random_site(d_out, rank, d, 3);
    const matrix merged = lora::merge(site);
    const Eigen::MatrixXd truth = dense(merged);
    const tokens seen = ask(merged, 4 * d);

    const auto singular_values = [&](std::size_t count) {
        return Eigen::JacobiSVD<Eigen::MatrixXd>(seen.answers.leftCols(static_cast<Eigen::Index>(count)),
                                                 Eigen::ComputeThinU)
            .singularValues();
    };
    const Eigen::VectorXd few = singular_values(2 * rank);
    std::string values;
    for (Eigen::Index k = 0; k < few.size(); ++k) {
        values += " " + std::to_string(few(k) / few(0));
    }
    MESSAGE("singular values of ", 2 * rank, " answers, over the first:", values);
    CHECK(few(rank - 1) > 100 * few(rank));

    // The span of B, from rank tokens and from all.
    const auto span = [&](std::size_t count) {
        return Eigen::MatrixXd(
            Eigen::JacobiSVD<Eigen::MatrixXd>(seen.answers.leftCols(static_cast<Eigen::Index>(count)),
                                              Eigen::ComputeThinU)
                .matrixU()
                .leftCols(static_cast<Eigen::Index>(std::min(count, rank))));
    };
    const auto outside = [&](const Eigen::MatrixXd& basis) {
        const Eigen::MatrixXd b = dense(site.b);
        return (b - basis * (basis.transpose() * b)).norm() / b.norm();
    };
    MESSAGE("part of B outside of the span of ", rank - 1, ", ", rank, ", ", 2 * rank,
            " answers: ", outside(span(rank - 1)), ", ", outside(span(rank)), ", ", outside(span(2 * rank)));
    CHECK(outside(span(rank - 1)) > 0.02);
    CHECK(outside(span(rank)) < 0.02);
    CHECK(outside(span(2 * rank)) < 0.001);

    std::string table;
    for (const std::size_t t : curve) {
        const Eigen::MatrixXd found = solved(seen, t);
        std::string projected = "-";
        if (t >= rank) {
            const Eigen::MatrixXd basis = span(t);
            projected = std::to_string(relative_error(basis * (basis.transpose() * found), truth));
        }
        table +=
            "\n" + std::to_string(t) + " " + std::to_string(relative_error(found, truth)) + " " + projected;
    }
    MESSAGE("tokens, relative error of B*A, the same after projection to the span of the answers:", table);
    for (const std::size_t t : {16U, 32U, 48U}) {
        CAPTURE(t);
        CHECK(relative_error(solved(seen, t), truth) > 0.7 * before_d(t));
        CHECK(relative_error(solved(seen, t), truth) < 1.3 * before_d(t));
    }
    const Eigen::MatrixXd basis = span(2 * d);
    const Eigen::MatrixXd found = solved(seen, 2 * d);
    CHECK(relative_error(found, truth) < 1e-3);
    // Errors outside of the span can be taken off: sqrt(d_out / rank) = 2 more precision.
    CHECK(relative_error(basis * (basis.transpose() * found), truth) < 0.7 * relative_error(found, truth));
}
