#pragma once

#include <tensafe/ckks/ciphertext.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/rns/integer_rows.hpp>
#include <tensafe/rns/interleaved.hpp>
#include <tensafe/rns/limb.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tensafe::lora::detail {

/// Memory to multiply in; grows once.
template <ckks::parameter_set P>
struct block_products_workspace {
    rns::poly<typename traced_product<P>::basis, rns::evaluation_form> input{memory::uninitialized};
    memory::buffer<arith::word> pieces;           ///< of some inputs, transformed
    memory::secret_buffer<arith::word> weights;   ///< of some outputs, for them
    memory::secret_buffer<arith::word> residues;  ///< of a row, for them
    memory::buffer<arith::word> products;         ///< of some outputs
    std::vector<const arith::word*> rows;
};

/// A as 32-bit integers, for blocks of tokens. A plaintext has `columns` coefficients that are not zero, so a
/// ciphertext is cut into pieces of as many, one for each token, and multiplied piece by piece at twice that
/// degree, exactly; what overlaps is added up.
template <ckks::parameter_set P, class Protection>
class block_weights {
    using basis = typename traced_product<P>::basis;

  public:
    using plan_type = packing_plan<P, token_blocks, Protection>;

    block_weights(const plan_type& plan, const matrix& a)
        : d_(plan.d()),
          tokens_(plan.layout().tokens),
          columns_(plan.entries_per_input()),
          points_(columns_ == 1 ? 1 : 2 * columns_),
          integers_(plan.outputs() * plan.d(), memory::uninitialized) {
        static_assert(std::ranges::min(basis::primes) > 2 * rns::limb::integer_offset,
                      "lora::token_blocks: integers of A need primes above 2^28");
        plan.layout().rows().check_matrix(a);
        for (std::size_t o = 0; o < plan.outputs(); ++o) {
            for (std::size_t t = 0; t < d_; ++t) {
                integers_[o * d_ + t] = rns::limb::integer_offset +
                                        static_cast<std::uint32_t>(
                                            plan.layout().rows().integer_weight(a, plan.budget(), o, t));
            }
        }
    }

    /// sums[o] = row o times the coefficients of one token, modulo prime I.
    template <int I>
    void multiply_token(std::span<const arith::word> token, std::span<arith::word> sums) const {
        rns::limb::multiply_integer_rows(rns::variable_arithmetic<basis::template prime<I>>, sums,
                                         integers_.data(), d_, token);
    }

    /// Outputs that are multiplied together.
    static constexpr std::size_t outputs_at_once = 128;

    /// Calls to(o, limb<I> of c1 of output o in coefficient form) for `count` outputs from `first` on: the sum
    /// over inputs of the row times the uniform polynomial that the seed gives.
    template <int I, class To>
    void multiply(const random::seed& seed, std::size_t first, std::size_t count,
                  block_products_workspace<P>& work, To to) const {
        constexpr arith::word q = basis::template prime<I>;
        const std::size_t inputs = ceil_divide(d_, columns_);
        const std::size_t inputs_at_once = std::min(inputs, most_words / (points_ * tokens_));
        make_room(work.pieces, inputs_at_once * points_ * tokens_);
        make_room(work.weights, count * inputs_at_once * points_);
        make_room(work.products, count * points_ * tokens_);
        work.rows.resize(inputs_at_once);
        const std::span<arith::word> products = work.products.span();
        std::ranges::fill(products, arith::word{0});
        for (std::size_t i = 0; i < inputs; i += inputs_at_once) {
            const std::size_t some = std::min(inputs_at_once, inputs - i);
            transform_inputs<I>(seed, i, some, work);
            transform_weights<I>(first, count, i, some, work);
            for (std::size_t f = 0; f < points_; ++f) {
                for (std::size_t k = 0; k < some; ++k) {
                    work.rows[k] = work.pieces.data() + (f * some + k) * tokens_;
                }
                for (std::size_t k = 0; k < count; ++k) {
                    rns::limb::add_scaled(rns::variable_arithmetic<q>,
                                          products.subspan((f * count + k) * tokens_, tokens_),
                                          std::span<const arith::word* const>(work.rows).first(some),
                                          work.weights.span().subspan((f * count + k) * some, some));
                }
            }
        }
        if (columns_ > 1) {
            rns::limb::inverse_interleaved(plan_of<I>(), products);
        }
        join<I>(products, count);
        const auto limb = work.input.template limb<I>();
        for (std::size_t k = 0; k < count; ++k) {
            rns::limb::transpose(&products[((columns_ - 1) * count + k) * tokens_], count * tokens_, columns_,
                                 tokens_, limb.data(), static_cast<std::ptrdiff_t>(columns_));
            to(first + k, std::span<const arith::word>(limb));
        }
    }

  private:
    static constexpr std::size_t most_words = std::size_t{1} << 21;

    template <int I>
    const auto& plan_of() const {
        return rns::shared_subring_plan<P::log_n, basis::template prime<I>>(std::countr_zero(points_));
    }

    /// Point f of piece t of input k at (f * some + k) * tokens_ + t.
    template <int I>
    void transform_inputs(const random::seed& seed, std::size_t first, std::size_t some,
                                 block_products_workspace<P>& work) const {
        const std::span<arith::word> pieces = work.pieces.span().first(some * points_ * tokens_);
        std::fill(pieces.begin() + static_cast<std::ptrdiff_t>(pieces.size() / points_ * columns_),
                  pieces.end(), arith::word{0});
        constexpr arith::word q = basis::template prime<I>;
        const auto limb = work.input.template limb<I>();
        for (std::size_t k = 0; k < some; ++k) {
            random::sample_uniform<q>(
                seed, random::stream_domain::uplink,
                static_cast<std::uint32_t>((first + k) * static_cast<std::size_t>(basis::limbs) + I), limb);
            ntt::inverse(rns::shared_plan<P::log_n, q>(), std::span<arith::word>(limb));
            rns::limb::transpose(limb.data(), columns_, tokens_, columns_, &pieces[k * tokens_],
                                 static_cast<std::ptrdiff_t>(some * tokens_));
        }
        if (columns_ > 1) {
            rns::limb::forward_interleaved(plan_of<I>(), pieces);
        }
    }

    /// Point f of row k with input j at (f * count + k) * some + j: entry c of a row in coefficient columns_ - 1
    /// - c. Divided by the number of points, for the transform back.
    template <int I>
    void transform_weights(std::size_t o, std::size_t count, std::size_t first, std::size_t some,
                           block_products_workspace<P>& work) const {
        constexpr arith::word q = basis::template prime<I>;
        const std::span<arith::word> weights = work.weights.span().first(count * some * points_);
        const auto stride = static_cast<std::ptrdiff_t>(count * some);
        std::fill(weights.begin() + static_cast<std::ptrdiff_t>(columns_) * stride, weights.end(),
                  arith::word{0});
        const std::size_t begin = first * columns_;
        const std::size_t used = std::min(some * columns_, d_ - begin);
        make_room(work.residues, some * columns_);
        std::fill(work.residues.begin() + static_cast<std::ptrdiff_t>(used), work.residues.end(),
                  arith::word{0});
        for (std::size_t k = 0; k < count; ++k) {
            const std::span<const std::uint32_t> entries = integers_.span().subspan((o + k) * d_ + begin, used);
            for (std::size_t c = 0; c < used; ++c) {
                const std::int64_t x = std::int64_t{entries[c]} - rns::limb::integer_offset;
                work.residues[c] = static_cast<arith::word>(x) + (q & static_cast<arith::word>(x >> 63));
            }
            rns::limb::transpose(work.residues.data(), columns_, some, columns_,
                                 &weights[(columns_ - 1) * count * some + k * some], -stride);
        }
        if (columns_ > 1) {
            const arith::word inverse = arith::inverse_mod(points_, q);
            rns::limb::scale(rns::fixed_arithmetic<q>, weights, weights,
                             rns::fixed_arithmetic<q>.prepare(inverse));
            rns::limb::forward_interleaved(plan_of<I>(), weights);
        }
    }

    /// Coefficient m of piece t belongs to t * columns_ + m - (columns_ - 1): what two pieces share is added up,
    /// in the coefficients from columns_ - 1 on.
    template <int I>
    void join(std::span<arith::word> products, std::size_t count) const {
        constexpr arith::word q = basis::template prime<I>;
        constexpr auto m = rns::modulus_of<q>(q);
        const std::size_t row = count * tokens_;
        for (std::size_t c = 1; c < columns_; ++c) {
            const std::span<arith::word> sums = products.subspan((c + columns_ - 1) * row, row);
            const std::span<const arith::word> upper = products.subspan((c - 1) * row, row);
            rns::limb::add(m, sums.first(row - 1), sums.first(row - 1), upper.subspan(1));
            for (std::size_t k = 0; k < count; ++k) {  // the last piece meets the first, which is negative there
                arith::word& last = sums[k * tokens_ + tokens_ - 1];
                if (k + 1 < count) {
                    last = arith::subtract_if_not_below(last + q - upper[(k + 1) * tokens_], q);
                }
                last = arith::subtract_if_not_below(last + q - upper[k * tokens_], q);
            }
        }
    }

    std::size_t d_;
    std::size_t tokens_;
    std::size_t columns_;  ///< entries of a hidden state in one ciphertext
    std::size_t points_;   ///< of the transform of a piece
    memory::secret_buffer<std::uint32_t> integers_;  ///< row after row, with rns::limb::integer_offset
};

}  // namespace tensafe::lora::detail
