#include <tensafe/rns/limb.hpp>

#include "../backends.hpp"
#include "../test.hpp"

namespace {

using namespace tensafe::arith;
namespace limb = tensafe::rns::limb;

using words = std::vector<word>;

/// The widths that share code: one alone, or those of a class.
template <int Bits, int LeastBits = Bits>
struct width {
    static constexpr int bits = Bits;
    static constexpr int least_bits = LeastBits;
    using modulus = runtime_modulus<Bits, LeastBits>;
    static constexpr std::size_t lazy = tensafe::arith::scalar::lazy_terms<modulus>;
    /// The largest modulus of the widths, where sums are longest, and the smallest odd one.
    static constexpr word moduli[] = {(word{1} << Bits) - 1, (word{1} << (LeastBits - 1)) + 1};
};

/// Numbers of terms around those after which the sum is reduced.
template <class W>
std::vector<std::size_t> interesting_counts() {
    if (W::lazy > 1000) {
        return {1, 2, 31, 1000};
    }
    return {1, 2, W::lazy - 1, W::lazy, W::lazy + 1, 2 * W::lazy, 2 * W::lazy + 1, 5 * W::lazy + 2};
}

words residues(std::size_t count, word q, word seed, bool largest) {
    std::mt19937_64 random(seed);
    words values(count, q - 1);
    for (std::size_t i = 0; i < count && !largest; ++i) {
        values[i] = i % 3 == 2 ? q - 1 : random() % q;
    }
    return values;
}

/// total + a * b with a division, as the definition says.
word add_product(word total, word a, word b, word q) {
    return static_cast<word>((uint128{a} * b % q + total) % q);
}

template <class W>
void check_sums(word q, std::size_t terms, bool largest) {
    INFO("q := ", q, ", terms := ", terms, ", largest := ", largest);
    const barrett policy{typename W::modulus(q)};
    constexpr std::size_t columns = 3;
    const words a = residues(terms * columns, q, 1, largest);
    const words b = residues(terms * columns, q, 2, largest);
    const words start = residues(columns, q, 4, largest);

    words of_blocks = start;
    for (std::size_t i = 0; i < terms; ++i) {
        for (std::size_t k = 0; k < columns; ++k) {
            of_blocks[k] = add_product(of_blocks[k], a[k * terms + i], b[k * terms + i], q);
        }
    }

    words out = start;
    limb::add_block_sums(policy, std::span(out), a, b);
    CHECK(out == of_blocks);
}

/// Whether terms * (q-1)^2 + (q-1) < 2^(63 + least_bits), in 128 bits.
constexpr bool stays_reducible(uint128 terms, word q, int least_bits) {
    // Divided by q - 1, and the right side rounded up.
    const uint128 right = ((uint128{1} << (63 + least_bits)) + q - 2) / (q - 1);
    return terms * (q - 1) + 1 < right;
}

template <class W>
constexpr bool keeps_its_promise() {
    for (const word q : W::moduli) {
        if (!stays_reducible(W::lazy, q, W::least_bits)) {
            return false;
        }
    }
    return true;
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

TEST_CASE_TEMPLATE("sums that are reduced late equal sums that are reduced after every product", W, width<30>,
                   width<42>, width<45>, width<60>, width<61>, width<35, 16>, width<45, 36>) {
    tests::for_each_backend([](tensafe::exec::backend) {
        for (const word q : W::moduli) {
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
            check_sums<wide_enough>(wide_enough::moduli[0], terms, true);
        }
    });
}

TEST_CASE("sums of no products are zero, or what was there before") {
    tests::for_each_backend([](tensafe::exec::backend) {
        const barrett policy{runtime_modulus<45>(width<45>::moduli[0])};
        words out{1, 2, 3};
        limb::add_block_sums(policy, std::span(out), std::span<const word>(), std::span<const word>());
        CHECK(out == words{1, 2, 3});
    });
}

}  // namespace
