// Only what has its entries side by side in memory, and outlives the view, is seen as a span or as Eigen's.
#include <tensafe/interop/eigen.hpp>

#include <vector>

using namespace tensafe;

void views(std::vector<double>& v, lora::matrix& m) {
    (void)interop::as_vector(v);
    (void)interop::as_matrix(m);
#ifdef VECTOR_OF_TEMPORARY
    // expect: deleted function
    (void)interop::as_vector(std::vector<double>(3));
#endif
#ifdef MATRIX_OF_TEMPORARY
    // expect: deleted function
    (void)interop::as_matrix(lora::matrix(3, 4));
#endif
}

void spans(Eigen::VectorXf& a, Eigen::VectorXi& integers, Eigen::MatrixXf& m, float* memory) {
    (void)interop::as_span(a);
#ifdef SPAN_OF_EXPRESSION
    // expect: interop::as_span: an expression has no memory to show
    (void)interop::as_span(a + a);
#endif
#ifdef SPAN_OF_REVERSE
    // expect: interop::as_span: an expression has no memory to show
    (void)interop::as_span(a.reverse());
#endif
#ifdef SPAN_OF_INTEGERS
    // expect: interop::as_span: the entries must be float or double
    (void)interop::as_span(integers);
#endif
#ifdef SPAN_OF_MATRIX
    // expect: interop::as_span: this is a matrix; for one hidden state of a batch use row_span(batch, i)
    (void)interop::as_span(m);
#endif
#ifdef SPAN_OF_STRIDED_ROW
    // expect: interop::as_span: the entries are not next to each other in memory
    (void)interop::as_span(m.row(1));
#endif
    Eigen::Map<Eigen::VectorXf, 0, Eigen::InnerStride<>> every_other(memory, 4, Eigen::InnerStride<>(2));
#ifdef SPAN_OF_DYNAMIC_STRIDE
    // expect: interop::as_span: the entries are not next to each other in memory
    (void)interop::as_span(every_other);
#endif
}

void rows(Eigen::MatrixXf& m) {
#ifdef ROW_OF_COLUMN_MAJOR
    // expect: interop::row_span: the rows are not contiguous
    (void)interop::row_span(m, 1);
#endif
#ifdef ROW_OF_EXPRESSION
    // expect: interop::row_span: an expression has no memory to show
    (void)interop::row_span(m * 2.0f, 1);
#endif
}
