// expect: rns::poly::limb: the chain has no such limb
#include <tensafe/rns/poly.hpp>

using chain = tensafe::rns::basis<3, 97, 113>;
using values = tensafe::rns::poly<chain, tensafe::rns::evaluation_form>;

auto last_limb(values& p) {
    return p.limb<1>();
}

#ifdef TENSAFE_COMPILE_FAIL
auto limb_after_the_last(values& p) {
    return p.limb<2>();
}
#endif
