// expect: this set cannot hold replies of this shape at this protection
#include <tensafe/lora/protocol/cost.hpp>

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;

#ifdef TENSAFE_COMPILE_FAIL
using P = ckks::minimal_n2048;
#else
using P = ckks::private_n4096;
#endif

constexpr int rows = lora::best_tiling<lora::site_shape{32, 2048, 0}, P>;
static_assert(rows > 0);
