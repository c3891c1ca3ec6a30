// expect: a server never holds a secret key
#include <tensafe/ckks/keys.hpp>
#include <tensafe/lora/protocol/server.hpp>

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;
using P = ckks::n8192_l4;

lora::server<P> without_key(const lora::matrix& a) {
    return lora::server<P>(a);
}

#ifdef TENSAFE_COMPILE_FAIL
lora::server<P> with_key(const lora::matrix& a, const ckks::secret_key<P>& key) {
    return lora::server<P>(a, key);
}
#endif
