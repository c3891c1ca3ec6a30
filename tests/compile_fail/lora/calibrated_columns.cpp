// expect: lora::column_batched: average-case ranges are for coefficient_tiles; use lora::worst_case
#include <tensafe/lora/packing/column_batched.hpp>

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;

#ifdef TENSAFE_COMPILE_FAIL
using protection = lora::protects_adapter_rows<lora::average_case<6>>;
#else
using protection = lora::protects_adapter_rows<lora::worst_case>;
#endif

std::size_t inputs(const lora::layout<ckks::private_n4096, lora::column_batched, protection>& l) {
    return l.inputs();
}
