// expect: protected replies need the client's rerandomization_pool
#include <tensafe/ckks/keys.hpp>
#include <tensafe/lora/protocol/server.hpp>

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;
using P = ckks::private_n4096;
using server = lora::server<P>;

server::reply_type with_zeros(const server& s, const lora::request<P>& r,
                              lora::rerandomization_pool<P>& zeros) {
    return s.apply(r, zeros);
}

#ifdef TENSAFE_COMPILE_FAIL
server::reply_type without_zeros(const server& s, const lora::request<P>& r) {
    return s.apply(r);
}
#endif
