// expect: split_stages: the number of global stages cannot be negative
#include <tensafe/ntt/transform.hpp>

template struct tensafe::ntt::split_stages<0>;

#ifdef TENSAFE_COMPILE_FAIL
template struct tensafe::ntt::split_stages<-1>;
#endif
