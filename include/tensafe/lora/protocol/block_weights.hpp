#pragma once

#include <tensafe/arith/prime.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/ntt/interleaved.hpp>
#include <tensafe/ntt/transform.hpp>
#include <tensafe/random/samplers.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/rns/basis.hpp>
#include <tensafe/rns/integer_rows.hpp>
#include <tensafe/rns/limb.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

// The packed A of a server of blocks.

namespace tensafe::lora::detail {

/// The next multiple of eight, from `count` on.
constexpr std::size_t whole_lanes(std::size_t count) noexcept {
    return ceil_divide(count, ntt::interleaved) * ntt::interleaved;
}

/// Memory of one thread to multiply in; grows once.
struct block_products_workspace {
    memory::secret_buffer<arith::word> scratch;  ///< a window of eight polynomials
    memory::secret_buffer<arith::word> weights;  ///< transforms of eight rows, in part
    memory::secret_buffer<arith::word> windows;  ///< windows of eight inputs, or products with eight rows
};

/// The matrix A as 32-bit integers, for blocks of tokens. A plaintext has `columns` coefficients that are not
/// 0, so ciphertexts are multiplied window by window: of the coefficients of the product with a window all
/// are right but the last `columns`, with which the next window begins. Exact: docs/design/lora.md.
template <ckks::parameter_set P, class Protection>
class block_weights {
    using basis = typename traced_product<P>::basis;

  public:
    static constexpr std::size_t lanes = ntt::interleaved;
    using plan_type = packing_plan<P, token_blocks, Protection>;

    block_weights(const plan_type& plan, const matrix& a)
        : d_(plan.d()),
          outputs_(plan.outputs()),
          columns_(plan.entries_per_input()),
          pieces_(plan.subring_degree() >= 32 ? 4 : 2),
          integers_(padded_outputs() * d_, memory::uninitialized) {
        plan.layout().rows().check_matrix(a);
        std::fill(integers_.begin(), integers_.end(), rns::limb::integer_offset);
        for (std::size_t o = 0; o < outputs_; ++o) {
            for (std::size_t t = 0; t < d_; ++t) {
                integers_[(o / lanes * d_ + t) * lanes + o % lanes] +=
                    static_cast<std::uint32_t>(plan.layout().rows().integer_weight(a, plan.budget(), o, t));
            }
        }
    }

    std::size_t inputs() const noexcept { return ceil_divide(d_, columns_); }
    std::size_t padded_outputs() const noexcept { return whole_lanes(outputs_); }

    /// Multiplies a token: sums[I][o] = row o times its coefficients, modulo prime I, for padded_outputs().
    template <class Token, class Sums>
    void multiply_token(const Token& token, Sums& sums) const {
        const auto products = [&]<int... I>(std::integer_sequence<int, I...>) {
            rns::limb::multiply_integer_rows(
                integers_.data(), d_, padded_outputs(),
                rns::limb::row_products<rns::modulus_of<basis::template prime<I>>>{
                    rns::variable_arithmetic<basis::template prime<I>>, token[I], sums[I].data()}...);
        };
        products(std::make_integer_sequence<int, basis::limbs>());
    }

    /// The words of all windows of all inputs, for one prime.
    std::size_t window_words() const noexcept { return size() * windows() * padded_inputs(); }

    /// Transforms the windows of limb I of eight inputs from `first` on, which the seed gives: point f of
    /// window w of input k goes to (f * windows() + w) * padded_inputs() + k.
    /// @param limbs  room for eight of N words
    template <int I>
    void transform_inputs(const random::seed& seed, std::size_t first, block_products_workspace& work,
                          std::span<arith::word> limbs, std::span<arith::word> to) const {
        constexpr arith::word q = basis::template prime<I>;
        constexpr auto fixed = rns::fixed_arithmetic<q>;
        make_room(work.scratch, size() * lanes);
        const auto entries = make_room(work.windows, (windows() * valid() + columns_) * lanes);
        for (std::size_t k = 0; k < std::min(lanes, inputs() - first); ++k) {
            const std::span<arith::word> limb = limbs.subspan(k * P::degree, P::degree);
            random::sample_uniform<q>(
                seed, random::stream_domain::uplink,
                static_cast<std::uint32_t>((first + k) * static_cast<std::size_t>(basis::limbs) + I), limb);
            ntt::inverse(rns::shared_plan<P::log_n, q>(), limb);
        }
        const auto absent = limbs.subspan(std::min(lanes, inputs() - first) * P::degree);
        std::fill(absent.begin(), absent.end(), arith::word{0});
        ntt::transpose(limbs.data(), P::degree, lanes, P::degree, entries.data(), lanes);
        const std::span<arith::word> beyond = entries.subspan(P::degree * lanes);  // X^N = -1
        rns::limb::scale(fixed, beyond, entries.first(beyond.size()), fixed.prepare(q - 1));
        for (std::size_t w = 0; w < windows(); ++w) {
            ntt::forward_interleaved(plan_of<I>(), 1, &entries[w * valid() * lanes], lanes,
                                     work.scratch.data(), &to[w * padded_inputs() + first],
                                     windows() * padded_inputs());
        }
    }

    /// Multiplies eight rows with the inputs: to[k * N + c] = coefficient c of limb I of c1 of output first +
    /// k, the sum over inputs of the row times the input.
    template <int I>
    void multiply(std::span<const arith::word> inputs_windows, std::size_t first,
                  block_products_workspace& work, std::span<arith::word> to) const {
        make_room(work.scratch, size() * lanes);
        make_room(work.windows, size() * windows() * lanes);
        for (std::size_t part = 0; part < pieces_; ++part) {
            const std::size_t before = part * columns_ * windows();
            transform_weights<I>(part, first, work);
            ntt::multiply_interleaved(rns::variable_arithmetic<basis::template prime<I>>,
                                      &inputs_windows[before * padded_inputs()], padded_inputs(),
                                      work.weights.data(), &work.windows[before * lanes], columns_, windows(),
                                      inputs());
        }
        for (std::size_t w = 0; w < windows(); ++w) {
            ntt::inverse_interleaved(plan_of<I>(), &work.windows[w * lanes], windows() * lanes,
                                     work.scratch.data());
            ntt::transpose(work.scratch.data(), lanes, std::min(valid(), P::degree - w * valid()), lanes,
                           &to[w * valid()], P::degree);
        }
    }

  private:
    std::size_t size() const noexcept { return pieces_ * columns_; }
    std::size_t valid() const noexcept { return size() - columns_; }
    std::size_t windows() const noexcept { return ceil_divide(P::degree, valid()); }
    std::size_t padded_inputs() const noexcept { return whole_lanes(inputs()); }

    template <int I>
    const auto& plan_of() const {
        return rns::shared_subring_plan<P::log_n, basis::template prime<I>>(std::countr_zero(size()));
    }

    /// Transforms part `part` of eight rows from `row` on: its point f with input k goes to (f * inputs() +
    /// k) * 8; entry c of a row in coefficient -c, of which the first stages make multiples. Divided by all
    /// points, for the transform back.
    template <int I>
    void transform_weights(std::size_t part, std::size_t row, block_products_workspace& work) const {
        constexpr arith::word q = basis::template prime<I>;
        constexpr auto fixed = rns::fixed_arithmetic<q>;
        make_room(work.weights, columns_ * inputs() * lanes);
        const std::size_t root = pieces_ + part;
        const arith::word inverse = arith::inverse_mod(size(), q);
        const arith::word factor =
            arith::multiply_mod(plan_of<I>().inverse_factors()[root / 2].value, inverse, q);
        const auto of_part = fixed.prepare(part % 2 == 0 ? factor : q - factor);
        const std::span<arith::word> entries = work.scratch.span().first(columns_ * lanes);
        for (std::size_t k = 0; k < inputs(); ++k) {
            const std::size_t begin = k * columns_;
            const std::size_t others = std::min(columns_, d_ - begin) - 1;
            const std::uint32_t* const a = &integers_[row * d_ + begin * lanes];
            rns::limb::scale_integers(fixed, entries.first(lanes), a, fixed.prepare(inverse));
            std::fill(entries.begin() + lanes, entries.end() - static_cast<std::ptrdiff_t>(others * lanes),
                      arith::word{0});
            rns::limb::scale_integers(fixed, entries.last(others * lanes), a + others * lanes, of_part);
            ntt::forward_interleaved(plan_of<I>(), root, entries.data(), lanes, entries.data(),
                                     &work.weights[k * lanes], inputs() * lanes);
        }
    }

    std::size_t d_;
    std::size_t outputs_;
    std::size_t columns_;                            ///< entries of a hidden state in one ciphertext
    std::size_t pieces_;                             ///< pieces of `columns_` coefficients in a window
    memory::secret_buffer<std::uint32_t> integers_;  ///< eight rows at a time, with rns::limb::integer_offset
};

}  // namespace tensafe::lora::detail
