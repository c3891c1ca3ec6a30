// expect: deleted function
#include <tensafe/rns/rescale.hpp>

using chain = tensafe::rns::basis<3, 97, 113>;
using values = tensafe::rns::poly<chain, tensafe::rns::evaluation_form>;
using last = tensafe::rns::poly<tensafe::rns::prefix<chain, 1>, tensafe::rns::evaluation_form>;

last drop(const values& p) {
    return tensafe::rns::rescale(p);
}

#ifdef TENSAFE_COMPILE_FAIL
auto drop(const last& p) {
    return tensafe::rns::rescale(p);
}
#endif
