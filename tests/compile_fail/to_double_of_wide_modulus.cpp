// expect: rns::to_double: the modulus must be below 2^1023
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/rns/crt.hpp>

#include <array>

namespace ckks = tensafe::ckks;
namespace rns = tensafe::rns;
using tensafe::arith::word;

template <int... Bits>
using chain = typename ckks::parameters<10, ckks::limb_bits<Bits...>, 40, ckks::insecure_for_tests>::basis;
using widest = chain<61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 47>;

double largest_range(const std::array<word, 17>& residues) {
    return rns::to_double<widest>(residues);
}

#ifdef TENSAFE_COMPILE_FAIL
using too_wide = chain<61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 61, 48>;

double infinite(const std::array<word, 17>& residues) {
    return rns::to_double<too_wide>(residues);
}
#endif
