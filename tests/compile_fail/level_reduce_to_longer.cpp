// expect: rns::prefix: a chain can only get shorter
#include <tensafe/rns/pointwise.hpp>

using chain = tensafe::rns::basis<3, 97, 113>;
using values = tensafe::rns::poly<chain, tensafe::rns::evaluation_form>;

auto keep_both(const values& p) {
    return tensafe::rns::level_reduce<2>(p);
}

#ifdef TENSAFE_COMPILE_FAIL
auto keep_three(const values& p) {
    return tensafe::rns::level_reduce<3>(p);
}
#endif
