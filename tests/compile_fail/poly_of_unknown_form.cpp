// expect: rns::poly: the form is coefficient_form or evaluation_form
#include <tensafe/rns/poly.hpp>

using chain = tensafe::rns::basis<3, 97, 113>;
using values = tensafe::rns::poly<chain, tensafe::rns::evaluation_form>;
struct other_form {};

template class tensafe::rns::poly<chain, tensafe::rns::evaluation_form>;

#ifdef TENSAFE_COMPILE_FAIL
template class tensafe::rns::poly<chain, other_form>;
#endif
