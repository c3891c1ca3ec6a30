// expect: deleted
#include <tensafe/lora/adapter/adapter.hpp>

tensafe::lora::matrix read();

float first() {
#ifdef TENSAFE_COMPILE_FAIL
    return read().row(0)[0];
#else
    const auto m = read();
    return m.row(0)[0];
#endif
}
