#include <tensafe/arith/prime.hpp>
#include <tensafe/exec/backend.hpp>
#include <tensafe/ntt/x86/transform_avx512.hpp>

#include "../../test.hpp"

#if TENSAFE_X86_64

using namespace tests;

namespace {

using arith::word;
namespace avx512 = tensafe::ntt::avx512;

constexpr std::size_t lanes = 16;  // of both sets

/// The stages of n blocks of 16 lanes, forward to residues, inverse to below A::inverse_bound * q.
template <class A, std::size_t n, bool forward>
TENSAFE_AVX512 void run(word q, word* x, const word* factors) {
    using rows = avx512::detail::block_rows<A, n>;
    const avx512::detail::factors_in_memory<typename A::factor, true> w{factors, 0};
    const A a(q);
    auto at = rows::load(x, lanes, 8, rows::each);
    if constexpr (forward) {
        at.forward(a, w);
        at.make_canonical(a, rows::each);
    } else {
        at.template inverse<A::inverse_bound, A::inverse_bound>(a, w);
    }
    at.store(x, lanes, 8, rows::each);
}

/// The same, one residue at a time.
template <std::size_t n, bool forward>
void expect(word q, std::vector<word>& x, const std::vector<word>& w) {
    for (std::size_t stage = 1; stage < n; stage *= 2) {
        const std::size_t distance = forward ? n / (2 * stage) : stage;
        for (std::size_t first = 0; first < n; ++first) {
            if ((first & distance) != 0) {
                continue;
            }
            const word factor = w[n / (2 * distance) - 1 + first / (2 * distance)];
            for (std::size_t k = 0; k < lanes; ++k) {
                word& upper = x[first * lanes + k];
                word& lower = x[(first + distance) * lanes + k];
                const word product = forward ? arith::multiply_mod(lower, factor, q) : lower;
                const word difference = (upper + q - product) % q;
                upper = (upper + product) % q;
                lower = forward ? difference : arith::multiply_mod(difference, factor, q);
            }
        }
    }
}

template <class A, std::size_t n, bool forward>
void check(word q) {
    constexpr word bound = forward ? A::forward_bound : A::inverse_bound;
    // What stands above 52 bits is nobody's.
    constexpr word mask = A::max_bits < 50 ? (word{1} << 52) - 1 : ~word{0};
    random_numbers random(q + n);
    for (int round = 0; round < 200; ++round) {
        std::vector<word> factors;
        std::vector<word> table(A::factor::words * n);
        for (std::size_t i = 0; i + 1 < n; ++i) {
            factors.push_back(round == 0 ? q - 1 : random() % q);
            A::factor::prepare(factors[i], q, &table[i * A::factor::words]);
        }
        std::vector<word> entries(n * lanes);
        for (word& x : entries) {
            const word kind = random() % 4;
            x = kind == 0 ? 0 : kind == 1 ? random() % (bound * q) : bound * q - 1;
        }
        std::vector<word> expected = entries;
        for (word& x : expected) {
            x %= q;
        }
        expect<n, forward>(q, expected, factors);
        run<A, n, forward>(q, entries.data(), table.data());
        for (std::size_t k = 0; k < entries.size(); ++k) {
            const word got = forward ? entries[k] : entries[k] & mask;
            REQUIRE(got < (forward ? 1 : A::inverse_bound) * q);
            REQUIRE(got % q == expected[k]);
        }
    }
}

template <class A>
void check_all() {
    const word q = arith::ntt_prime_below(word{1} << A::max_bits, 9);
    check<A, 2, true>(q);
    check<A, 4, true>(q);
    check<A, 8, true>(q);
    check<A, 2, false>(q);
    check<A, 4, false>(q);
    check<A, 8, false>(q);
}

}  // namespace

TEST_CASE("the stages of AVX-512 are right for entries up to the bounds that they state, and keep them") {
    if (tensafe::exec::is_supported(tensafe::exec::backend::avx512)) {
        check_all<avx512::shoup52<128>>();
        check_all<avx512::shoup52<8>>();
        check_all<avx512::shoup52_exact>();
        check_all<avx512::shoup104>();
    }
}

#endif
