// expect: the third argument is the protection of replies
#include <tensafe/lora/protocol/server.hpp>

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;

#ifdef TENSAFE_COMPILE_FAIL
using protection = lora::average_case<6>;
#else
using protection = lora::protects_adapter_rows<lora::average_case<6> >;
#endif

const lora::server<ckks::compact_n4096, lora::coefficient_tiles<4>, protection>* none = nullptr;
constexpr auto size = sizeof(*none);
