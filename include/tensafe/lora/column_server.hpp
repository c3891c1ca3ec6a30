#pragma once

#include <tensafe/lora/column_batched.hpp>
#include <tensafe/lora/server.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// The server of `column_batched`: numbers times ciphertexts, for up to N hidden states at once. Otherwise as
/// the other servers.
template <ckks::parameter_set P, class Protection>
class server<P, column_batched, Protection> {
  public:
    using layout_type = lora::layout<P, column_batched, Protection>;
    using reply_type = reply<P, column_batched, Protection>;
    using zero_pool = lora::zero_pool<P>;
    using workspace = server_workspace<P>;

    /// Rounds A (rank x d) to integers.
    /// @param largest_batch  longer batches are refused: docs/security.md says what a client that does not
    ///                       follow the protocol can do with long ones
    /// @throws as the primary template
    explicit server(const matrix& a, std::size_t largest_batch = P::degree)
        : layout_(layout_type::of(a.rows, a.columns, detail::public_row_norm(a))),
          budget_(layout_.budget()),
          largest_batch_(std::min(largest_batch, layout_type::largest_batch)) {
        for (std::size_t r = 0; r < a.rows; ++r) {
            for (std::size_t j = 0; j < a.columns; ++j) {
                integers_.push_back(static_cast<std::int64_t>(
                    layout_.integer_weight(budget_, static_cast<double>(a.row(r)[j]))));
            }
        }
    }
    server(const matrix& a, const ckks::secret_key<P>&) = delete;  // a server never holds a secret key

    const layout_type& layout() const noexcept { return layout_; }

    /// The encryptions of zero for one client, in one session. A reply takes layout().outputs() of them;
    /// `fill` makes them beforehand. Other servers of this parameter set can share them, if their layouts
    /// have the same fold_log_n().
    /// @param nonce  random::fresh_seed(), drawn by this server for the session and sent to the client
    /// @param key    what the client answered: client::zero_key
    /// @throws parameter_error if the key was made for another nonce; format_error if it is malformed
    zero_pool zeros_for(const random::seed& nonce, ckks::zero_key<P, request_level<P>> key,
                        random::generator generator = random::generator()) const {
        return zero_pool(nonce, std::move(key), layout_.fold_log_n(), std::move(generator));
    }

    /// First two steps: d * rank products of a number with a ciphertext. Inputs are expanded a few at a time,
    /// so that memory does not grow with d.
    /// @throws shape_error if the request was made for another layout or has a wrong size; format_error if it
    ///         holds anything but residues
    void multiply(exec::host where, const request<P>& r, workspace& work) const {
        using basis = typename folded_product<P>::basis;
        detail::check_request(layout_, r, largest_batch_);
        work.products.clear();
        work.products.resize(layout_.rank);
        for (auto& product : work.products) {
            for (auto& limb : product.c0) {
                limb = memory::buffer<arith::word>(P::degree);
            }
        }
        work.c0.resize(inputs_at_once);
        work.c1.resize(inputs_at_once);
        for (std::size_t first = 0; first < layout_.d; first += inputs_at_once) {
            const std::size_t count = std::min(inputs_at_once, layout_.d - first);
            for (std::size_t j = 0; j < count; ++j) {
                detail::expand_input(where, r, first + j, work.c0[j], work.c1[j]);
            }
            rns::for_each_limb<basis>([&]<int I>() {
                constexpr arith::word q = basis::template prime<I>;
                constexpr auto policy = rns::variable_arithmetic<q>;
                std::array<const arith::word*, inputs_at_once> c0{};
                std::array<const arith::word*, inputs_at_once> c1{};
                for (std::size_t j = 0; j < count; ++j) {
                    c0[j] = work.c0[j].template limb<I>().data();
                    c1[j] = work.c1[j].template limb<I>().data();
                }
                std::array<arith::word, inputs_at_once> factors{};
                const std::span<const arith::word> used = std::span(factors).first(count);
                for (std::size_t row = 0; row < layout_.rank; ++row) {
                    for (std::size_t j = 0; j < count; ++j) {
                        const std::int64_t x = integers_[row * layout_.d + first + j];
                        factors[j] = static_cast<arith::word>(x) + (q & static_cast<arith::word>(x >> 63));
                    }
                    folded_product<P>& product = work.products[row];
                    rns::limb::add_scaled(policy, product.c0[I].span(), std::span(c0).first(count), used);
                    rns::limb::add_scaled(policy, product.c1.template limb<I>(), std::span(c1).first(count),
                                          used);
                }
            });
        }
        work.work.products += layout_.d * layout_.rank;
    }

    /// Third step: encryptions of zero and floods.
    void protect(exec::host where, zero_pool& zeros, workspace& work) const requires(Protection::protects) {
        detail::protect_products(where, layout_, budget_, zeros, work);
    }

    /// Last step: the products as they leave the server; of each the coefficients of the batch's tokens.
    void finish(exec::host where, std::size_t tokens, workspace& work, reply_type& result) const {
        detail::finish_reply<Protection>(
            where, layout_, budget_, tokens, [&](std::size_t) { return tokens; }, work, result);
    }

    /// All steps.
    /// @throws as the steps
    void apply(exec::host where, const request<P>& r, zero_pool& zeros, workspace& work,
               reply_type& result) const requires(Protection::protects) {
        multiply(where, r, work);
        protect(where, zeros, work);
        finish(where, r.tokens, work, result);
    }
    reply_type apply(exec::host where, const request<P>& r, zero_pool& zeros) const
        requires(Protection::protects) {
        workspace work;
        reply_type result;
        apply(where, r, zeros, work, result);
        return result;
    }

    /// All steps of bare replies: see `reveals_adapter_rows`.
    void apply(exec::host where, const request<P>& r, workspace& work, reply_type& result) const
        requires(!Protection::protects) {
        multiply(where, r, work);
        finish(where, r.tokens, work, result);
    }
    reply_type apply(exec::host where, const request<P>& r) const requires(!Protection::protects) {
        workspace work;
        reply_type result;
        apply(where, r, work, result);
        return result;
    }
    reply_type apply(exec::host, const request<P>&) const  // protected replies need the client's zero_pool
        requires(Protection::protects) = delete;

  private:
    /// Ciphertexts expanded at once: 4 MiB at N = 4096 with two limbs.
    static constexpr std::size_t inputs_at_once = 32;

    layout_type layout_;
    reply_budget budget_;
    std::size_t largest_batch_;
    std::vector<std::int64_t> integers_;
};

}  // namespace tensafe::lora
