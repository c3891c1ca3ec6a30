#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/polynomial.hpp>
#include <tensafe/ckks/precision.hpp>

#include "../backends.hpp"
#include "fixture.hpp"

using namespace tests;

namespace {

using namespace fixture;

// Eight products deep: digits of three primes, and of one that kernels of narrow primes do not multiply.
using deep = ckks::parameters<11, ckks::scaled_limbs<50, 8, 40>, 40, ckks::insecure_for_tests,
                              ckks::key_switching<3, ckks::special_bits<48, 48, 48>>>;
using wide = ckks::parameters<10, ckks::scaled_limbs<60, 8, 51>, 51, ckks::insecure_for_tests,
                              ckks::key_switching<1, ckks::special_bits<61>>>;

template <class P>
struct client {
    tensafe::random::generator source = generator(1);
    ckks::secret_key<P> key{source};
    ckks::relinearization_key<P> relinearization{key, source};

    template <int Level = P::max_level>
    ckks::ciphertext<P, Level> encrypt(const slot_vector& z) {
        return ckks::expand(ckks::encrypt(key, ckks::encode_slots<P, Level>(z), source));
    }
};

template <class P, int Level>
double bits(const client<P>& c, const slot_vector& expected, const ckks::ciphertext<P, Level>& got) {
    return ckks::measure_precision(expected, ckks::decrypt_slots(c.key, got)).worst_bits();
}

slot_vector reals(std::size_t count, double from, double to) {
    slot_vector z(count);
    for (std::size_t j = 0; j < count; ++j) {
        z[j] = from + (to - from) * static_cast<double>(j) / static_cast<double>(count - 1);
    }
    return z;
}
slot_vector each(const slot_vector& z, auto f) {
    slot_vector result;
    for (const auto& slot : z) {
        result.push_back(f(slot.real()));
    }
    return result;
}

/// The sum by its definition, T_i(t) = cos(i arccos t).
template <int Degree, bool Mapped>
double defined(const ckks::chebyshev_polynomial<Degree, Mapped>& p, double x) {
    const double angle = std::acos(std::clamp((2 * x - p.from - p.to) / (p.to - p.from), -1.0, 1.0));
    double sum = 0;
    for (std::size_t i = 0; i <= Degree; ++i) {
        sum += p.coefficients[i] * std::cos(static_cast<double>(i) * angle);
    }
    return sum;
}

template <int Degree>
ckks::chebyshev_polynomial<Degree> random_polynomial() {
    random_numbers generator(Degree);
    ckks::chebyshev_polynomial<Degree> p;
    for (double& c : p.coefficients) {
        c = generator.uniform(-1, 1) / std::sqrt(Degree + 1);
    }
    return p;
}

template <int Degree, class P>
void check(client<P>& c, const ckks::chebyshev_polynomial<Degree>& p) {
    CAPTURE(Degree);
    const slot_vector z = reals(P::slots, -1, 1);
    const auto got = ckks::evaluate(p, c.encrypt(z), c.relinearization);
    constexpr int depth = ckks::chebyshev_polynomial<Degree>::depth;
    CHECK((1 << depth) > Degree);
    CHECK((1 << (depth - 1)) <= Degree);
    CHECK(std::is_same_v<decltype(got), const ckks::ciphertext<P, P::max_level - depth>>);
    CHECK(got.scale == P::template scale_at<P::max_level - depth>);  // bit by bit
    // Slopes grow with the degree, and noise of the argument with them. A scale that is off by as much as
    // those of neighbouring levels differ leaves three bits less where the degree is small.
    CHECK(bits(c, each(z, [&](double x) { return defined(p, x); }), got) >
          P::scale_bits - 10.5 - 1.7 * std::log2(Degree + 1));
}

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}

}  // namespace

TEST_CASE_TEMPLATE("polynomials of all degrees are evaluated in the fewest levels, exactly at their scale", P,
                   deep, wide) {
    client<P> c;
    check(c, random_polynomial<1>());
    check(c, random_polynomial<2>());
    check(c, random_polynomial<3>());
    check(c, random_polynomial<4>());
    check(c, random_polynomial<5>());
    check(c, random_polynomial<6>());
    check(c, random_polynomial<7>());
    check(c, random_polynomial<8>());
    check(c, random_polynomial<11>());
    check(c, random_polynomial<15>());
    check(c, random_polynomial<16>());
    check(c, random_polynomial<31>());
    check(c, random_polynomial<40>());
    check(c, random_polynomial<63>());
    check(c, random_polynomial<119>());
    check(c, random_polynomial<255>());
}

TEST_CASE("missing coefficients are no trouble, wherever they are") {
    client<deep> c;
    for (const std::size_t only : {0U, 1U, 7U, 8U, 12U, 13U}) {
        ckks::chebyshev_polynomial<13> p;
        p.coefficients[only] = 0.5;
        check(c, p);
        p.coefficients[3] = -0.25;
        check(c, p);
    }
    check(c, ckks::chebyshev_polynomial<6>());
}

TEST_CASE(
    "a polynomial is evaluated at lower levels with a key for the top one, and on slots that are complex") {
    using P = deep;
    client<P> c;
    const auto p = random_polynomial<5>();
    const slot_vector z = random_slots(P::slots, 4, 0.5);
    slot_vector expected;
    for (const auto& slot : z) {
        std::complex<double> now = 1;
        std::complex<double> next = slot;
        std::complex<double> sum = 0;
        for (const double coefficient : p.coefficients) {
            sum += coefficient * now;
            now = std::exchange(next, 2.0 * slot * next - now);
        }
        expected.push_back(sum);
    }
    CHECK(bits(c, expected, ckks::evaluate(p, c.encrypt<4>(z), c.relinearization)) > 20);
    CHECK(bits(c, expected, ckks::evaluate(p, c.encrypt<3>(z), c.relinearization)) > 20);
}

TEST_CASE("functions on an interval are interpolated, encrypted within the noise of the interpolation") {
    using P = deep;
    client<P> c;
    const auto check_function = [&](auto polynomial, auto f, double largest_error) {
        const slot_vector z = reals(P::slots, polynomial.from, polynomial.to);
        double error = 0;
        for (const auto& slot : z) {
            error = std::max(error, std::fabs(polynomial(slot.real()) - f(slot.real())));
            CHECK(polynomial(slot.real()) ==
                  doctest::Approx(defined(polynomial, slot.real())).epsilon(1e-12));
        }
        CHECK(error < largest_error);
        CHECK(error > largest_error / 10);
        const auto got = ckks::evaluate(polynomial, c.encrypt(z), c.relinearization);
        CHECK(ckks::measure_precision(each(z, f), ckks::decrypt_slots(c.key, got)).worst_error <
              1.1 * error + 1e-5);
    };
    const auto exponential = [](double x) { return std::exp(x); };
    const auto gelu = [](double x) { return x / 2 * (1 + std::erf(x / std::numbers::sqrt2)); };
    const auto inverse_root = [](double x) { return 1 / std::sqrt(x); };
    check_function(ckks::chebyshev<15>(sigmoid, -8, 8), sigmoid, 1e-2);
    check_function(ckks::chebyshev<27>(sigmoid, -8, 8), sigmoid, 1e-4);
    check_function(ckks::chebyshev<31>(gelu, -5, 5), gelu, 1e-7);
    check_function(ckks::chebyshev<7>(exponential), exponential, 1e-6);
    check_function(ckks::chebyshev<31>(inverse_root, 0.1, 4), inverse_root, 1e-4);
}

TEST_CASE("a polynomial is interpolated exactly, also at compile time") {
    constexpr auto cube = ckks::chebyshev<3>([](double x) { return 4 * x * x * x - 3 * x; });
    static_assert(cube.coefficients[0] == 0 && cube.coefficients[1] == 0 && cube.coefficients[2] == 0);
    static_assert(cube.coefficients[3] > 1 - 1e-15 && cube.coefficients[3] < 1 + 1e-15);
    constexpr auto shifted = ckks::chebyshev<4>([](double x) { return x * x * x * x; }, -1, 3);
    static_assert(shifted(2.5) > 39.0624999 && shifted(2.5) < 39.0625001);
    for (double x = 0; x <= std::numbers::pi; x += 0.01) {
        CHECK(std::fabs(ckks::detail::cosine(x) - std::cos(x)) < 4e-16);
    }
}

TEST_CASE("all back-ends evaluate polynomials bit for bit alike") {
    using P = deep;
    std::vector<tensafe::arith::word> first;
    for_each_backend([&](auto) {
        client<P> c;
        const auto got = ckks::evaluate(ckks::chebyshev<15>(sigmoid, -8, 8),
                                        c.encrypt(reals(P::slots, -8, 8)), c.relinearization);
        std::vector<tensafe::arith::word> words(got.c0.words().begin(), got.c0.words().end());
        words.insert(words.end(), got.c1.words().begin(), got.c1.words().end());
        if (first.empty()) {
            first = words;
        }
        CHECK(words == first);
    });
}

TEST_CASE("the bound of a ciphertext becomes that of the polynomial") {
    client<deep> c;
    const auto p = ckks::chebyshev<3>(sigmoid, -8, 8);
    auto x = c.encrypt(reals(deep::slots, -8, 8));
    CHECK(std::isnan(ckks::evaluate(p, x, c.relinearization).largest));
    x.largest = 8;
    double sum = 0;
    for (const double each : p.coefficients) {
        sum += std::fabs(each);
    }
    CHECK(ckks::evaluate(p, x, c.relinearization).largest == sum);
    x.largest = 9;
    CHECK_THROWS_WITH_AS(static_cast<void>(ckks::evaluate(p, x, c.relinearization)),
                         "evaluate: got a `largest` of 9, expected one within the interval from -8 to 8",
                         parameter_error);
    ckks::chebyshev_polynomial<255> large;
    large.coefficients[1] = 1e6;
    x.largest = 1;
    CHECK_THROWS_AS(static_cast<void>(ckks::evaluate(large, x, c.relinearization)), encoding_error);
}

TEST_CASE("a key for lower levels evaluates there") {
    client<deep> c;
    const ckks::relinearization_key<deep, 4> lower(c.key, c.source);
    const auto p = random_polynomial<9>();
    const slot_vector z = reals(deep::slots, -1, 1);
    CHECK(bits(c, each(z, [&](double x) { return defined(p, x); }),
               ckks::evaluate(p, c.encrypt<4>(z), lower)) > 20);
}

TEST_CASE("coefficients that parity makes 0 are 0") {
    for (const double coefficient :
         {ckks::chebyshev<63>(sigmoid, -8, 8).coefficients[2],
          ckks::chebyshev<127>(sigmoid, -8, 8).coefficients[20],
          ckks::chebyshev<15>([](double x) { return std::cos(x); }).coefficients[3]}) {
        CHECK(coefficient == 0);
    }
}

TEST_CASE("functions and polynomials that are not finite are refused") {
    CHECK(refusal<parameter_error>([] {
              static_cast<void>(ckks::chebyshev<3>([](double x) { return 1 / (x - x); }));
          }).starts_with("chebyshev: got inf"));
    CHECK(refusal<parameter_error>([] { static_cast<void>(ckks::chebyshev<3>(sigmoid, 1, 1)); }) ==
          "chebyshev: got the interval from 1 to 1, expected a finite one");
    CHECK_THROWS_AS(
        static_cast<void>(ckks::chebyshev<3>(sigmoid, 0, std::numeric_limits<double>::infinity())),
        parameter_error);
    client<deep> c;
    const auto x = c.encrypt(reals(deep::slots, -1, 1));
    const auto refused = [&](auto p, const auto& of) {
        return refusal<parameter_error>([&] { static_cast<void>(ckks::evaluate(p, of, c.relinearization)); });
    };
    ckks::chebyshev_polynomial<2> p;
    p.coefficients[1] = std::numeric_limits<double>::quiet_NaN();
    CHECK(refused(p, x) == "evaluate: got coefficients that are not finite");
    p.coefficients[1] = std::numeric_limits<double>::infinity();
    CHECK(refused(p, x) == "evaluate: got coefficients that are not finite");
    p.coefficients[1] = 0x1p80;
    CHECK_THROWS_WITH_AS(static_cast<void>(ckks::evaluate(p, x, c.relinearization)),
                         "evaluate: a coefficient is too large for the scale of the set", encoding_error);
    auto moved = random_polynomial<2>();
    moved.to = 8;
    CHECK(refused(moved, x) ==
          "evaluate: got the interval from -1 to 8, expected -1 to 1: a polynomial of another one is Mapped");
    for (const double end : {0x1p20, 0x1p900, -1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
        ckks::chebyshev_polynomial<2, true> wide;
        wide.to = end;
        CHECK(refused(wide, x).starts_with("evaluate: got the interval from -1 to "));
    }
    auto strange = x;
    strange.scale *= 2;
    CHECK(refused(random_polynomial<2>(), strange).starts_with("evaluate: got a scale of"));
}
