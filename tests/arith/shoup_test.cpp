#include <tensafe/arith/shoup.hpp>

#include "policy_checks.hpp"

namespace {

using namespace tensafe::arith;
using namespace policy_checks;

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
