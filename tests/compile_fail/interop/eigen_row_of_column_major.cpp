// expect: interop::row_span: the rows are not contiguous
#include <tensafe/interop/eigen.hpp>

#include <vector>

void use() {
    Eigen::MatrixXf m(3, 4);
#ifdef TENSAFE_COMPILE_FAIL
    (void)tensafe::interop::row_span(m, 1);
#endif
}
