// expect: lora::coefficient_tiles: the number of rows must be a power of two
#include <tensafe/lora/protocol/cost.hpp>

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;

#ifdef TENSAFE_COMPILE_FAIL
using packing = lora::coefficient_tiles<3>;
#else
using packing = lora::coefficient_tiles<4>;
#endif

// Through a user of the packing: naming the tag does not complete it.
const auto cost = lora::cost_of<ckks::private_n4096, packing>({32, 2048, 0});
