#include <tensafe/rns/limb.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "../backends.hpp"
#include "limb_checks.hpp"

namespace {

using namespace tests::limbs;

/// How far 1/q in double precision is from 1/q, relatively.
long double reciprocal_error(word q) {
    const double reciprocal = 1 / static_cast<double>(q);
    return std::fabs(1 - static_cast<long double>(reciprocal) * static_cast<long double>(q));
}

/// The largest and the smallest modulus of a width, one just below a power of two with a 2^(2b) / q just
/// below an integer, and of a thousand the one with the worst reciprocal: where estimated quotients are
/// furthest off.
template <class W>
std::vector<word> moduli() {
    std::mt19937_64 random(8);
    word worst = W::smallest;
    for (int i = 0; i < 1000; ++i) {
        const word q = (W::smallest + random() % (W::largest - W::smallest + 1)) | 1;
        worst = reciprocal_error(q) > reciprocal_error(worst) ? q : worst;
    }
    return {W::largest, W::smallest, W::largest + 2 - (word{1} << (W::bits / 2)), worst};
}

/// Edges of the choices that back-ends make: 16 bits (words by doubles), 46 (a narrow product's sum), 50
/// (narrow).
#define WIDTHS                                                                                        \
    width<4>, width<15>, width<16>, width<45>, width<47>, width<49>, width<50>, width<51>, width<60>, \
        width<61>

std::vector<std::size_t> sizes() {
    std::vector<std::size_t> all;
    for (std::size_t size = 0; size <= 40; ++size) {
        all.push_back(size);
    }
    all.push_back(4096);
    return all;
}

/// Calls f(q, size, pattern) for all of them, with each back-end.
template <class W, class F>
void for_each_case(F f) {
    tests::for_each_backend([&](tensafe::exec::backend) {
        for (const word q : moduli<W>()) {
            for (const std::size_t size : sizes()) {
                for (const pattern p : patterns) {
                    CAPTURE(q);
                    CAPTURE(size);
                    CAPTURE(static_cast<int>(p));
                    f(q, size, p);
                }
            }
        }
    });
}

/// Whether the loop gives `expected` into fresh memory and onto each of its inputs.
bool gives(const words& expected, auto loop, const std::vector<const words*>& inputs) {
    std::vector<std::span<const word>> spans;
    for (const words* input : inputs) {
        spans.push_back(input->span());
    }
    words out(expected.size(), 12345);
    loop(out.span(), spans);
    bool right = out == expected;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        words onto = *inputs[i];
        auto aliased = spans;
        aliased[i] = onto.span();
        loop(onto.span(), aliased);
        right = right && onto == expected;
    }
    return right;
}

TEST_CASE_TEMPLATE("sums, differences and products of residues equal 128-bit arithmetic", W, WIDTHS) {
    for_each_case<W>([](word q, std::size_t size, pattern p) {
        const typename W::modulus m(q);
        const barrett policy(m);
        const words a = residues(size, q, 1, p);
        const words b = residues(size, q, 2, p);
        const words c = residues(size, q, 3, p);
        const auto product = [&](std::size_t k) { return static_cast<word>(wide{a[k]} * b[k] % q); };
        CHECK(gives(table(size, [&](std::size_t k) { return (wide{a[k]} + b[k]) % q; }),
                    [&](auto out, auto in) { limb::add(m, out, in[0], in[1]); }, {&a, &b}));
        CHECK(gives(table(size, [&](std::size_t k) { return (wide{a[k]} + q - b[k]) % q; }),
                    [&](auto out, auto in) { limb::subtract(m, out, in[0], in[1]); }, {&a, &b}));
        CHECK(gives(table(size, product),
                    [&](auto out, auto in) { limb::multiply(policy, out, in[0], in[1]); }, {&a, &b}));
        CHECK(gives(table(size, [&](std::size_t k) { return (wide{product(k)} + c[k]) % q; }),
                    [&](auto out, auto in) { limb::multiply_add(policy, out, in[0], in[1], in[2]); },
                    {&a, &b, &c}));
        CHECK(gives(table(size, [&](std::size_t k) { return (wide{c[k]} + q - product(k)) % q; }),
                    [&](auto out, auto in) { limb::subtract_product(policy, out, in[0], in[1], in[2]); },
                    {&a, &b, &c}));
    });
}

TEST_CASE_TEMPLATE("sums and products with one constant equal 128-bit arithmetic", W, WIDTHS) {
    for_each_case<W>([](word q, std::size_t size, pattern p) {
        const typename W::modulus m(q);
        const shoup policy(m);
        const words a = residues(size, q, 1, p);
        const words b = residues(size, q, 2, p);
        for (const word w : {word{0}, word{1}, q / 3, q - 1}) {
            CAPTURE(w);
            CHECK(gives(table(size, [&](std::size_t k) { return (wide{a[k]} + w) % q; }),
                        [&](auto out, auto in) { limb::add_constant(m, out, in[0], w); }, {&a}));
            CHECK(gives(table(size, [&](std::size_t k) { return wide{a[k]} * w % q; }),
                        [&](auto out, auto in) { limb::scale(policy, out, in[0], policy.prepare(w)); },
                        {&a}));
            CHECK(gives(table(size, [&](std::size_t k) { return (wide{a[k]} + q - b[k]) * w % q; }),
                        [&](auto out, auto in) {
                            limb::scale_difference(policy, out, in[0], in[1], policy.prepare(w));
                        },
                        {&a, &b}));
        }
    });
}

TEST_CASE_TEMPLATE("any words are shifted and reduced with each back-end", W, WIDTHS) {
    for_each_case<W>([](word q, std::size_t size, pattern p) {
        const shoup policy{typename W::modulus(q)};
        const word last = ~word{0} / q * q;  // the largest multiple of q
        const std::array<word, 9> extremes{0, q - 1, q, q + 1, last - 1, last, ~word{0}, word{1} << 63, 1};
        std::mt19937_64 random(4);
        const words a = table(size, [&](std::size_t k) {
            return p <= pattern::large      ? random()
                   : p == pattern::extremes ? extremes[k % 9]
                                            : last - 1 - random() % (last / q) * q;
        });
        for (const word shift : {word{0}, word{1}, q / 2, q - 1}) {
            CAPTURE(shift);
            CHECK(gives(table(size, [&](std::size_t k) { return (wide{a[k] % q} + q - shift) % q; }),
                        [&](auto out, auto in) { limb::reduce_shifted(policy, out, in[0], shift); }, {&a}));
        }
    });
}

TEST_CASE_TEMPLATE("small signed numbers are added with each back-end", W, width<9>, width<20>, width<45>,
                   width<61>) {
    for_each_case<W>([](word q, std::size_t size, pattern p) {
        std::mt19937_64 random(5);
        std::vector<std::int8_t> small(size + 1);  // read from its second entry on
        for (std::int8_t& x : small) {
            x = static_cast<std::int8_t>(p <= pattern::large      ? static_cast<int>(random() % 256) - 128
                                         : p == pattern::extremes ? (random() % 2 == 0 ? -128 : 127)
                                                                  : -1);
        }
        words out = residues(size, q, 6, p);
        const words expected = table(size, [&](std::size_t k) {
            return (out[k] + wide{q} - 128 + static_cast<wide>(small[k + 1] + 128)) % q;
        });
        limb::add_small(typename W::modulus(q), out.span(), std::span(small).subspan(1));
        CHECK(out == expected);
    });
}

BACKEND_TEST_CASE("every small signed number is added modulo q, over both ends of the range") {
    using W = width<20>;
    constexpr word q = W::largest;
    const W::modulus m(q);
    std::vector<std::int8_t> small;
    for (int x = -128; x <= 127; ++x) {
        small.push_back(static_cast<std::int8_t>(x));
    }
    for (const word start : {word{0}, word{1}, word{127}, q - 128, q - 1}) {
        CAPTURE(start);
        const words expected = table(256, [&](std::size_t k) { return (start + q + k - 128) % q; });
        words out(256, start);
        limb::add_small(m, out.span(), small);
        CHECK(out == expected);
        for (std::size_t k = 0; k < 256; ++k) {
            words alone(1, start);
            limb::add_small(m, alone.span(), std::span(small).subspan(k, 1));
            CHECK(alone[0] == expected[k]);
        }
    }
}

/// round(x) modulo q for |x| < 2^112, ties away from zero.
word rounded(double x, word q) {
    const word r = static_cast<word>(static_cast<wide>(std::round(std::fabs(x))) % q);
    return std::signbit(x) && r != 0 ? q - r : r;
}

TEST_CASE_TEMPLATE("reals are rounded alike by each back-end", W, WIDTHS) {
    for_each_case<W>([](word q, std::size_t size, pattern p) {
        std::mt19937_64 random(7);
        std::vector<double> reals(size + 1);
        for (double& x : reals) {
            const double mantissa = static_cast<double>(random() >> 11);
            const int exponent = static_cast<int>(random() % 119) - 60;
            if (p <= pattern::large) {
                x = std::ldexp(mantissa, exponent);
            } else if (p == pattern::largest) {
                x = std::nextafter(0x1p112, 0);
            } else {
                // A power of two, a multiple of q or zero; a half of its size; or next to it.
                const std::array<double, 3> starts{std::ldexp(1, exponent + 53),
                                                   static_cast<double>(q) * 0x1p40, 0};
                const double whole = starts[random() % 3];
                const std::array<double, 5> near{whole, whole + 0.5, std::nextafter(whole, 0),
                                                 std::nextafter(whole + 0.5, 0),
                                                 std::nextafter(whole, 0x1p112)};
                x = std::min(near[random() % 5], std::nextafter(0x1p112, 0));
            }
            x = random() % 2 == 0 ? x : -x;
        }
        words out(size);
        limb::round_reals(shoup(typename W::modulus(q)), out.span(),
                          std::span<const double>(reals).subspan(1));
        CHECK(out == table(size, [&](std::size_t k) { return rounded(reals[k + 1], q); }));
    });
}

template <class W>
void check_rounding(const std::vector<double>& reals) {
    words out(reals.size());
    limb::round_reals(shoup(typename W::modulus(W::largest)), out.span(), reals);
    CHECK(out == table(reals.size(), [&](std::size_t k) { return rounded(reals[k], W::largest); }));
}

BACKEND_TEST_CASE("reals below 2^112 are rounded to the nearest integer, ties away from zero") {
    std::vector<double> reals{std::nextafter(0x1p112, 0), 4.9e-324};
    for (const double near : {0.0, 0.5, 1.0, 1.5, 2.5, 0x1p49, 0x1p50 - 0.5, 0x1p50, 0x1p51 + 0.5, 0x1p52,
                              0x1p53, 0x1p61, 0x1p62, 0x1p63, 0x1p64, 0x1p100, 0x1p111}) {
        reals.insert(reals.end(),
                     {near, std::nextafter(near, 1e300), std::fabs(std::nextafter(near, -1e300))});
    }
    for (std::size_t k = reals.size(); k-- > 0;) {
        reals.push_back(-reals[k]);
    }
    check_rounding<width<20>>(reals);
    check_rounding<width<40>>(reals);
    check_rounding<width<61>>(reals);
}

TEST_CASE_TEMPLATE("blocks of any number and length are summed", W, WIDTHS, width<20>, width<57>, width<58>) {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const word q : moduli<W>()) {
            for (const pattern p : patterns) {
                for (const std::size_t count : {1UL, 2UL, 3UL, 4UL, 7UL, 8UL, 9UL, 17UL}) {
                    for (std::size_t length = 1; length <= 40; ++length) {
                        check_blocks<W>(q, count, length, p);
                    }
                }
            }
            // More terms than a back-end adds up without reduction, also with a rest.
            for (const std::size_t length :
                 {64UL, 1000UL, 4096UL, 4103UL, 5000UL, 16384UL, 16392UL, 20000UL}) {
                check_blocks<W>(q, 1, length, pattern::largest);
                check_blocks<W>(q, 9, length, pattern::largest);
            }
        }
    });
}

TEST_CASE_TEMPLATE("rows of any number and length are summed", W, WIDTHS) {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const word q : moduli<W>()) {
            for (const std::size_t columns : sizes()) {
                for (const pattern p : patterns) {
                    check_columns<W>(q, 1, columns, p);
                    check_columns<W>(q, 5, columns, p);
                }
            }
            // More terms than a back-end adds up without reduction.
            for (const std::size_t terms : {511UL, 512UL, 513UL, 2047UL, 2048UL, 2049UL, 5000UL}) {
                check_columns<W>(q, terms, 37, pattern::largest);
            }
        }
    });
}

BACKEND_TEST_CASE(
    "one word that is not below the bound is found wherever it is, and none where there is none") {
    for (const word q : {word{1}, word{257}, (word{1} << 45) - 1, word{1} << 63, ~word{0}}) {
        for (const std::size_t size : sizes()) {
            CAPTURE(q);
            CAPTURE(size);
            words a(size, q - 1);
            CHECK(limb::all_below(q, a.span()));
            bool found = true;
            for (std::size_t k = 0; k < size; ++k) {
                for (const word bad : {q, std::max(q, word{1} << 63), ~word{0}}) {
                    a[k] = bad;
                    found = found && !limb::all_below(q, a.span());
                }
                a[k] = q - 1;
            }
            CHECK(found);
        }
    }
}

}  // namespace
