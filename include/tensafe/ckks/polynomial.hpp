#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/evaluation_key.hpp>
#include <tensafe/ckks/key_switch.hpp>
#include <tensafe/ckks/multiply.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/rns/limb_table.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::ckks {

/// A polynomial as the sum of coefficients[i] times T_i(t), T_i the Chebyshev polynomials, where t runs from
/// -1 to 1 as x runs over the interval.
/// @tparam Mapped  whether the interval may be another one than [-1, 1]; it costs a level
template <int Degree, bool Mapped = false>
struct chebyshev_polynomial {
    static_assert(Degree >= 1 && Degree <= 4095, "ckks::chebyshev: the degree must be in [1, 4095]");
    /// The levels that evaluating takes.
    static constexpr int depth = static_cast<int>(std::bit_width(unsigned{Degree})) + (Mapped ? 1 : 0);

    std::array<double, static_cast<std::size_t>(Degree) + 1> coefficients{};
    double from = -1;
    double to = 1;

    /// The value at x, in the clear.
    constexpr double operator()(double x) const noexcept {
        const double t = (2 * x - from - to) / (to - from);
        double next = 0;
        double after = 0;
        for (std::size_t i = Degree; i > 0; --i) {
            after = std::exchange(next, coefficients[i] + 2 * t * next - after);
        }
        return coefficients[0] + t * next - after;
    }
};

namespace detail {

/// cos(x) for x in [0, pi], also at compile time, to within some units of 2^-53.
constexpr double cosine(double x) noexcept {
    constexpr double right_angle = std::numbers::pi / 2;
    if (x > right_angle) {
        return -cosine(2 * right_angle - x);
    }
    const bool is_small = x < right_angle / 2;
    const double y = is_small ? x : right_angle - x;  // then cos(x) = sin(y)
    double term = is_small ? 1 : y;
    double sum = term;
    for (int k = is_small ? 1 : 2; k < 24; k += 2) {
        term *= -y * y / (k * (k + 1));
        sum += term;
    }
    return sum;
}

template <bool Mapped, int Degree, class Function>
constexpr chebyshev_polynomial<Degree, Mapped> interpolate(Function f, double from, double to) {
    if (!(from < to && to - from < 0x1p500)) {
        throw parameter_error(
            {"chebyshev: got the interval from ", from, " to ", to, ", expected a finite one"});
    }
    constexpr std::size_t n = Degree + 1;
    chebyshev_polynomial<Degree, Mapped> result{{}, from, to};
    double largest = 0;
    for (std::size_t k = 0; k < n; ++k) {
        const double t = cosine(std::numbers::pi * (static_cast<double>(k) + 0.5) / static_cast<double>(n));
        const double x = (from + to) / 2 + t * (to - from) / 2;
        const double value = f(x);
        if (!(value < 0x1p500 && value > -0x1p500)) {
            throw parameter_error({"chebyshev: got ", value, " at ", x, ", expected a finite value"});
        }
        largest = std::max(largest, value < 0 ? -value : value);
        double now = 1;  // T_i(t)
        double before = t;
        for (std::size_t i = 0; i < n; ++i) {
            result.coefficients[i] += value * now * (i == 0 ? 1.0 : 2.0) / static_cast<double>(n);
            before = std::exchange(now, 2 * t * now - before);
        }
    }
    // Of even and odd functions rounding alone would make products.
    for (double& c : result.coefficients) {
        c = (c < 0 ? -c : c) <= 0x1p-51 * static_cast<double>(n) * largest ? 0 : c;
    }
    return result;
}

}  // namespace detail

/// Interpolates f at the Chebyshev nodes of [-1, 1], also at compile time: for smooth functions nearly the
/// best polynomial of the degree.
/// @throws parameter_error for values that are not finite
template <int Degree, class Function>
constexpr chebyshev_polynomial<Degree> chebyshev(Function f) {
    return detail::interpolate<false, Degree>(f, -1, 1);
}
/// Interpolates f at the Chebyshev nodes of an interval. Outside of it the polynomial soon grows beyond all
/// bounds.  @throws parameter_error also for an interval that is empty or not finite
template <int Degree, class Function>
constexpr chebyshev_polynomial<Degree, true> chebyshev(Function f, double from, double to) {
    return detail::interpolate<true, Degree>(f, from, to);
}

namespace detail {

/// Evaluates sums of Chebyshev polynomials of a ciphertext, as Paterson and Stockmeyer ("On the number of
/// nonscalar multiplications necessary to evaluate polynomials", 1973) and in as few levels as there can be:
/// p = q T_g + r, again and again, where r comes to the same sum, which is relinearized once. Coefficients
/// are encoded at whatever scale makes all terms of a sum agree, so that scales are exact at no cost. One
/// body for all sets, levels and degrees; used once.
class chebyshev_sum {
  public:
    using word = arith::word;
    using buffer = key_switch::buffer;
    using switch_at = const key_switch& (*)();

    /// A ciphertext of a level: its limbs of c0, then those of c1.
    struct leveled {
        buffer words;
        int level = 0;
        double scale = 0;
    };

    /// @param at_level  what switches keys at each level, from 0 to that of x
    chebyshev_sum(rns::limb_table chain, std::span<const switch_at> at_level, const key_words& key, leveled x)
        : chain_(chain), at_level_(at_level), key_(key), degree_(chain.front()->degree()), top_(x.level) {
        powers_.resize(2);
        powers_[1] = std::move(x);
    }

    /// The sum at a level and a scale.
    /// @pre  there are two coefficients at least, and the level is bit_width(degree) lower than that of x or
    /// more
    leveled evaluate(std::span<const double> coefficients, int level, double scale) {
        powers_.resize(std::max(powers_.size(), coefficients.size()));
        // At all degrees of up to 4095 but 67 this takes the fewest key switches.
        babies_ = std::size_t{1} << std::max(
                      1, (static_cast<int>(std::bit_width(coefficients.size() - 1)) - 1) / 2);
        return rescaled_sum(std::vector<double>(coefficients.begin(), coefficients.end()), level, scale);
    }

  private:
    using coefficient_list = std::vector<double>;

    /// Three polynomials of a level, of which the last may be missing.
    struct product {
        buffer words;
        bool has_c2 = false;
    };

    static int log2_up(std::size_t i) noexcept { return static_cast<int>(std::bit_width(i - 1)); }
    static std::size_t degree_of(const coefficient_list& p) noexcept {
        std::size_t d = p.size() - 1;
        while (d > 0 && p[d] == 0) {
            --d;
        }
        return d;
    }
    /// Whether a sum of this degree at this level is one of multiples of T_1 to T_d.
    bool is_linear(std::size_t d, int level) const noexcept {
        return d <= 1 || (d < babies_ && log2_up(d) <= top_ - level);
    }
    std::size_t limbs(int level) const noexcept { return static_cast<std::size_t>(level) + 1; }
    const word* row(const leveled& x, std::size_t half, std::size_t m) const noexcept {
        return x.words.data() + (half * limbs(x.level) + m) * degree_;
    }
    std::span<word> row(product& x, int level, std::size_t part, std::size_t m) const noexcept {
        return x.words.span().subspan((part * limbs(level) + m) * degree_, degree_);
    }
    /// round(x) modulo the prime of limb m.
    word residue(double x, std::size_t m) const {
        if (!(std::fabs(x) < 0x1p111)) {
            throw encoding_error("evaluate: a coefficient is too large for the scale of the set");
        }
        word result = 0;
        chain_[m]->round_reals({&result, 1}, {&x, 1});
        return result;
    }

    /// Adds coefficients times T_i, and the first one, at a scale.
    void add_multiples(product& to, int level, double scale, std::span<const double> coefficients) {
        std::vector<const leveled*> terms;
        std::vector<double> factors;
        for (std::size_t i = 1; i < coefficients.size(); ++i) {
            if (coefficients[i] != 0) {
                terms.push_back(&power(i));
                factors.push_back(coefficients[i] * (scale / terms.back()->scale));
            }
        }
        add_terms(to, level, terms, factors, coefficients[0] * scale);
    }
    void add_terms(product& to, int level, std::span<const leveled* const> terms,
                   std::span<const double> factors, double constant) const {
        std::vector<word> multiples(terms.size() + 1, 1);
        std::vector<const word*> rows(terms.size() + 1);
        for (std::size_t m = 0; m < limbs(level); ++m) {
            std::transform(factors.begin(), factors.end(), multiples.begin() + 1,
                           [&](double factor) { return residue(factor, m); });
            for (const std::size_t half : {0U, 1U}) {
                const auto out = row(to, level, half, m);
                rows[0] = out.data();
                std::transform(terms.begin(), terms.end(), rows.begin() + 1,
                               [&](const leveled* term) { return row(*term, half, m); });
                chain_[m]->sum_multiples(out, rows.data(), multiples, half == 0 ? residue(constant, m) : 0);
            }
        }
    }

    /// Adds a product of ciphertexts of that level or above.
    void add_product(product& to, int level, const leveled& a, const leveled& b) const {
        for (std::size_t m = 0; m < limbs(level); ++m) {
            const auto add = [&](std::size_t part, std::size_t of_a, std::size_t of_b) {
                const auto out = row(to, level, part, m);
                chain_[m]->multiply_add(out, row(a, of_a, m), row(b, of_b, m), out.data());
            };
            add(0, 0, 0);
            add(1, 0, 1);
            add(1, 1, 0);
            add(2, 1, 1);
        }
        to.has_c2 = true;
    }

    product nothing(int level) const { return {buffer(3 * limbs(level) * degree_), false}; }

    /// Relinearizes a sum and drops its last prime.
    leveled rescaled(product sum, int level, double scale) const {
        const std::size_t all = limbs(level) * degree_;
        leveled result{buffer(2 * (all - degree_), memory::uninitialized), level - 1, scale};
        const std::array<std::span<word>, 2> to{result.words.span().first(all - degree_),
                                                result.words.span().last(all - degree_)};
        const auto words = sum.words.span();
        const key_switch& at_level = at_level_[static_cast<std::size_t>(level)]();
        if (sum.has_c2) {
            at_level.template run<true>(words.last(all), key_, {{words.first(all), words.subspan(all, all)}},
                                        to, key_switch::stays_in_place());
        } else {
            at_level.rescale(to, [&](std::size_t m, const auto& rows) {
                for (const std::size_t half : {0U, 1U}) {
                    const auto from = row(sum, level, half, m);
                    std::copy(from.begin(), from.end(), rows[half].begin());
                }
            });
        }
        return result;
    }

    /// A sum as a ciphertext of a level.
    leveled rescaled_sum(coefficient_list p, int level, double scale) {
        const auto prime = static_cast<double>(chain_[limbs(level)]->prime());
        product sum = nothing(level + 1);
        add_sum(sum, std::move(p), level + 1, scale * prime);
        return rescaled(std::move(sum), level + 1, scale);
    }

    /// Adds a polynomial, at a level and a scale.
    void add_sum(product& to, coefficient_list p, int level, double scale) {
        const std::size_t d = degree_of(p);
        p.resize(d + 1);
        if (is_linear(d, level)) {
            add_multiples(to, level, scale, p);
            return;
        }
        // As T_(g + i) = 2 T_g T_i - T_(g - i).
        const std::size_t g = std::bit_floor(d);
        coefficient_list q{p[g]};
        coefficient_list r(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(g));
        for (std::size_t i = 1; g + i <= d; ++i) {
            q.push_back(2 * p[g + i]);
            r[g - i] -= p[g + i];
        }
        const leveled& giant = power(g);
        if (d == g) {
            const leveled* const terms[] = {&giant};
            const double factors[] = {q[0] * (scale / giant.scale)};
            add_terms(to, level, terms, factors, 0);
        } else {
            add_product(to, level, rescaled_sum(std::move(q), level, scale / giant.scale), giant);
        }
        add_sum(to, std::move(r), level, scale);
    }

    /// T_i of x, made when it is needed first.
    const leveled& power(std::size_t i) {
        if (!powers_[i]) {
            const leveled& a = power((i + 1) / 2);
            const leveled& b = power(i / 2);
            const int level = std::min(a.level, b.level);
            const double scale = a.scale * b.scale;
            product twice = nothing(level);
            add_product(twice, level, a, b);
            for (std::size_t part = 0; part < 3; ++part) {
                for (std::size_t m = 0; m < limbs(level); ++m) {
                    const auto out = row(twice, level, part, m);
                    chain_[m]->add(out, out.data(), out.data());
                }
            }
            // 2 T_a T_b - T_(a - b): T_0 or T_1
            if (i % 2 == 0) {
                add_terms(twice, level, {}, {}, -scale);
            } else {
                const leveled* const terms[] = {&power(1)};
                const double factors[] = {-scale / terms[0]->scale};
                add_terms(twice, level, terms, factors, 0);
            }
            const auto prime = static_cast<double>(chain_[static_cast<std::size_t>(level)]->prime());
            powers_[i] = rescaled(std::move(twice), level, scale / prime);
        }
        return *powers_[i];
    }

    rns::limb_table chain_;
    std::span<const switch_at> at_level_;
    key_words key_;
    std::size_t degree_;
    int top_;                 ///< the level of x
    std::size_t babies_ = 2;  ///< below it sums are of multiples of T_i, where levels allow it
    std::vector<std::optional<leveled>> powers_;  ///< T_i at i; its size stays, for there are references
};

}  // namespace detail

/// Evaluates a polynomial in each slot, real ones of the polynomial's interval: `depth` levels lower, at the
/// scale of that level. Costs 2, 4, 7, 10, 15, 20 key switches for degrees of 3, 7, 15, 31, 63, 127.
/// @throws parameter_error for a scale that is not the level's, coefficients that are not finite, an interval
///         that is wider than a prime over 2^24, or does not hold all slots within a bound that is set;
///         encoding_error if a bound is set and values could wrap
template <int Degree, bool Mapped, parameter_set P, int Level, int KeyLevel>
[[nodiscard]] auto evaluate(const chebyshev_polynomial<Degree, Mapped>& p, const ciphertext<P, Level>& c,
                            const relinearization_key<P, KeyLevel>& key) {
    constexpr int left = Level - chebyshev_polynomial<Degree, Mapped>::depth;
    static_assert(left >= 0,
                  "ckks::evaluate: the polynomial needs more levels than are left; take a deeper set or a "
                  "lower degree, or scale values to [-1, 1], which saves a level");
    if constexpr (left >= 0) {
        require<parameter_error>(std::fabs(c.scale - P::template scale_at<Level>) <= 1e-12 * c.scale,
                                 {"evaluate: got a scale of ", c.scale, ", expected that of the level, ",
                                  P::template scale_at<Level>, ": adjust_level() it"});
        double sum = 0;
        for (const double each : p.coefficients) {
            sum += std::fabs(each);
        }
        require<parameter_error>(std::isfinite(sum), {"evaluate: got coefficients that are not finite"});
        // The factor that maps the interval is an integer of the size of a prime over the interval's.
        require<parameter_error>(
            Mapped ? p.from < p.to && p.to - p.from <= P::template rescale_factor<Level> * 0x1p-24
                   : p.from == -1 && p.to == 1,
            {"evaluate: got the interval from ", p.from, " to ", p.to, ", expected ",
             Mapped ? "a narrower one: scale values down"
                    : "-1 to 1: a polynomial of another one is Mapped"});
        if (!std::isnan(c.largest)) {
            require<parameter_error>(-c.largest >= p.from && c.largest <= p.to,
                                     {"evaluate: got a `largest` of ", c.largest,
                                      ", expected one within the interval from ", p.from, " to ", p.to});
            detail::check_range<P, left>("evaluate", sum, P::template scale_at<left>);
        }
        if constexpr (Mapped) {
            auto scaled = c;
            scaled.largest = std::numeric_limits<double>::quiet_NaN();
            multiply_scalar(scaled, 2 / (p.to - p.from));
            auto t = rescale(scaled, 0);
            add_scalar(t, -(p.from + p.to) / (p.to - p.from));
            auto result = evaluate(chebyshev_polynomial<Degree>{p.coefficients}, t, key);
            result.largest = std::isnan(c.largest) ? c.largest : sum;
            return result;
        } else {
            using sums = detail::chebyshev_sum;
            using form = rns::poly<typename P::template basis_at<left>, rns::evaluation_form>;
            static constexpr auto at_level = []<std::size_t... L>(std::index_sequence<L...>) {
                return std::array<sums::switch_at, sizeof...(L)>{
                    &detail::shared_key_switch<P, KeyLevel, static_cast<int>(L)>...};
            }
            (std::make_index_sequence<static_cast<std::size_t>(Level) + 1>());
            sums::leveled x{sums::buffer(2 * c.c0.words().size(), memory::uninitialized), Level, c.scale};
            std::copy(c.c1.words().begin(), c.c1.words().end(),
                      std::copy(c.c0.words().begin(), c.c0.words().end(), x.words.begin()));
            sums::leveled y =
                sums(detail::key_limbs<P>().first(Level + 1), at_level, key.key().words(), std::move(x))
                    .evaluate(p.coefficients, left, P::template scale_at<left>);
            ciphertext<P, left> result{form(memory::uninitialized), form(memory::uninitialized), y.scale,
                                       std::isnan(c.largest) ? c.largest : sum};
            const auto half = y.words.span().size() / 2;
            std::copy_n(y.words.data(), half, result.c0.mutable_words().data());
            std::copy_n(y.words.data() + half, half, result.c1.mutable_words().data());
            return result;
        }
    }
}

}  // namespace tensafe::ckks
