#include <tensafe/arith/prime.hpp>
#include <tensafe/device/arith/signed_policies.hpp>

#include "../../test.hpp"

namespace {

using namespace tensafe;
using namespace tensafe::arith;
__extension__ typedef __int128 signed_wide;

template <word Q>
word residue(signed_wide x) {
    const signed_wide r = x % static_cast<signed_wide>(Q);
    return static_cast<word>(r < 0 ? r + static_cast<signed_wide>(Q) : r);
}

/// |x| <= bound * q / 256.
template <word Q>
bool is_within(std::int64_t x, int bound) {
    const signed_wide size = x < 0 ? -static_cast<signed_wide>(x) : static_cast<signed_wide>(x);
    return size * bound_of_q <= static_cast<signed_wide>(bound) * static_cast<signed_wide>(Q);
}

/// Of either sign: next to multiples and to halves of q, at the edge of the bound, and random.
template <word Q>
std::vector<std::int64_t> operands(int bound) {
    const auto q = static_cast<std::int64_t>(Q);
    const auto most =
        static_cast<std::int64_t>(static_cast<uint128>(static_cast<unsigned>(bound)) * Q / bound_of_q);
    std::vector<std::int64_t> values{0, 1, 2, q / 2, q / 2 + 1, most, most - 1, most - 2};
    tests::random_numbers random(Q);
    for (std::int64_t k = 1; k <= most / q && k < 9; ++k) {
        values.insert(values.end(), {k * q - 1, k * q, k * q + 1, k * q - q / 2, k * q - q / 2 - 1});
    }
    for (int i = 0; i < 2000; ++i) {
        values.push_back(static_cast<std::int64_t>(random() % (static_cast<word>(most) + 1)));
    }
    std::erase_if(values, [&](std::int64_t x) { return x > most; });
    const std::size_t count = values.size();
    for (std::size_t i = 0; i < count; ++i) {
        values.push_back(-values[i]);
    }
    return values;
}

template <class Policy, int Bound, word Q>
std::string first_wrong() {
    using operand = within<Policy, Bound>;
    using representation = typename Policy::representation;
    tests::random_numbers random(Bound);
    std::vector<word> factors{0, 1, 2, Q / 2, Q / 2 + 1, Q - 1, Q - 2};
    for (int i = 0; i < 20; ++i) {
        factors.push_back(random() % Q);
    }
    const std::vector<std::int64_t> values = operands<Q>(Bound);
    alignas(16) word table[2 * Policy::factor_words];
    for (const word w : factors) {
        Policy::prepare(w, table + Policy::factor_words);
        const auto factor = Policy::factor_at(table, 1);
        for (const std::int64_t y : values) {
            const auto product = Policy::multiply(operand{static_cast<representation>(y)}, factor);
            const auto number = static_cast<std::int64_t>(product.value);
            if (!is_within<Q>(number, Policy::product(Bound)) ||
                residue<Q>(number) != residue<Q>(static_cast<signed_wide>(residue<Q>(y)) * w)) {
                return std::to_string(y) + " * " + std::to_string(w);
            }
        }
    }
    for (const std::int64_t x : values) {
        const operand lazy{static_cast<representation>(x)};
        const auto reduced = static_cast<std::int64_t>(Policy::reduce(lazy).value);
        if (!is_within<Q>(reduced, Policy::reduced) || residue<Q>(reduced) != residue<Q>(x)) {
            return "reduce " + std::to_string(x);
        }
        if (Policy::canonical(lazy) != residue<Q>(x)) {
            return "canonical " + std::to_string(x);
        }
    }
    for (const word x : {word{0}, word{1}, Q / 2, Q - 1}) {
        if (static_cast<word>(static_cast<std::int64_t>(Policy::from_word(x).value)) != x) {
            return "from_word " + std::to_string(x);
        }
    }
    return "";
}

template <template <word> class Policy, word... Q>
void check_moduli() {
    const auto check = []<word P>() {
        using policy = Policy<P>;
        CAPTURE(P);
        CHECK(first_wrong<policy, policy::limit, P>() == "");
        CHECK(first_wrong<policy, bound_of_q, P>() == "");
    };
    (check.template operator()<Q>(), ...);
}

/// The least and the greatest odd number of this width, and a prime.
template <int Bits>
inline constexpr word least = (word{1} << (Bits - 1)) + 1;
template <int Bits>
inline constexpr word greatest = (word{1} << Bits) - 1;
template <int Bits>
inline constexpr word prime = ntt_prime_below(word{1} << Bits, 14);

TEST_CASE("products and reductions of balanced doubles are right and within their bounds up to 50 bits") {
    check_moduli<device::balanced, greatest<50>, least<50>, prime<50>, greatest<49>, prime<45>, greatest<40>,
                 least<35>, prime<20>, 257>();
}

TEST_CASE("products and reductions in signed digits are right and within their bounds from 51 to 61 bits") {
    check_moduli<device::signed_montgomery, greatest<61>, least<61>, prime<61>, greatest<60>, prime<60>,
                 least<60>, greatest<51>, least<51>, prime<55>>();
}

/// Digits of q at the edges: the lower one nearly -2^31, nearly 2^31, 1 and -1.
TEST_CASE("products in signed digits do not overflow for the worst lower digits of the modulus") {
    check_moduli<device::signed_montgomery, (word{1} << 60) + 0x80000001, (word{1} << 60) + 0x7FFFFFFF,
                 (word{1} << 60) + 1, (word{1} << 60) - 1, (word{1} << 61) - 0x80000001,
                 (word{1} << 61) - 0x7FFFFFFF>();
}

TEST_CASE("a prime of 50 bits can hold four multiples of itself and one of 61 bits almost four") {
    static_assert(device::balanced<greatest<50>>::limit == 4 * bound_of_q);
    static_assert(device::signed_montgomery<greatest<61>>::limit == 4 * bound_of_q - 1);
    // Rounded quotients: a sum of four balanced products fits, which four of arith::fp64 (below 3q) do not.
    static_assert(4 * device::balanced<greatest<45>>::product(bound_of_q) <= 3 * bound_of_q);
}

}  // namespace
