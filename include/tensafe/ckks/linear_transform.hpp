#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/evaluation_key.hpp>
#include <tensafe/ckks/key_switch.hpp>
#include <tensafe/ckks/multiply.hpp>
#include <tensafe/ckks/rotate.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/encoding/slots.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/ntt/automorphism.hpp>
#include <tensafe/rns/limb_sums.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensafe::ckks {

/// The shape of a transform of all slots by Count diagonals, number i at First + i Stride: slot j of the
/// result is the sum over i of entry j of diagonal i times slot j + First + i Stride of the operand.
template <int First, int Count, int Stride = 1>
struct diagonals {};

/// The shape of a matrix, both sizes powers of two of at most N/2. Its operand is a vector that repeats every
/// Columns slots, its result one that repeats every Rows slots, so that results are operands of others.
template <int Rows, int Columns>
struct matrix {};

/// A vector as operand of a matrix, or to be added to its result: the values, zeros up to `period`, and so on
/// in all slots.
/// @throws shape_error for more values than a period, or a period that does not divide N/2
template <parameter_set P, class T>
std::vector<T> repeated(const std::vector<T>& values, std::size_t period) {
    require<shape_error>(values.size() <= period && period > 0 && P::slots % period == 0,
                         {"repeated: got ", values.size(), " values and a period of ", period,
                          ", expected at most as many, and a divisor of ", P::slots});
    std::vector<T> result(P::slots);
    for (std::size_t first = 0; first < result.size(); first += period) {
        std::copy(values.begin(), values.end(), result.begin() + static_cast<std::ptrdiff_t>(first));
    }
    return result;
}

namespace detail {

template <int... A, int... B>
auto joined(rotations<A...>, rotations<B...>) -> rotations<A..., B...>;

/// How a shape is computed: giant_steps sums, under diagonals, of `baby_steps` rotations of the operand each,
/// are rotated and added; then slots Fold apart are, up to FoldEnd. There are more baby steps than giant ones
/// since they cost no transforms.
template <class Shape>
struct transform_steps {
    static_assert(sizeof(Shape) == 0, "ckks::linear_transform: the shape is diagonals<...> or matrix<...>");
};
template <int First, int Count, int Stride>
struct transform_steps<diagonals<First, Count, Stride>> {
    static_assert(Count >= 1 && Stride >= 1, "ckks::diagonals: Count and Stride must be positive");
    static constexpr std::size_t count = Count;
    static constexpr std::size_t span = count * static_cast<std::size_t>(Stride);
    static constexpr std::size_t baby_steps = [] {
        std::size_t steps = 1;
        while (steps < count && steps * steps < 2 * count) {
            steps *= 2;
        }
        return std::min(steps, count);
    }();
    static constexpr std::size_t giant_steps = (count + baby_steps - 1) / baby_steps;
    static constexpr int giant_step = static_cast<int>(baby_steps) * Stride;
    static constexpr int baby_step(std::size_t b) noexcept { return First + static_cast<int>(b) * Stride; }
    static constexpr std::size_t fold = 1;
    static constexpr std::size_t fold_end = 1;

    template <std::size_t... b>
    static auto list(std::index_sequence<b...>)
        -> std::conditional_t<giant_steps == 1, rotations<baby_step(b)...>,
                              rotations<baby_step(b)..., giant_step>>;
    using list_of_steps = decltype(list(std::make_index_sequence<baby_steps>()));
};
template <int Rows, int Columns>
struct transform_steps<matrix<Rows, Columns>>
    : transform_steps<diagonals<0, (Rows < Columns ? Rows : Columns)>> {
    static_assert(Rows >= 1 && Columns >= 1 && (Rows & (Rows - 1)) == 0 && (Columns & (Columns - 1)) == 0,
                  "ckks::matrix: rows and columns must be powers of two; entries that are missing are 0");
    static constexpr std::size_t rows = Rows;
    static constexpr std::size_t columns = Columns;
    static constexpr std::size_t fold = Rows;
    static constexpr std::size_t fold_end = Rows < Columns ? Columns : Rows;
};

/// A rotation and its key; none moves nothing.
struct rotation_with_key {
    const ntt::automorphism* move = nullptr;
    key_words key{};
};

/// What `sums_of_rotations` computes with.
struct rotated_terms {
    std::span<const arith::word> diagonals;  ///< limb by limb, of each its diagonals, N words each
    std::size_t count;                       ///< of diagonals
    std::span<const rotation_with_key> baby;
    rotation_with_key giant;
};

/// The sum over giant steps g of the rotation by g giant steps of the sum over b of diagonal g * baby + b
/// times rotation b of (c0, c1): two polynomials modulo Q P, P times the result, one after the other. One
/// body for all sets and levels.
///
/// What is rotated is divided by P once for each giant step instead of once for each rotation. Bossuat,
/// Mouchet, Troncoso-Pastoriza, Hubaux, "Efficient bootstrapping for approximate homomorphic encryption with
/// non-sparse keys" (2021), section 5; the giant steps share one key, as in Horner's scheme.
inline key_switch::buffer sums_of_rotations(const key_switch& to_s, std::span<const arith::word> c0,
                                            std::span<const arith::word> c1, const rotated_terms& of) {
    using arith::word;
    const rns::limb_table limbs = to_s.limbs();
    const std::size_t n = limbs.front()->degree();
    const std::size_t baby = of.baby.size();
    const std::size_t giant = (of.count + baby - 1) / baby;
    constexpr std::size_t block = ntt::automorphism::block_size;

    // sums[g]: two polynomials of all limbs
    std::vector<key_switch::buffer> sums;
    for (std::size_t g = 0; g < giant; ++g) {
        sums.emplace_back(2 * limbs.size() * n, memory::uninitialized);
    }
    const auto row_of = [&](key_switch::buffer& words, std::size_t half, std::size_t m) {
        return words.span().subspan((half * limbs.size() + m) * n, n);
    };
    key_switch::buffer rows(2 * n, memory::uninitialized);
    const std::array<std::span<word>, 2> halves{rows.span().first(n), rows.span().last(n)};
    {
        const bool rotates =
            std::any_of(of.baby.begin(), of.baby.end(), [](const auto& b) { return b.move != nullptr; });
        const key_switch::buffer raised = rotates ? to_s.raise(c1) : key_switch::buffer();
        key_switch::buffer rotated(2 * baby * n, memory::uninitialized);
        std::vector<const word*> terms(baby);
        for (std::size_t m = 0; m < limbs.size(); ++m) {
            for (std::size_t b = 0; b < baby; ++b) {
                word* const to = rotated.data() + 2 * b * block;
                if (of.baby[b].move != nullptr) {
                    to_s.sum_products(m, c1, raised, of.baby[b].key, {{c0, {}}}, halves);
                } else if (m < to_s.chain()) {
                    limbs[m]->scale(halves[0], c0.data() + m * n, to_s.special(m));
                    limbs[m]->scale(halves[1], c1.data() + m * n, to_s.special(m));
                } else {
                    std::fill(rows.begin(), rows.end(), word{0});
                }
                for (const std::size_t half : {0U, 1U}) {
                    const word* const from = halves[half].data();
                    if (of.baby[b].move != nullptr) {
                        of.baby[b].move->apply(from, to + half * block, 2 * baby * block);
                    } else {
                        for (std::size_t k = 0; k < n; k += block) {
                            std::copy_n(from + k, block, to + half * block + 2 * baby * k);
                        }
                    }
                }
            }
            for (std::size_t g = 0; g < giant; ++g) {
                const std::size_t count = std::min(baby, of.count - g * baby);
                for (std::size_t b = 0; b < count; ++b) {
                    terms[b] = of.diagonals.data() + (m * of.count + g * baby + b) * n;
                }
                limbs[m]->sum_pairs({{row_of(sums[g], 0, m), row_of(sums[g], 1, m)},
                                     terms.data(),
                                     count,
                                     rotated.data(),
                                     baby});
            }
        }
    }
    key_switch::buffer c1_of_sum(to_s.chain() * n, memory::uninitialized);
    key_switch::buffer moved(n, memory::uninitialized);
    for (std::size_t g = giant - 1; g > 0; --g) {
        // The half of s is divided by P, to be switched; the other stays as it is.
        to_s.divide<false>(
            std::array<std::span<word>, 1>{c1_of_sum.span()},
            [&](std::size_t m, const auto& to) {
                std::copy_n(row_of(sums[g], 1, m).data(), n, to[0].data());
            },
            key_switch::stays_in_place());
        key_switch::buffer raised = to_s.decompose(c1_of_sum.span());
        for (std::size_t m = 0; m < limbs.size(); ++m) {
            to_s.transform(m, raised);
            to_s.sum_products(m, c1_of_sum.span(), raised, of.giant.key, {}, halves);
            limbs[m]->add(halves[0], halves[0].data(), row_of(sums[g], 0, m).data());
            for (const std::size_t half : {0U, 1U}) {
                of.giant.move->apply(halves[half].data(), moved.data());
                const auto below = row_of(sums[g - 1], half, m);
                limbs[m]->add(below, below.data(), moved.data());
            }
        }
        sums.pop_back();
    }
    return std::move(sums.front());
}

}  // namespace detail

/// A linear transform of slots, known to whoever computes, for ciphertexts of a level: encoded diagonals,
/// modulo the special primes too, 8 N bytes for each diagonal and limb. Wiped on release; immutable;
/// thread-safe.
/// @tparam Shape  matrix<Rows, Columns> or diagonals<First, Count, Stride>
template <parameter_set P, class Shape, int Level = P::max_level>
class linear_transform {
    static_assert(P::switches_keys,
                  "ckks: this parameter set switches no keys; take one with key_switching<...>, as "
                  "n16384_depth5");
    static_assert(Level >= 0 && Level <= P::max_level,
                  "ckks::linear_transform: the parameter set has no such level");

  public:
    using steps = detail::transform_steps<Shape>;
    static_assert(steps::span <= P::slots && steps::fold_end <= P::slots,
                  "ckks::linear_transform: the shape is larger than N/2 slots");
    /// The list of rotations whose keys it takes.
    using rotations = decltype(detail::joined(typename steps::list_of_steps(),
                                              inner_sum_rotations<P, steps::fold, steps::fold_end>()));

    /// Encodes diagonals, of up to N/2 real or complex entries each; those that are missing are 0.
    /// Their scale is by default the one with which multiply_rescale lands on the scale of the next level;
    /// level 0 has none. Time depends on the entries.
    /// @throws shape_error for another number of them; encoding_error for entries that are not finite, whose
    ///         product with the scale could wrap, or reaches 2^111
    template <class T>
    explicit linear_transform(const std::vector<std::vector<T>>& of) requires(Level >= 1)
        : linear_transform(of, P::template factor_scale<Level>) {}
    template <class T>
    linear_transform(const std::vector<std::vector<T>>& of, double scale) : scale_(scale) {
        check_count("linear_transform: got ", of.size(), " diagonals, expected ", steps::count);
        encode([&](std::size_t i, std::span<std::complex<double>> out) {
            check_size(of[i].size(), " entries of a diagonal", out.size());
            check_finite(of[i]);
            std::copy(of[i].begin(), of[i].end(), out.begin());
        });
    }

    /// Encodes a matrix, row by row.
    /// @param columns  that it has, at most Columns
    /// @throws shape_error for one that is larger than the shape, or whose last row is not whole; as above
    linear_transform(std::span<const double> entries,
                     std::size_t columns) requires(Level >= 1 && requires { steps::rows; })
        : linear_transform(entries, columns, P::template factor_scale<Level>) {}
    linear_transform(std::span<const double> entries, std::size_t columns,
                     double scale) requires(requires { steps::rows; })
        : scale_(scale) {
        check_size(columns, " columns", steps::columns);
        check_finite(entries);
        require<shape_error>(columns > 0 && entries.size() % columns == 0,
                             {"linear_transform: got ", entries.size(), " entries in rows of ", columns,
                              ", expected whole rows"});
        const std::size_t rows = entries.size() / columns;
        check_size(rows, " rows", steps::rows);
        encode([&](std::size_t i, std::span<std::complex<double>> out) {
            for (std::size_t j = 0; j < out.size(); ++j) {
                const std::size_t row = j % steps::rows;
                const std::size_t column = (i + j) % steps::columns;
                out[j] = row < rows && column < columns ? entries[row * columns + column] : 0;
            }
        });
    }

    double scale() const noexcept { return scale_; }
    /// A bound of the result's slots over that of the operand's, before slots are folded.
    double gain() const noexcept { return gain_; }
    /// The diagonals, limb by limb: of the chain, then of the special primes.
    std::span<const arith::word> words() const noexcept { return words_.span(); }

  private:
    static void check_size(std::size_t got, const char* what, std::size_t most) {
        require<shape_error>(got <= most, {"linear_transform: got ", got, what, ", expected at most ", most});
    }

    static void check_finite(const auto& entries) {
        for (std::size_t i = 0; i < entries.size(); ++i) {
            require<encoding_error>(std::isfinite(std::abs(entries[i])),
                                    {"linear_transform: entry ", i, " is not finite"});
        }
    }

    template <class Diagonal>
    void encode(Diagonal diagonal) {
        const rns::limb_table all = detail::key_limbs<P>();
        constexpr detail::wide_real half = detail::half_modulus<P, Level>;
        const double limit = std::ldexp(half.mantissa * (1 - 0x1p-44), std::min(half.exponent, 1000));
        memory::secret_buffer<std::complex<double>> entries(P::slots, memory::uninitialized);
        memory::secret_buffer<double> coefficients(P::degree, memory::uninitialized);
        for (std::size_t i = 0; i < steps::count; ++i) {
            std::fill(entries.begin(), entries.end(), 0.0);
            diagonal(i, entries.span());
            gain_ += detail::largest_magnitude(entries.span()) + static_cast<double>(P::degree) / 2 / scale_;
            // What is rotated after the product is rotated back before it.
            const std::size_t turns =
                detail::left_steps<P>(static_cast<long long>(i / steps::baby_steps) * steps::giant_step);
            std::rotate(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(turns), entries.end());
            if (!encoding::detail::scaled_coefficients(entries.span(), scale_, limit, P::log_n,
                                                       coefficients.span())) {
                throw encoding_error("linear_transform: diagonal " + std::to_string(i) +
                                     " is too large: its entries must be below 2^111 over the scale");
            }
            for (std::size_t m = 0; m < limbs; ++m) {
                const auto& limb = *all[m < chain ? m : P::basis::primes.size() + m - chain];
                const auto words = words_.span().subspan((m * steps::count + i) * P::degree, P::degree);
                limb.round_reals(words, coefficients.span());
                limb.forward(words);
            }
        }
    }

    static constexpr std::size_t chain = static_cast<std::size_t>(Level) + 1;
    static constexpr std::size_t limbs = chain + P::special_primes.size();

    double scale_;
    double gain_ = 0;
    memory::secret_buffer<arith::word> words_{limbs * steps::count * P::degree, memory::uninitialized};
};

namespace detail {

template <bool rescales, parameter_set P, class Shape, int Level, int KeyLevel, class... Lists>
ciphertext<P, Level - (rescales ? 1 : 0)> transformed(const linear_transform<P, Shape, Level>& a,
                                                      const ciphertext<P, Level>& c, double scale,
                                                      const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    using transform = linear_transform<P, Shape, Level>;
    using steps = typename transform::steps;
    using keys_type = galois_keys_at<P, KeyLevel, Lists...>;
    []<int... Steps>(rotations<Steps...>) {
        static_assert((keys_type::rotates_by(Steps) && ...),
                      "ckks::multiply: keys of the linear transform are missing; add its `rotations` to the "
                      "keys' lists");
    }
    (typename transform::rotations());
    constexpr int left = Level - (rescales ? 1 : 0);
    using form = rns::poly<typename P::template basis_at<left>, rns::evaluation_form>;
    const key_switch& to_s = shared_key_switch<P, KeyLevel, Level>();
    const double largest =
        combined_bound<P, Level>("multiply", c.largest, std::isnan(c.largest) ? c.largest : a.gain(),
                                 c.scale * a.scale(), std::multiplies());
    const auto with_key = [&](long long step) -> rotation_with_key {
        const auto* const found = keys.find(left_steps<P>(step));
        return found == nullptr ? rotation_with_key{} : rotation_with_key{&found->move, found->key.words()};
    };
    std::array<rotation_with_key, steps::baby_steps> baby;
    for (std::size_t b = 0; b < baby.size(); ++b) {
        baby[b] = with_key(steps::baby_step(b));
    }
    key_switch::buffer sums = sums_of_rotations(to_s, c.c0.words(), c.c1.words(),
                                                {a.words(), steps::count, baby, with_key(steps::giant_step)});
    ciphertext<P, left> result{form(memory::uninitialized), form(memory::uninitialized), scale, largest};
    const std::array<std::span<arith::word>, 2> to{result.c0.mutable_words(), result.c1.mutable_words()};
    to_s.template divide<rescales>(
        to,
        [&](std::size_t m, const auto& rows) {
            for (const std::size_t half : {0U, 1U}) {
                std::copy_n(sums.data() + (half * to_s.limbs().size() + m) * P::degree, P::degree,
                            rows[half].data());
            }
        },
        key_switch::stays_in_place());
    return inner_sum<steps::fold, steps::fold_end>(std::move(result), keys);
}

}  // namespace detail

/// Applies a linear transform: the scales multiply. Costs one hoisted key switch, one for each giant step but
/// the first, and one for each doubling of Rows to Columns.
/// @throws parameter_error if the scale would reach Q; encoding_error if a bound is set and values could wrap
template <parameter_set P, class Shape, int Level, int KeyLevel, class... Lists>
[[nodiscard]] ciphertext<P, Level> multiply(const linear_transform<P, Shape, Level>& a,
                                            const ciphertext<P, Level>& c,
                                            const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    const double scale = c.scale * a.scale();
    detail::check_room<P, Level>("multiply", scale);
    return detail::transformed<false>(a, c, scale, keys);
}

/// Applies a linear transform and rescales: what was at the scale of its level is at that of the next one.
/// @throws as multiply; parameter_error also if the scale would fall below half of the next level's
template <parameter_set P, class Shape, int Level, int KeyLevel, class... Lists>
requires(Level >= 1) [[nodiscard]] ciphertext<P, Level - 1> multiply_rescale(
    const linear_transform<P, Shape, Level>& a, const ciphertext<P, Level>& c,
    const galois_keys_at<P, KeyLevel, Lists...>& keys) {
    const double scale = c.scale * a.scale();
    detail::check_room<P, Level>("multiply_rescale", scale);
    detail::check_rescaled("multiply_rescale", scale, P::template rescale_factor<Level>,
                           P::template scale_at<Level - 1> / 2,
                           "bring the ciphertext to the scale of its level by adjust_level()");
    return detail::transformed<true>(a, c, detail::scale_after<P, Level>(scale), keys);
}

template <parameter_set P, class Shape, int A, int B, class Keys>
requires(A != B) void multiply(  // make the linear_transform<P, Shape, Level> of the ciphertext's level
    const linear_transform<P, Shape, A>&, const ciphertext<P, B>&, const Keys&) = delete;
template <parameter_set P, class Shape, int A, int B, class Keys>
requires(A != B) void multiply_rescale(  // make the linear_transform<P, Shape, Level> of its level
    const linear_transform<P, Shape, A>&, const ciphertext<P, B>&, const Keys&) = delete;
template <parameter_set P, class Shape, class Keys>
void multiply_rescale(  // no level left; take a deeper set, or multiply()
    const linear_transform<P, Shape, 0>&, const ciphertext<P, 0>&, const Keys&) = delete;

/// The sum of the products of all slots, in each slot.
/// @throws as multiply_rescale of ciphertexts
template <parameter_set P, int Level, int KeyLevel, int GaloisLevel, class... Lists>
requires(Level >= 1) [[nodiscard]] ciphertext<P, Level - 1> inner_product(
    const ciphertext<P, Level>& a, const ciphertext<P, Level>& b, const relinearization_key<P, KeyLevel>& key,
    const galois_keys_at<P, GaloisLevel, Lists...>& keys) {
    return inner_sum(multiply_rescale(a, b, key), keys);
}

}  // namespace tensafe::ckks
