// expect: interop::as_span: the entries are not next to each other in memory
#include <tensafe/interop/eigen.hpp>

#include <vector>

void use() {
    float d[8];
    Eigen::Map<Eigen::VectorXf, 0, Eigen::InnerStride<>> m(d, 4, Eigen::InnerStride<>(2));
#ifdef TENSAFE_COMPILE_FAIL
    (void)tensafe::interop::as_span(m);
#endif
}
