// expect: inverse() it first
#include <tensafe/ckks/encrypt.hpp>

#include <utility>

namespace ckks = tensafe::ckks;
using P = ckks::n8192_l4;
using transformed = ckks::plaintext<P, tensafe::rns::evaluation_form>;

ckks::ciphertext<P> back_to_coefficients(const ckks::public_key<P>& key, transformed p,
                                         tensafe::random::generator& generator) {
    return ckks::encrypt(key, ckks::inverse(std::move(p)), generator);
}

#ifdef TENSAFE_COMPILE_FAIL
void as_it_is(const ckks::secret_key<P>& key, transformed p, tensafe::random::generator& generator) {
    ckks::encrypt(key, std::move(p), generator);
}
#endif
