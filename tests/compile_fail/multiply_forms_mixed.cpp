// expect: deleted function
#include <tensafe/rns/pointwise.hpp>

using chain = tensafe::rns::basis<3, 97, 113>;
using values = tensafe::rns::poly<chain, tensafe::rns::evaluation_form>;
using coefficients = tensafe::rns::poly<chain, tensafe::rns::coefficient_form>;

void product(values& out, const values& a, const values& b) {
    tensafe::rns::multiply(out, a, b);
}

#ifdef TENSAFE_COMPILE_FAIL
void product(values& out, const values& a, const coefficients& b) {
    tensafe::rns::multiply(out, a, b);
}
#endif
