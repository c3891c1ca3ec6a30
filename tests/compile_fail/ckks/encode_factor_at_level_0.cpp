// expect: no level left
#include <tensafe/ckks/evaluate.hpp>

#include <vector>

namespace ckks = tensafe::ckks;
using P = ckks::n8192_l4;

auto with_a_level_left(const ckks::ciphertext<P, 1>& c, const std::vector<double>& slots) {
    return ckks::encode_factor(c, slots);
}

#ifdef TENSAFE_COMPILE_FAIL
auto with_none_left(const ckks::ciphertext<P, 0>& c, const std::vector<double>& slots) {
    return ckks::encode_factor(c, slots);
}
#endif
