// expect: interop::row_span: an expression has no memory to show
#include <tensafe/interop/eigen.hpp>

#include <vector>

void use() {
    Eigen::MatrixXf m(3, 4);
#ifdef TENSAFE_COMPILE_FAIL
    (void)tensafe::interop::row_span(m * 2.0f, 1);
#endif
}
