// Loops over limbs, with each back-end against a reference: long, for each loop has its own.

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
    tests::random_numbers random(seed);
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
    /// Of so many products a sum is reduced once.
    static constexpr std::size_t lazy = tensafe::arith::scalar::lazy_terms<modulus>;
    static constexpr word largest = (word{1} << Bits) - 1;
    static constexpr word smallest = (word{1} << (LeastBits - 1)) + 1;
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
    tests::random_numbers random(8);
    word worst = W::smallest;
    for (int i = 0; i < 1000; ++i) {
        const word q = (W::smallest + random() % (W::largest - W::smallest + 1)) | 1;
        worst = reciprocal_error(q) > reciprocal_error(worst) ? q : worst;
    }
    return {W::largest, W::smallest, W::largest + 2 - (word{1} << (W::bits / 2)), worst};
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
            for (const word shift : {word{0}, q / 5, q - 1}) {
                CHECK(gives(table(size, [&](std::size_t k) { return (uint128{a[k]} + q - shift) * w % q; }),
                            [&](auto out, auto in) {
                                limb::scale_shifted(policy, out, in[0], shift, policy.prepare(w));
                            },
                            {&a}));
            }
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
        const std::array<word, 9> extremes{0, q - 1, q, q + 1, last - 1, last, ~word{0}, word{1} << 63, 1};
        tests::random_numbers random(4);
        const words a = table(size, [&](std::size_t k) {
            return p <= pattern::large      ? random()
                   : p == pattern::extremes ? extremes[k % 9]
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
        tests::random_numbers random(5);
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
        tests::random_numbers random(7);
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

/// x and -x.
template <class W>
bool rounds(double x) {
    words out(2);
    const std::vector<double> reals{x, -x};
    limb::round_reals(shoup(typename W::modulus(W::largest)), out.span(), reals);
    return out[0] == rounded(x, W::largest) && out[1] == rounded(-x, W::largest);
}

TEST_CASE("reals below 2^112 are rounded to the nearest integer, ties away from zero") {
    tests::for_each_backend([](tensafe::exec::backend) {
        const auto check = [](double x) {
            CAPTURE(x);
            CHECK(rounds<width<20>>(x));
            CHECK(rounds<width<40>>(x));
            CHECK(rounds<width<61>>(x));
        };
        for (const double near : {0.0, 0.5, 1.0, 1.5, 2.5, 0x1p49, 0x1p50 - 0.5, 0x1p50, 0x1p51 + 0.5, 0x1p52,
                                  0x1p53, 0x1p61, 0x1p62, 0x1p63, 0x1p64, 0x1p100, 0x1p111}) {
            check(near);
            check(std::nextafter(near, 1e300));
            check(std::fabs(std::nextafter(near, -1e300)));
        }
        check(std::nextafter(0x1p112, 0));
        check(4.9e-324);
    });
}

TEST_CASE("small signed numbers are added modulo q, over both ends of the range") {
    tests::for_each_backend([](tensafe::exec::backend) {
        const word q = width<20>::largest;
        for (const word start : {word{0}, word{1}, word{127}, q - 128, q - 1}) {
            for (int small = -128; small <= 127; ++small) {
                words out(1, start);
                const std::vector<std::int8_t> addend{static_cast<std::int8_t>(small)};
                limb::add_small(width<20>::modulus(q), out.span(), addend);
                const auto sum = static_cast<std::int64_t>(start) + small;
                const auto modulus = static_cast<std::int64_t>(q);
                INFO("start := ", start, ", small := ", small);
                CHECK(static_cast<std::int64_t>(out[0]) == (sum + modulus) % modulus);
            }
        }
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

/// Numbers of terms around those after which the sum is reduced.
template <class W>
std::vector<std::size_t> interesting_counts() {
    if (W::lazy > 1000) {
        return {1, 2, 31, 1000};
    }
    return {1, 2, W::lazy - 1, W::lazy, W::lazy + 1, 2 * W::lazy, 2 * W::lazy + 1, 5 * W::lazy + 2};
}

template <class W>
void check_sums(word q, std::size_t terms, bool largest) {
    INFO("q := ", q, ", terms := ", terms, ", largest := ", largest);
    const barrett policy{typename W::modulus(q)};
    constexpr std::size_t columns = 3;
    const pattern p = largest ? pattern::largest : pattern::extremes;
    const words a = residues(terms * columns, q, 1, p);
    const words b = residues(terms * columns, q, 2, p);
    const words c = residues(terms * columns, q, 3, p);
    const words start = residues(columns, q, 4, p);
    words with_addends(columns);

    words of_blocks = start;
    for (std::size_t i = 0; i < terms; ++i) {
        for (std::size_t k = 0; k < columns; ++k) {
            const uint128 product = uint128{a[k * terms + i]} * b[k * terms + i];
            of_blocks[k] = static_cast<word>((product % q + of_blocks[k]) % q);
            with_addends[k] = static_cast<word>((product % q + c[k * terms + i] + with_addends[k]) % q);
        }
    }

    words out = start;
    limb::add_block_sums(policy, out.span(), a.span(), b.span());
    CHECK(out == of_blocks);
    limb::block_sums(policy, out.span(), a.span(), b.span(), c.span());
    CHECK(out == with_addends);
}

/// Whether terms * (q-1)^2 + (q-1) < 2^(63 + least_bits), in 128 bits.
constexpr bool stays_reducible(uint128 terms, word q, int least_bits) {
    // Divided by q - 1, and the right side rounded up.
    const uint128 right = ((uint128{1} << (63 + least_bits)) + q - 2) / (q - 1);
    return terms * (q - 1) + 1 < right;
}

template <class W>
constexpr bool keeps_its_promise() {
    return stays_reducible(W::lazy, W::largest, W::least_bits) &&
           stays_reducible(W::lazy, W::smallest, W::least_bits);
}

static_assert(keeps_its_promise<width<30>>() && keeps_its_promise<width<42>>() &&
              keeps_its_promise<width<45>>() && keeps_its_promise<width<57>>() &&
              keeps_its_promise<width<58>>() && keeps_its_promise<width<60>>() &&
              keeps_its_promise<width<61>>() && keeps_its_promise<width<35, 16>>() &&
              keeps_its_promise<width<45, 36>>() && keeps_its_promise<width<47, 46>>() &&
              keeps_its_promise<width<49, 48>>());
// Not because it promises too little: two terms more would break it for the widest primes.
static_assert(width<61>::lazy == 3 && width<60>::lazy == 7 && width<45>::lazy == (1 << 18) - 1);
static_assert(!stays_reducible(width<61>::lazy + 2, (word{1} << 61) - 1, 61) &&
              !stays_reducible(width<60>::lazy + 2, (word{1} << 60) - 1, 60) &&
              !stays_reducible(width<45, 36>::lazy + 2, (word{1} << 45) - 1, 36));

TEST_CASE_TEMPLATE("sums that are reduced late equal sums that are reduced after every product", W, width<20>,
                   width<30>, width<42>, width<45>, width<57>, width<58>, width<60>, width<61>, width<35, 16>,
                   width<45, 36>) {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const word q : {W::largest, W::smallest}) {
            for (const std::size_t terms : interesting_counts<W>()) {
                check_sums<W>(q, terms, false);
                check_sums<W>(q, terms, true);
            }
        }
    });
}

TEST_CASE("sums of more terms than fit 45 bits at once equal sums that are reduced after every product") {
    tests::for_each_backend([](tensafe::exec::backend) {
        using wide_enough = width<45>;
        for (const std::size_t terms : {wide_enough::lazy - 1, wide_enough::lazy, wide_enough::lazy + 1}) {
            check_sums<wide_enough>(wide_enough::largest, terms, true);
        }
    });
}

TEST_CASE("sums of no products are zero, or what was there before") {
    tests::for_each_backend([](tensafe::exec::backend) {
        const barrett policy{runtime_modulus<45>(width<45>::largest)};
        words out(3, 7);
        limb::add_block_sums(policy, out.span(), std::span<const word>(), std::span<const word>());
        CHECK(out == words(3, 7));
    });
}

}  // namespace
