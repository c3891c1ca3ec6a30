// expect: encode_factor(c, slots)
#include <tensafe/ckks/evaluate.hpp>

namespace ckks = tensafe::ckks;
using P = ckks::n8192_l4;
template <int Level>
using factor = ckks::plaintext<P, tensafe::rns::evaluation_form, Level>;

void of_its_level(ckks::ciphertext<P, 2>& c, const factor<2>& p) {
    ckks::multiply_plain(c, p);
}

#ifdef TENSAFE_COMPILE_FAIL
void of_another_level(ckks::ciphertext<P, 2>& c, const factor<3>& p) {
    ckks::multiply_plain(c, p);
}
#endif
