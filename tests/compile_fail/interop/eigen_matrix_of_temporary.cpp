// expect: deleted function
#include <tensafe/interop/eigen.hpp>

#include <vector>

void use() {
    tensafe::lora::matrix m(3, 4);
    (void)tensafe::interop::as_matrix(m);
#ifdef TENSAFE_COMPILE_FAIL
    (void)tensafe::interop::as_matrix(tensafe::lora::matrix(3, 4));
#endif
}
