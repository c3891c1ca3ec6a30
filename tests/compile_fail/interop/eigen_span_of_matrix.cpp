// expect: interop::as_span: this is a matrix; for one hidden state of a batch use row_span(batch, i)
#include <tensafe/interop/eigen.hpp>

#include <vector>

void use() {
    Eigen::MatrixXf m(3, 4);
#ifdef TENSAFE_COMPILE_FAIL
    (void)tensafe::interop::as_span(m);
#endif
}
