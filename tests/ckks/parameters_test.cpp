#include <tensafe/arith/prime.hpp>
#include <tensafe/ckks/parameters.hpp>

#include "../test.hpp"

using namespace tests;

namespace {

using tensafe::arith::word;

// The widest modulus that the table allows is allowed; one bit more is a test of compile_fail.
static_assert(ckks::parameters<10, ckks::limb_bits<26>, 20>::max_level == 0);
static_assert(ckks::parameters<13, ckks::limb_bits<54, 40, 60, 60>, 40>::limbs == 4);
static_assert(ckks::parameters<11, ckks::limb_bits<40>, 20, ckks::quantum_128>::max_level == 0);
static_assert(ckks::parameters<13, ckks::limb_bits<61, 60, 40>, 40, ckks::quantum_128>::limbs == 3);

/// Many limbs of 61 bits and a last one.
template <int LogN, int Last, int... I>
auto long_chain(std::integer_sequence<int, I...>)
    -> ckks::parameters<LogN, ckks::limb_bits<61 + 0 * I..., Last>, 40>;
static_assert(decltype(long_chain<16, 39>(std::make_integer_sequence<int, 28>()))::basis::limbs == 29);
static_assert(decltype(long_chain<17, 46>(std::make_integer_sequence<int, 57>()))::basis::limbs == 58);

static_assert(ckks::parameter_set<ckks::n16384_l4>);
static_assert(!ckks::parameter_set<int>);

template <int... Widths>
struct expected_widths {
    static constexpr std::array<int, sizeof...(Widths)> value{Widths...};
};

template <class Set, int LogN, class Widths>
struct named {
    using set = Set;
    static constexpr int log_n = LogN;
    static constexpr auto widths = Widths::value;
};

using named_sets = std::tuple<named<ckks::n8192_l4, 13, expected_widths<60, 40, 40, 60>>,
                              named<ckks::n16384_l4, 14, expected_widths<60, 40, 40, 60>>,
                              named<ckks::n16384_l5, 14, expected_widths<60, 40, 40, 40, 60>>,
                              named<ckks::n32768_l4, 15, expected_widths<60, 40, 40, 60>>,
                              named<ckks::n32768_l5, 15, expected_widths<60, 40, 40, 40, 60>>>;

/// The count-th largest number of that width that is prime and 1 modulo 2N, by looking at every candidate.
word by_counting(int width, int log_n, int count) {
    const word step = word{2} << log_n;
    for (word candidate = (word{1} << width) - step + 1;; candidate -= step) {
        if (tensafe::arith::is_prime(candidate) && count-- == 0) {
            return candidate;
        }
    }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("A named set has the degree, widths and scale of its name", T, named_set) {
    using set = typename T::set;
    CHECK(set::log_n == T::log_n);
    CHECK(set::degree == std::size_t{1} << T::log_n);
    CHECK(set::slots == set::degree / 2);
    CHECK(set::limbs == static_cast<int>(T::widths.size()));
    CHECK(set::max_level == set::limbs - 1);
    CHECK(set::scale == 0x1p40);
    CHECK(set::basis::log2_modulus() <= ckks::max_modulus_bits_128(T::log_n));

    std::array<int, 62> used{};
    for (std::size_t i = 0; i < T::widths.size(); ++i) {
        CAPTURE(i);
        const word q = set::basis::primes[i];
        const int width = T::widths[i];
        CHECK(std::bit_width(q) == width);
        CHECK(tensafe::arith::is_prime(q));
        CHECK(q % (2 * set::degree) == 1);
        // Largest first along the chain, hence distinct.
        CHECK(q == by_counting(width, T::log_n, used[static_cast<std::size_t>(width)]++));
    }
}
TEST_CASE_TEMPLATE_APPLY(named_set, named_sets);

TEST_CASE("The security table ends where the guideline's tables do") {
    constexpr std::array<int, 8> classical{26, 53, 106, 214, 430, 868, 1747, 3523};
    constexpr std::array<int, 8> quantum{20, 40, 80, 161, 322, 644, 0, 0};
    for (int i = 0; i < 8; ++i) {
        CHECK(ckks::max_modulus_bits_128(10 + i) == classical[static_cast<std::size_t>(i)]);
        CHECK(ckks::max_modulus_bits_quantum_128(10 + i) == quantum[static_cast<std::size_t>(i)]);
    }
    for (const int log_n : {-1, 0, 9, 18, 64}) {
        CAPTURE(log_n);
        CHECK(ckks::max_modulus_bits_128(log_n) == 0);
        CHECK(ckks::max_modulus_bits_quantum_128(log_n) == 0);
    }
}

TEST_CASE("The named sets that keep the quantum column are those of docs/security.md") {
    const auto keeps = []<class Set>(Set) {
        return Set::basis::log2_modulus() <= ckks::max_modulus_bits_quantum_128(Set::log_n);
    };
    CHECK(keeps(ckks::quantum_n4096()));
    CHECK(keeps(ckks::compact_n4096()));
    CHECK(keeps(ckks::n16384_l4()));
    CHECK(keeps(ckks::n16384_l5()));
    CHECK(keeps(ckks::n32768_l4()));
    CHECK(keeps(ckks::n32768_l5()));
    CHECK(!keeps(ckks::private_n4096()));
    CHECK(!keeps(ckks::minimal_n2048()));
    CHECK(!keeps(ckks::n8192_l4()));
}

TEST_CASE("Chains by width and chains by prime name the same basis") {
    using by_width = ckks::parameters<10, ckks::limb_bits<40, 60, 40>, 30, ckks::insecure_for_tests>;
    constexpr word first = by_width::basis::primes[0];
    constexpr word second = by_width::basis::primes[1];
    constexpr word third = by_width::basis::primes[2];
    CHECK(first > third);
    using by_prime =
        ckks::parameters<10, ckks::limb_primes<first, second, third>, 30, ckks::insecure_for_tests>;
    CHECK(std::is_same_v<by_width::basis, by_prime::basis>);
}

TEST_CASE("A level keeps the first level + 1 primes, and a rescale divides by the last of them") {
    using set = ckks::n16384_l4;
    CHECK(std::is_same_v<set::basis_at<set::max_level>, set::basis>);
    CHECK(set::basis_at<0>::limbs == 1);
    CHECK(set::basis_at<0>::primes[0] == set::basis::primes[0]);
    CHECK(set::basis_at<2>::limbs == 3);
    CHECK(set::basis_at<2>::primes[2] == set::basis::primes[2]);
    // A double has 53 bits and these primes end in a one: the factor is the prime to the nearest double.
    CHECK(set::rescale_factor<1> == static_cast<double>(set::basis::primes[1]));
    CHECK(set::rescale_factor<3> == static_cast<double>(set::basis::primes[3]));
}
