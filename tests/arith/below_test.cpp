#include <tensafe/arith/below.hpp>

#include "../test.hpp"

namespace {

using namespace tensafe::arith;

template <class Representation>
bool in_range(Representation value, word bound) {
    return value >= 0 && value < static_cast<Representation>(bound);
}

template <class Representation>
word to_integer(Representation value) {
    return static_cast<word>(value);
}

template <class Representation, unsigned K, unsigned To, class Modulus>
bool reduces_to(const Modulus& m, word x) {
    const auto r = reduce<To>(m, below<K, Modulus, Representation>{static_cast<Representation>(x)});
    static_assert(std::same_as<decltype(r), const below<To, Modulus, Representation>>);
    return in_range(r.value, To * m.value()) && to_integer(r.value) % m.value() == x % m.value();
}

template <class Modulus>
struct reduction {
    unsigned from;
    unsigned to;
    bool (*is_right)(const Modulus&, word);
};

/// Every pair of bounds up to `Largest`.
template <class Representation, unsigned Largest, class Modulus>
std::vector<reduction<Modulus>> every_reduction() {
    return []<unsigned... I>(std::integer_sequence<unsigned, I...>) {
        return std::vector<reduction<Modulus>>{
            {I / Largest + 1, I % Largest + 1,
             reduces_to<Representation, I / Largest + 1, I % Largest + 1, Modulus>}...};
    }
    (std::make_integer_sequence<unsigned, Largest * Largest>{});
}

/// At every multiple of q that the bound admits, one below it and one above it.
template <class Representation, unsigned Largest, class Modulus>
void check_every_reduction(const Modulus& m) {
    static_assert(largest_multiple<Modulus, Representation> >= Largest);
    const word q = m.value();
    for (const auto& r : every_reduction<Representation, Largest, Modulus>()) {
        INFO("r.from := ", r.from, ", r.to := ", r.to);
        for (unsigned k = 0; k < r.from; ++k) {
            CAPTURE(k);
            CHECK(r.is_right(m, k * q));
            CHECK(r.is_right(m, k * q + 1));
            CHECK(r.is_right(m, k * q + q - 1));
        }
    }
}

TEST_CASE("reduction keeps the residue and reaches the bound at every edge of the widest moduli") {
    check_every_reduction<word, 16>(fixed_modulus<(word{1} << 60) - 1>());
    check_every_reduction<word, 8>(runtime_modulus<61>((word{1} << 61) - 1));
}

TEST_CASE("reduction keeps the residue and reaches the bound at every edge of a double's moduli") {
    check_every_reduction<double, 16>(fixed_modulus<(word{1} << 48) - 1>());
    check_every_reduction<double, 4>(runtime_modulus<50>((word{1} << 50) - 1));
}

TEST_CASE("reduction is right for every value of a small modulus") {
    const fixed_modulus<17> m;
    for (const auto& reductions :
         {every_reduction<word, 7, fixed_modulus<17>>(), every_reduction<double, 7, fixed_modulus<17>>()}) {
        for (const auto& r : reductions) {
            for (word x = 0; x < r.from * 17; ++x) {
                INFO("r.from := ", r.from, ", r.to := ", r.to, ", x := ", x);
                CHECK(r.is_right(m, x));
            }
        }
    }
}

TEST_CASE("sums and differences stay below the sum of the bounds and keep the residue") {
    const fixed_modulus<17> m;
    const auto check = [&]<class R, unsigned A, unsigned B>(R, std::integral_constant<unsigned, A>,
                                                            std::integral_constant<unsigned, B>) {
        for (word a = 0; a < A * 17; ++a) {
            for (word b = 0; b < B * 17; ++b) {
                const below<A, fixed_modulus<17>, R> x{static_cast<R>(a)};
                const below<B, fixed_modulus<17>, R> y{static_cast<R>(b)};
                const auto sum = x + y;
                const auto difference = subtract(m, x, y);
                static_assert(std::same_as<decltype(sum), const below<A + B, fixed_modulus<17>, R>>);
                static_assert(std::same_as<decltype(difference), decltype(sum)>);
                INFO("a := ", a, ", b := ", b);
                CHECK(to_integer(sum.value) == a + b);
                CHECK(in_range(difference.value, (A + B) * 17));
                CHECK(to_integer(difference.value) % 17 == (a + B * 17 - b) % 17);
            }
        }
    };
    const auto one = std::integral_constant<unsigned, 1>{};
    const auto two = std::integral_constant<unsigned, 2>{};
    const auto three = std::integral_constant<unsigned, 3>{};
    check(word{}, one, one);
    check(word{}, two, three);
    check(word{}, three, one);
    check(double{}, one, three);
    check(double{}, two, two);
}

TEST_CASE("the extremes of a sum and a difference at the word's limit do not wrap") {
    using modulus = fixed_modulus<(word{1} << 61) - 1>;
    constexpr word q = modulus::value();
    const modulus m;
    const below<5, modulus> a{5 * q - 1};
    const below<3, modulus> b{3 * q - 1};
    CHECK((a + b).value == 8 * q - 2);
    CHECK(subtract(m, a, below<3, modulus>{0}).value == 8 * q - 1);
    CHECK(subtract(m, below<5, modulus>{0}, b).value == 1);
}

template <class Modulus, class Representation>
constexpr bool is_largest(uint128 limit) {
    constexpr unsigned k = largest_multiple<Modulus, Representation>;
    const bool fits = mul_wide(k, Modulus::largest) <= limit;
    const bool no_larger = mul_wide(k + 1, Modulus::largest) > limit;
    return fits && (no_larger || k == 1U << 30);
}

TEST_CASE("largest_multiple is the largest K for which K*q fits") {
    constexpr uint128 words = ~word{0};
    constexpr uint128 doubles = word{1} << 52;
    CHECK(is_largest<runtime_modulus<61>, word>(words));
    CHECK(is_largest<runtime_modulus<60>, word>(words));
    CHECK(is_largest<runtime_modulus<40>, word>(words));
    CHECK(is_largest<runtime_modulus<2>, word>(words));
    CHECK(is_largest<fixed_modulus<(word{1} << 60) + 1>, word>(words));
    CHECK(is_largest<runtime_modulus<50>, double>(doubles));
    CHECK(is_largest<runtime_modulus<49>, double>(doubles));
    CHECK(is_largest<runtime_modulus<20>, double>(doubles));
    CHECK(is_largest<fixed_modulus<(word{1} << 49) + 1>, double>(doubles));
    CHECK(largest_multiple<runtime_modulus<61>, word> == 8);
    CHECK(largest_multiple<fixed_modulus<(word{1} << 60) + 1>, word> == 15);
    CHECK(largest_multiple<runtime_modulus<50>, double> == 4);
}

TEST_CASE("a bound widens implicitly and never narrows") {
    using modulus = fixed_modulus<17>;
    const below<2, modulus> x{33};
    const below<5, modulus> wider = x;
    CHECK(wider.value == 33);
    CHECK(std::is_convertible_v<below<1, modulus>, below<2, modulus>>);
    CHECK_FALSE(std::is_convertible_v<below<2, modulus>, below<1, modulus>>);
    CHECK_FALSE(std::is_convertible_v<below<1, modulus>, below<2, fixed_modulus<19>>>);
    CHECK_FALSE(std::is_convertible_v<below<1, modulus>, below<2, modulus, double>>);
}

}  // namespace
