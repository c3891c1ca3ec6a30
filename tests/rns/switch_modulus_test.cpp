#include <tensafe/rns/switch_modulus.hpp>

#include "../backends.hpp"
#include "../guarded_pages.hpp"
#include "../ntt/reference.hpp"

namespace {

using namespace tensafe;
using arith::uint128;
using arith::word;
using tests::modulus;

constexpr int log_n = 4;
constexpr std::size_t degree = 16;
constexpr word q30 = arith::ntt_prime_below(word{1} << 30, log_n);
constexpr word q30b = arith::ntt_prime_below(q30, log_n);
constexpr word q40 = arith::ntt_prime_below(word{1} << 40, log_n);
constexpr word q45 = arith::ntt_prime_below(word{1} << 45, log_n);
constexpr word q61 = arith::ntt_prime_below(word{1} << 61, log_n);

template <class Basis>
std::vector<std::uint32_t> switched(const std::vector<uint128>& coefficients, int bits) {
    std::array<std::vector<word>, static_cast<std::size_t>(Basis::limbs)> words;
    std::array<std::span<const word>, static_cast<std::size_t>(Basis::limbs)> residues;
    for (std::size_t i = 0; i < words.size(); ++i) {
        for (const uint128 p : coefficients) {
            words[i].push_back(static_cast<word>(p % Basis::primes[i]));
        }
        residues[i] = words[i];
    }
    std::vector<std::uint32_t> out(coefficients.size());
    rns::switch_modulus<Basis>(residues, bits, out);
    return out;
}

/// How far the sum of the shares may fall short, in units of 2^-64.
template <class Basis>
double shortfall() {
    double sum = 0;
    for (const word q : Basis::primes) {
        sum += q < word{1} << 52 ? 2 : std::ldexp(3, static_cast<int>(std::bit_width(q)) - 52);
    }
    return sum;
}

/// 2^bits * p / modulus by long division: integer part, and remainder below the modulus.
struct quotient {
    word whole;
    uint128 remainder;
};
quotient divide(uint128 p, uint128 modulus, int bits) {
    quotient result{0, p};
    for (int i = 0; i < bits; ++i) {
        result.remainder *= 2;
        const bool one = result.remainder >= modulus;
        result.whole = 2 * result.whole + (one ? 1 : 0);
        result.remainder -= one ? modulus : 0;
    }
    return result;
}

/// Whether `out` is the nearest integer, or the one below where the fraction is above 1/2 by less than what
/// the page allows. Sets `lower` in that case.
template <class Basis>
bool is_right(uint128 p, int bits, std::uint32_t out, bool& lower) {
    constexpr uint128 q = modulus<Basis>();
    const quotient exact = divide(p, q, bits);
    const word mask = (word{1} << bits) - 1;
    const bool above = exact.remainder > q - exact.remainder;
    if (out == ((exact.whole + (above ? 1 : 0)) & mask)) {
        return true;
    }
    lower = true;
    const double excess =
        static_cast<double>(2 * exact.remainder - q) / (2 * static_cast<double>(q));  // fraction - 1/2
    return above && out == exact.whole && excess < std::ldexp(shortfall<Basis>(), bits - 64);
}

/// floor(q * factor / 2^shift) for factor < 2^34, shift <= 64; the result must fit.
uint128 multiply_shift(uint128 q, word factor, int shift) {
    const uint128 low = arith::mul_wide(arith::low_word(q), factor);
    const uint128 high = arith::mul_wide(arith::high_word(q), factor);
    return (high << (64 - shift)) + (low >> shift);
}

/// 0, Q - 1 and their neighbours, both sides of ties and of multiples of Q / 2^bits, random.
template <class Basis>
std::vector<uint128> telling_coefficients(int bits, tests::random_numbers& random) {
    constexpr uint128 q = modulus<Basis>();
    std::vector<uint128> p{0, 1, 2, q - 1, q - 2, (q - 1) / 2, (q + 1) / 2};
    const word mask = (word{1} << bits) - 1;
    for (const word k : {word{0}, word{1} & mask, mask / 2, mask, random() & mask, random() & mask}) {
        for (const word twice : {2 * k, 2 * k + 1}) {
            const uint128 edge = multiply_shift(q, twice, bits + 1);
            for (const uint128 step : {uint128{0}, uint128{1}, uint128{2}}) {
                p.push_back((edge + step) % q);
                p.push_back((edge + q - step) % q);
            }
        }
    }
    for (int i = 0; i < 200; ++i) {
        p.push_back((static_cast<uint128>(random()) << 64 | random()) % q);
    }
    return p;
}

template <class Basis>
std::size_t check_against_division() {
    tests::random_numbers random(1);
    std::size_t lower = 0;
    for (int bits = 1; bits <= 32; ++bits) {
        CAPTURE(bits);
        std::size_t wrong = 0;
        for (int round = 0; round < 10; ++round) {
            const std::vector<uint128> p = telling_coefficients<Basis>(bits, random);
            const std::vector<std::uint32_t> out = switched<Basis>(p, bits);
            for (std::size_t k = 0; k < p.size(); ++k) {
                bool below = false;
                wrong += !is_right<Basis>(p[k], bits, out[k], below);
                lower += below;
            }
            // Where two integers are allowed, all back-ends take the same.
            tests::for_each_backend([&](auto) { CHECK(switched<Basis>(p, bits) == out); });
        }
        CHECK(wrong == 0);
    }
    return lower;
}

/// Whether it can be called with a polynomial of that form.
template <class Form>
concept switchable = requires(const rns::poly<rns::basis<log_n, q30>, Form>& p,
                              std::span<std::uint32_t> out) {
    rns::switch_modulus(p, 8, out);
};
static_assert(switchable<rns::coefficient_form>);
static_assert(!switchable<rns::evaluation_form>);

}  // namespace

TEST_CASE_TEMPLATE("switching the modulus is the nearest integer within its stated error", Basis,
                   rns::basis<log_n, q61>, rns::basis<log_n, q30>, rns::basis<log_n, q61, q45>,
                   rns::basis<log_n, 97, q61>, rns::basis<log_n, q30, q30b, q40>) {
    const std::size_t lower = check_against_division<Basis>();
    if constexpr (std::is_same_v<Basis, rns::basis<log_n, q30>>) {
        CHECK(lower == 0);  // no exception near ties either
    }
}

TEST_CASE("switching the modulus is right for every residue of a tiny chain") {
    using chain = rns::basis<log_n, 193, 97>;
    std::vector<uint128> p;
    for (uint128 x = 0; x < modulus<chain>(); ++x) {
        p.push_back(x);
    }
    for (int bits = 1; bits <= 32; ++bits) {
        CAPTURE(bits);
        const std::vector<std::uint32_t> out = switched<chain>(p, bits);
        std::size_t wrong = 0;
        for (std::size_t k = 0; k < p.size(); ++k) {
            bool lower = false;
            wrong += !is_right<chain>(p[k], bits, out[k], lower) || lower;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("values just below Q round up to 0") {
    using chain = rns::basis<log_n, q61, q45>;
    const uint128 q = modulus<chain>();
    CHECK(switched<chain>({q - 1, q - q / 1024, q / 2, q / 2 + q / 1024}, 8) ==
          std::vector<std::uint32_t>{0, 0, 128, 128});
}

TEST_CASE("every number of coefficients is switched, and nothing beside them") {
    using chain = rns::basis<log_n, q61, q45>;
    tests::random_numbers random(3);
    for (std::size_t count = 0; count <= 70; ++count) {
        CAPTURE(count);
        std::vector<uint128> p(count);
        std::array<std::vector<word>, 2> residues;
        for (uint128& x : p) {
            x = (static_cast<uint128>(random()) << 64 | random()) % modulus<chain>();
            residues[0].push_back(static_cast<word>(x % q61));
            residues[1].push_back(static_cast<word>(x % q45));
        }
        tests::for_each_backend([&](auto) {
            std::vector<std::uint32_t> out(count + 2, 77);
            rns::switch_modulus<chain>({residues[0], residues[1]}, 32, std::span(out).subspan(1, count));
            CHECK(out.front() == 77);
            CHECK(out.back() == 77);
            std::size_t wrong = 0;
            for (std::size_t k = 0; k < count; ++k) {
                bool lower = false;
                wrong += !is_right<chain>(p[k], 32, out[k + 1], lower);
            }
            CHECK(wrong == 0);
        });
    }
}

TEST_CASE("nothing outside the spans of residues is read") {
    using chain = rns::basis<log_n, q61, q45>;
    const tests::guarded_pages memory[2];
    for (std::size_t count = 1; count <= 40; ++count) {
        for (const bool at_end : {false, true}) {
            const std::span<word> residues[2] = {memory[0].place<word>(count, at_end),
                                                 memory[1].place<word>(count, at_end)};
            std::fill(residues[0].begin(), residues[0].end(), q61 - 1);
            std::fill(residues[1].begin(), residues[1].end(), q45 - 1);
            tests::for_each_backend([&](auto) {
                std::vector<std::uint32_t> out(count, 77);
                rns::switch_modulus<chain>({residues[0], residues[1]}, 8, out);
                CHECK(out == std::vector<std::uint32_t>(count, 0));  // of Q - 1
            });
        }
    }
}

TEST_CASE("a polynomial is switched coefficient by coefficient") {
    using chain = rns::basis<log_n, q30, q30b, q40>;
    tests::random_numbers random(2);
    std::vector<uint128> x;
    rns::secret_poly<chain, rns::coefficient_form> p;
    for (std::size_t k = 0; k < degree; ++k) {
        x.push_back((static_cast<uint128>(random()) << 64 | random()) % modulus<chain>());
    }
    rns::for_each_limb<chain>([&]<int I>() {
        for (std::size_t k = 0; k < degree; ++k) {
            p.template limb<I>()[k] = static_cast<word>(x[k] % chain::template prime<I>);
        }
    });
    std::vector<std::uint32_t> out(degree);
    rns::switch_modulus(p, 20, out);
    CHECK(out == switched<chain>(x, 20));
}

TEST_CASE("switching the modulus names wrong widths and sizes") {
    using chain = rns::basis<log_n, q30, q40>;
    const rns::poly<chain, rns::coefficient_form> p;
    std::vector<std::uint32_t> out(degree);
    for (const int bits : {-1, 0, 33, 64}) {
        const std::string message =
            "switch_modulus: bits: got " + std::to_string(bits) + ", expected 1 to 32";
        CHECK_THROWS_WITH_AS(rns::switch_modulus(p, bits, out), message.c_str(), parameter_error);
    }
    std::vector<std::uint32_t> few(degree - 1);
    CHECK_THROWS_WITH_AS(rns::switch_modulus(p, 8, few),
                         "switch_modulus: got 15 entries for the result, expected 16", shape_error);
    const std::array<std::span<const word>, 2> uneven{p.limb<0>(), p.limb<1>().first(3)};
    CHECK_THROWS_WITH_AS(rns::switch_modulus<chain>(uneven, 8, out),
                         "switch_modulus: got 3 residues of a limb, expected 16", shape_error);
}
