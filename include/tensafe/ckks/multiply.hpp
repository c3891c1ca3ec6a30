#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/evaluation_key.hpp>
#include <tensafe/ckks/key_switch.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/rns/pointwise.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <utility>

namespace tensafe::ckks {

/// The product of two ciphertexts, (c0, c1, c2): c0 + c1*s + c2*s^2 = m * scale + noise. It can be added to
/// others; `relinearize` makes a ciphertext of it.
template <parameter_set P, int Level = P::max_level>
struct ciphertext_product {
    using basis = typename P::template basis_at<Level>;

    rns::poly<basis, rns::evaluation_form> c0;
    rns::poly<basis, rns::evaluation_form> c1;
    rns::poly<basis, rns::evaluation_form> c2;
    double scale = P::scale * P::scale;
    /// As that of a ciphertext.
    double largest = std::numeric_limits<double>::quiet_NaN();
};

/// The key for products of ciphertexts of up to `Level`: from s^2 to s. Immutable; thread-safe.
template <parameter_set P, int Level = P::max_level>
class relinearization_key {
  public:
    relinearization_key(const secret_key<P>& s, random::generator& generator)
        : key_(s, 0, s.coefficients(), generator,
               [&](const rns::limb_operations& limb, std::span<arith::word> out) {
                   detail::lift_secret(limb, s.coefficients(), out);
                   limb.multiply(out, out.data(), out.data());
               }) {}
    /// Makes the key that was sent; wire::read_relinearization_key reads one from bytes.
    explicit relinearization_key(evaluation_key<P, Level> key) noexcept : key_(std::move(key)) {}

    const evaluation_key<P, Level>& key() const noexcept { return key_; }

  private:
    evaluation_key<P, Level> key_;
};

/// Multiplies ciphertexts, slot by slot; the scales multiply. No transform.
/// @throws parameter_error if the scale would reach Q; encoding_error if a bound is set and values could wrap
template <parameter_set P, int Level>
[[nodiscard]] ciphertext_product<P, Level> multiply(const ciphertext<P, Level>& a,
                                                    const ciphertext<P, Level>& b) {
    using form = rns::poly<typename P::template basis_at<Level>, rns::evaluation_form>;
    const double scale = a.scale * b.scale;
    detail::check_room<P, Level>("multiply", scale);
    ciphertext_product<P, Level> result{
        form(memory::uninitialized), form(memory::uninitialized), form(memory::uninitialized), scale,
        detail::combined_bound<P, Level>("multiply", a.largest, b.largest, scale, std::multiplies())};
    rns::multiply(result.c0, a.c0, b.c0);
    rns::multiply(result.c1, a.c0, b.c1);
    rns::multiply_accumulate(result.c1, a.c1, b.c0);
    rns::multiply(result.c2, a.c1, b.c1);
    return result;
}
template <parameter_set P, int A, int B>
void multiply(const ciphertext<P, A>&, const ciphertext<P, B>&) = delete;  // adjust_level() one first

template <parameter_set P, int A, int B>
void multiply(  // expand() seeded ciphertexts first
    const seeded_ciphertext<P, A>&, const seeded_ciphertext<P, B>&) = delete;
template <parameter_set P, int Level>
void decrypt_slots(const secret_key<P>&,
                   const ciphertext_product<P, Level>&) = delete;  // relinearize() it first

/// Multiplies a ciphertext by itself.  @throws as multiply
template <parameter_set P, int Level>
[[nodiscard]] ciphertext_product<P, Level> square(const ciphertext<P, Level>& a) {
    return multiply(a, a);
}

/// Adds products: a += b, so that a sum of many is relinearized once.  @throws as add of ciphertexts
template <parameter_set P, int Level>
void add(ciphertext_product<P, Level>& a, const ciphertext_product<P, Level>& b) {
    detail::check_scales("add", a.scale, b.scale);
    a.largest = detail::combined_bound<P, Level>("add", a.largest, b.largest, a.scale, std::plus());
    rns::add(a.c0, b.c0);
    rns::add(a.c1, b.c1);
    rns::add(a.c2, b.c2);
}

template <parameter_set P, int A, int B>
void add(ciphertext_product<P, A>&, const ciphertext_product<P, B>&) = delete;  // of ciphertexts of one level

template <parameter_set P, int Level>
void rescale(const ciphertext_product<P, Level>&, double = 0) = delete;  // relinearize_rescale() it

/// Makes a ciphertext of a product, at its level and scale. Costs a key switch.
template <parameter_set P, int Level, int KeyLevel>
[[nodiscard]] ciphertext<P, Level> relinearize(const ciphertext_product<P, Level>& a,
                                               const relinearization_key<P, KeyLevel>& key) {
    using form = rns::poly<typename P::template basis_at<Level>, rns::evaluation_form>;
    const auto& to_s = detail::shared_key_switch<P, KeyLevel, Level>();
    ciphertext<P, Level> result{form(memory::uninitialized), form(memory::uninitialized), a.scale, a.largest};
    const std::array<std::span<arith::word>, 2> to{result.c0.mutable_words(), result.c1.mutable_words()};
    to_s.template run<false>(a.c2.words(), key.key().words(), {{a.c0.words(), a.c1.words()}}, to,
                             detail::key_switch::stays_in_place());
    return result;
}

/// Makes a ciphertext of a product and drops the last prime, as rescale(relinearize(a, key)) would but for
/// rounding, which is done once: 2 * limbs transforms fewer.
/// @throws parameter_error if the scale would fall below least_scale
template <parameter_set P, int Level, int KeyLevel>
requires(Level >= 1) [[nodiscard]] ciphertext<P, Level - 1> relinearize_rescale(
    const ciphertext_product<P, Level>& a, const relinearization_key<P, KeyLevel>& key,
    double least_scale = P::template scale_at<Level - 1> / 2) {
    using form = rns::poly<typename P::template basis_at<Level - 1>, rns::evaluation_form>;
    detail::check_rescaled(
        "relinearize_rescale", a.scale, P::template rescale_factor<Level>, least_scale,
        "bring both factors to the scale of their level by adjust_level(), or name a smaller "
        "least_scale");
    const auto& to_s = detail::shared_key_switch<P, KeyLevel, Level>();
    ciphertext<P, Level - 1> result{form(memory::uninitialized), form(memory::uninitialized),
                                    detail::scale_after<P, Level>(a.scale), a.largest};
    const std::array<std::span<arith::word>, 2> to{result.c0.mutable_words(), result.c1.mutable_words()};
    to_s.template run<true>(a.c2.words(), key.key().words(), {{a.c0.words(), a.c1.words()}}, to,
                            detail::key_switch::stays_in_place());
    return result;
}
template <parameter_set P, int KeyLevel>
void relinearize_rescale(  // no level left; take a deeper set
    const ciphertext_product<P, 0>&, const relinearization_key<P, KeyLevel>&, double = 0) = delete;

/// Multiplies ciphertexts and rescales: at the scale of their level, the result is at that of the next one.
/// Costs a key switch, with which the rescale comes for nothing.
/// @throws encoding_error if a bound is set and values could wrap; parameter_error if the scale would fall
///         below half of the next level's
template <parameter_set P, int Level, int KeyLevel>
requires(Level >= 1)
    [[nodiscard]] ciphertext<P, Level - 1> multiply_rescale(const ciphertext<P, Level>& a,
                                                            const ciphertext<P, Level>& b,
                                                            const relinearization_key<P, KeyLevel>& key) {
    return relinearize_rescale(multiply(a, b), key);
}
template <parameter_set P, int KeyLevel>
void multiply_rescale(  // no level left; take a deeper set
    const ciphertext<P, 0>&, const ciphertext<P, 0>&, const relinearization_key<P, KeyLevel>&) = delete;
template <parameter_set P, int A, int B, int KeyLevel>
void multiply_rescale(  // expand() seeded ciphertexts first
    const seeded_ciphertext<P, A>&, const seeded_ciphertext<P, B>&,
    const relinearization_key<P, KeyLevel>&) = delete;
template <parameter_set P, int A, int B, int KeyLevel>
requires(A != B) void multiply_rescale(  // adjust_level() one first
    const ciphertext<P, A>&, const ciphertext<P, B>&, const relinearization_key<P, KeyLevel>&) = delete;

/// Drops levels, to the scale of the level that is left: what products of that level are at, so that sums
/// with them are exact in scale. Values change by a part of at most 1 / q, q the prime of the level above it,
/// and by the noise of a rescale.
/// @throws parameter_error if the scale is not within a factor of four of its level's, or at its own level
///         another one; encoding_error if a bound is set and values could wrap
template <int Target, parameter_set P, int Level>
[[nodiscard]] ciphertext<P, Target> adjust_level(const ciphertext<P, Level>& c) {
    static_assert(Target >= 0 && Target <= Level, "ckks::adjust_level: a ciphertext can only lose levels");
    constexpr double scale = P::template scale_at<Target>;
    const auto check = [&](bool holds) {
        require<parameter_error>(
            holds, {"adjust_level: got a scale of ", c.scale, ", expected about that of its level, ",
                    P::template scale_at<Level>});
    };
    if constexpr (Target == Level) {
        check(std::fabs(c.scale - scale) <= 1e-12 * scale);
        return c;
    } else {
        auto above = level_reduce<Target + 1>(c);
        constexpr double prime = P::template rescale_factor<Target + 1>;
        const double factor = std::nearbyint(prime / above.scale * scale);
        check(factor >= prime / 4 && factor <= prime * 4);
        multiply_plain(above, detail::constant_operand(above, 1, factor));
        // The factor is an integer; the scale is taken for that of the level.
        above.scale = prime * scale;
        auto result = rescale(above, 0);
        result.scale = scale;
        return result;
    }
}

}  // namespace tensafe::ckks
