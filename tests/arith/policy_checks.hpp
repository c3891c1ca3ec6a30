#pragma once

#include <tensafe/arith/policy.hpp>

#include "../test.hpp"

// What every policy must do, for moduli of 20 to 61 bits.

namespace policy_checks {

using namespace tensafe::arith;

/// Calls f.template operator()<Bits>() for Bits = 20 .. Widest.
template <int Widest, class F>
void for_each_width(F f) {
    [&]<int... I>(std::integer_sequence<int, I...>) {
        (f.template operator()<20 + I>(), ...);
    }
    (std::make_integer_sequence<int, Widest - 19>{});
}

template <int Bits>
inline constexpr word least = (word{1} << (Bits - 1)) + 1;
template <int Bits>
inline constexpr word greatest = (word{1} << Bits) - 1;

/// x * w by the policy, unreduced; x may be anything that the widest bound admits.
template <class Policy>
constexpr auto lazy_product(const Policy& policy, word x, word w) {
    using representation = typename Policy::representation;
    const below<Policy::max_multiple, typename Policy::modulus_type, representation> operand{
        static_cast<representation>(x)};
    return policy.multiply(operand, policy.prepare(w)).value;
}

template <class Policy>
bool product_is_right(const Policy& policy, word x, word w) {
    using representation = typename Policy::representation;
    const word q = policy.modulus().value();
    const representation product = lazy_product(policy, x, w);
    return product >= 0 && product < static_cast<representation>(Policy::product_bound * q) &&
           static_cast<word>(product) % q == static_cast<word>(mul_wide(x, w) % q);
}

struct operands {
    std::vector<word> values;   ///< below multiple * q: around every multiple of q, and random
    std::vector<word> factors;  ///< below q
};
inline operands some_operands(word q, unsigned multiple) {
    operands result{{0, 1, 2, multiple * q - 1}, {0, 1, 2, 3, q / 2, q / 2 + 1, q - 2, q - 1}};
    for (unsigned k = 1; k <= multiple; k = k < 20 ? k + 1 : 2 * k) {
        result.values.insert(result.values.end(), {k * q - 2, k * q - 1});
        if (k < multiple) {
            result.values.insert(result.values.end(), {k * q, k * q + 1});
        }
    }
    tests::random_numbers random(q);
    for (int i = 0; i < 40; ++i) {
        result.values.push_back(random() % (multiple * q));
        result.factors.push_back(random() % q);
    }
    return result;
}

/// The first wrong product; empty if all are right.
template <class Policy>
std::string wrong_product(const Policy& policy) {
    const word q = policy.modulus().value();
    const operands all = some_operands(q, Policy::max_multiple);
    for (const word x : all.values) {
        for (const word w : all.factors) {
            if (!product_is_right(policy, x, w)) {
                return std::to_string(x) + " * " + std::to_string(w) + " modulo " + std::to_string(q);
            }
        }
    }
    return "";
}

inline void expect_none(const std::string& wrong) {
    CHECK(wrong == "");
}

/// Moduli known at run time: the least, the greatest and some other odd number of each width, by themselves
/// and as a member of their class.
template <template <class> class Policy, int Widest>
void check_runtime_moduli() {
    for_each_width<Widest>([]<int Bits>() {
        using modulus = runtime_modulus<Bits>;
        tests::random_numbers random(Bits);
        const word other = least<Bits> + (random() % (word{1} << (Bits - 1)) & ~word{1});
        for (const word q : {least<Bits>, greatest<Bits>, other}) {
            expect_none(wrong_product(Policy<modulus>(modulus(q))));
            expect_none(wrong_product(Policy<modulus_class<Bits>>(modulus_class<Bits>(q))));
        }
    });
}

/// Moduli in the type: the greatest of each width, whose bounds are the tightest.
template <template <class> class Policy, int Widest>
void check_fixed_moduli() {
    for_each_width<Widest>(
        []<int Bits>() { expect_none(wrong_product(Policy<fixed_modulus<greatest<Bits>>>())); });
}

template <class Policy>
constexpr auto some_products(const Policy& policy) {
    const word q = policy.modulus().value();
    const word top = Policy::max_multiple * q - 1;
    return std::array{lazy_product(policy, top, q - 1), lazy_product(policy, top / 3, q / 5),
                      lazy_product(policy, q, 1), lazy_product(policy, top, 0)};
}

template <template <class> class Policy, int Widest>
void check_constant_evaluation() {
    for_each_width<Widest>([]<int Bits>() {
        using policy = Policy<runtime_modulus<Bits>>;
        constexpr auto at_compile_time = some_products(policy(runtime_modulus<Bits>(greatest<Bits>)));
        volatile word q = greatest<Bits>;
        const bool same = some_products(policy(runtime_modulus<Bits>(q))) == at_compile_time;
        expect_none(same ? "" : std::to_string(Bits) + " bits");
    });
}

template <class Policy>
void check_conversion() {
    const word q = Policy::modulus_type::largest;
    for (const word x : {word{0}, word{1}, q / 2, q - 1}) {
        CHECK(Policy::to_word(Policy::from_word(x)) == x);
    }
}

}  // namespace policy_checks
