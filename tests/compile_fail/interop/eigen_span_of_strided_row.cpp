// expect: interop::as_span: the entries are not next to each other in memory
#include <tensafe/interop/eigen.hpp>

#include <vector>

void use() {
    Eigen::MatrixXf m(3, 4);
#ifdef TENSAFE_COMPILE_FAIL
    (void)tensafe::interop::as_span(m.row(1));
#endif
}
