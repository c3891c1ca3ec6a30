// expect: no level left
#include <tensafe/ckks/evaluate.hpp>

namespace ckks = tensafe::ckks;
using P = ckks::n8192_l4;

ckks::ciphertext<P, 0> last(const ckks::ciphertext<P, 1>& c) {
    return ckks::rescale(c);
}

#ifdef TENSAFE_COMPILE_FAIL
void one_too_many(const ckks::ciphertext<P, 0>& c) {
    ckks::rescale(c);
}
#endif
