// expect: scheme_id: the range factor must be in [3, 64]
#include <tensafe/wire/scheme.hpp>

using namespace tensafe;

struct narrow {
    static constexpr bool can_overflow = true;
#ifdef TENSAFE_COMPILE_FAIL
    static constexpr int factor = 1;  // which is the number of `worst_case`
#else
    static constexpr int factor = 3;
#endif
};

static_assert(wire::scheme_id<lora::column_batched, lora::protects_adapter_rows<narrow>> != 0);
