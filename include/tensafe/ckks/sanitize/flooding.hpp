#pragma once

#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/core/real.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/rns/basis.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace tensafe::ckks {

/// Noise that hides a smaller one, which depends on a secret: an integer added to a coefficient modulo Q. The
/// sum of `Terms` independent uniform integers of [0, 2^bits), less its centre Terms * 2^(bits-1).
///
/// A plain value; every function is thread-safe. docs/design/flooding.md has the proofs,
/// docs/design/random-streams.md the bytes.
/// @pre  bits in [1, 120]: sums stay below 2^122
template <int Terms>
struct flood {
    static_assert(Terms == 1 || Terms == 4, "ckks::flood: the bounds are proved for 1 and for 4 terms");

    static constexpr int terms = Terms;
    static constexpr int max_bits = 120;

    /// The width in bits of each term.
    int bits;

    /// The widest flood whose deviation does not exceed the given one; at most max_bits wide. Widths are
    /// whole bits, so up to half of the given deviation stays unused.
    /// @throws parameter_error if no width is small enough: 1/2 for one term, 1 for four is the least
    static constexpr flood of_deviation(double largest_deviation) {
        if (!(flood{1}.deviation() <= largest_deviation)) {
            throw parameter_error("flood::of_deviation: got " + std::to_string(largest_deviation) +
                                  ", expected at least " + std::to_string(flood{1}.deviation()));
        }
        flood result{1};
        while (result.bits < max_bits && flood{result.bits + 1}.deviation() <= largest_deviation) {
            ++result.bits;
        }
        return result;
    }

    /// The centre Terms * 2^(bits-1) that is subtracted from a sum. The mean of the flood is then -Terms/2,
    /// not 0: the terms' ranges are even.
    constexpr arith::uint128 centre() const noexcept {
        TENSAFE_PRECONDITION(bits >= 1 && bits <= max_bits);
        return static_cast<arith::uint128>(Terms) << (bits - 1);
    }

    /// The largest magnitude: no flood is below -largest() or above largest() - Terms.
    constexpr double largest() const noexcept { return Terms * power(bits - 1); }

    /// The standard deviation, sqrt(Terms * (4^bits - 1) / 12).
    constexpr double deviation() const noexcept { return square_root(Terms / 12.0 * (power(2 * bits) - 1)); }

    /// Says how well `draws` floods hide the noises n under them, in all replies together: a bound of the
    /// total variation distance between seeing every flood + n and seeing the floods alone, at most 1.
    /// Whoever sees the one tells it from the other with at most this advantage, by whatever method.
    ///
    /// The floods must be independent of each other, of every n, and of all that the observer knows. An n may
    /// depend on anything else; given the secret and the earlier replies, its mean square must be at most
    /// noise_deviation^2.
    /// @param noise_deviation  not negative
    /// @param draws            coefficients that are seen, over the lifetime of the secret; not negative
    constexpr double statistical_distance(double noise_deviation, double draws) const noexcept {
        TENSAFE_PRECONDITION(noise_deviation >= 0 && draws >= 0);
        // A shift by one changes a unimodal distribution by its largest probability; distances add up.
        const double narrow = power(-bits);
        const double peak = Terms == 1 ? narrow : narrow * (2 + narrow * narrow) / 3;
        double distance = draws * noise_deviation * peak;
        if constexpr (Terms == 4) {
            // Hellinger distances add up as squares: better from the second draw on.
            const double fisher = irwin_hall_fisher * (1 + 2 * narrow * narrow);
            distance = std::min(distance, noise_deviation / (2 * deviation()) * square_root(fisher * draws));
        }
        return std::min(distance, 1.0);
    }

    /// Draws the sums from number `first` on, not yet centred: out[k] in [0, Terms * (2^bits - 1)]. Constant
    /// time; the buffer in between is wiped, `out` is the caller's to wipe.
    /// @param stream  of the domain flood; one lane of a seed serves one set of coefficients
    /// @pre  first is a multiple of 4; first + out.size() <= 2^34 / Terms
    /// @throws parameter_error unless bits is in [1, 120]
    /// Cost: 16 * Terms bytes of key stream per coefficient.
    void sample(const random::chacha20_stream& stream, std::size_t first,
                std::span<arith::uint128> out) const {
        [[maybe_unused]] constexpr std::uint64_t most =
            random::chacha20_stream_blocks * random::chacha20_block_bytes / sizeof(arith::uint128) / Terms;
        TENSAFE_PRECONDITION(first % 4 == 0 && first <= most && out.size() <= most - first);
        if (bits < 1 || bits > max_bits) {
            throw parameter_error("flood::sample: bits: got " + std::to_string(bits) + ", expected 1 to " +
                                  std::to_string(max_bits));
        }
        const arith::uint128 mask = (static_cast<arith::uint128>(1) << bits) - 1;
        random::detail::for_each_chunk<2 * Terms, 256 / Terms>(
            stream, first, out.size(), [&](const std::uint64_t* words, std::size_t done, std::size_t count) {
                for (std::size_t k = 0; k < count; ++k) {
                    arith::uint128 sum = 0;
                    for (std::size_t t = 0; t < Terms; ++t) {
                        arith::uint128 draw;
                        std::memcpy(&draw, words + 2 * (k * Terms + t), sizeof draw);
                        sum += draw & mask;
                    }
                    out[done + k] = sum;
                }
            });
    }

    /// Adds sums, less their centre, to residues modulo the policy's prime. Constant time.
    /// @param residues  in [0, q), before and after;  @param sums  from sample()
    /// @throws shape_error unless both have one size
    template <arith::modulus M>
    void add_to(arith::barrett<M> policy, std::span<arith::word> residues,
                std::span<const arith::uint128> sums) const {
        check_count("flood::add_to: got ", residues.size(), " residues, expected ", sums.size());
        const M modulus = policy.modulus();
        const arith::word q = modulus.value();
        const arith::word minus_centre = q - policy.reduce_any(centre());  // in [1, q]
        // Each sum is its upper word times 2^64 mod q, and its lower word: two lazy products with constants.
        const arith::shoup<M> fixed(modulus);
        const auto one = fixed.prepare(1);
        const auto power = fixed.prepare(policy.reduce_any(arith::uint128{1} << 64));
        for (std::size_t k = 0; k < residues.size(); ++k) {
            const arith::below<4, M> sum = fixed.multiply_word(arith::high_word(sums[k]), power) +
                                           fixed.reduce_word(arith::low_word(sums[k]), one);
            const arith::below<2, M> shifted{residues[k] + minus_centre};
            residues[k] = arith::reduce<1>(modulus, shifted + sum).value;
        }
    }

  private:
    /// The Fisher information times the variance of the continuous sum of four uniforms: 1.03857..., rounded
    /// up. A Gaussian has 1, the least possible.
    static constexpr double irwin_hall_fisher = 1.0386;

    static constexpr double power(int exponent) noexcept { return power_of_two(exponent); }
};

/// Floods of one term: the shortest range of a given deviation, but the distance grows with the draws.
using uniform_smudging = flood<1>;
/// The flood of four terms: nearly a Gaussian; the distance grows with the root of the number of draws.
using irwin_hall_smudging = flood<4>;

/// Draws one flood per coefficient and adds it to the coefficient's residue in every limb. Constant time; no
/// allocation: the floods are wiped piece by piece.
/// @param residues  residues[i][k] is coefficient k modulo the i-th prime, in [0, q_i), before and after
/// @throws shape_error unless all limbs have one size;  @throws parameter_error unless bits is in [1, 120]
template <class Basis, int Terms>
void add_flood(flood<Terms> noise, const random::seed& key, std::uint32_t lane,
               const std::array<std::span<arith::word>, static_cast<std::size_t>(Basis::limbs)>& residues) {
    for (const auto& limb : residues) {
        check_count("add_flood: got ", limb.size(), " residues of a limb, expected ", residues[0].size());
    }
    constexpr std::size_t piece = 256;
    const random::chacha20_stream stream(key, random::stream_domain::flood, lane);
    arith::uint128 sums[piece];
    memory::wipe_guard guard(sums);
    std::size_t done = 0;
    do {  // once with no coefficients too: bits are checked
        const std::size_t count = std::min(piece, residues[0].size() - done);
        noise.sample(stream, done, {sums, count});
        rns::for_each_limb<Basis>([&]<int I>() {
            noise.add_to(rns::variable_arithmetic<Basis::template prime<I>>, residues[I].subspan(done, count),
                         std::span<const arith::uint128>(sums, count));
        });
        done += count;
    } while (done < residues[0].size());
}

}  // namespace tensafe::ckks
