#pragma once

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/encoding/slots.hpp>
#include <tensafe/rns/poly.hpp>

#include <algorithm>
#include <complex>
#include <concepts>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::ckks {

/// An encoded message: a polynomial and the scale its values were multiplied with. In coefficient form it can
/// be encrypted or decoded, in evaluation form multiplied or added to a ciphertext. Wiped on release;
/// otherwise value semantics, thread and exception safety of a standard container.
template <parameter_set P, class Form, int Level = P::max_level>
struct plaintext {
    using basis = typename P::template basis_at<Level>;

    rns::secret_poly<basis, Form> value;
    double scale = P::scale;
    /// The largest absolute value in the slots, where a ciphertext's bound asked for it; else NaN. Not wiped.
    double largest = std::numeric_limits<double>::quiet_NaN();
};

/// Encodes up to N/2 complex slots.  @throws as encoding::encode_slots
template <parameter_set P, int Level = P::max_level>
plaintext<P, rns::coefficient_form, Level> encode_slots(std::span<const std::complex<double>> slots,
                                                        double scale = P::template scale_at<Level>) {
    plaintext<P, rns::coefficient_form, Level> result;
    result.scale = scale;
    encoding::encode_slots(slots, scale, result.value);
    return result;
}

/// Encodes up to N/2 real slots, as complex ones with imaginary part 0.
/// @param slots  whatever a std::span<const double> can be made of
/// @throws as encoding::encode_slots
template <parameter_set P, int Level = P::max_level, std::convertible_to<std::span<const double>> Reals>
plaintext<P, rns::coefficient_form, Level> encode_slots(const Reals& slots,
                                                        double scale = P::template scale_at<Level>) {
    const std::span<const double> reals = slots;
    memory::secret_buffer<std::complex<double>> values(reals.size(), memory::uninitialized);
    std::copy(reals.begin(), reals.end(), values.begin());
    return encode_slots<P, Level>(std::span<const std::complex<double>>(values.span()), scale);
}

/// Encodes one real number in every slot, ready for a sum or a product: a constant polynomial, which is its
/// own evaluation form. No NTT.  @throws as encoding::encode_coefficients
template <parameter_set P, int Level = P::max_level>
plaintext<P, rns::evaluation_form, Level> encode_constant(double value,
                                                          double scale = P::template scale_at<Level>) {
    plaintext<P, rns::coefficient_form, Level> constant;
    encoding::encode_coefficients(std::span<const double>(&value, 1), scale, constant.value);
    rns::for_each_limb<typename P::template basis_at<Level>>([&]<int I>() {
        const auto limb = constant.value.template limb<I>();
        std::fill(limb.begin(), limb.end(), limb[0]);
    });
    return {rns::secret_poly<typename P::template basis_at<Level>, rns::evaluation_form>(
                std::move(constant.value).take()),
            scale};
}

/// Encodes up to N coefficients.  @throws as encoding::encode_coefficients
template <parameter_set P, int Level = P::max_level>
plaintext<P, rns::coefficient_form, Level> encode_coefficients(std::span<const double> coefficients,
                                                               double scale = P::template scale_at<Level>) {
    plaintext<P, rns::coefficient_form, Level> result;
    result.scale = scale;
    encoding::encode_coefficients(coefficients, scale, result.value);
    return result;
}

/// The N/2 slots of a plaintext.
template <parameter_set P, int Level>
std::vector<std::complex<double>> decode_slots(const plaintext<P, rns::coefficient_form, Level>& p) {
    std::vector<std::complex<double>> slots(P::slots);
    encoding::decode_slots(p.value, p.scale, std::span(slots));
    return slots;
}

/// The N coefficients of a plaintext.
template <parameter_set P, int Level>
std::vector<double> decode_coefficients(const plaintext<P, rns::coefficient_form, Level>& p) {
    std::vector<double> coefficients(P::degree);
    encoding::decode_coefficients(p.value, p.scale, std::span(coefficients));
    return coefficients;
}

/// Transforms a plaintext to evaluation form; the memory is reused.
template <parameter_set P, int Level>
plaintext<P, rns::evaluation_form, Level> forward(plaintext<P, rns::coefficient_form, Level> p) {
    return {rns::forward(std::move(p.value)), p.scale, p.largest};
}

/// Transforms a plaintext to coefficient form; the memory is reused.
template <parameter_set P, int Level>
plaintext<P, rns::coefficient_form, Level> inverse(plaintext<P, rns::evaluation_form, Level> p) {
    return {rns::inverse(std::move(p.value)), p.scale, p.largest};
}

}  // namespace tensafe::ckks
