#pragma once

#include <tensafe/ckks/zero.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter.hpp>
#include <tensafe/lora/coefficient_tiles.hpp>
#include <tensafe/lora/interleaved_slots.hpp>
#include <tensafe/lora/messages.hpp>
#include <tensafe/lora/reply_protection.hpp>
#include <tensafe/lora/slot_server.hpp>
#include <tensafe/lora/work_count.hpp>
#include <tensafe/random/generator.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// A server's supply of encryptions of zero for one client: see ckks::zero_pool. One pool serves all servers
/// of that client whose layouts have this parameter set and fold_log_n().
template <ckks::parameter_set P>
using zero_pool = ckks::zero_pool<P, request_level<P>>;

/// Memory that a server works in, kept by the caller from token to token; one for each thread.
template <ckks::parameter_set P>
struct server_workspace {
    using basis = typename folded_product<P>::basis;

    std::vector<rns::poly<basis, rns::evaluation_form>> c0;  ///< the request, unpacked
    std::vector<rns::poly<basis, rns::evaluation_form>> c1;
    std::vector<folded_product<P>> products;               ///< after multiply
    std::vector<protected_product<P>> protected_products;  ///< after protect
    random::generator generator;  ///< of flood seeds; to give one that is not the default is for tests
    work_count work;              ///< added up over calls
};

namespace detail {

template <class Layout, ckks::parameter_set P>
void check_request(const Layout& layout, const request<P>& r, std::size_t largest_batch) {
    const auto text = [](std::size_t d, std::size_t block, std::size_t inputs) {
        return std::to_string(d) + " entries, " + std::to_string(block) + " in each of " +
               std::to_string(inputs) + " ciphertexts";
    };
    if (r.d != layout.d || r.block != layout.entries_per_input() || r.inputs.size() != layout.inputs()) {
        throw shape_error("server::expand: got a request of " + text(r.d, r.block, r.inputs.size()) +
                          ", wanted " + text(layout.d, layout.entries_per_input(), layout.inputs()));
    }
    if (r.tokens == 0 || r.tokens > largest_batch) {
        throw shape_error("server::expand: got a request of " + std::to_string(r.tokens) +
                          " hidden states, wanted 1 to " + std::to_string(largest_batch));
    }
}

/// Both halves of input i.
/// @throws shape_error for a wrong number of bytes, format_error for a residue that is not below its prime
template <ckks::parameter_set P, class Poly>
void expand_input(exec::host, const request<P>& r, std::size_t i, Poly& c0, Poly& c1) {
    using basis = typename folded_product<P>::basis;
    if (r.inputs[i].size() != packed_residues_bytes<P>(P::degree)) {
        throw shape_error("server::expand: got a ciphertext of " + std::to_string(r.inputs[i].size()) +
                          " bytes, wanted " + std::to_string(packed_residues_bytes<P>(P::degree)));
    }
    std::span<const std::uint8_t> rest = r.inputs[i];
    rns::for_each_limb<basis>([&]<int I>() {
        constexpr arith::word q = basis::template prime<I>;
        constexpr int bits = std::bit_width(q);
        constexpr std::size_t bytes = wire::packed_bytes(P::degree, bits);
        const std::span<arith::word> limb = c0.template limb<I>();
        wire::unpack_bits(rest.first(bytes), bits, limb);
        rest = rest.subspan(bytes);
        bool below = true;
        for (const arith::word x : limb) {
            below &= x < q;
        }
        if (!below) {
            throw format_error("server::expand: a residue of limb " + std::to_string(I) +
                               " is not below its prime " + std::to_string(q));
        }
    });
    ckks::expand_uniform(r.seed, random::stream_domain::uplink, c1,
                         static_cast<std::uint32_t>(i * static_cast<std::size_t>(basis::limbs)));
}

/// Protects products and packs them.
template <class Layout, ckks::parameter_set P>
void protect_products(exec::host where, const Layout& layout, const reply_budget& budget, zero_pool<P>& zeros,
                      server_workspace<P>& work) {
    if (work.products.size() != layout.outputs()) {
        throw shape_error("server::protect: got " + std::to_string(work.products.size()) +
                          " products in the workspace, wanted " + std::to_string(layout.outputs()) +
                          ": call multiply() first");
    }
    random::seed seed = work.generator.next_seed();
    const memory::wipe_guard guard(seed);
    work.protected_products.clear();
    for (std::size_t o = 0; o < layout.outputs(); ++o) {
        const auto zero = zeros.take(where);
        if (zero.log_n != layout.fold_log_n()) {
            throw parameter_error("server::protect: got encryptions of zero folded to degree 2^" +
                                  std::to_string(zero.log_n) + ", wanted 2^" +
                                  std::to_string(layout.fold_log_n()) + ", the layout's fold_log_n()");
        }
        work.protected_products.push_back(protect(where, std::move(work.products[o]), zero, budget.flood,
                                                  seed, static_cast<std::uint32_t>(o)));
        constexpr auto limbs = static_cast<std::size_t>(folded_product<P>::basis::limbs);
        work.work.transforms += 2 * limbs;  // v of the encryption of zero, and c1
        work.work.transforms += layout.fold_log_n() == P::log_n ? limbs : 0;
    }
    work.products.clear();
}

/// The products as they leave the server; of output o the first wanted(o) coefficients.
template <class Protection, class Layout, ckks::parameter_set P, class Reply, class Wanted>
void finish_reply(exec::host where, const Layout& layout, const reply_budget& budget, std::size_t tokens,
                  Wanted wanted, server_workspace<P>& work, Reply& result) {
    const auto check = [&](std::size_t products, const char* step) {
        if (products != layout.outputs()) {
            throw shape_error("server::finish: got " + std::to_string(products) +
                              " products in the workspace, wanted " + std::to_string(layout.outputs()) +
                              ": call " + step + " first");
        }
    };
    if constexpr (!Protection::protects) {
        check(work.products.size(), "multiply()");
        result.outputs = std::move(work.products);
        work.products.clear();
    } else {
        check(work.protected_products.size(), "protect()");
        result.outputs.resize(layout.outputs());
        for (std::size_t o = 0; o < layout.outputs(); ++o) {
            pack(where, work.protected_products[o], wanted(o), layout.reply_bits(budget, o),
                 result.outputs[o]);
        }
        work.protected_products.clear();
    }
    result.rank = layout.rank;
    result.d = layout.d;
    result.tokens = tokens;
}

}  // namespace detail

/// Holds the packed rows of A and applies them to encrypted hidden states: zero rotations, no evaluation
/// keys. It cannot hold a secret key: no function here takes one. This is the server of packings with
/// plaintexts: coefficient_tiles, and replicated_slots with protected replies.
///
/// Immutable after construction: any number of threads may use it at once, each with its own workspace; pools
/// of zeros are thread-safe. Exception safety: strong, but for the contents of workspace and reply.
template <ckks::parameter_set P, class Packing, class Protection>
class server {
  public:
    using layout_type = lora::layout<P, Packing, Protection>;
    using reply_type = reply<P, Packing, Protection>;
    using zero_pool = lora::zero_pool<P>;
    using workspace = server_workspace<P>;

    /// Packs A (rank x d): inputs * outputs plaintexts, encoded and transformed once.
    /// @throws shape_error for an empty matrix or one whose values are not rows * columns; encoding_error for
    ///         an entry that is NaN or infinite (its row and column are named); parameter_error if the
    ///         parameter set cannot hold replies of this shape, or the matrix does not suit the packing
    explicit server(const matrix& a)
        : layout_(layout_type::of(a.rows, a.columns, detail::public_row_norm(a))), budget_(layout_.budget()) {
        const exec::host here;
        layout_.check_matrix(a, budget_);
        for (std::size_t o = 0; o < layout_.outputs(); ++o) {
            for (std::size_t i = 0; i < layout_.inputs(); ++i) {
                weights_.push_back(ckks::forward(here, layout_.encode_weights(here, a, budget_, o, i)));
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

    /// First step: a request to polynomials.
    /// @throws shape_error if the request was made for another layout or has a wrong size; format_error if it
    ///         holds anything but residues
    void expand(exec::host where, const request<P>& r, workspace& work) const {
        detail::check_request(layout_, r, 1);
        work.c0.resize(layout_.inputs());
        work.c1.resize(layout_.inputs());
        for (std::size_t i = 0; i < layout_.inputs(); ++i) {
            detail::expand_input(where, r, i, work.c0[i], work.c1[i]);
        }
    }

    /// Second step: for every output the sum over inputs of plaintext times ciphertext; no transform. c1
    /// takes one reduction for each coefficient, c0 one for each wanted coefficient and input.
    /// @pre expand() ran on the same workspace
    void multiply(exec::host, workspace& work) const {
        TENSAFE_PRECONDITION(work.c0.size() == layout_.inputs());
        using basis = typename folded_product<P>::basis;
        const std::size_t inputs = layout_.inputs();
        std::vector<const arith::word*> a(inputs);
        std::vector<const arith::word*> b(inputs);
        work.products.resize(layout_.outputs());
        for (std::size_t o = 0; o < layout_.outputs(); ++o) {
            folded_product<P>& product = work.products[o];
            if (product.c1.words().empty()) {
                product.c1 = rns::poly<basis, rns::evaluation_form>(memory::uninitialized);
            }
            const auto* weights = weights_.data() + o * inputs;
            rns::for_each_limb<basis>([&]<int I>() {
                constexpr auto policy = rns::variable_arithmetic<basis::template prime<I>>;
                product.c0[I] = memory::buffer<arith::word>(std::size_t{1} << layout_.fold_log_n());
                for (std::size_t i = 0; i < inputs; ++i) {
                    a[i] = work.c1[i].template limb<I>().data();
                    b[i] = weights[i].value.template limb<I>().data();
                    rns::limb::add_block_sums(policy, product.c0[I].span(), work.c0[i].template limb<I>(),
                                              weights[i].value.template limb<I>());
                }
                rns::limb::sum_products(policy, product.c1.template limb<I>(), a, b);
            });
        }
        work.work.products += inputs * layout_.outputs();
    }

    /// Third step: encryptions of zero and floods. Not for bare replies.
    /// @param zeros  of this client
    /// @throws parameter_error if the pool folds to another degree; entropy_error
    void protect(exec::host where, zero_pool& zeros, workspace& work) const requires(Protection::protects) {
        detail::protect_products(where, layout_, budget_, zeros, work);
    }

    /// Last step: the products as they leave the server.
    void finish(exec::host where, workspace& work, reply_type& result) const {
        detail::finish_reply<Protection>(
            where, layout_, budget_, 1, [&](std::size_t o) { return layout_.wanted(o); }, work, result);
    }

    /// All steps.
    /// @throws as the steps
    void apply(exec::host where, const request<P>& r, zero_pool& zeros, workspace& work,
               reply_type& result) const requires(Protection::protects) {
        expand(where, r, work);
        multiply(where, work);
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
        multiply(where, work);
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
    layout_type layout_;
    reply_budget budget_;
    std::vector<ckks::plaintext<P, rns::evaluation_form, request_level<P>>> weights_;
};

}  // namespace tensafe::lora
