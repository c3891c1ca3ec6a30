#include <tensafe/rns/limb.hpp>

#include "../backends.hpp"
#include "../test.hpp"

namespace {

using namespace tensafe::arith;
namespace limb = tensafe::rns::limb;

/// Words that do not start where a vector would like them to, with a guard on either side.
class words {
  public:
    explicit words(std::size_t size, word value = 0) : all_(size + 2, value) {
        all_.front() = guard;
        all_.back() = guard;
    }
    std::span<word> span() { return std::span(all_).subspan(1, all_.size() - 2); }
    std::span<const word> span() const { return std::span(all_).subspan(1, all_.size() - 2); }
    word& operator[](std::size_t k) { return all_[k + 1]; }
    word operator[](std::size_t k) const { return all_[k + 1]; }
    std::size_t size() const { return all_.size() - 2; }
    bool operator==(const words&) const = default;

  private:
    static constexpr word guard = 0x0123456789abcdef;
    std::vector<word> all_;
};

enum class pattern { random, large, extremes, largest };
constexpr std::array<pattern, 4> patterns{pattern::random, pattern::large, pattern::extremes,
                                          pattern::largest};

words residues(std::size_t size, word q, word seed, pattern p) {
    std::mt19937_64 random(seed);
    const std::array<word, 5> extremes{0, 1, q - 1, q / 2, q - 2};
    words values(size);
    for (std::size_t k = 0; k < size; ++k) {
        const word any = random() % q;
        const word large = q - 1 - any / 64;
        values[k] = p == pattern::random     ? any
                    : p == pattern::large    ? large
                    : p == pattern::extremes ? extremes[random() % 5]
                                             : q - 1;
    }
    return values;
}

template <class F>
words table(std::size_t size, F f) {
    words values(size);
    for (std::size_t k = 0; k < size; ++k) {
        values[k] = static_cast<word>(f(k));
    }
    return values;
}

/// The widths that share code: one alone, or those of a class.
template <int Bits, int LeastBits = Bits>
struct width {
    static constexpr int bits = Bits;
    static constexpr int least_bits = LeastBits;
    using modulus = runtime_modulus<Bits, LeastBits>;
};

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
    const word smallest = (word{1} << (W::least_bits - 1)) + 1;
    const word largest = (word{1} << W::bits) - 1;
    std::mt19937_64 random(8);
    word worst = smallest;
    for (int i = 0; i < 1000; ++i) {
        const word q = (smallest + random() % (largest - smallest + 1)) | 1;
        worst = reciprocal_error(q) > reciprocal_error(worst) ? q : worst;
    }
    return {largest, smallest, largest + 2 - (word{1} << (W::bits / 2)), worst};
}

/// Edges of the choices that back-ends make: 16 bits (words by doubles), 46 (a narrow product's sum), 50
/// (narrow).
#ifdef TENSAFE_TEST_SANITIZED
#define WIDTHS width<16>, width<45>, width<50>, width<61>  // they touch the same memory
#else
#define WIDTHS                                                                                        \
    width<4>, width<15>, width<16>, width<45>, width<47>, width<49>, width<50>, width<51>, width<60>, \
        width<61>, width<35, 16>, width<45, 36>, width<49, 48>
#endif

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
                    INFO("q := ", q, ", size := ", size, ", static_cast<int>(p) := ", static_cast<int>(p));
                    f(q, size, p);
                }
            }
        }
    });
}

/// Whether the loop gives `expected` into fresh memory and onto each of its inputs.
template <class Loop>
bool gives(const words& expected, Loop loop, const std::vector<const words*>& inputs) {
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
        const auto product = [&](std::size_t k) { return static_cast<word>(uint128{a[k]} * b[k] % q); };
        CHECK(gives(table(size, [&](std::size_t k) { return (uint128{a[k]} + b[k]) % q; }),
                    [&](auto out, auto in) { limb::add(m, out, in[0], in[1]); }, {&a, &b}));
        CHECK(gives(table(size, [&](std::size_t k) { return (uint128{a[k]} + q - b[k]) % q; }),
                    [&](auto out, auto in) { limb::subtract(m, out, in[0], in[1]); }, {&a, &b}));
        CHECK(gives(table(size, product),
                    [&](auto out, auto in) { limb::multiply(policy, out, in[0], in[1]); }, {&a, &b}));
        CHECK(gives(table(size, [&](std::size_t k) { return (uint128{product(k)} + c[k]) % q; }),
                    [&](auto out, auto in) { limb::multiply_add(policy, out, in[0], in[1], in[2]); },
                    {&a, &b, &c}));
        CHECK(gives(table(size, [&](std::size_t k) { return (uint128{c[k]} + q - product(k)) % q; }),
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
            CHECK(gives(table(size, [&](std::size_t k) { return (uint128{a[k]} + w) % q; }),
                        [&](auto out, auto in) { limb::add_constant(m, out, in[0], w); }, {&a}));
            CHECK(gives(table(size, [&](std::size_t k) { return uint128{a[k]} * w % q; }),
                        [&](auto out, auto in) { limb::scale(policy, out, in[0], policy.prepare(w)); },
                        {&a}));
            CHECK(gives(table(size, [&](std::size_t k) { return (uint128{a[k]} + q - b[k]) * w % q; }),
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
        const std::array<word, 8> extremes{0, q - 1, q, last - 1, last, ~word{0}, word{1} << 63, 1};
        std::mt19937_64 random(4);
        const words a = table(size, [&](std::size_t k) {
            return p <= pattern::large      ? random()
                   : p == pattern::extremes ? extremes[k % 8]
                                            : last - 1 - random() % (last / q) * q;
        });
        for (const word shift : {word{0}, word{1}, q / 2, q - 1}) {
            CAPTURE(shift);
            CHECK(gives(table(size, [&](std::size_t k) { return (uint128{a[k] % q} + q - shift) % q; }),
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
            return (out[k] + uint128{q} - 128 + static_cast<uint128>(small[k + 1] + 128)) % q;
        });
        limb::add_small(typename W::modulus(q), out.span(), std::span(small).subspan(1));
        CHECK(out == expected);
        limb::set_small(typename W::modulus(q), out.span(), std::span(small).subspan(1));
        CHECK(out == table(size, [&](std::size_t k) {
                  return (uint128{q} * 128 + static_cast<uint128>(small[k + 1])) % q;
              }));
    });
}

/// round(x) modulo q for |x| < 2^112, ties away from zero.
word rounded(double x, word q) {
    const word r = static_cast<word>(static_cast<uint128>(std::round(std::fabs(x))) % q);
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
void check_blocks(word q, std::size_t count, std::size_t length, pattern p) {
    INFO("q := ", q, ", count := ", count, ", length := ", length,
         ", static_cast<int>(p) := ", static_cast<int>(p));
    const barrett policy{typename W::modulus(q)};
    const std::size_t size = count * length;
    const words a = residues(size, q, 1, p);
    const words b = residues(size, q, 2, p);
    const words c = residues(size, q, 3, p);
    const words start = residues(count, q, 4, p);
    words with_addends(count);
    words added = start;
    for (std::size_t k = 0; k < size; ++k) {
        word& first = with_addends[k / length];
        word& second = added[k / length];
        const word product = static_cast<word>(uint128{a[k]} * b[k] % q);
        first = static_cast<word>((uint128{first} + product + c[k]) % q);
        second = static_cast<word>((uint128{second} + product) % q);
    }
    words sums(count, 12345);
    limb::block_sums(policy, sums.span(), a.span(), b.span(), c.span());
    CHECK(sums == with_addends);
    sums = start;
    limb::add_block_sums(policy, sums.span(), a.span(), b.span());
    CHECK(sums == added);
}

TEST_CASE_TEMPLATE("blocks of any number and length are summed", W, WIDTHS) {
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
            for (const std::size_t length : {4096UL, 4103UL, 16384UL, 16392UL, 20000UL}) {
                check_blocks<W>(q, 1, length, pattern::largest);
                check_blocks<W>(q, 9, length, pattern::largest);
            }
        }
    });
}

TEST_CASE("one word that is not below the bound is found wherever it is, and none where there is none") {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const word q : {word{1}, word{257}, (word{1} << 45) - 1, word{1} << 63, ~word{0}}) {
            for (const std::size_t size : sizes()) {
                INFO("q := ", q, ", size := ", size);
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
    });
}

}  // namespace
