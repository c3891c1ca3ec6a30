// Primes of 16 to 45 bits.
#include <tensafe/tensafe.hpp>

TENSAFE_KERNELS(template, 35)
TENSAFE_KERNELS(template, 45)
