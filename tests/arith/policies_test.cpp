#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/montgomery.hpp>
#include <tensafe/arith/shoup.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace tensafe::arith;

struct barrett_policy {
    template <modulus M>
    using type = barrett<M>;
    static constexpr int widest = 61;
};
struct montgomery_policy {
    template <modulus M>
    using type = montgomery<M>;
    static constexpr int widest = 61;
};
struct shoup_policy {
    template <modulus M>
    using type = shoup<M>;
    static constexpr int widest = 61;
};
struct fp64_policy {
    template <modulus M>
    using type = fp64<M>;
    static constexpr int widest = 50;
};
#define EVERY_POLICY barrett_policy, montgomery_policy, shoup_policy, fp64_policy

/// Calls f.template operator()<Bits>() for Bits = 20 .. Widest.
template <int Widest, class F>
void for_each_width(F f) {
    [&]<int... I>(std::integer_sequence<int, I...>) {
        (f.template operator()<20 + I>(), ...);
    }
    (std::make_integer_sequence<int, Widest - 19>{});
}

template <int Bits>
constexpr word least = (word{1} << (Bits - 1)) + 1;
template <int Bits>
constexpr word greatest = (word{1} << Bits) - 1;

/// x * w by the policy, unreduced; the operand may be anything that the widest bound admits.
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

/// A description of the first wrong product at the edges of the bounds and at random; empty if all are right.
template <class Policy>
std::string wrong_product(const Policy& policy) {
    const word q = policy.modulus().value();
    std::vector<word> operands{0, 1, 2};
    for (unsigned k = 1; k <= Policy::max_multiple; k = k < 20 ? k + 1 : 2 * k) {
        operands.insert(operands.end(), {k * q - 2, k * q - 1});
        if (k < Policy::max_multiple) {
            operands.insert(operands.end(), {k * q, k * q + 1});
        }
    }
    operands.push_back(Policy::max_multiple * q - 1);
    std::vector<word> factors{0, 1, 2, 3, q / 2, q / 2 + 1, q - 2, q - 1};
    std::mt19937_64 random(q);
    for (int i = 0; i < 40; ++i) {
        operands.push_back(random() % (Policy::max_multiple * q));
        factors.push_back(random() % q);
    }
    for (const word x : operands) {
        for (const word w : factors) {
            if (!product_is_right(policy, x, w)) {
                return std::to_string(x) + " * " + std::to_string(w) + " modulo " + std::to_string(q);
            }
        }
    }
    return "";
}

TEST_CASE_TEMPLATE("lazy products are right and below their bound for moduli known at run time", Kind,
                   EVERY_POLICY) {
    for_each_width<Kind::widest>([]<int Bits>() {
        using modulus = runtime_modulus<Bits>;
        std::mt19937_64 random(Bits);
        const word any = least<Bits> + (random() % (word{1} << (Bits - 1)) & ~word{1});
        for (const word q : {least<Bits>, greatest<Bits>, any}) {
            CHECK(wrong_product(typename Kind::template type<modulus>(modulus(q))) == "");
        }
    });
}

TEST_CASE_TEMPLATE("lazy products are right and below their bound for moduli in the type", Kind,
                   EVERY_POLICY) {
    for_each_width<Kind::widest>([]<int Bits>() {
        CHECK(wrong_product(typename Kind::template type<fixed_modulus<least<Bits>>>()) == "");
        CHECK(wrong_product(typename Kind::template type<fixed_modulus<greatest<Bits>>>()) == "");
    });
}

template <class Policy>
constexpr auto some_products(const Policy& policy) {
    const word q = policy.modulus().value();
    const word top = Policy::max_multiple * q - 1;
    return std::array{lazy_product(policy, top, q - 1), lazy_product(policy, top / 3, q / 5),
                      lazy_product(policy, q, 1), lazy_product(policy, top, 0)};
}

TEST_CASE_TEMPLATE("constant evaluation gives the same lazy products as run time", Kind, EVERY_POLICY) {
    for_each_width<Kind::widest>([]<int Bits>() {
        using modulus = runtime_modulus<Bits>;
        using policy = typename Kind::template type<modulus>;
        constexpr auto at_compile_time = some_products(policy(modulus(greatest<Bits>)));
        volatile word q = greatest<Bits>;
        CAPTURE(Bits);
        CHECK(some_products(policy(modulus(q))) == at_compile_time);
    });
}

TEST_CASE_TEMPLATE("conversion to the representation and back is the identity on residues", Kind,
                   EVERY_POLICY) {
    using policy = typename Kind::template type<runtime_modulus<Kind::widest>>;
    for (const word x : {word{0}, word{1}, greatest<Kind::widest> / 2, greatest<Kind::widest> - 1}) {
        CHECK(policy::to_word(policy::from_word(x)) == x);
    }
}

TEST_CASE("a fixed modulus makes the policies that keep no table empty") {
    CHECK(std::is_empty_v<shoup<fixed_modulus<97>>>);
    CHECK(std::is_empty_v<fp64<fixed_modulus<97>>>);
    CHECK(sizeof(barrett<fixed_modulus<97>>) == sizeof(word));
    CHECK(sizeof(montgomery<fixed_modulus<97>>) == sizeof(word));
}

TEST_CASE("Barrett's reduction holds up to its last operand, 2^63 * q - 1") {
    for_each_width<61>([]<int Bits>() {
        for (const word q : {least<Bits>, greatest<Bits>}) {
            const barrett<runtime_modulus<Bits>> policy{runtime_modulus<Bits>(q)};
            const wide end = static_cast<wide>(q) << 63;
            for (const wide x : {end - 1, end - q, end - q - 1, end / 2, static_cast<wide>(q) * q - 1,
                                 static_cast<wide>(q), static_cast<wide>(q - 1), wide{0}}) {
                CAPTURE(Bits);
                CAPTURE(q);
                CHECK(policy.reduce_wide(x).value < 3 * q);
                CHECK(policy.reduce_wide(x).value % q == static_cast<word>(x % q));
                CHECK(policy.reduce_fully(x) == static_cast<word>(x % q));
            }
        }
    });
}

TEST_CASE("Barrett's max_terms products of the largest residues may be summed before one reduction") {
    for_each_width<61>([]<int Bits>() {
        for (const word q : {least<Bits>, greatest<Bits>}) {
            using policy = barrett<runtime_modulus<Bits>>;
            const wide sum = mul_wide(q - 1, q - 1) * policy::max_terms;
            CAPTURE(q);
            CHECK(sum / policy::max_terms == mul_wide(q - 1, q - 1));
            CHECK(sum < static_cast<wide>(q) << 63);
            CHECK(policy(runtime_modulus<Bits>(q)).reduce_fully(sum) == static_cast<word>(sum % q));
        }
    });
}

template <int Bits>
bool reduces_any(word q) {
    const barrett<runtime_modulus<Bits>> policy{runtime_modulus<Bits>(q)};
    std::mt19937_64 random(q);
    std::vector<wide> operands{0, 1, ~wide{0}, ~wide{0} - 1, wide{1} << 127, wide{1} << 64, ~word{0}};
    operands.push_back(~wide{0} / q * q);
    operands.push_back(~wide{0} / q * q - 1);
    for (int i = 0; i < 50; ++i) {
        operands.push_back(static_cast<wide>(random()) << 64 | random());
    }
    return std::all_of(operands.begin(), operands.end(),
                       [&](wide x) { return policy.reduce_any(x) == static_cast<word>(x % q); });
}

TEST_CASE("Barrett's reduce_any is right for every kind of 128-bit number") {
    CHECK(reduces_any<2>(3));
    for_each_width<61>([]<int Bits>() {
        CAPTURE(Bits);
        CHECK(reduces_any<Bits>(least<Bits>));
        CHECK(reduces_any<Bits>(greatest<Bits>));
    });
}

TEST_CASE("Shoup's reduce_word is right for every kind of word") {
    for_each_width<61>([]<int Bits>() {
        for (const word q : {least<Bits>, greatest<Bits>}) {
            const shoup<runtime_modulus<Bits>> policy{runtime_modulus<Bits>(q)};
            const auto one = policy.prepare(1);
            for (const word x :
                 {word{0}, word{1}, q - 1, q, ~word{0}, ~word{0} / q * q, ~word{0} / q * q - 1}) {
                CAPTURE(q);
                CAPTURE(x);
                CHECK(policy.reduce_word(x, one).value < 2 * q);
                CHECK(policy.reduce_word(x, one).value % q == x % q);
            }
        }
    });
}

TEST_CASE("a run-time modulus refuses even numbers and other widths, and names what it got") {
    CHECK(runtime_modulus<20>(1048575).value() == 1048575);
    CHECK(runtime_modulus<20>(524289).value() == 524289);
    CHECK_THROWS_WITH_AS(runtime_modulus<20>(1048574), doctest::Contains("1048574"),
                         tensafe::parameter_error);
    CHECK_THROWS_AS(runtime_modulus<20>(524287), tensafe::parameter_error);
    CHECK_THROWS_AS(runtime_modulus<20>(1048577), tensafe::parameter_error);
    CHECK_THROWS_AS(runtime_modulus<20>(0), tensafe::parameter_error);
    CHECK_THROWS_AS(runtime_modulus<61>(~word{0}), tensafe::parameter_error);
}

}  // namespace
