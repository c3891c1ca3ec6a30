#pragma once

#include <tensafe/ckks/zero.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter.hpp>
#include <tensafe/lora/coefficient_tiles.hpp>
#include <tensafe/lora/column_batched.hpp>
#include <tensafe/lora/interleaved_slots.hpp>
#include <tensafe/lora/messages.hpp>
#include <tensafe/lora/reply_protection.hpp>
#include <tensafe/lora/server_weights.hpp>
#include <tensafe/lora/slot_server.hpp>
#include <tensafe/random/generator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// A server's supply of encryptions of zero for one client: see ckks::zero_pool.
template <ckks::parameter_set P>
using zero_pool = ckks::zero_pool<P, request_level<P>>;

/// Holds a packed matrix and applies it to encrypted hidden states: zero rotations, no evaluation keys. It
/// cannot hold a secret key: no function here takes one.
///
/// Immutable after construction: any number of threads may use it at once, each with its own workspace; pools
/// of zeros are thread-safe. Exception safety: strong, but for the contents of workspace and reply.
template <ckks::parameter_set P, class Packing, class Protection>
class server {
    static_assert(
        reply_protection<Protection>,
        "lora::server: the third argument is the protection of replies: for a calibrated range write "
        "protects_adapter_rows<calibrated<6>>");

  public:
    using layout_type = lora::layout<P, Packing, Protection>;
    using reply_type = reply<P, Packing, Protection>;
    using zero_pool = lora::zero_pool<P>;
    using workspace = server_workspace<P>;

    /// Packs A (rank x d), once.
    /// @param largest_batch  for column_batched: longer batches are refused. docs/security.md says what a
    ///                       client that does not follow the protocol can do with long ones
    /// @throws shape_error for an empty matrix or one whose values are not rows * columns; encoding_error for
    ///         an entry that is NaN or infinite (its row and column are named); parameter_error if the
    ///         parameter set cannot hold replies of this shape, or the matrix does not suit the packing
    explicit server(const matrix& a, std::size_t largest_batch = layout_type::largest_batch)
        : layout_(layout_type::of(a.rows, a.columns, detail::public_row_norm(a))),
          budget_(layout_.budget()),
          largest_batch_(std::min(largest_batch, layout_type::largest_batch)),
          weights_(layout_, budget_, a) {}
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

    /// First step: checks a request and makes polynomials of it.
    /// @throws shape_error if the request was made for another layout or has a wrong size; format_error if it
    ///         holds anything but residues
    void expand(exec::host where, const request<P>& r, workspace& work) const {
        detail::check_request(layout_, r, largest_batch_);
        weights_.expand(where, layout_, r, work);
    }

    /// Second step: inputs() * outputs() products, added up over inputs. No transform.
    /// @pre expand() ran on the same request and workspace
    /// @throws as expand; shape_error also if the workspace holds another request
    void multiply(exec::host where, const request<P>& r, workspace& work) const {
        detail::check_request(layout_, r, largest_batch_);
        work.tokens = r.tokens;
        weights_.multiply(where, layout_, r, work);
        work.work.products += layout_.inputs() * layout_.outputs();
    }

    /// Third step: encryptions of zero and floods. Not for bare replies.
    /// @param zeros  of this client
    /// @throws shape_error unless multiply() ran on this workspace; parameter_error if the pool folds to
    ///         another degree; entropy_error
    void protect(exec::host where, zero_pool& zeros, workspace& work) const requires(Protection::protects) {
        check_products(work.products.size(), "protect", "multiply");
        if (zeros.fold_log_n() != layout_.fold_log_n()) {
            throw parameter_error("server::protect: got encryptions of zero folded to degree 2^" +
                                  std::to_string(zeros.fold_log_n()) + ", wanted 2^" +
                                  std::to_string(layout_.fold_log_n()) + ", the layout's fold_log_n()");
        }
        random::seed seed = work.generator.next_seed();
        const memory::wipe_guard guard(seed);
        work.protected_products.clear();
        // Out of the workspace: after an exception they are gone, not half there.
        std::vector<folded_product<P>> products = std::exchange(work.products, {});
        for (std::size_t o = 0; o < products.size(); ++o) {
            work.protected_products.push_back(lora::protect(where, std::move(products[o]), zeros.take(where),
                                                            budget_.flood, seed,
                                                            static_cast<std::uint32_t>(o)));
            constexpr auto limbs = static_cast<std::size_t>(folded_product<P>::basis::limbs);
            work.work.transforms += 2 * limbs;  // v of the encryption of zero, and c1
            work.work.transforms += layout_.fold_log_n() == P::log_n ? limbs : 0;
        }
    }

    /// Last step: the products as they leave the server; of c0 the coefficients that carry answers.
    /// @throws shape_error unless the step before ran on this workspace
    void finish(exec::host where, workspace& work, reply_type& result) const {
        if constexpr (Protection::protects) {
            check_products(work.protected_products.size(), "finish", "protect");
            result.outputs.resize(layout_.outputs());
            for (std::size_t o = 0; o < layout_.outputs(); ++o) {
                pack(where, work.protected_products[o], layout_.wanted(o, work.tokens),
                     layout_.reply_bits(budget_, o), result.outputs[o]);
            }
            work.protected_products.clear();
        } else {
            check_products(work.products.size(), "finish", "multiply");
            result.outputs = std::move(work.products);
            work.products.clear();
        }
        result.rank = layout_.rank;
        result.d = layout_.d;
        result.tokens = work.tokens;
    }

    /// All steps.
    /// @throws as the steps
    void apply(exec::host where, const request<P>& r, zero_pool& zeros, workspace& work,
               reply_type& result) const requires(Protection::protects) {
        expand(where, r, work);
        multiply(where, r, work);
        protect(where, zeros, work);
        finish(where, work, result);
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
        expand(where, r, work);
        multiply(where, r, work);
        finish(where, work, result);
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
    void check_products(std::size_t products, const char* step, const char* before) const {
        if (products != layout_.outputs()) {
            throw shape_error("server::" + std::string(step) + ": got " + std::to_string(products) +
                              " products in the workspace, wanted " + std::to_string(layout_.outputs()) +
                              ": call " + before + "() of this server first");
        }
    }

    layout_type layout_;
    reply_budget budget_;
    std::size_t largest_batch_;
    detail::packed_weights<P, Packing> weights_;
};

}  // namespace tensafe::lora
