// expect: no matching function
#include <tensafe/rns/pointwise.hpp>

using chain = tensafe::rns::basis<3, 97, 113>;
using values = tensafe::rns::poly<chain, tensafe::rns::evaluation_form>;
using shorter = tensafe::rns::poly<tensafe::rns::prefix<chain, 1>, tensafe::rns::evaluation_form>;

void sum(values& a, const values& b) {
    tensafe::rns::add(a, b);
}

#ifdef TENSAFE_COMPILE_FAIL
void sum(values& a, const shorter& b) {
    tensafe::rns::add(a, b);
}
#endif
