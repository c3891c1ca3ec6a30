#pragma once

// Loops over the words of a limb against 128-bit arithmetic: what the tests of rns::limb share.

#include <tensafe/rns/limb.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

namespace tests::limbs {

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
inline constexpr std::array<pattern, 4> patterns{pattern::random, pattern::large, pattern::extremes,
                                                 pattern::largest};

inline words residues(std::size_t size, word q, word seed, pattern p) {
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

words table(std::size_t size, auto f) {
    words values(size);
    for (std::size_t k = 0; k < size; ++k) {
        values[k] = static_cast<word>(f(k));
    }
    return values;
}

template <int Bits>
struct width {
    static constexpr int bits = Bits;
    using modulus = runtime_modulus<Bits>;
    static constexpr word largest = (word{1} << Bits) - 1;
    static constexpr word smallest = (word{1} << (Bits - 1)) + 1;
};

/// Sums of blocks of words, with addends and onto what was there.
template <class W>
void check_blocks(word q, std::size_t count, std::size_t length, pattern p) {
    CAPTURE(q);
    CAPTURE(count);
    CAPTURE(length);
    CAPTURE(static_cast<int>(p));
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
        const word product = static_cast<word>(wide{a[k]} * b[k] % q);
        first = static_cast<word>((wide{first} + product + c[k]) % q);
        second = static_cast<word>((wide{second} + product) % q);
    }
    words sums(count, 12345);
    limb::block_sums(policy, sums.span(), a.span(), b.span(), c.span());
    CHECK(sums == with_addends);
    sums = start;
    limb::add_block_sums(policy, sums.span(), a.span(), b.span());
    CHECK(sums == added);
}

/// Sums of rows of words, times rows and times one factor each.
template <class W>
void check_columns(word q, std::size_t terms, std::size_t columns, pattern p) {
    CAPTURE(q);
    CAPTURE(terms);
    CAPTURE(columns);
    CAPTURE(static_cast<int>(p));
    const barrett policy{typename W::modulus(q)};
    const words a = residues(terms * columns, q, 1, p);
    const words b = residues(terms * columns, q, 2, p);
    const words factors = residues(terms, q, 3, p);
    const words start = residues(columns, q, 4, p);
    std::vector<const word*> a_rows(terms);
    std::vector<const word*> b_rows(terms);
    words products(columns);
    words scaled = start;
    for (std::size_t i = 0; i < terms; ++i) {
        a_rows[i] = a.span().data() + i * columns;
        b_rows[i] = b.span().data() + i * columns;
        for (std::size_t k = 0; k < columns; ++k) {
            products[k] = static_cast<word>((wide{a_rows[i][k]} * b_rows[i][k] + products[k]) % q);
            scaled[k] = static_cast<word>((wide{a_rows[i][k]} * factors[i] + scaled[k]) % q);
        }
    }
    words out(columns, 12345);
    limb::sum_products(policy, out.span(), a_rows, b_rows);
    CHECK(out == products);
    out = start;
    limb::add_scaled(policy, out.span(), a_rows, factors.span());
    CHECK(out == scaled);
}

}  // namespace tests::limbs
