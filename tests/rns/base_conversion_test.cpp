#include <tensafe/rns/base_conversion.hpp>

#include "../backends.hpp"
#include "../test.hpp"

using namespace tests;

namespace {

using tensafe::arith::uint128;
using tensafe::arith::word;
__extension__ typedef __int128 signed_wide;
namespace rns = tensafe::rns;

constexpr int log_n = 4;
constexpr std::size_t degree = 16;

/// The prime of that number below 2^Bits.
template <int Bits, int Number = 0>
constexpr word prime = [] {
    word p = word{1} << Bits;
    for (int i = 0; i <= Number; ++i) {
        p = tensafe::arith::ntt_prime_below(p, log_n);
    }
    return p;
}();

template <word... Primes>
std::vector<const rns::limb_operations*> limbs() {
    return {&rns::shared_operations<log_n, Primes>()...};
}

word residue(signed_wide x, word q) {
    const signed_wide r = x % static_cast<signed_wide>(q);
    return static_cast<word>(r < 0 ? r + static_cast<signed_wide>(q) : r);
}

/// The integer that a conversion stands for: each residue times the inverse of D / q, centred, times D / q.
signed_wide lifted(uint128 x, const std::vector<word>& primes) {
    signed_wide sum = 0;
    for (const word q : primes) {
        uint128 rest = 1;
        for (const word other : primes) {
            rest *= other == q ? 1 : other;
        }
        const auto y = static_cast<word>(static_cast<uint128>(x % q) *
                                         tensafe::arith::inverse_mod(static_cast<word>(rest % q), q) % q);
        const auto centred = y > q / 2 ? -static_cast<signed_wide>(q - y) : static_cast<signed_wide>(y);
        sum += centred * static_cast<signed_wide>(rest);
    }
    return sum;
}

void check(const std::vector<const rns::limb_operations*>& from,
           const std::vector<const rns::limb_operations*>& to) {
    std::vector<word> primes;
    uint128 product = 1;
    for (const auto* const limb : from) {
        primes.push_back(limb->prime());
        product *= limb->prime();
    }
    const rns::base_conversion convert(from, to);
    random_numbers random(7);
    // The ends, the middle and what lies between.
    std::vector<uint128> x{0, 1, product - 1, product / 2, product / 2 + 1};
    while (x.size() < degree) {
        x.push_back((static_cast<uint128>(random()) << 64 | random()) % product);
    }
    std::vector<std::vector<word>> rows;
    std::vector<const word*> prepared;
    for (std::size_t i = 0; i < from.size(); ++i) {
        rows.emplace_back();
        for (const uint128 each : x) {
            rows[i].push_back(static_cast<word>(each % primes[i]));
        }
        convert.prepare(i, rows[i]);
    }
    for (const auto& row : rows) {
        prepared.push_back(row.data());
    }
    std::vector<std::vector<word>> outs(to.size(), std::vector<word>(degree));
    std::vector<word*> places;
    for (auto& out : outs) {
        places.push_back(out.data());
    }
    convert.convert(prepared, places);
    for (std::size_t j = 0; j < to.size(); ++j) {
        const std::vector<word>& out = outs[j];
        for (std::size_t k = 0; k < degree; ++k) {
            const signed_wide integer = lifted(x[k], primes);
            CHECK(residue(integer - static_cast<signed_wide>(x[k]), primes[0]) == 0);
            const signed_wide most =
                static_cast<signed_wide>(product / 2) * static_cast<signed_wide>(from.size());
            CHECK((integer <= most && integer >= -most));
            CHECK(out[k] == residue(integer, to[j]->prime()));
        }
    }
}

}  // namespace

BACKEND_TEST_CASE("a conversion keeps residues, and the integer is centred, in all widths") {
    const auto to =
        limbs<prime<31>, prime<36>, prime<46>, prime<48>, prime<50>, prime<51>, prime<60>, prime<61>>();
    check(limbs<prime<50, 1>>(), to);
    check(limbs<prime<41>, prime<41, 1>, prime<40>>(), to);
    check(limbs<prime<20>>(), to);
    check(limbs<prime<17>, prime<18>, prime<19>, prime<20>, prime<21>, prime<22>>(), to);
    // Wider than what kernels of narrow primes multiply.
    check(limbs<prime<60, 1>>(), to);
    check(limbs<prime<61, 1>, prime<61, 2>>(), to);
}

BACKEND_TEST_CASE("the most primes that are converted from at once give the residues of their sum") {
    // Of ones, whose integer is 1 and a multiple of D, and of the largest residues, whose is its negative.
    const auto from = []<int... I>(std::integer_sequence<int, I...>) {
        return limbs<prime<40, I>..., prime<39, I>...>();
    }
    (std::make_integer_sequence<int, 16>());
    CHECK(from.size() == rns::base_conversion::most_primes);
    CHECK_THROWS_WITH_AS(rns::base_conversion({}, limbs<prime<36>>()),
                         "base_conversion: got 0 primes, expected 1 to 32", parameter_error);
    const auto to = limbs<prime<36>, prime<50>, prime<60>>();
    const rns::base_conversion convert(from, to);
    std::vector<std::vector<word>> rows;
    std::vector<const word*> prepared;
    for (std::size_t i = 0; i < from.size(); ++i) {
        rows.emplace_back(degree, 1);
        rows[i][3] = from[i]->prime() - 1;
        convert.prepare(i, rows[i]);
    }
    for (const auto& row : rows) {
        prepared.push_back(row.data());
    }
    for (std::size_t j = 0; j < to.size(); ++j) {
        std::vector<word> out(degree);
        std::vector<word*> places(to.size());  // the others are left out
        places[j] = out.data();
        convert.convert(prepared, places);
        CHECK(out[0] == out[15]);
        CHECK(out[3] == to[j]->prime() - out[0]);
    }
}

BACKEND_TEST_CASE("sums of pairs are those of products, with addends and without, of any number of terms") {
    const auto check_limb = [](const rns::limb_operations& limb) {
        constexpr std::size_t n = 16;
        const word q = limb.prime();
        random_numbers random(q);
        for (const std::size_t terms : {1U, 2U, 7U, 40U}) {
            const std::size_t stride = terms + 2;  // a key of more digits
            const std::vector<word> pairs = random.residues(2 * stride * n, q);
            std::vector<std::vector<word>> x;
            std::vector<const word*> rows;
            for (std::size_t t = 0; t < terms; ++t) {
                x.push_back(random.residues(n, q));
            }
            for (const auto& row : x) {
                rows.push_back(row.data());
            }
            const std::vector<word> addends[] = {random.residues(n, q), random.residues(n, q)};
            for (const bool adds : {false, true}) {
                std::vector<word> got[] = {std::vector<word>(n), std::vector<word>(n)};
                rns::limb::pair_sums sums{{got[0], got[1]}, rows.data(), terms, pairs.data(), stride};
                if (adds) {
                    sums.addends[0] = addends[0].data();
                    sums.addends[1] = addends[1].data();
                    sums.w = q - 2;
                }
                limb.sum_pairs(sums);
                for (std::size_t half = 0; half < 2; ++half) {
                    for (std::size_t k = 0; k < n; ++k) {
                        word expected = adds ? tensafe::arith::multiply_mod(addends[half][k], q - 2, q) : 0;
                        for (std::size_t t = 0; t < terms; ++t) {
                            const word factor = pairs[(k / 8 * stride + t) * 16 + half * 8 + k % 8];
                            expected = (expected + tensafe::arith::multiply_mod(x[t][k], factor, q)) % q;
                        }
                        CHECK(got[half][k] == expected);
                    }
                }
            }
        }
    };
    for (const auto* const limb :
         limbs<prime<17>, prime<36>, prime<45>, prime<47>, prime<50>, prime<60>, prime<61>>()) {
        CAPTURE(limb->prime());
        check_limb(*limb);
    }
}
