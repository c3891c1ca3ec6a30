// expect: ckks::decrypt_folded: the ciphertext has fewer limbs
#include <tensafe/ckks/fold.hpp>

namespace ckks = tensafe::ckks;
using P = ckks::n8192_l4;

ckks::folded<P, 2> all_limbs(const ckks::secret_key<P>& key, const ckks::ciphertext<P, 1>& c) {
    return ckks::decrypt_folded<2>(tensafe::exec::host{}, key, c, 5);
}

#ifdef TENSAFE_COMPILE_FAIL
ckks::folded<P, 3> more(const ckks::secret_key<P>& key, const ckks::ciphertext<P, 1>& c) {
    return ckks::decrypt_folded<3>(tensafe::exec::host{}, key, c, 5);
}
#endif
