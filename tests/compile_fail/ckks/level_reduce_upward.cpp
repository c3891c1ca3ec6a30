// expect: ckks::level_reduce: a ciphertext can only lose levels
#include <tensafe/ckks/evaluate.hpp>

namespace ckks = tensafe::ckks;
using P = ckks::n8192_l4;

ckks::ciphertext<P, 0> down(const ckks::ciphertext<P, 1>& c) {
    return ckks::level_reduce<0>(c);
}

#ifdef TENSAFE_COMPILE_FAIL
ckks::ciphertext<P, 2> up(const ckks::ciphertext<P, 1>& c) {
    return ckks::level_reduce<2>(c);
}
#endif
