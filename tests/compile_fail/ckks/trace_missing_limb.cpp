// expect: ckks::decrypt_trace: the ciphertext has fewer limbs
#include <tensafe/ckks/trace.hpp>

namespace ckks = tensafe::ckks;
using P = ckks::n8192_l4;

ckks::trace<P, 2> all_limbs(const ckks::secret_key<P>& key, const ckks::ciphertext<P, 1>& c) {
    return ckks::decrypt_trace<2>(key, c, 5);
}

#ifdef TENSAFE_COMPILE_FAIL
ckks::trace<P, 3> more(const ckks::secret_key<P>& key, const ckks::ciphertext<P, 1>& c) {
    return ckks::decrypt_trace<3>(key, c, 5);
}
#endif
