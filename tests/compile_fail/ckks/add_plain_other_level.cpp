// expect: encode_like(c, slots)
#include <tensafe/ckks/evaluate.hpp>

namespace ckks = tensafe::ckks;
using P = ckks::n8192_l4;
template <int Level>
using addend = ckks::plaintext<P, tensafe::rns::evaluation_form, Level>;

void of_its_level(ckks::ciphertext<P, 2>& c, const addend<2>& p) {
    ckks::add_plain(c, p);
}

#ifdef TENSAFE_COMPILE_FAIL
void of_another_level(ckks::ciphertext<P, 2>& c, const addend<3>& p) {
    ckks::add_plain(c, p);
}
#endif
