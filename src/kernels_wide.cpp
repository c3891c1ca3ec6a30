// Primes of 50 and of 60 bits.
#include <tensafe/tensafe.hpp>

TENSAFE_KERNELS(template, 50)
TENSAFE_KERNELS(template, 60)
