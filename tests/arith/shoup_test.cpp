#include <tensafe/arith/shoup.hpp>

#include <doctest/doctest.h>

#include <string>
#include <type_traits>

#include "policy_checks.hpp"

namespace {

using namespace tensafe::arith;
using namespace policy_checks;

TEST_CASE("lazy Shoup products are right and below their bound for moduli known at run time") {
    check_runtime_moduli<shoup, 61>();
}

TEST_CASE("lazy Shoup products are right and below their bound for moduli in the type") {
    check_fixed_moduli<shoup, 61>();
}

TEST_CASE("constant evaluation gives the same lazy Shoup products as run time") {
    check_constant_evaluation<shoup, 61>();
}

TEST_CASE("conversion to the Shoup representation and back is the identity on residues") {
    check_conversion<shoup<runtime_modulus<61>>>();
    check_conversion<shoup<runtime_modulus<20>>>();
}

template <int Bits>
bool reduces_words(word q) {
    const shoup<runtime_modulus<Bits>> policy{runtime_modulus<Bits>(q)};
    const auto one = policy.prepare(1);
    const word last = ~word{0} / q * q;
    for (const word x : {word{0}, word{1}, q - 1, q, ~word{0}, last, last - 1}) {
        const word lazy = policy.reduce_word(x, one).value;
        if (lazy >= 2 * q || lazy % q != x % q) {
            return false;
        }
    }
    return true;
}

TEST_CASE("Shoup's reduce_word is right for every kind of word") {
    for_each_width<61>([]<int Bits>() {
        const bool right = reduces_words<Bits>(least<Bits>) && reduces_words<Bits>(greatest<Bits>);
        expect_none(right ? "" : std::to_string(Bits) + " bits");
    });
}

TEST_CASE("with a fixed modulus a Shoup policy is an empty class") {
    CHECK(std::is_empty_v<shoup<fixed_modulus<97>>>);
}

}  // namespace
