#include <tensafe/rns/limb.hpp>

#include "../backends.hpp"
#include "../test.hpp"

namespace {

using namespace tensafe::arith;
namespace limb = tensafe::rns::limb;

using words = std::vector<word>;

/// Random residues, every third of them q - 1.
words residues(std::size_t count, word q, word seed) {
    std::mt19937_64 random(seed);
    words values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = i % 3 == 2 ? q - 1 : random() % q;
    }
    return values;
}

template <int Bits>
runtime_modulus<Bits> greatest() {
    return runtime_modulus<Bits>((word{1} << Bits) - 1);
}

template <int Bits>
bool sums_blocks(std::size_t blocks, std::size_t length, bool largest) {
    const auto m = greatest<Bits>();
    const word q = m.value();
    const std::size_t size = blocks * length;
    const words a = largest ? words(size, q - 1) : residues(size, q, 1);
    const words b = largest ? words(size, q - 1) : residues(size, q, 2);
    const words c = largest ? words(size, q - 1) : residues(size, q, 3);
    words expected(blocks);
    for (std::size_t k = 0; k < size; ++k) {
        word& sum = expected[k / length];
        sum = static_cast<word>((mul_wide(a[k], b[k]) + c[k] + sum) % q);
    }
    words sums(blocks);
    limb::block_sums(barrett(m), std::span(sums), a, b, c);
    return sums == expected;
}

TEST_CASE("block sums are right for any number of terms, also of the largest residues") {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const bool largest : {false, true}) {
            for (const std::size_t length : {1UL, 2UL, 31UL, 32UL, 33UL, 64UL, 1000UL, 5000UL}) {
                INFO("largest := ", largest, ", length := ", length);
                CHECK(sums_blocks<20>(3, length, largest));
                CHECK(sums_blocks<57>(2, length, largest));
                CHECK(sums_blocks<58>(2, length, largest));
                CHECK(sums_blocks<60>(2, length, largest));
                CHECK(sums_blocks<61>(2, length, largest));
            }
        }
    });
}

TEST_CASE("a subtracted product equals 128-bit arithmetic, also in place") {
    tests::for_each_backend([](tensafe::exec::backend) {
        const auto m = greatest<61>();
        const word q = m.value();
        const words a = residues(30, q, 1);
        const words b = residues(30, q, 2);
        const words c = residues(30, q, 5);
        words expected(30);
        for (std::size_t k = 0; k < 30; ++k) {
            expected[k] = static_cast<word>((uint128{c[k]} + q - mul_wide(a[k], b[k]) % q) % q);
        }
        words out(30);
        limb::subtract_product(barrett(m), std::span(out), a, b, c);
        CHECK(out == expected);
        out = a;
        limb::subtract_product(barrett(m), std::span(out), out, b, c);
        CHECK(out == expected);
    });
}

TEST_CASE("small signed numbers are added modulo q, over both ends of the range") {
    tests::for_each_backend([](tensafe::exec::backend) {
        const auto m = greatest<20>();
        const word q = m.value();
        for (const word start : {word{0}, word{1}, word{127}, q - 128, q - 1}) {
            for (int small = -128; small <= 127; ++small) {
                words out{start};
                const std::vector<std::int8_t> addend{static_cast<std::int8_t>(small)};
                limb::add_small(m, std::span(out), addend);
                const auto sum = static_cast<std::int64_t>(start) + small;
                const auto modulus = static_cast<std::int64_t>(q);
                INFO("start := ", start, ", small := ", small);
                CHECK(static_cast<std::int64_t>(out[0]) == (sum + modulus) % modulus);
            }
        }
    });
}

/// round(x) modulo q for |x| < 2^112 by 128-bit arithmetic, ties away from zero.
word rounded(double x, word q) {
    const double whole = std::round(std::fabs(x));
    const word r = static_cast<word>(static_cast<uint128>(whole) % q);
    return x < 0 && r != 0 ? q - r : r;
}

template <int Bits>
bool rounds(double x) {
    const auto m = greatest<Bits>();
    words out(2);
    const std::vector<double> reals{x, -x};
    limb::round_reals(shoup(m), std::span(out), reals);
    return out == words{rounded(x, m.value()), rounded(-x, m.value())};
}

TEST_CASE("reals below 2^112 are rounded to the nearest integer, ties away from zero") {
    tests::for_each_backend([](tensafe::exec::backend) {
        const auto check = [](double x) {
            CAPTURE(x);
            CHECK(rounds<20>(x));
            CHECK(rounds<40>(x));
            CHECK(rounds<61>(x));
        };
        for (const double near : {0.0, 0.5, 1.0, 1.5, 2.5, 0x1p49, 0x1p50 - 0.5, 0x1p50, 0x1p51 + 0.5, 0x1p52,
                                  0x1p53, 0x1p61, 0x1p62, 0x1p63, 0x1p64, 0x1p100, 0x1p111}) {
            check(near);
            check(std::nextafter(near, 1e300));
            check(std::fabs(std::nextafter(near, -1e300)));
        }
        check(std::nextafter(0x1p112, 0));
        check(4.9e-324);
        std::mt19937_64 random(1);
        for (int i = 0; i < 3000; ++i) {
            check(std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 119) - 60));
        }
    });
}

TEST_CASE("any words are shifted and reduced") {
    tests::for_each_backend([](tensafe::exec::backend) {
        const auto m = greatest<40>();
        const word q = m.value();
        for (const word shift : {word{0}, word{1}, q / 2, q - 1}) {
            const words in{0, 1, q - 1, q, q + 1, ~word{0}, ~word{0} / q * q, ~word{0} / q * q - 1};
            words out(in.size());
            limb::reduce_shifted(shoup(m), std::span(out), in, shift);
            for (std::size_t k = 0; k < in.size(); ++k) {
                INFO("in[k] := ", in[k], ", shift := ", shift);
                CHECK(out[k] == (in[k] % q + q - shift) % q);
            }
        }
    });
}

TEST_CASE("a scaled difference equals 128-bit arithmetic, also onto either operand") {
    tests::for_each_backend([](tensafe::exec::backend) {
        const auto m = greatest<61>();
        const word q = m.value();
        const words a = residues(30, q, 1);
        const words b = residues(31, q, 2);
        const words shifted(b.begin() + 1, b.end());
        const shoup policy(m);
        words expected(30);
        for (std::size_t k = 0; k < 30; ++k) {
            expected[k] = static_cast<word>((uint128{a[k]} + q - shifted[k]) * (q - 2) % q);
        }
        words out = shifted;
        limb::scale_difference(policy, std::span(out), a, out, policy.prepare(q - 2));
        CHECK(out == expected);
    });
}

}  // namespace
