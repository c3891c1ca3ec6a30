#include <tensafe/rns/limb.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include "../backends.hpp"
#include "limb_checks.hpp"

namespace {

using namespace tests::limbs;

/// Products that are added up before a reduction.
template <class W>
constexpr std::size_t lazy = scalar::lazy_terms<typename W::modulus>;

/// Numbers of terms around those after which the sum is reduced.
template <class W>
std::vector<std::size_t> interesting_counts() {
    if (lazy < W >> 1000) {
        return {1, 2, 31, 1000};
    }
    return {1, 2, lazy<W> - 1, lazy<W>, lazy<W> + 1, 2 * lazy<W>, 2 * lazy<W> + 1, 5 * lazy<W> + 2};
}

/// Three sums of as many terms.
template <class W>
void check_sums(word q, std::size_t terms, pattern p) {
    check_blocks<W>(q, 3, terms, p);
    check_columns<W>(q, terms, 3, p);
}

/// Whether terms * (q-1)^2 + (q-1) < 2^63 * q, in 128 bits.
constexpr bool stays_reducible(wide terms, word q) {
    // Divided by q - 1 the left side is terms * (q-1) + 1. The right is 2^63 + 2^63 / (q-1), so that the
    // comparison of integers is with 2^63 and its quotient's integer part, rounded up.
    const wide right = (wide{1} << 63) + ((wide{1} << 63) + q - 2) / (q - 1);
    return terms * (q - 1) + 1 < right;
}

/// Of the largest modulus of the width, where sums are longest, and the smallest odd one, where what is
/// reduced comes closest to 2^63 * q.
template <class W>
constexpr bool keeps_its_promise = stays_reducible(lazy<W>, W::largest) &&
                                   stays_reducible(lazy<W>, W::smallest);

static_assert(keeps_its_promise<width<30>> && keeps_its_promise<width<42>> && keeps_its_promise<width<45>> &&
              keeps_its_promise<width<57>> && keeps_its_promise<width<58>> && keeps_its_promise<width<60>> &&
              keeps_its_promise<width<61>>);
// Not because it promises too little: two terms more would break it for the widest primes.
static_assert(lazy<width<61>> == 3 && lazy<width<60>> == 7 && lazy<width<45>> == (1 << 18) - 1);
static_assert(!stays_reducible(lazy<width<61>> + 2, (word{1} << 61) - 1) &&
              !stays_reducible(lazy<width<60>> + 2, (word{1} << 60) - 1));

TEST_CASE_TEMPLATE("sums that are reduced late equal sums that are reduced after every product", W, width<30>,
                   width<42>, width<45>, width<60>, width<61>) {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const word q : {W::largest, W::smallest}) {
            REQUIRE(std::bit_width(q) == W::bits);
            for (const std::size_t terms : interesting_counts<W>()) {
                check_sums<W>(q, terms, pattern::extremes);
                check_sums<W>(q, terms, pattern::random);
                check_sums<W>(q, terms, pattern::largest);
            }
        }
    });
}

BACKEND_TEST_CASE(
    "sums of more terms than fit 45 bits at once equal sums that are reduced after every product") {
    using W = width<45>;
    for (const std::size_t terms : {lazy<W> - 1, lazy<W>, lazy<W> + 1}) {
        check_sums<W>(W::largest, terms, pattern::largest);
    }
}

BACKEND_TEST_CASE("sums of no products are zero, or what was there before") {
    const barrett policy{runtime_modulus<45>(width<45>::largest)};
    std::vector<word> out{1, 2, 3};
    limb::add_scaled(policy, std::span(out), std::span<const word* const>(), std::span<const word>());
    CHECK(out == std::vector<word>{1, 2, 3});
    limb::add_block_sums(policy, std::span(out), std::span<const word>(), std::span<const word>());
    CHECK(out == std::vector<word>{1, 2, 3});
}

}  // namespace
