// expect: forward() it first
#include <tensafe/ckks/evaluate.hpp>

#include <utility>

namespace ckks = tensafe::ckks;
using P = ckks::n8192_l4;
using encoded = ckks::plaintext<P, tensafe::rns::coefficient_form>;

void transformed(ckks::ciphertext<P>& c, encoded p) {
    ckks::add_plain(c, ckks::forward(std::move(p)));
}

#ifdef TENSAFE_COMPILE_FAIL
void as_encoded(ckks::ciphertext<P>& c, const encoded& p) {
    ckks::add_plain(c, p);
}
#endif
