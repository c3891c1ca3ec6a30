// expect: lora::coefficient_tiles: the number of rows must be a power of two
#include <tensafe/lora/coefficient_tiles.hpp>

#ifdef TENSAFE_COMPILE_FAIL
constexpr int rows = tensafe::lora::coefficient_tiles<3>::rows;
#else
constexpr int rows = tensafe::lora::coefficient_tiles<4>::rows;
#endif

static_assert(rows > 0);
