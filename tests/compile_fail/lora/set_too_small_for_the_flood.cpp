// expect: budget_for
#include <tensafe/lora/protocol/cost.hpp>

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;

#ifdef TENSAFE_COMPILE_FAIL
using P = ckks::minimal_n2048;
#else
using P = ckks::private_n4096;
#endif

constexpr auto cost = lora::cost_of<P, lora::coefficient_tiles<4>>({32, 2048});
static_assert(cost.bytes() > 0);
