// expect: level_reduce one first
#include <tensafe/ckks/evaluate.hpp>

namespace ckks = tensafe::ckks;
using P = ckks::n8192_l4;

void same_level(ckks::ciphertext<P, 1>& a, const ckks::ciphertext<P, 2>& b) {
    ckks::add(a, ckks::level_reduce<1>(b));
}

#ifdef TENSAFE_COMPILE_FAIL
void different_levels(ckks::ciphertext<P, 1>& a, const ckks::ciphertext<P, 2>& b) {
    ckks::add(a, b);
}
#endif
