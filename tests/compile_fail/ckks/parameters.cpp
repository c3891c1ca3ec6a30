// What is no parameter set; beside each the nearest that is one.
#include <tensafe/ckks/parameters.hpp>

using namespace tensafe::ckks;

static_assert(parameters<10, limb_bits<26>, 20>::limbs == 1);
#ifdef DEGREE_OUT_OF_RANGE
// expect: ckks::parameters: log_n must be in [10, 17]
static_assert(parameters<9, limb_bits<26>, 20, insecure_for_tests>::limbs == 1);
#endif

static_assert(parameters<12, limb_bits<61>, 40>::limbs == 1);
#ifdef LIMB_TOO_WIDE
// expect: ckks::parameters: each limb must be wider than log_n + 1 bits and at most 61 bits
static_assert(parameters<12, limb_bits<62>, 40>::limbs == 1);
#endif

// 12289 is the only prime of 14 bits that is 1 modulo 2048.
static_assert(parameters<10, limb_bits<14>, 10>::basis::prime<0> == 12289);
#ifdef TOO_FEW_PRIMES
// expect: ckks::parameters: there are fewer NTT primes of this width; use wider limbs
static_assert(parameters<10, limb_bits<14, 14>, 10, insecure_for_tests>::limbs == 2);
#endif

static_assert(parameters<13, limb_bits<60, 60>, 62>::scale == 0x1p62);
#ifdef SCALE_BITS_OUT_OF_RANGE
// expect: ckks::parameters: scale_bits must be in [1, 62]
static_assert(parameters<13, limb_bits<60, 60>, 63>::limbs == 2);
#endif

static_assert(parameters<14, limb_bits<40>, 39>::limbs == 1);
#ifdef SCALE_TOO_LARGE
// expect: the scale must be smaller than the modulus
static_assert(parameters<14, limb_bits<40>, 40>::limbs == 1);
#endif

static_assert(parameters<13, limb_bits<60, 40, 54, 60>, 40>::limbs == 4);
#ifdef INSECURE_MODULUS
// expect: the modulus is too wide for 128-bit security at this degree
static_assert(parameters<13, limb_bits<60, 40, 55, 60>, 40>::limbs == 4);
#endif

static_assert(parameters<12, limb_bits<40, 40>, 30, quantum_128>::limbs == 2);
#ifdef QUANTUM_MODULUS
// expect: the modulus is too wide for quantum_128 at this degree
static_assert(parameters<12, limb_bits<41, 40>, 30, quantum_128>::limbs == 2);
#endif

static_assert(parameters<16, limb_bits<60, 40>, 40>::limbs == 2);
#ifdef QUANTUM_DEGREE
// expect: ckks::parameters: quantum_128 has figures for log_n of 10 to 15 only
static_assert(parameters<16, limb_bits<60, 40>, 40, quantum_128>::limbs == 2);
#endif

static_assert(parameters<13, limb_bits<60, 40>, 40, secure_128>::limbs == 2);
#ifdef UNKNOWN_SECURITY_TAG
// expect: the security tag must be secure_128, quantum_128 or insecure_for_tests
struct secure_enough {};
static_assert(parameters<13, limb_bits<60, 40>, 40, secure_enough>::limbs == 2);
#endif
