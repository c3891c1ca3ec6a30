// expect: interop::as_span: an expression has no memory to show
#include <tensafe/interop/eigen.hpp>

#include <vector>

void use() {
    Eigen::VectorXf m(4);
#ifdef TENSAFE_COMPILE_FAIL
    (void)tensafe::interop::as_span(m.reverse());
#endif
}
