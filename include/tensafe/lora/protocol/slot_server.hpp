#pragma once

#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/keys.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/layout.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/lora/packing/replicated_slots.hpp>

#include <complex>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// Holds the packed rows of A and applies them to encrypted hidden states: zero rotations, no evaluation
/// keys, and unless replies are rescaled no NTT. It cannot hold a secret key: no function here takes one.
///
/// Immutable after construction: any number of threads may use it at once, each with its own workspace.
/// Exception safety: strong, but for the contents of workspace and reply.
template <ckks::parameter_set P, class Rows, class Replies>
class server<P, replicated_slots<Rows, Replies>, reveals_adapter_rows> {
  public:
    using Packing = replicated_slots<Rows, Replies>;
    using layout_type = slot_layout<P, Packing>;
    using reply_type = reply<P, Packing, reveals_adapter_rows>;

    /// Packs A (rank x d): `inputs * outputs` plaintexts, encoded and transformed once.
    /// @throws shape_error for an empty matrix or one whose values are not rows * columns; encoding_error for
    ///         an entry that is NaN or infinite (its row and column are named) or too large
    explicit server(const matrix& a)
        : layout_(layout_type::of(a.rows, a.columns, detail::largest_row_norm(a))) {
        memory::secret_buffer<std::complex<double>> slots(P::slots);
        for (std::size_t o = 0; o < layout_.outputs; ++o) {
            for (std::size_t i = 0; i < layout_.inputs; ++i) {
                layout_.fill(a, o, i, slots.span());
                weights_.push_back(
                    ckks::forward(ckks::encode_slots<P>(slots.span(), Packing::template weight_scale<P>())));
            }
        }
    }
    server(const matrix& a, const ckks::secret_key<P>&) = delete;  // a server never holds a secret key

    const layout_type& layout() const noexcept { return layout_; }

    /// Memory that `apply` works in; kept by the caller from token to token, so that nothing is allocated
    /// anew. One for each thread.
    struct workspace {
        std::vector<rns::poly<typename P::basis, rns::evaluation_form>>
            c1;  ///< uniform halves of the request
        std::vector<ckks::ciphertext<P>> products;
    };

    /// First step: the uniform halves of a request, from its seeds.
    /// @throws shape_error if the request was made for another layout; parameter_error if its scale is not
    /// P::scale
    void expand(const slot_request<P>& r, workspace& work) const {
        check(r);
        work.c1.resize(layout_.inputs);
        for (std::size_t i = 0; i < layout_.inputs; ++i) {
            ckks::expand_c1(r.inputs[i], work.c1[i]);
        }
    }

    /// Second step: the product of every output's plaintexts with the inputs, summed over the inputs.
    /// @pre expand() ran on the same request and workspace
    void multiply(const slot_request<P>& r, workspace& work) const {
        TENSAFE_PRECONDITION(r.inputs.size() == layout_.inputs && work.c1.size() == layout_.inputs);
        work.products.resize(layout_.outputs);
        for (std::size_t o = 0; o < layout_.outputs; ++o) {
            const auto* weights = weights_.data() + o * layout_.inputs;
            ckks::ciphertext<P>& sum = work.products[o];
            sum.scale = P::scale * weights->scale;
            rns::multiply(sum.c0, r.inputs.front().c0, weights->value);
            rns::multiply(sum.c1, work.c1.front(), weights->value);
            for (std::size_t i = 1; i < layout_.inputs; ++i) {
                rns::multiply_accumulate(sum.c0, r.inputs[i].c0, weights[i].value);
                rns::multiply_accumulate(sum.c1, work.c1[i], weights[i].value);
            }
        }
    }

    /// Last step: the products as they leave the server, rescaled if the packing says so. The reply's old
    /// memory goes to the workspace.
    void finish(workspace& work, reply_type& result) const {
        result.rank = layout_.rank;
        result.d = layout_.d;
        if constexpr (Packing::rescales) {
            result.products.clear();
            for (const auto& product : work.products) {
                result.products.push_back(ckks::rescale(product));
            }
        } else {
            std::swap(result.products, work.products);
        }
    }

    /// All three. The reply is not protected: see `reveals_adapter_rows`.
    /// @throws as expand
    void apply(const slot_request<P>& r, workspace& work, reply_type& result) const {
        expand(r, work);
        multiply(r, work);
        finish(work, result);
    }
    reply_type apply(const slot_request<P>& r) const {
        workspace work;
        reply_type result;
        apply(r, work, result);
        return result;
    }

  private:
    void check(const slot_request<P>& r) const {
        if (r.d != layout_.d || r.stride != layout_.stride || r.inputs.size() != layout_.inputs) {
            const auto text = [](std::size_t d, std::size_t g, std::size_t inputs) {
                return std::to_string(d) + " entries with stride " + std::to_string(g) + " in " +
                       std::to_string(inputs) + " ciphertexts";
            };
            throw shape_error("server::expand: got a request of " + text(r.d, r.stride, r.inputs.size()) +
                              ", expected " + text(layout_.d, layout_.stride, layout_.inputs));
        }
        for (const auto& input : r.inputs) {
            if (input.scale != P::scale) {
                throw parameter_error("server::expand: got a ciphertext of scale " +
                                      std::to_string(input.scale) + ", expected " + std::to_string(P::scale));
            }
        }
    }

    layout_type layout_;
    std::vector<ckks::plaintext<P, rns::evaluation_form>> weights_;
};

/// The server of the classic packing, for measurements and for adapters that are no secret.
template <ckks::parameter_set P, class Packing = replicated_slots<>>
using slot_server = server<P, Packing, reveals_adapter_rows>;

}  // namespace tensafe::lora
