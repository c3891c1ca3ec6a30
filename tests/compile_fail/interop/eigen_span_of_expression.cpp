// expect: interop::as_span: an expression has no memory to show
#include <tensafe/interop/eigen.hpp>

#include <vector>

void use() {
    Eigen::VectorXf a(3), b(3);
    (void)tensafe::interop::as_span(a);
#ifdef TENSAFE_COMPILE_FAIL
    (void)tensafe::interop::as_span(a + b);
#endif
}
