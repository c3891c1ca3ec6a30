// expect: deleted function
#include <tensafe/interop/eigen.hpp>

#include <vector>

void use() {
    std::vector<double> v(3);
    (void)tensafe::interop::as_vector(v);
#ifdef TENSAFE_COMPILE_FAIL
    auto w = tensafe::interop::as_vector(std::vector<double>(3));
#endif
}
