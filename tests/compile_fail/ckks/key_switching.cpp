// Products and rotations: what the set, the keys or the levels do not have is refused by name.
#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/multiply.hpp>
#include <tensafe/ckks/rotate.hpp>

using namespace tensafe;
using P = ckks::n8192_depth2;
template <int Level>
using encrypted = ckks::ciphertext<P, Level>;
using keys = ckks::galois_keys<P, ckks::rotations<1, -2>>;

auto rotate(const encrypted<1>& c, const keys& k) {
    return ckks::rotate<-2>(ckks::rotate<1>(c, k), k);
}
#ifdef NO_KEY_FOR_THE_STEP
// expect: ckks::rotate: no key for this step; add it to the keys' rotations<...>
auto rotate_by_two(const encrypted<1>& c, const keys& k) {
    return ckks::rotate<2>(c, k);
}
#endif
#ifdef NO_KEY_FOR_THE_CONJUGATION
// expect: ckks::conjugate: no key; add conjugation to the keys' lists
auto conjugate(const encrypted<1>& c, const keys& k) {
    return ckks::conjugate(c, k);
}
#endif

auto multiply(const encrypted<1>& c, const ckks::relinearization_key<P, 1>& k) {
    return ckks::multiply_rescale(c, c, k);
}
#ifdef KEY_FOR_LOWER_LEVELS
// expect: this key is for lower levels than the ciphertext's
auto multiply_higher(const encrypted<2>& c, const ckks::relinearization_key<P, 1>& k) {
    return ckks::multiply_rescale(c, c, k);
}
#endif
#ifdef NO_LEVEL_FOR_A_PRODUCT
// expect: no level left; take a deeper set
auto multiply_lowest(const encrypted<0>& c, const ckks::relinearization_key<P>& k) {
    return ckks::multiply_rescale(c, c, k);
}
#endif
#ifdef PRODUCT_OF_TWO_LEVELS
// expect: adjust_level() one first
auto multiply_levels(const encrypted<1>& a, const encrypted<2>& b, const ckks::relinearization_key<P>& k) {
    return ckks::multiply_rescale(a, b, k);
}
#endif
#ifdef ADJUST_UPWARDS
// expect: ckks::adjust_level: a ciphertext can only lose levels
auto adjust(const encrypted<1>& c) {
    return ckks::adjust_level<2>(c);
}
#endif

#ifdef SET_WITHOUT_SPECIAL_PRIMES
// expect: this parameter set switches no keys; take one with key_switching<...>
auto make(const ckks::secret_key<ckks::n8192_l4>& s, random::generator& generator) {
    return ckks::relinearization_key<ckks::n8192_l4>(s, generator);
}
#endif
#ifdef NARROW_SPECIAL_PRIMES
// expect: ckks::key_switching: the special primes are narrower than the widest digit
using narrow = ckks::parameters<13, ckks::scaled_limbs<47, 2, 40>, 40, ckks::secure_128,
                                ckks::key_switching<2, ckks::special_bits<50>>>;
constexpr auto limbs = narrow::limbs;
#endif
#ifdef SPECIAL_PRIMES_COUNT_FOR_SECURITY
// expect: the modulus is too wide for 128-bit security at this degree
using wide = ckks::parameters<13, ckks::scaled_limbs<47, 3, 40>, 40, ckks::secure_128,
                              ckks::key_switching<1, ckks::special_bits<60>>>;
constexpr auto limbs_of_wide = wide::limbs;
#endif
#ifdef SPECIAL_PRIME_OF_THE_CHAIN
// expect: rns::basis: the primes of a chain must be distinct
using doubled = ckks::parameters<13, ckks::scaled_limbs<47, 2, 40>, 40, ckks::secure_128,
                                 ckks::key_switching<1, ckks::special_primes<P::basis::primes[0]>>>;
constexpr auto limbs_of_doubled = doubled::limbs;
#endif
#ifdef SPECIAL_PRIME_THAT_IS_NONE
// expect: rns::basis: every modulus must be a prime that is 1 modulo 2N
using composite = ckks::parameters<13, ckks::scaled_limbs<47, 2, 40>, 40, ckks::secure_128,
                                   ckks::key_switching<1, ckks::special_primes<(1ULL << 48) + 1>>>;
constexpr auto limbs_of_composite = composite::limbs;
#endif
#ifdef NO_SPECIAL_PRIME
// expect: ckks::key_switching: the number of special primes must be in [1, 31]
using none = ckks::parameters<13, ckks::scaled_limbs<47, 2, 40>, 40, ckks::secure_128,
                              ckks::key_switching<1, ckks::special_primes<>>>;
constexpr auto limbs_of_none = none::limbs;
#endif
#ifdef SPECIAL_PRIMES_TOO_NARROW_FOR_THE_DEGREE
// expect: ckks::key_switching: each special prime must be wider than log_n + 1 bits and at most 61 bits
using flat = ckks::parameters<13, ckks::scaled_limbs<47, 2, 40>, 40, ckks::secure_128,
                              ckks::key_switching<1, ckks::special_bits<13>>>;
constexpr auto limbs_of_flat = flat::limbs;
#endif
#ifdef CHAIN_THAT_LOSES_THE_SCALE
// expect: ckks::parameters: with these primes products do not keep the scale
using losing = ckks::parameters<14, ckks::limb_bits<60, 40, 40, 60>, 40, ckks::secure_128,
                                ckks::key_switching<1, ckks::special_bits<61>>>;
constexpr auto limbs_of_losing = losing::limbs;
#endif
#ifdef NO_LIST_OF_ROTATIONS
// expect: ckks::galois_keys: the lists are rotations<...> and conjugation
constexpr bool turns = ckks::galois_keys<P, int>::rotates_by(1);
#endif
#ifdef SUM_OF_PRODUCTS_OF_TWO_LEVELS
// expect: of ciphertexts of one level
void add(ckks::ciphertext_product<P, 1>& a, const ckks::ciphertext_product<P, 2>& b) {
    ckks::add(a, b);
}
#endif
