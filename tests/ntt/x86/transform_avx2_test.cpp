#include <tensafe/arith/shoup.hpp>

#include "../transform_checks.hpp"

#if TENSAFE_X86_64

namespace {

using namespace transform_checks;
namespace arith = tensafe::arith;
namespace avx2 = tensafe::ntt::avx2;
using tensafe::ntt::direction;

bool has_avx2() {
    return tensafe::exec::is_supported(tensafe::exec::backend::avx2);
}

/// Random residues, and the patterns that drive lazy sums furthest.
std::vector<words> inputs(std::size_t degree, word q) {
    std::vector<words> result{random_residues(degree, q, 5), words(degree, q - 1), words(degree, 0)};
    for (std::size_t half_period = 1; half_period < degree; half_period *= 4) {
        words& steps = result.emplace_back(degree, 0);
        for (std::size_t i = 0; i < degree; ++i) {
            steps[i] = i / half_period % 2 == 0 ? q - 1 : 0;
        }
    }
    words& middle = result.emplace_back(degree);
    for (std::size_t i = 0; i < degree; ++i) {
        middle[i] = q / 2 + i % 2;
    }
    return result;
}

/// The portable passes' result for both directions, called as they stand, whatever back-end is active.
/// `Class`: the widest primes that the code is for.
template <int Class, int Bits>
void check_modulus(word q, int log_n, word psi) {
    CAPTURE(q);
    CAPTURE(log_n);
    CAPTURE(psi);
    using policy = arith::shoup<arith::runtime_modulus<Bits>>;
    const tensafe::ntt::plan<policy> plan(policy(arith::runtime_modulus<Bits>(q)), log_n, psi);
    const tensafe::ntt::host_passes<policy> portable(plan);
    const avx2::tables_for<Class> tables(q, log_n, psi);
    for (const words& input : inputs(plan.degree(), q)) {
        words expected = input;
        portable.template forward<0>(expected.data());
        words limb = input;
        avx2::transform<Class, direction::forward>(tables, limb.data());
        CHECK(limb == expected);
        avx2::transform<Class, direction::inverse>(tables, limb.data());
        CHECK(limb == input);

        expected = input;
        portable.template inverse<0>(expected.data());
        limb = input;
        avx2::transform<Class, direction::inverse>(tables, limb.data());
        CHECK(limb == expected);
    }
}

template <int Class, int Bits>
void check_width(int log_n) {
    const word q = arith::ntt_prime_below(word{1} << Bits, log_n);
    check_modulus<Class, Bits>(q, log_n, arith::smallest_primitive_root(q, log_n));
}

template <int Class, int... Bits>
void check_widths(int log_n) {
    (check_width<Class, Bits>(log_n), ...);
}

TEST_CASE("the AVX2 transforms of primes up to 50 bits equal the portable ones") {
    if (has_avx2()) {
        for (int log_n = avx2::min_log_n; log_n <= 14; ++log_n) {
            check_widths<45, 20, 30, 33, 35, 40, 44, 45>(log_n);
            check_widths<47, 46, 47>(log_n);
            check_widths<48, 20, 48>(log_n);
            check_widths<49, 20, 48, 49>(log_n);
            check_widths<50, 20, 30, 33, 35, 40, 44, 45, 46, 47, 48, 49, 50>(log_n);
        }
        for (const int log_n : {15, 17}) {
            check_widths<45, 20, 45>(log_n);
            check_widths<48, 20, 48>(log_n);
            check_widths<49, 20, 49>(log_n);
            check_widths<50, 20, 48, 49, 50>(log_n);
        }
    }
}

TEST_CASE("the AVX2 transforms of primes up to 61 bits equal the portable ones") {
    if (has_avx2()) {
        for (int log_n = avx2::min_log_n; log_n <= 14; ++log_n) {
            check_widths<60, 40, 51, 52, 55, 57, 58, 59, 60>(log_n);
            check_widths<61, 61>(log_n);
        }
        for (const int log_n : {15, 17}) {
            check_widths<60, 51, 58, 59, 60>(log_n);
            check_widths<61, 61>(log_n);
        }
    }
}

TEST_CASE("the AVX2 transforms take any odd power of the smallest root") {
    if (has_avx2()) {
        for (const int log_n : {5, 8, 11, 12}) {
            const word narrow = arith::ntt_prime_below(word{1} << 50, log_n);
            const word wide = arith::ntt_prime_below(word{1} << 61, log_n);
            const word narrow_root = arith::smallest_primitive_root(narrow, log_n);
            const word wide_root = arith::smallest_primitive_root(wide, log_n);
            for (const word exponent : {word{3}, word{7}, (word{2} << log_n) - 1}) {
                check_modulus<50, 50>(narrow, log_n, arith::power_mod(narrow_root, exponent, narrow));
                check_modulus<61, 61>(wide, log_n, arith::power_mod(wide_root, exponent, wide));
            }
        }
    }
}

TEST_CASE("the AVX2 transforms work for primes anywhere between two powers of two") {
    // Where the lower half of a prime lies decides which representatives the wide factors take.
    if (has_avx2()) {
        constexpr int log_n = 9;
        for (int i = 1; i < 16; ++i) {
            const word fraction = static_cast<word>(i);
            const auto prime_at = [&](int bits) {
                return arith::ntt_prime_below(
                    (word{1} << (bits - 1)) + (fraction << (bits - 5)) + (fraction << 28), log_n);
            };
            const word narrow = prime_at(50);
            const word wide = prime_at(60);
            const word widest = prime_at(61);
            check_modulus<50, 50>(narrow, log_n, arith::smallest_primitive_root(narrow, log_n));
            check_modulus<60, 60>(wide, log_n, arith::smallest_primitive_root(wide, log_n));
            check_modulus<61, 61>(widest, log_n, arith::smallest_primitive_root(widest, log_n));
        }
    }
}

}  // namespace

#endif
