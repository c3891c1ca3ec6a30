#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/dp/clip.hpp>
#include <tensafe/dp/gaussian_mechanism.hpp>
#include <tensafe/dp/odometer.hpp>
#include <tensafe/dp/round_up.hpp>
#include <tensafe/dp/sample_discrete_gaussian.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/seed.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tensafe::dp {

/// The largest mu: beyond, noise made of words of 126 bits does not reach far enough to hide a shift.
inline constexpr double largest_release_mu = 16;

/// The amount by which the noise of sample_discrete_gaussian falls short of rounded Gaussian noise: a release
/// of d integers that it is added to, whose two neighbours differ by at most mu deviations, is a Gaussian
/// mechanism of that mu but for this, added to delta. For every epsilon: no factor e^epsilon belongs to it.
/// Releases add up. Grows with mu and with d; 2^-76.9 for mu <= 1 and d = 2048.
///
/// Bounds the table's last digits, its end, and the smoothing of the sums:
/// docs/differential-privacy.md.
/// @param mu  in [0, 16];  @param d  at least 1, at most 2^30
/// @throws parameter_error for anything else
/// Cost: a few microseconds.
inline double discrete_noise_slack(double mu, std::size_t d) {
    require<parameter_error>(mu >= 0 && mu <= largest_release_mu,
                             {"dp::discrete_noise_slack: mu: got ", mu, ", expected 0 to 16"});
    require<parameter_error>(d >= 1 && d <= std::size_t{1} << 30,
                             {"dp::discrete_noise_slack: d: got ", d, ", expected 1 to 2^30"});
    constexpr double leaves = 16;
    constexpr int last = 89;                               // the largest magnitude of a leaf
    constexpr double leaf_deviation = 6.7945744023041525;  // the root of 32 / ln 2
    constexpr double largest_share = 0.3105;               // of the result's deviation that one leaf carries
    constexpr double table_error = 0x1p-126;               // of each probability
    constexpr double smoothing_error = 0x1p-88;  // relative, in both worlds, with the rounded Gaussian's
    const double shift = largest_share * mu;
    double unlikely = 0;
    for (int i = -last; i <= last; ++i) {
        unlikely += std::exp(shift * (i / leaf_deviation - shift / 2));
    }
    const double beyond = std::erfc((last / leaf_deviation - shift) / 1.4142135623730951);  // both ends
    const double one = leaves * (table_error * unlikely + beyond) + smoothing_error;
    // A thousandth covers all rounding here.
    return 1.001 * static_cast<double>(d) * one;
}

/// Releases vectors with differential privacy: clipped to a Euclidean norm C, then with Gaussian noise on
/// every entry. Two inputs are neighbours if one vector was replaced by any other, so that the sensitivity is
/// 2C. The promise is about the bits that are released, not about real numbers: clipped vector and noise are
/// integers, multiples of a step of deviation / 2^30.4, and the sum is rounded to floats at the end only.
/// docs/differential-privacy.md has the proof.
///
/// A plain value; const calls may run at the same time, each with its own charge and generator.
class gaussian_release {
  public:
    /// The most entries of a vector.
    static constexpr std::size_t largest_d = std::size_t{1} << 20;

    /// Makes a release with the least noise for which so many together keep the budget `all`, what
    /// discretisation adds to delta included: a dp::ledger of this budget allows as many, charged at once or,
    /// for a delta of at most 1/4, in any parts, and no more. (Of very many, from some 10^5, perhaps a few
    /// more: the norm is a whole number of steps.)
    /// @param clip_norm  C, in the units of h; choose it without looking at the secret
    /// @param releases   at least 1
    /// @throws parameter_error for a budget that is none, or one that needs mu above 16 for each release (for
    ///         one, epsilon about 195 at delta 1e-5), and as the constructor
    static gaussian_release of(const privacy_budget& all, double clip_norm, std::size_t d,
                               std::uint64_t releases = 1) {
        all.check();
        check_d(d);
        check_magnitude("clip_norm", clip_norm);
        require<parameter_error>(releases != 0,
                                 {"dp::gaussian_release::of: releases: got 0, expected at least 1"});
        const std::string what = "dp::gaussian_release::of: epsilon " + shortest_text(all.epsilon) +
                                 " and delta " + shortest_text(all.delta) + " for " +
                                 std::to_string(releases) + " releases";
        const double count = detail::to_double_up(releases);
        const double most = largest_mu(all) / std::sqrt(count);
        require<parameter_error>(
            most <= largest_release_mu,
            {what, ": got mu = ", most, " for each, expected at most 16; ask for less epsilon"});
        const double slack = detail::multiply_up(discrete_noise_slack(most, d), count);
        require<parameter_error>(slack <= all.delta / 2,
                                 {what, ": delta: got ", all.delta, ", expected at least ", 2 * slack,
                                  ", twice what discretisation adds at this epsilon and d"});
        // Charged one by one, costs are rounded up as often; 2^-36 covers the rounding of delta itself.
        const double room = 1 + 0x1p-36 + count * 0x1p-50;
        double deviation = gaussian_deviation({all.epsilon, all.delta - slack}, 2 * clip_norm) *
                           std::sqrt(count) * std::sqrt(room);
        // What a ledger will compute decides, whatever rounding did before.
        for (int step = 0; step < 16; ++step) {
            const gaussian_release release(clip_norm, deviation, d);
            if (odometer{}.plus(release.cost(), releases).delta(all.epsilon) <= all.delta) {
                return release;
            }
            deviation *= 1 + 0x1p-36;
        }
        throw parameter_error({what, ": no deviation was found to keep them; ask for a larger delta"});
    }

    /// Makes a release of this norm and noise.
    /// @param clip_norm  C: vectors with a larger norm are scaled down to it; in [2^-100, 2^100]
    /// @param deviation  of the noise on each entry, in the same units; in [2^-100, 2^100]. At least C / 8;
    ///                   at most 8.6e7 C / sqrt(d), or the step would be too coarse for C
    /// @param d          entries of a vector, 1 to 2^20
    /// @throws parameter_error for anything else
    gaussian_release(double clip_norm, double deviation, std::size_t d)
        : clip_norm_(clip_norm), deviation_(deviation), d_(d) {
        check_d(d);
        check_magnitude("clip_norm", clip_norm);
        check_magnitude("deviation", deviation);
        require<parameter_error>(clip_norm / deviation <= largest_release_mu / 2,
                                 {"dp::gaussian_release: deviation: got ", deviation,
                                  ", expected at least an eighth of the clip norm, ", clip_norm / 8,
                                  ": smaller noise does not reach far enough to promise anything"});
        step_ = deviation / discrete_gaussian_deviation;
        const double steps = std::floor(clip_norm / step_);
        const double least = 16 * std::sqrt(static_cast<double>(d));
        require<parameter_error>(steps >= least,
                                 {"dp::gaussian_release: deviation: got ", deviation, ", expected at most ",
                                  clip_norm * discrete_gaussian_deviation / least,
                                  " for this clip norm and d: the clipped vector would be rounded away"});
        bound_ = static_cast<std::int64_t>(steps);
        // The integers of the noise have this deviation; rounding the quotient up covers that it is a double,
        // and that the rounded Gaussian's variance is less by 1/12.
        const double shortest = detail::next_below(discrete_gaussian_deviation);
        mu_ = detail::next_above(2 * steps / shortest);
        slack_ = discrete_noise_slack(std::min(mu_, largest_release_mu), d);
    }

    double clip_norm() const noexcept { return clip_norm_; }
    /// The standard deviation of the noise on each entry, in the units of h.
    double deviation() const noexcept { return deviation_; }
    std::size_t d() const noexcept { return d_; }

    /// The cost of one release: the sensitivity in deviations of the noise, about 2C / deviation, computed
    /// from the integers that are released and rounded up.
    double mu() const noexcept { return mu_; }
    /// The delta that discretisation, the table's digits and the noise's range add, at every epsilon.
    double delta_slack() const noexcept { return slack_; }
    release_cost cost() const noexcept { return {mu_, slack_}; }

    /// Releases a vector: takes one from the charge, then makes the noise, from a seed of its own.
    ///
    /// The same vector released twice costs twice. Time depends on d alone (subnormal entries are slower to
    /// read). 0.4 ms for d = 2048: docs/benchmarks.md.
    /// @param charge  from dp::ledger::charge with this object's cost()
    /// @param h      d entries
    /// @param out    d entries, in the units of h; may be the same memory as h
    /// @throws shape_error; encoding_error, naming the entry, if one is NaN or infinite; budget_error if the
    ///         charge is used up or was paid for another cost; what random.next_seed throws. The charge and
    ///         `out` are unchanged then
    void operator()(release_charge& charge, random::generator& random, std::span<const float> h,
                    std::span<float> out) const {
        require<shape_error>(h.size() == d_ && out.size() == d_,
                             {"dp::gaussian_release: got ", h.size(), " entries and room for ", out.size(),
                              ", expected ", d_});
        memory::secret_buffer<std::int64_t> clipped(d_, memory::uninitialized);
        memory::secret_buffer<std::int64_t> noise(d_, memory::uninitialized);
        const std::span<std::int64_t> clipped_entries(clipped.data(), d_);
        const std::span<std::int64_t> noise_entries(noise.data(), d_);
        clip_to_grid(h, step_, bound_, clipped_entries);

        const auto hedging = random.hedge(h, std::array{step_, clip_norm_});
        random::seed key = random.next_seed();
        const memory::wipe_guard guard(key);
        charge.spend(cost());  // nothing throws from here on
        sample_discrete_gaussian(key, random::stream_domain::privacy_noise, 0, noise_entries);
        for (std::size_t i = 0; i < d_; ++i) {
            // Below 2^38: exact as a double. From here on nothing is secret.
            out[i] = static_cast<float>(static_cast<double>(clipped_entries[i] + noise_entries[i]) * step_);
        }
    }

  private:
    static void check_d(std::size_t d) {
        require<parameter_error>(d >= 1 && d <= largest_d,
                                 {"dp::gaussian_release: d: got ", d, ", expected 1 to 2^20"});
    }

    static void check_magnitude(const char* what, double x) {
        require<parameter_error>(x >= 0x1p-100 && x <= 0x1p100,
                                 {"dp::gaussian_release: ", what, ": got ", x, ", expected 2^-100 to 2^100"});
    }

    double clip_norm_;
    double deviation_;
    std::size_t d_;
    double step_ = 0;
    std::int64_t bound_ = 0;
    double mu_ = 0;
    double slack_ = 0;
};

}  // namespace tensafe::dp
