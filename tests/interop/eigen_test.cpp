#include <tensafe/interop/eigen.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include <Eigen/Core>

#include "../small_sets.hpp"
#include "../test.hpp"

using namespace tests;

namespace {

using batch_type = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

}  // namespace

TEST_CASE_TEMPLATE("as_span shows a vector's own memory, with its scalar", Vector, Eigen::VectorXf,
                   Eigen::VectorXd, Eigen::RowVectorXf, Eigen::ArrayXd) {
    const Vector h = Vector::LinSpaced(5, 1, 5);
    const auto span = interop::as_span(h);
    static_assert(std::is_same_v<decltype(span), const std::span<const typename Vector::Scalar>>);
    CHECK(span.data() == h.data());
    CHECK(span.size() == 5);
    CHECK(span[4] == 5);
}

TEST_CASE("as_span shows the memory behind vectors of fixed size, maps, references and parts") {
    Eigen::Vector3f fixed(1, 2, 3);
    CHECK(interop::as_span(fixed).data() == fixed.data());
    std::vector<double> values = {1, 2, 3, 4, 5, 6};
    const Eigen::Map<const Eigen::VectorXd> map(values.data() + 1, 5);
    CHECK(interop::as_span(map).data() == values.data() + 1);
    CHECK(interop::as_span(map.segment(2, 3)).data() == values.data() + 3);
    CHECK(interop::as_span(map.segment(2, 3)).size() == 3);
    CHECK(interop::as_span(map.transpose()).data() == values.data() + 1);
    const Eigen::Ref<const Eigen::VectorXd> reference(map);
    CHECK(interop::as_span(reference).data() == values.data() + 1);
    const Eigen::MatrixXd columns = Eigen::MatrixXd::Random(4, 3);
    CHECK(interop::as_span(columns.col(2)).data() == columns.data() + 8);
    const batch_type rows = batch_type::Random(4, 3);
    CHECK(interop::as_span(rows.row(2)).data() == rows.data() + 6);
}

TEST_CASE("as_span of an empty vector is empty") {
    CHECK(interop::as_span(Eigen::VectorXf()).empty());
}

TEST_CASE("row_span shows row i of a row-major batch, also of a block with a longer row behind it") {
    const batch_type batch = batch_type::Random(4, 7);
    CHECK(interop::row_span(batch, 0).data() == batch.data());
    CHECK(interop::row_span(batch, 3).data() == batch.data() + 21);
    CHECK(interop::row_span(batch, 3).size() == 7);
    const auto part = batch.block(1, 2, 3, 4);
    CHECK(interop::row_span(part, 1).data() == batch.data() + 2 * 7 + 2);
    CHECK(interop::row_span(part, 1).size() == 4);
    std::vector<float> values(40);
    const Eigen::Map<const batch_type, 0, Eigen::OuterStride<>> strided(values.data(), 4, 7,
                                                                        Eigen::OuterStride<>(10));
    CHECK(interop::row_span(strided, 2).data() == values.data() + 20);
    const Eigen::RowVectorXf one = Eigen::RowVectorXf::Random(7);
    CHECK(interop::row_span(one, 0).data() == one.data());
}

TEST_CASE("row_span refuses rows that are not there") {
    const batch_type batch = batch_type::Random(4, 7);
    CHECK_THROWS_AS(interop::row_span(batch, 4), shape_error);
    CHECK_THROWS_AS(interop::row_span(batch, -1), shape_error);
    CHECK_THROWS_WITH(static_cast<void>(interop::row_span(batch, 4)),
                      "interop::row_span: got row 4, expected one of the batch's 4");
}

TEST_CASE("as_matrix shows a lora matrix's own memory, row by row, and writes to it") {
    lora::matrix m(2, 3);
    m.values = {1, 2, 3, 4, 5, 6};
    const lora::matrix& constant = m;
    const auto map = interop::as_matrix(constant);
    CHECK(map.data() == m.values.data());
    CHECK(map.rows() == 2);
    CHECK(map.cols() == 3);
    CHECK(map(1, 0) == 4);
    const Eigen::MatrixXf columns =
        Eigen::MatrixXf::Random(2, 3);  // column-major: assigned by place, not by memory
    interop::as_matrix(m) = columns;
    CHECK(m.row(1)[2] == columns(1, 2));
    CHECK(m.row(0)[1] == columns(0, 1));
    m.values.pop_back();
    CHECK_THROWS_AS(interop::as_matrix(constant), shape_error);
    CHECK_THROWS_AS(interop::as_matrix(m), shape_error);
}

TEST_CASE("as_vector shows the memory of a result, to_vector copies it") {
    const std::vector<double> delta = {1, 2, 3};
    const auto view = interop::as_vector(delta);
    CHECK(view.data() == delta.data());
    CHECK(view.size() == 3);
    const Eigen::VectorXd copy = interop::to_vector(std::vector<double>{1, 2, 3});
    CHECK(copy == view);
    CHECK(copy.data() != view.data());
}

TEST_CASE(
    "vectors and the rows of a batch go through encryption as they are and come back as Eigen vectors") {
    const Eigen::MatrixXf a = Eigen::MatrixXf::Random(6, 100);
    const Eigen::MatrixXf b = Eigen::MatrixXf::Random(40, 6);
    lora::adapter_site site{"q_proj", lora::matrix(6, 100), lora::matrix(40, 6), 2.0};
    interop::as_matrix(site.a) = a;
    interop::as_matrix(site.b) = b;
    const lora::server<small_slots, lora::replicated_slots<>, lora::reveals_adapter_rows> server(site.a);
    lora::client<small_slots> client;
    const auto answer = [&](const auto& query) {
        return client.decrypt(server.plan(), server.apply(query.request), query);
    };
    const batch_type tokens = batch_type::Random(3, 100);
    const Eigen::MatrixXd expected =
        2.0 * (b.cast<double>() * (a.cast<double>() * tokens.cast<double>().transpose()));
    batch_type deltas(3, 40);
    for (Eigen::Index i = 0; i < tokens.rows(); ++i) {
        const auto product = answer(client.encrypt(server.plan(), interop::row_span(tokens, i)));
        const Eigen::VectorXd delta = interop::to_vector(lora::apply_b(site, product));
        CHECK((delta - expected.col(i)).norm() < 1e-6 * expected.col(i).norm());
        deltas.row(i) = delta.cast<float>();
    }
    CHECK((deltas.cast<double>() - expected.transpose()).norm() < 1e-6 * expected.norm());
    const Eigen::VectorXd h = tokens.row(1).cast<double>();
    const auto product = answer(client.encrypt(server.plan(), interop::as_span(h)));
    CHECK((interop::to_vector(lora::apply_b(site, product)) - expected.col(1)).norm() <
          1e-6 * expected.col(1).norm());
}
