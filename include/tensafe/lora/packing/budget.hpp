#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/ckks/sanitize/flooding.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/real.hpp>
#include <tensafe/random/error_groups.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tensafe::lora {

/// Replies of one client, for one adapter, over which a guarantee holds unless another number is given.
inline constexpr double default_replies = 0x1p20;

/// The limbs of requests and replies that need not be the whole chain: the fewest whose product has 80 bits,
/// all if there is no such number.
template <ckks::parameter_set P>
inline constexpr int request_level = [] {
    int bits = 0;
    for (int limb = 0; limb < P::limbs; ++limb) {
        bits += static_cast<int>(std::bit_width(P::basis::primes[static_cast<std::size_t>(limb)]));
        if (bits >= 80) {
            return limb;
        }
    }
    return P::max_level;
}();

namespace detail {
/// The coefficients of a zero's secret v, at most, that a planted key reads off one target coefficient,
/// whatever the shape: rows have 2^24 entries at most, so that the ratio of a budget is at most sqrt(2 *
/// 2^24). The flood is at least 0.39 of its precision, in whole bits half of that, and its entropy 2.04 bits
/// more than the logarithm of its deviation.
template <class Protection>
inline constexpr int most_digits = [] {
    double ratio = square_root(2 * 0x1p24);
    if constexpr (Protection::range::can_overflow) {
        ratio = static_cast<double>(Protection::range::factor);
    }
    int digits = 0;
    for (double read = 1; read < ratio / (0.39 * Protection::precision::relative_error); read *= 3) {
        ++digits;
    }
    return digits;
}();
}  // namespace detail

/// The target coefficients under one encryption of zero, at most, for clients that may cheat: a planted key
/// reads coefficients of the zero's secret v off each (docs/security.md). The others must leave RLWE at the
/// guideline's (classical) 106 bits of Q for 4096 coefficients. All for rings that are too small to be secure
/// at all.
template <ckks::parameter_set P, class Protection>
inline constexpr std::size_t most_targets = [] {
    constexpr double ratio = 4096.0 / ckks::max_modulus_bits_128(12);
    double bits = 0;
    for (int limb = 0; limb <= request_level<P>; ++limb) {
        bits += static_cast<double>(std::bit_width(P::basis::primes[static_cast<std::size_t>(limb)]));
    }
    if (std::is_same_v<typename P::security, ckks::insecure_for_tests>) {
        return P::degree;
    }
    const double targets = (static_cast<double>(P::degree) - ratio * bits) / detail::most_digits<Protection>;
    return targets >= 1 ? static_cast<std::size_t>(targets) : 0;
}();

/// The tag of servers that put more targets under one zero: for clients that follow the protocol.
struct trusts_clients {};

namespace detail {
inline void check_targets(std::size_t targets, std::size_t largest, const char* what) {
    require<parameter_error>(targets <= largest, {"server: got ", targets, " ", what,
                                                  " under one encryption of zero, expected at most ", largest,
                                                  "; pass lora::trusts_clients if no client cheats"});
}
}  // namespace detail

/// The numbers of a packing that decide what stands in the coefficients that a reply carries.
struct reply_geometry {
    std::size_t rank = 0;      ///< rows of A
    std::size_t d = 0;         ///< entries of h
    double rows = 1;           ///< rows of A that share one output
    double entries = 1;        ///< coefficients of all plaintexts of one output that can differ from zero
    double amplification = 1;  ///< largest coefficient, in units of the largest answer that one row can make
    std::size_t checks = 0;    ///< checksum rows, for average-case ranges
};

/// Every number of a protected reply that follows from parameter set, packing and shape; public. In units of
/// the integers modulo Q unless stated otherwise. docs/design/noise.md derives each line.
struct reply_budget {
    double modulus = 0;          ///< Q
    double weight_norm = 0;      ///< the integers that stand for a row of A have this Euclidean norm
    double longest_row = 0;      ///< their norm after rounding to integers, at most
    double noise_deviation = 0;  ///< deviation of e*A in a target coefficient, which the flood covers
    double noise_worst = 0;      ///< largest magnitude of e*A and the rounding of h, in checksum rows too
    double zero_deviation = 0;   ///< deviation of an encryption of zero's noise in a target coefficient
    double zero_worst = 0;
    ckks::irwin_hall_smudging flood{};
    int reply_bits = 0;     ///< width of a coefficient of the reply
    int checksum_bits = 0;  ///< width in the output of checksum rows; 0 if the range is worst-case
    double range = 0;       ///< largest target coefficient before noise, so that the sum stays below Q/2
    double typical = 0;     ///< root mean square of a target coefficient when the client fills the range
    double rounding_deviation = 0;  ///< deviation of the switch to `reply_bits`
    /// The lowest bits of a coefficient, those of the reply if it is switched, are noise. Answers are rounded
    /// to multiples of 2^noise_bits: exact ones are linear equations in the key.
    int noise_bits = 0;
    double relative_error = 0;  ///< deviation of all errors of an answer, over its root mean square
    /// The mean square of e*A over target coefficients, over noise_deviation^2: checksum rows are longer.
    double leak_share = 1;

    /// The root mean square, over target coefficients, of what a client can measure about A beside answers.
    constexpr double leak_deviation() const {
        return square_root(leak_share * noise_deviation * noise_deviation + zero_deviation * zero_deviation);
    }
    /// The bits that one target coefficient can carry to a client that cheats, at most: log2(modulus) less
    /// the entropy of the flood, 2.04 bits more than the logarithm of its deviation; never more than the
    /// reply's width. A client that follows the protocol gets a bit or two less: its key adds the rounding,
    /// and its states are random. Without a flood, the whole coefficient.
    double channel_bits() const {
        return flood.bits > 0
                   ? std::clamp(std::log2(modulus / flood.deviation()) - 2.04, 0.0, 1.0 * reply_bits)
                   : std::log2(modulus);
    }
    /// The total variation distance, at most, between `replies` replies of `wanted` target coefficients each
    /// and replies made from the answers alone, computational assumptions aside.
    constexpr double statistical_distance(std::size_t wanted, double replies = default_replies) const {
        return flood.statistical_distance(leak_deviation(), static_cast<double>(wanted) * replies);
    }
};

namespace detail {

template <class Basis>
constexpr double modulus_of_basis() {
    double product = 1;
    for (const arith::word q : Basis::primes) {
        product *= static_cast<double>(q);
    }
    return product;
}

/// The deviation of the rounding of c0 and c1 to integers, seen through a ternary secret.
constexpr double switch_deviation(double degree) {
    return square_root(degree / 18 + 1.0 / 12);
}

/// The smallest width whose rounding, switch_deviation of the last bit, is at most this part of the modulus.
constexpr int width_for(double degree, double largest) {
    int bits = 1;
    while (bits < 60 && switch_deviation(degree) * power_of_two(-bits) > largest) {
        ++bits;
    }
    return bits;
}

// The parts of the error for rounding A and rounding the reply; the flood has the rest, at least 0.39.
inline constexpr double part_of_weights = 0.45;
inline constexpr double part_of_rounding = 0.8;
/// The coarsest precision that rounding uses: what is beyond it is all flood, which no client can go without.
inline constexpr double coarsest_rounding = 1.0 / 256;
/// The length that checksum rows may have, in lengths of rows of A.
inline constexpr double checksum_norm = 2.5;
/// The least part of Q by which checksum rows tell multiples of it apart.
inline constexpr double checksum_tolerance = 1.0 / 58;
/// The sum of the squares of the weights of a checksum row, at most.
inline constexpr double checksum_weights = 2.4;
/// The multiples of Q that two rows may lose each and checksum rows certainly tell them apart.
inline constexpr double most_wraps = 11;
/// The least ratio of a flood to what it hides; below it, the flood would hide nothing.
inline constexpr double least_flood_ratio = 8;
/// The least bits rounded away: answers of fewer than eight values give equations in the key that might be
/// solved.
inline constexpr int least_noise_bits = 3;

/// Rounds answers to multiples of 2^k, which err by 2^k / sqrt(12): as many bits as are half of the error
/// before them and fit into the precision, but at least three.
constexpr void round_answers(reply_budget& b, double unit, double error_before, double precision) {
    const auto error_with = [&](int bits) {
        const double rounding = power_of_two(bits) * unit / b.typical;
        return square_root(error_before * error_before + rounding * rounding / 12);
    };
    b.noise_bits = least_noise_bits;
    while (error_with(b.noise_bits + 1) <= std::min(precision, square_root(1.25) * error_before)) {
        ++b.noise_bits;
    }
    b.relative_error = error_with(b.noise_bits);
}

struct budget_result {
    reply_budget budget;
    const char* problem = nullptr;  ///< why the set cannot hold such a reply, if it cannot
};

template <ckks::parameter_set P, class Protection>
constexpr budget_result compute_budget(const reply_geometry& g) {
    using basis = typename P::template basis_at<request_level<P>>;
    using range_policy = typename Protection::range;
    constexpr auto degree = static_cast<double>(P::degree);
    constexpr double precision = Protection::precision::relative_error;
    constexpr double rounded_at = std::min(precision, coarsest_rounding);
    constexpr double variance = random::error_variance;
    constexpr double largest = 21;  // of errors of version 2 of the streams, which clients may still draw
    const double root_d = square_root(static_cast<double>(g.d));

    reply_budget b;
    const auto refused = [&](const char* problem) { return budget_result{b, problem}; };
    b.modulus = modulus_of_basis<basis>();
    // Rounding A errs by sqrt(d / 12) against a row of norm `weight_norm`, when h has no direction.
    b.weight_norm = static_cast<double>(
        static_cast<std::int64_t>(root_d / (square_root(12) * part_of_weights * rounded_at)) + 1);
    // Rounding moves every coefficient of a plaintext by 1/2 at most.
    const double plaintext_norm = square_root(g.rows) * b.weight_norm + square_root(g.entries) / 2;
    b.longest_row = plaintext_norm / square_root(g.rows);
    b.noise_deviation = square_root(variance) * plaintext_norm;
    const double longest_plaintext = (g.checks > 0 ? checksum_norm : 1) * plaintext_norm;
    // With the rounding of h, which is no secret from the client and no leak.
    b.noise_worst = (largest + 0.5) * square_root(g.entries) * longest_plaintext;
    const auto rank = static_cast<double>(g.rank);
    const auto checks = static_cast<double>(g.checks);
    b.leak_share = (rank + checks * checksum_norm * checksum_norm) / (rank + checks);
    b.zero_deviation = square_root(variance * (4 * degree / 3 + 1));
    b.zero_worst = largest * (2 * degree + 1);

    // Range over root mean square of a target coefficient.
    double ratio = g.amplification * root_d;
    if constexpr (range_policy::can_overflow) {
        ratio = std::min(ratio, static_cast<double>(range_policy::factor));
        if (!((root_d / ratio + 1) / 2 <= most_wraps)) {
            return refused(
                "its average-case range is too narrow for rows of this length; use a larger factor or "
                "worst_case");
        }
    }
    const double half = b.modulus / 2;
    const double weights = root_d / square_root(12) / b.weight_norm;
    const auto square = [](double x) { return x * x; };
    if constexpr (!Protection::protects) {
        b.range = half - b.noise_worst;
        if (!(b.range >= 0.9 * half)) {
            return refused("noise would fill its modulus; use a set with a longer one");
        }
        b.typical = b.range / ratio;
        round_answers(b, 1, square_root(square(weights) + square(b.noise_deviation / b.typical)), precision);
        return {b, nullptr};
    }
    // With fewer bits the rounding at its worst would take more of the range than there is for it.
    b.reply_bits = std::max(width_for(degree, part_of_rounding * rounded_at / (2 * ratio)), P::log_n + 4);
    if constexpr (range_policy::can_overflow) {
        b.checksum_bits = width_for(degree, checksum_tolerance / 6.5);
    }
    b.rounding_deviation = switch_deviation(degree) * b.modulus * power_of_two(-b.reply_bits);
    // Sums of N products of a reply's coefficients must be exact modulo the first prime.
    if (b.reply_bits > 32 ||
        degree * power_of_two(b.reply_bits) >= static_cast<double>(basis::primes[0] / 2)) {
        return refused(
            "replies would need more bits than the client's arithmetic has room for; use a lower precision");
    }

    const double rounding = b.rounding_deviation * ratio / half;
    const double rest = square_root(precision * precision - rounding * rounding - weights * weights);
    // Whole bits round the flood down by up to a half.
    const double flood_deviation = rest * half / ratio;
    if (flood_deviation >= 1) {
        b.flood = ckks::irwin_hall_smudging::of_deviation(flood_deviation);
    }
    if (!(b.flood.deviation() >= least_flood_ratio * b.leak_deviation())) {
        return refused(
            "its modulus is too short to hide the noise at this precision; use a set with a longer modulus, "
            "fewer rows in a plaintext, an average-case range or a lower precision");
    }
    // Rounding moves c0 and each coefficient of c1 by at most 1/2, and the secret is ternary.
    const double rounding_worst = (degree + 1) / 2 * b.modulus * power_of_two(-b.reply_bits);
    b.range = half - b.noise_worst - b.zero_worst - b.flood.largest() - rounding_worst;
    if (!(b.range >= 0.9 * half)) {
        return refused("noise would fill its modulus; use a set with a longer one");
    }
    b.typical = b.range / ratio;
    round_answers(
        b, b.modulus * power_of_two(-b.reply_bits),
        square_root(square(weights) + square(b.rounding_deviation / b.typical) +
                    square(b.flood.deviation() / b.typical) + square(b.leak_deviation() / b.typical)),
        precision);
    if constexpr (range_policy::can_overflow) {
        // The answers' errors, weighted, and that of the checksum row, whose rounding is another.
        const double error = square_root(checksum_weights + 1) * b.relative_error * b.typical / b.modulus;
        const double rounded = switch_deviation(degree) * power_of_two(-b.checksum_bits);
        if (!(6.5 * square_root(square(error) + square(rounded)) <= checksum_tolerance)) {
            return refused(
                "checksum rows could not tell answers of so few bits from ones that wrapped around; use more "
                "answer_bits, a larger factor or worst_case");
        }
    }
    return {b, nullptr};
}

template <ckks::parameter_set P>
constexpr reply_budget checked_budget(const budget_result& result, std::size_t rank, std::size_t d) {
    if (result.problem != nullptr) {
        throw parameter_error({"this parameter set, of degree ", P::degree, ", cannot hold replies for a ",
                               rank, " x ", d, " matrix: ", result.problem});
    }
    return result.budget;
}

}  // namespace detail

/// The budget of replies of this geometry.
/// @throws parameter_error if the set cannot hold them at the protection's precision
template <ckks::parameter_set P, class Protection>
constexpr reply_budget budget_for(const reply_geometry& g) {
    return detail::checked_budget<P>(detail::compute_budget<P, Protection>(g), g.rank, g.d);
}

}  // namespace tensafe::lora
