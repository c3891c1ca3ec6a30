#pragma once

#include <tensafe/ckks/rerandomization.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/coefficient_tiles.hpp>
#include <tensafe/lora/packing/column_batched.hpp>
#include <tensafe/lora/packing/interleaved_slots.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>
#include <tensafe/lora/protocol/server_weights.hpp>
#include <tensafe/lora/protocol/slot_server.hpp>
#include <tensafe/random/generator.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensafe::lora {

/// A server's supply of encryptions of zero for one client: see ckks::rerandomization_pool.
template <ckks::parameter_set P>
using rerandomization_pool = ckks::rerandomization_pool<P, request_level<P>>;

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
    using rerandomization_pool = lora::rerandomization_pool<P>;
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
    /// have the same subring_log_n().
    /// @param nonce  random::fresh_seed(), drawn by this server for the session and sent to the client
    /// @param key    what the client answered: client::rerandomization_key
    /// @throws parameter_error if the key was made for another nonce; format_error if it is malformed
    rerandomization_pool zeros_for(const random::seed& nonce,
                                   ckks::rerandomization_key<P, request_level<P>> key,
                                   random::generator generator = random::generator()) const {
        return rerandomization_pool(nonce, std::move(key), layout_.subring_log_n(), std::move(generator));
    }

    // A whole token. Where it runs may be exec::host or exec::host_parallel: replies do not depend on it.

    /// One hidden state, or one column batch, of a client with its encryptions of zero. Each task has a reply
    /// of its own.
    struct task {
        const request<P>* from = nullptr;
        rerandomization_pool* zeros = nullptr;  ///< not for bare replies
        reply_type* to = nullptr;
    };

    /// Answers several requests at once: each packed row of A is read once for all of them. Requests may come
    /// from different clients.
    /// @throws shape_error if a request was made for another layout or has a wrong size; parameter_error if a
    ///         task lacks a part, or a pool traces to another degree; format_error if a request holds
    ///         anything but residues: before any encryption of zero is used up, but column batches are
    ///         answered one after the other, and those before the malformed one are done; entropy_error
    template <exec::host_execution Where>
    void apply(const Where& where, std::span<const task> tasks, workspace& work) const {
        for (std::size_t i = 0; i < tasks.size(); ++i) {
            const task& t = tasks[i];
            if (t.from == nullptr || t.to == nullptr || (Protection::protects && t.zeros == nullptr)) {
                throw parameter_error("server::apply: task " + std::to_string(i) + " has no " +
                                      (t.from == nullptr ? "request (from)"
                                       : t.to == nullptr ? "reply (to)"
                                                         : "encryptions of zero (zeros)"));
            }
            detail::check_request(layout_, *t.from, largest_batch_);
            if constexpr (Protection::protects) {
                check_pool(*t.zeros);
            }
        }
        if (work.requests.size() < tasks.size()) {
            work.requests.resize(tasks.size());
        }
        if (work.slots.size() < where.threads()) {
            work.slots.resize(where.threads());
        }
        work.done = workspace::step::none;
        for (const task& t : tasks) {
            t.to->outputs.resize(layout_.outputs());
            label(*t.to, t.from->tokens);
        }
        // Encryptions of zero are taken when nothing that came from outside can fail any more.
        if constexpr (detail::packed_weights<P, Packing>::by_panel) {
            where.for_each(tasks.size(), [&](std::size_t t, std::size_t) {
                weights_.expand(layout_, *tasks[t].from, work.requests[t]);
            });
            reserve_randomness(tasks, work);
            // A few requests go through all panels, then the next few.
            const std::size_t at_once = tasks_at_once();
            const std::size_t panels = weights_.panels();
            where.for_each(detail::ceil_divide(tasks.size(), at_once) * panels,
                           [&](std::size_t k, std::size_t slot) {
                               const std::size_t first = k / panels * at_once;
                               answer_panel(tasks.subspan(first, std::min(at_once, tasks.size() - first)),
                                            first, k % panels, work, work.slots[slot]);
                           });
        } else {
            for (const task& t : tasks) {
                weights_.multiply(where, layout_, *t.from, work.requests[0], work.products);
                reserve_randomness(std::span(&t, 1), work);
                where.for_each(layout_.outputs(), [&](std::size_t o, std::size_t slot) {
                    answer_output(t, o, work, work.slots[slot], work.products[o]);
                });
            }
        }
        work.reservations.clear();
        memory::wipe(work.seeds.data(), work.seeds.size() * sizeof(random::seed));
        for (std::size_t t = 0; t < tasks.size(); ++t) {
            count(work);
        }
    }

    /// Answers one request.
    /// @throws as above
    template <exec::host_execution Where>
    void apply(const Where& where, const request<P>& r, rerandomization_pool& zeros, workspace& work,
               reply_type& result) const requires(Protection::protects) {
        const task one{&r, &zeros, &result};
        apply(where, std::span(&one, 1), work);
    }
    template <exec::host_execution Where>
    reply_type apply(const Where& where, const request<P>& r, rerandomization_pool& zeros) const
        requires(Protection::protects) {
        workspace work;
        reply_type result;
        apply(where, r, zeros, work, result);
        return result;
    }

    /// Bare replies: see `reveals_adapter_rows`.
    template <exec::host_execution Where>
    void apply(const Where& where, const request<P>& r, workspace& work, reply_type& result) const
        requires(!Protection::protects) {
        const task one{&r, nullptr, &result};
        apply(where, std::span(&one, 1), work);
    }
    template <exec::host_execution Where>
    reply_type apply(const Where& where, const request<P>& r) const requires(!Protection::protects) {
        workspace work;
        reply_type result;
        apply(where, r, work, result);
        return result;
    }
    reply_type apply(const request<P>&) const  // protected replies need the client's rerandomization_pool
        requires(Protection::protects) = delete;

    // The same step by step, for measurements and tests: all products after each step.

    /// First step: checks a request and makes polynomials of it.
    /// @throws shape_error if the request was made for another layout or has a wrong size; format_error if it
    ///         holds anything but residues
    void expand(const request<P>& r, workspace& work) const {
        detail::check_request(layout_, r, largest_batch_);
        work.done = workspace::step::none;
        ready(work);
        weights_.expand(layout_, r, work.requests[0]);
        work.done = workspace::step::expanded;
    }

    /// Second step: inputs() * outputs() products, added up over inputs. No transform.
    /// @pre expand() ran on the same request and workspace
    /// @throws as expand; shape_error also if the workspace holds another request
    void multiply(const request<P>& r, workspace& work) const {
        detail::check_request(layout_, r, largest_batch_);
        work.done = workspace::step::none;
        ready(work);
        if constexpr (detail::packed_weights<P, Packing>::by_panel) {
            if (work.requests[0].c1.size() != layout_.inputs()) {
                throw shape_error("server::multiply: got a workspace with " +
                                  std::to_string(work.requests[0].c1.size()) + " inputs, expected " +
                                  std::to_string(layout_.inputs()) + ": call expand() first");
            }
            work.products.resize(layout_.outputs());
            for (std::size_t p = 0; p < weights_.panels(); ++p) {
                const std::size_t outputs = weights_.shape_of(layout_, p).outputs;
                weights_.multiply(layout_, p, std::span(work.requests).first(1), work.slots[0],
                                  std::span(work.products).subspan(p * rns::panel_outputs, outputs), {});
            }
        } else {
            weights_.multiply(layout_, r, work.requests[0], work.products);
        }
        work.tokens = r.tokens;
        work.done = workspace::step::multiplied;
    }

    /// Third step: encryptions of zero and floods. Not for bare replies.
    /// @param zeros  of this client
    /// @throws shape_error unless multiply() ran on this workspace; parameter_error if the pool traces to
    ///         another degree; entropy_error
    void protect(rerandomization_pool& zeros, workspace& work) const requires(Protection::protects) {
        check_step(work, workspace::step::multiplied, work.products.size(), "protect", "multiply");
        check_pool(zeros);
        random::seed seed = work.generator.next_seed();
        const memory::wipe_guard guard(seed);
        work.protected_products.resize(work.products.size());
        // After an exception the products are lost, not half hidden.
        work.done = workspace::step::none;
        for (std::size_t o = 0; o < work.products.size(); ++o) {
            auto zero = zeros.acquire();
            rns::add(work.products[o].c1, zero.c1);
            hide(work.products[o], zero, seed, o, work.slots[0], work.protected_products[o]);
            zeros.release(std::move(zero));
        }
        count(work);
        work.done = workspace::step::hidden;
    }

    /// Last step: the products as they leave the server; of c0 the coefficients that carry answers.
    /// @throws shape_error unless the step before ran on this workspace
    void finish(workspace& work, reply_type& result) const {
        if constexpr (Protection::protects) {
            check_step(work, workspace::step::hidden, work.protected_products.size(), "finish", "protect");
            result.outputs.resize(layout_.outputs());
            for (std::size_t o = 0; o < layout_.outputs(); ++o) {
                emit(work.protected_products[o], o, work.tokens, work.slots[0], work.products[o],
                     result.outputs[o]);
            }
        } else {
            check_step(work, workspace::step::multiplied, work.products.size(), "finish", "multiply");
            std::swap(result.outputs, work.products);
            count(work);
        }
        work.done = workspace::step::none;
        label(result, work.tokens);
    }

  private:
    /// Requests that go through the weights together. While the weights stay in cache by themselves, one; for
    /// large matrices so many that their ciphertexts, which each panel reads again, take 8 MiB.
    std::size_t tasks_at_once() const noexcept {
        constexpr std::size_t cached_weights = std::size_t{1} << 19;
        constexpr std::size_t cached_ciphertexts = std::size_t{1} << 20;
        constexpr std::size_t words = P::degree * static_cast<std::size_t>(traced_product<P>::basis::limbs);
        if (layout_.inputs() * layout_.outputs() * words <= cached_weights) {
            return 1;
        }
        return std::max(cached_ciphertexts / (2 * layout_.inputs() * words), std::size_t{1});
    }

    static void ready(workspace& work) {
        if (work.requests.empty()) {
            work.requests.resize(1);
        }
        if (work.slots.empty()) {
            work.slots.resize(1);
        }
    }

    void label(reply_type& result, std::size_t tokens) const noexcept {
        result.rank = layout_.rank;
        result.d = layout_.d;
        result.tokens = tokens;
    }

    /// The work of one token or batch.
    void count(workspace& work) const noexcept {
        work.work.products += layout_.inputs() * layout_.outputs();
        if constexpr (Protection::protects) {
            constexpr auto limbs = static_cast<std::size_t>(traced_product<P>::basis::limbs);
            // v of the encryption of zero, and c1; of c0 if all coefficients are needed.
            work.work.transforms += layout_.outputs() * limbs * (layout_.subring_log_n() == P::log_n ? 3 : 2);
        }
    }

    /// Seeds of floods and reservations for zeros, drawn in order, so that threads do not decide which hides
    /// what.
    void reserve_randomness(std::span<const task> tasks, workspace& work) const {
        if constexpr (Protection::protects) {
            if (work.seeds.size() < tasks.size()) {
                work.seeds = memory::secret_buffer<random::seed>(tasks.size());
            }
            work.reservations.clear();
            work.reservations.reserve(tasks.size() * layout_.outputs());
            for (std::size_t t = 0; t < tasks.size(); ++t) {
                random::seed seed = work.generator.next_seed();
                const memory::wipe_guard guard(seed);
                work.seeds[t] = seed;
                for (std::size_t o = 0; o < layout_.outputs(); ++o) {
                    work.reservations.push_back(tasks[t].zeros->reserve());
                }
            }
        }
    }

    /// The outputs of panel p for a few tasks, the first of which is number `first` of its batch.
    void answer_panel(std::span<const task> tasks, std::size_t first, std::size_t p, workspace& work,
                      product_workspace<P>& slot) const {
        const auto requests = std::span(std::as_const(work.requests)).subspan(first, tasks.size());
        const std::size_t outputs = weights_.shape_of(layout_, p).outputs;
        const std::size_t first_output = p * rns::panel_outputs;
        if (slot.products.size() < tasks.size() * outputs) {
            slot.products.resize(tasks.size() * outputs);
        }
        if constexpr (Protection::protects) {
            const auto acquire = [&](std::size_t t, std::size_t g) {
                return tasks[t].zeros->acquire(
                    std::move(work.reservations[(first + t) * layout_.outputs() + first_output + g]));
            };
            // One task: the products start from the zeros' c1. Several: so many zeros would leave the cache.
            slot.zeros.clear();
            const bool alone = tasks.size() == 1;
            for (std::size_t g = 0; alone && g < outputs; ++g) {
                slot.zeros.push_back(acquire(0, g));
            }
            weights_.multiply(layout_, p, requests, slot, slot.products, slot.zeros);
            for (std::size_t t = 0; t < tasks.size(); ++t) {
                for (std::size_t g = 0; g < outputs; ++g) {
                    const std::size_t o = first_output + g;
                    auto& product = slot.products[t * outputs + g];
                    auto zero = alone ? std::move(slot.zeros[g]) : acquire(t, g);
                    if (!alone) {
                        rns::add(product.c1, zero.c1);
                    }
                    hide(product, zero, work.seeds[first + t], o, slot, slot.hidden);
                    emit(slot.hidden, o, tasks[t].from->tokens, slot, product, tasks[t].to->outputs[o]);
                    tasks[t].zeros->release(std::move(zero));
                }
            }
            slot.zeros.clear();
        } else {
            // The memory of the replies before is that of these products.
            const auto swap_outputs = [&] {
                for (std::size_t t = 0; t < tasks.size(); ++t) {
                    for (std::size_t g = 0; g < outputs; ++g) {
                        std::swap(slot.products[t * outputs + g], tasks[t].to->outputs[first_output + g]);
                    }
                }
            };
            swap_outputs();
            weights_.multiply(layout_, p, requests, slot, slot.products, {});
            swap_outputs();
        }
    }

    /// Output o of the one task for which randomness was reserved, from its product.
    void answer_output(const task& t, std::size_t o, workspace& work, product_workspace<P>& slot,
                       traced_product<P>& product) const {
        if constexpr (Protection::protects) {
            auto zero = t.zeros->acquire(std::move(work.reservations[o]));
            rns::add(product.c1, zero.c1);
            hide(product, zero, work.seeds[0], o, slot, slot.hidden);
            emit(slot.hidden, o, t.from->tokens, slot, product, t.to->outputs[o]);
            t.zeros->release(std::move(zero));
        } else {
            std::swap(product, t.to->outputs[o]);
        }
    }

    /// Adds what is left of the encryption of zero, and the flood, to product o. Its memory goes to `hidden`.
    void hide(traced_product<P>& product, const ckks::zero<P, request_level<P>>& zero,
              const random::seed& flood_seed, std::size_t o, product_workspace<P>& slot,
              protected_product<P>& hidden) const {
        const std::size_t trace = std::size_t{1} << layout_.subring_log_n();
        if (slot.floods.size() != trace) {
            slot.floods = memory::secret_buffer<arith::wide>(trace, memory::uninitialized);
        }
        hidden = lora::protect(std::move(product), zero, budget_.flood, flood_seed,
                               static_cast<std::uint32_t>(o), slot.floods.span());
        memory::wipe(slot.floods.data(), trace * sizeof(arith::wide));
    }

    /// The bytes of product o. Its memory goes back to `product`.
    template <class Output>
    void emit(protected_product<P>& hidden, std::size_t o, std::size_t tokens, product_workspace<P>& slot,
              traced_product<P>& product, Output& out) const {
        pack(hidden, layout_.wanted(o, tokens), layout_.reply_bits(budget_, o), slot.switched.span(), out);
        product.c0 = std::move(hidden.c0);
        product.c1 =
            rns::poly<typename traced_product<P>::basis, rns::evaluation_form>(std::move(hidden.c1).take());
    }

    void check_pool(const rerandomization_pool& zeros) const {
        if (zeros.subring_log_n() != layout_.subring_log_n()) {
            throw parameter_error("server::protect: got encryptions of zero traced to degree 2^" +
                                  std::to_string(zeros.subring_log_n()) + ", expected 2^" +
                                  std::to_string(layout_.subring_log_n()) + ", the layout's subring_log_n()");
        }
    }
    void check_step(const workspace& work, typename workspace::step wanted, std::size_t products,
                    const char* step, const char* before) const {
        if (work.done != wanted || products != layout_.outputs()) {
            throw shape_error("server::" + std::string(step) + ": got " +
                              std::to_string(work.done == wanted ? products : 0) +
                              " products in the workspace, expected " + std::to_string(layout_.outputs()) +
                              ": call " + before + "() of this server first");
        }
    }

    layout_type layout_;
    reply_budget budget_;
    std::size_t largest_batch_;
    detail::packed_weights<P, Packing> weights_;
};

}  // namespace tensafe::lora
