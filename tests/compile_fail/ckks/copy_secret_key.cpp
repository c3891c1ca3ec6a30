// expect: one owner: move it
#include <tensafe/ckks/keys.hpp>

#include <utility>

namespace ckks = tensafe::ckks;
using P = ckks::n8192_l4;

ckks::secret_key<P> moved(ckks::secret_key<P>& key) {
    return std::move(key);
}

#ifdef TENSAFE_COMPILE_FAIL
ckks::secret_key<P> copied(const ckks::secret_key<P>& key) {
    return key;
}
#endif
