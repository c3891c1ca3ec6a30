// expect: interop::as_span: the entries must be float or double
#include <tensafe/interop/eigen.hpp>

#include <vector>

void use() {
    Eigen::VectorXi m(3);
#ifdef TENSAFE_COMPILE_FAIL
    (void)tensafe::interop::as_span(m);
#endif
}
