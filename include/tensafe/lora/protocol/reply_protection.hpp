#pragma once

#include <tensafe/ckks/keys.hpp>
#include <tensafe/ckks/sanitize/flooding.hpp>
#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/ckks/trace.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/lora/protocol/toeplitz_row.hpp>
#include <tensafe/rns/pointwise.hpp>
#include <tensafe/rns/switch_modulus.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tensafe::lora {

/// A protected product, still modulo Q: the flooded target coefficients of c0, and all of c1.
template <ckks::parameter_set P>
struct protected_product {
    using basis = typename traced_product<P>::basis;

    std::array<memory::buffer<arith::word>, static_cast<std::size_t>(basis::limbs)> c0;
    rns::poly<basis, rns::coefficient_form> c1;
};

/// Re-randomizes a product: adds the encryption of zero and the flood. One inverse NTT for each limb. The
/// product's memory becomes the result's; allocates nothing.
/// @param product     with the c1 of the zero added already; of a factor, with both products
/// @param zero        never to be used again: a second product under it would show both
/// @param flood_seed  secret, fresh for each reply; `lane` counts the products of the reply
template <ckks::parameter_set P>
protected_product<P> rerandomize(traced_product<P> product, const ckks::zero<P, request_level<P>>& zero,
                                 ckks::irwin_hall_smudging flood, const random::seed& flood_seed,
                                 std::uint32_t lane) {
    using basis = typename traced_product<P>::basis;
    TENSAFE_PRECONDITION(product.c0.front().size() == zero.e0.size());
    protected_product<P> result{std::move(product.c0), rns::inverse(std::move(product.c1))};
    ckks::add_small(zero.e1.span(), result.c1);

    std::array<std::span<arith::word>, static_cast<std::size_t>(basis::limbs)> limbs;
    rns::for_each_limb<basis>([&]<int I>() {
        constexpr arith::word q = basis::template prime<I>;
        const std::span<arith::word> c0 = limbs[I] = result.c0[I].span();
        if (!zero.is_factor) {
            rns::limb::add(rns::modulus_of<q>(q), c0, c0, zero.c0[I].span());
        }
        // Before e0 and the flood: times N/n they would be multiples of it, and cover nothing in between.
        ckks::block_sums_to_coefficients<P::log_n, q>(zero.log_n, c0);
        rns::limb::add_small(rns::modulus_of<q>(q), c0, zero.e0.span());
    });
    ckks::add_flood<basis>(flood, flood_seed, lane, limbs);
    return result;
}

/// Switches all coefficients of a polynomial to the modulus 2^bits and packs them into bytes.
/// @param switched  room for N of them
template <class Basis, class Release, class Bytes>
void pack_switched(const rns::poly<Basis, rns::coefficient_form, memory::host_space, Release>& p, int bits,
                   std::span<std::uint32_t> switched, Bytes& out) {
    rns::switch_modulus(p, bits, switched);
    out.resize(memory::packed_bytes(Basis::degree, bits));
    memory::pack_bits(std::span<const std::uint32_t>(switched), bits, std::span(out));
}

/// Switches a protected product to the modulus 2^bits and packs it: of c0 the first `wanted` coefficients.
/// @param switched  room for N of them
template <ckks::parameter_set P, class Output>
void serialize(const protected_product<P>& product, std::size_t wanted, int bits,
               std::span<std::uint32_t> switched, Output& out) {
    using basis = typename traced_product<P>::basis;
    pack_switched(product.c1, bits, switched, out.c1);
    std::array<std::span<const arith::word>, static_cast<std::size_t>(basis::limbs)> limbs;
    for (std::size_t i = 0; i < limbs.size(); ++i) {
        limbs[i] = product.c0[i].span().first(wanted);
    }
    const std::span<std::uint32_t> c0 = switched.first(wanted);
    rns::switch_modulus<basis>(limbs, bits, c0);
    out.c0.resize(memory::packed_bytes(wanted, bits));
    memory::pack_bits(std::span<const std::uint32_t>(c0), bits, std::span(out.c0));
}

/// The most coefficients of c1*s that are inner products with the ternary key; more are read off a transform.
inline constexpr std::size_t most_inner_products = 16;

namespace detail {

/// The lowest `bits` bits of c0 + c1*s as a coefficient modulo Q, rounded to a multiple of 2^noise_bits.
template <class Basis>
double centred_coefficient(arith::word sum, int bits, int noise_bits) noexcept {
    const std::int64_t half = (std::int64_t{1} << noise_bits) / 2;
    const auto centred = static_cast<std::int64_t>(sum << (64 - bits)) >> (64 - bits);
    return static_cast<double>((centred + half) >> noise_bits) *
           (modulus_of_basis<Basis>() * power_of_two(noise_bits - bits));
}

/// Computes out[k] = coefficient k*N/n of c1*s modulo 2^32, n = 2^subring_log_n, for k < out.size(). One NTT
/// modulo the first prime of the chain if that is cheaper.
/// @param row  of the key
/// @param c1   modulo 2^bits, bit-packed
/// @throws format_error if c1 is 0, as in an erased reply
template <ckks::parameter_set P>
void multiply_by_key(const ckks::secret_key<P>& key, const toeplitz_row& row,
                     std::span<const std::uint8_t> c1, int bits, int subring_log_n,
                     decryption_workspace<P>& work, std::span<arith::word> out) {
    const auto coefficients = make_room(work.c1, P::degree);
    memory::unpack_bits(c1, bits, coefficients);
    // Public, and ends at the first word of an honest reply.
    if (std::all_of(coefficients.begin(), coefficients.end(), [](std::uint32_t x) { return x == 0; })) {
        throw format_error("client::decrypt: the c1 of a reply is zero: the server erased it");
    }
    constexpr arith::word q = traced_product<P>::basis::template prime<0>;
    const std::size_t n = std::size_t{1} << subring_log_n;
    if (out.size() <= most_inner_products) {
        return row.coefficients_of_product(coefficients, P::degree / n, out);
    }
    // c1*s over the integers is below N * 2^bits, hence exact modulo q.
    const auto words = make_room(work.words, P::degree);
    std::copy(coefficients.begin(), coefficients.end(), words.begin());
    ntt::forward(rns::shared_plan<P::log_n, q>(), words);
    const auto sums = make_room(work.sums, n);
    std::fill(sums.begin(), sums.end(), 0);
    rns::limb::add_block_sums(rns::variable_arithmetic<q>, sums, words, key.value().template limb<0>());
    ckks::block_sums_to_coefficients<P::log_n, q>(subring_log_n, sums);
    for (std::size_t k = 0; k < out.size(); ++k) {
        // By its sign bit: of a comparison clang 14 makes a branch.
        const auto negative = static_cast<arith::word>(static_cast<std::int64_t>(q / 2 - sums[k]) >> 63);
        out[k] = sums[k] - (q & negative);
    }
}

}  // namespace detail

/// Decrypts an output, the client's side: target coefficient k, in units of the integers modulo Q, with its
/// noise; 2^subring_log_n of them, those beyond `wanted` 0. Allocates nothing.
/// @param row         of the key
/// @param noise_bits  each coefficient of the reply is rounded to a multiple of 2^noise_bits; with 0, what
///                    comes out is a linear equation in the key
/// @throws shape_error or format_error unless the output has the bytes of this many values of this width;
///         format_error if c1 is 0, as in an erased reply
template <ckks::parameter_set P, class Output>
void decrypt_output(const ckks::secret_key<P>& key, const toeplitz_row& row, const Output& output,
                    int subring_log_n, std::size_t wanted, int bits, int noise_bits,
                    decryption_workspace<P>& work, std::span<double> values) {
    using basis = typename traced_product<P>::basis;
    const auto c0 = detail::make_room(work.c0, wanted);
    memory::unpack_bits(std::span<const std::uint8_t>(output.c0), bits, c0);
    const auto products = detail::make_room(work.sums, std::size_t{1} << subring_log_n).first(wanted);
    detail::multiply_by_key<P>(key, row, output.c1, bits, subring_log_n, work, products);
    for (std::size_t k = 0; k < wanted; ++k) {
        values[k] = detail::centred_coefficient<basis>(c0[k] + products[k], bits, noise_bits);
    }
    std::fill(values.begin() + static_cast<std::ptrdiff_t>(wanted), values.end(), 0.0);
    // c1 is public, so c1*s is as secret as s.
    const std::size_t used = wanted <= most_inner_products ? wanted : std::size_t{1} << subring_log_n;
    memory::wipe(work.sums.data(), used * sizeof(arith::word));
}

/// Decrypts a bare product: target coefficient k, in units of the integers modulo Q, with its noise.
template <ckks::parameter_set P>
void decrypt_output(const ckks::secret_key<P>& key, const traced_product<P>& product, int subring_log_n,
                    int noise_bits, decryption_workspace<P>& work, std::span<double> values) {
    using basis = typename traced_product<P>::basis;
    const std::size_t n = std::size_t{1} << subring_log_n;
    std::array<std::span<arith::word>, static_cast<std::size_t>(basis::limbs)> limbs;
    const auto sums = detail::make_room(work.sums, n * limbs.size());
    rns::for_each_limb<basis>([&]<int I>() {
        constexpr arith::word q = basis::template prime<I>;
        limbs[I] = sums.subspan(static_cast<std::size_t>(I) * n, n);
        std::copy_n(product.c0[I].begin(), n, limbs[I].begin());
        rns::limb::add_block_sums(rns::variable_arithmetic<q>, limbs[I], product.c1.template limb<I>(),
                                  key.value().template limb<I>());
        ckks::block_sums_to_coefficients<P::log_n, q>(subring_log_n, limbs[I]);
    });
    std::array<std::span<const arith::word>, static_cast<std::size_t>(basis::limbs)> residues;
    std::copy(limbs.begin(), limbs.end(), residues.begin());
    rns::to_doubles<basis>(residues, values);
    // Sums of this size have no bits below 2^noise_bits; no value comes near it.
    const double rounding = 0x1.8p52 * power_of_two(noise_bits);
    for (double& x : values.first(n)) {
        x = (x + rounding) - rounding;
    }
    memory::wipe(sums.data(), sums.size_bytes());
}

}  // namespace tensafe::lora
