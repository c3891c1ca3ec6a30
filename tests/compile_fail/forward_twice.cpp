// expect: no matching function
#include <tensafe/rns/poly.hpp>

using chain = tensafe::rns::basis<3, 97, 113>;
using values = tensafe::rns::poly<chain, tensafe::rns::evaluation_form>;
using coefficients = tensafe::rns::poly<chain, tensafe::rns::coefficient_form>;

values once(const coefficients& p) {
    return tensafe::rns::forward(p);
}

#ifdef TENSAFE_COMPILE_FAIL
auto twice(const coefficients& p) {
    return tensafe::rns::forward(once(p));
}
#endif
