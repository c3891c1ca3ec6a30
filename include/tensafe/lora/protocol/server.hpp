#pragma once

#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/block_server.hpp>
#include <tensafe/lora/protocol/phases.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>
#include <tensafe/lora/protocol/server_weights.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/input_hash.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace tensafe::lora {

/// A server's supply of encryptions of zero for one client: see ckks::rerandomization_pool.
template <ckks::parameter_set P>
using rerandomization_pool = ckks::rerandomization_pool<P, request_level<P>>;

namespace detail {
/// Gives tests a look at what a server never sends.
struct server_internals {
    template <class Server>
    static const auto& weights(const Server& s) noexcept {
        return s.weights_;
    }
};
}  // namespace detail

/// Holds a packed matrix and applies it to encrypted hidden states: zero rotations, no evaluation keys. It
/// cannot hold a secret key: no function here takes one.
///
/// Immutable: any number of threads may use it at once, each with its own workspace; pools of zeros are
/// thread-safe. Exception safety: strong, except that workspace and reply may be half written.
template <ckks::parameter_set P, class Packing = coefficient_tiles<4>,
          class Protection = protects_adapter_rows<>>
class server {
    using weights_type = detail::packed_weights<P, Packing, Protection>;

  public:
    using plan_type = packing_plan<P, Packing, Protection>;
    using layout_type = typename plan_type::layout_type;
    using request_type = typename plan_type::request_type;
    using reply_type = typename plan_type::reply_type;
    using workspace =
        std::conditional_t<plan_type::whole_ciphertexts, ciphertext_workspace<P>, server_workspace<P>>;

    /// Packs A (rank x d), once.
    /// More than most_targets rows in a plaintext only with trusts_clients: docs/security.md says what a
    /// hostile client does with them.
    /// @throws shape_error for an empty matrix or another number of values; encoding_error, naming row and
    ///         column, for NaN and infinity; parameter_error if the set cannot hold replies of this shape, or
    ///         the matrix does not suit the packing; entropy_error
    TENSAFE_COMPILED_MEMBER explicit server(const matrix& a) : server(a, most_targets<P, Protection>) {}
    server(const matrix& a, trusts_clients) : server(a, P::degree) {}
    server(const matrix& a, const ckks::secret_key<P>&) = delete;  // a server never holds a secret key

    const plan_type& plan() const noexcept { return plan_; }
    /// The layout, all that a client has to know of this server: it travels, and becomes a packing_plan.
    const layout_type& layout() const noexcept { return plan_.layout(); }

    /// Makes the encryptions of zero for one client, in one session. A reply takes plan().outputs() of them;
    /// `fill` makes them beforehand. Servers of one parameter set and subring_log_n() can share them.
    /// @param nonce  random::fresh_nonce(), drawn by this server for the session and sent to the client
    /// @param key    what the client answered: client::rerandomization_key
    /// @throws parameter_error if the key was made for another nonce; format_error if it is malformed
    TENSAFE_COMPILED_MEMBER lora::rerandomization_pool<P> pool(
        const random::seed& nonce, ckks::rerandomization_key<P, request_level<P>> key,
        random::generator generator = random::generator()) const {
        return lora::rerandomization_pool<P>(nonce, std::move(key), plan_.subring_log_n(),
                                             std::move(generator));
    }

    /// One hidden state of a client. Each task has a reply of its own.
    struct task {
        const request_type* from = nullptr;
        lora::rerandomization_pool<P>* zeros = nullptr;  ///< null for replies that reveal A
        reply_type* to = nullptr;
    };

    // `apply` runs where its first argument says, exec::host_parallel for example: replies do not depend on
    // it.

    /// Answers several requests, of any clients, at once: each packed row of A is read once for all of them.
    /// @param observe  is told of each phase that begins: see server_phase
    /// @throws shape_error if a request was made for another layout or has a wrong size; parameter_error if a
    ///         task lacks a part, or a pool traces to another degree; format_error for anything but residues:
    ///         before any encryption of zero is used up; entropy_error
    template <exec::host_execution Where, class Observer = no_observer>
    TENSAFE_COMPILED_MEMBER void apply(const Where& where, std::span<const task> tasks, workspace& work,
                                       Observer&& observe = {}) const {
        static_assert(
            std::is_same_v<Where, exec::host> || std::is_same_v<std::remove_cvref_t<Observer>, no_observer>,
            "lora::server::apply: phases overlap when several threads work: observe them on one");
        for (std::size_t i = 0; i < tasks.size(); ++i) {
            check(tasks[i], i);
        }
        if constexpr (plan_type::whole_ciphertexts) {
            for (const task& t : tasks) {
                weights_.answer(where, plan_, *t.from, work, *t.to, observe);
                label(*t.to);
                work.work.products += plan_.inputs() * plan_.outputs();
            }
        } else {
            answer(where, tasks, work, observe);
        }
    }

    /// Answers one request, with the zeros of `pool`.  @throws as for several
    template <exec::host_execution Where, class Observer = no_observer>
    void apply(const Where& where, const request_type& r, lora::rerandomization_pool<P>& pool,
               workspace& work, reply_type& to, Observer&& observe = {}) const
        requires(Protection::protects) {
        const task one{&r, &pool, &to};
        apply(where, std::span(&one, 1), work, observe);
    }
    TENSAFE_COMPILED_MEMBER reply_type apply(const request_type& r, lora::rerandomization_pool<P>& pool) const
        requires(Protection::protects) {
        workspace work;
        reply_type result;
        apply(r, pool, work, result);
        return result;
    }
    reply_type apply(const request_type&) const  // protected replies need the client's rerandomization_pool
        requires(Protection::protects) = delete;

    /// Answers one request with a reply that shows A: see `reveals_adapter_rows`.  @throws as for several
    template <exec::host_execution Where, class Observer = no_observer>
    void apply(const Where& where, const request_type& r, workspace& work, reply_type& to,
               Observer&& observe = {}) const requires(!Protection::protects) {
        const task one{&r, nullptr, &to};
        apply(where, std::span(&one, 1), work, observe);
    }
    reply_type apply(const request_type& r) const requires(!Protection::protects) {
        workspace work;
        reply_type result;
        apply(r, work, result);
        return result;
    }

    /// Answers on the calling thread, like the functions that take `where`.
    template <class First, class... Rest>
    void apply(const First& first, Rest&&... rest) const
        requires(!exec::host_execution<First> && sizeof...(Rest) >= 1) {
        apply(exec::host{}, first, std::forward<Rest>(rest)...);
    }

  private:
    friend struct detail::server_internals;

    server(const matrix& a, std::size_t largest_targets)
        : plan_(a.rows, a.columns, detail::public_row_norm(a)), weights_(plan_, a) {
        if constexpr (Protection::protects) {
            detail::check_targets(plan_.targets(0), largest_targets, "target coefficients");
            identity_ = random::input_hash::of(a.values, std::array{a.rows, a.columns});
        }
    }

    void check(const task& t, std::size_t i) const {
        require<parameter_error>(
            t.from != nullptr && t.to != nullptr && (!Protection::protects || t.zeros != nullptr),
            {"server::apply: task ", i, " has no ",
             (t.from == nullptr ? "request (from)"
              : t.to == nullptr ? "reply (to)"
                                : "encryptions of zero (zeros)")});
        const request_type& r = *t.from;
        require<shape_error>(
            r.d == plan_.d() && r.block == plan_.entries_per_input() && r.inputs.size() == plan_.inputs(),
            {"server::apply: got a request of ", r.d, " entries, ", r.block, " in each of ", r.inputs.size(),
             " ciphertexts, expected ", plan_.d(), " entries, ", plan_.entries_per_input(), " in each of ",
             plan_.inputs(), " ciphertexts"});
        for (const auto& input : r.inputs) {
            if constexpr (plan_type::whole_ciphertexts) {
                require<parameter_error>(
                    input.scale == P::scale,
                    {"server::apply: got a ciphertext of scale ", input.scale, ", expected ", P::scale});
            } else {
                check_count("server::apply: got a ciphertext of ", input.size(), " bytes, expected ",
                            packed_residues_bytes<P>(P::degree));
            }
        }
        if constexpr (Protection::protects) {
            require<parameter_error>(
                t.zeros->subring_log_n() == plan_.subring_log_n(),
                {"server::apply: got encryptions of zero traced to degree 2^", t.zeros->subring_log_n(),
                 ", expected 2^", plan_.subring_log_n(), ", the plan's subring_log_n()"});
        }
    }

    template <class Where, class Observer>
    void answer(const Where& where, std::span<const task> tasks, workspace& work, Observer& observe) const {
        if (work.requests.size() < tasks.size()) {
            work.requests.resize(tasks.size());
        }
        if (work.workers.size() < where.threads()) {
            work.workers.resize(where.threads());
        }
        for (const task& t : tasks) {
            t.to->outputs.resize(plan_.outputs());
            label(*t.to);
        }
        // Encryptions of zero are taken when nothing that came from outside can fail any more.
        observe(server_phase::expand);
        for (std::size_t t = 0; t < tasks.size(); ++t) {
            weights_.make_room(plan_, work.requests[t]);
        }
        where.for_each(tasks.size() * plan_.inputs(), [&](std::size_t k, std::size_t) {
            const std::size_t t = k / plan_.inputs();
            weights_.expand(*tasks[t].from, k % plan_.inputs(), work.requests[t]);
        });
        const seeds_guard guard{work};
        reserve_randomness(tasks, work);
        // A few requests go through all panels, then the next few.
        const std::size_t at_once = tasks_at_once();
        const std::size_t panels = weights_.panels();
        where.for_each(detail::ceil_divide(tasks.size(), at_once) * panels,
                       [&](std::size_t k, std::size_t worker) {
                           const std::size_t first = k / panels * at_once;
                           answer_panel(tasks.subspan(first, std::min(at_once, tasks.size() - first)), first,
                                        k % panels, work, work.workers[worker], observe);
                       });
        for (std::size_t t = 0; t < tasks.size(); ++t) {
            count(work);
        }
    }

    /// The number of requests that go through the weights together: one while the weights stay in cache by
    /// themselves; else so many that their ciphertexts, which each panel reads again, take 8 MiB.
    std::size_t tasks_at_once() const noexcept {
        constexpr std::size_t cached_weights = std::size_t{1} << 19;
        constexpr std::size_t cached_ciphertexts = std::size_t{1} << 20;
        constexpr std::size_t words = P::degree * static_cast<std::size_t>(traced_product<P>::basis::limbs);
        if (plan_.inputs() * plan_.outputs() * words <= cached_weights) {
            return 1;
        }
        return std::max(cached_ciphertexts / (2 * plan_.inputs() * words), std::size_t{1});
    }

    void label(reply_type& result) const noexcept {
        result.rank = plan_.rank();
        result.d = plan_.d();
    }

    /// Counts the work of one token.
    void count(workspace& work) const noexcept {
        work.work.products += plan_.inputs() * plan_.outputs();
        if constexpr (Protection::protects) {
            constexpr auto limbs = static_cast<std::size_t>(traced_product<P>::basis::limbs);
            work.work.transforms += 2 * plan_.outputs() * limbs;  // v of the encryption of zero, and c1
        }
    }

    /// Takes seeds and zeros out of the workspace, also on an exception.
    struct seeds_guard {
        workspace& work;
        ~seeds_guard() {
            work.reservations.clear();
            memory::wipe(work.seeds.data(), work.seeds.size() * sizeof(random::seed));
        }
    };

    /// Draws seeds of floods and reserves zeros in order: threads do not decide which hides what.
    void reserve_randomness(std::span<const task> tasks, workspace& work) const {
        if constexpr (Protection::protects) {
            if (work.seeds.size() < tasks.size()) {
                work.seeds = memory::secret_buffer<random::seed>(tasks.size());
            }
            work.reservations.clear();
            work.reservations.reserve(tasks.size() * plan_.outputs());
            for (std::size_t t = 0; t < tasks.size(); ++t) {
                random::seed seed = work.generator.next_seed();
                const memory::wipe_guard guard(seed);
                work.seeds[t] = seed;
                // Whether c1 times A is the same again.
                const auto product = random::joined(tasks[t].from->seed, identity_);
                tasks[t].zeros->reserve(plan_.outputs(), product, work.reservations);
            }
        }
    }

    /// Computes the outputs of panel p for a few tasks, the first of which is number `first` of its batch.
    template <class Observer>
    void answer_panel(std::span<const task> tasks, std::size_t first, std::size_t p, workspace& work,
                      product_workspace<P>& worker, Observer& observe) const {
        const auto requests = std::span(std::as_const(work.requests)).subspan(first, tasks.size());
        const std::size_t outputs = weights_.shape_of(plan_, p).outputs;
        const std::size_t first_output = p * rns::panel_outputs;
        if (worker.products.size() < tasks.size() * outputs) {
            worker.products.resize(tasks.size() * outputs);
        }
        if constexpr (Protection::protects) {
            const auto reserved = [&](std::size_t t, std::size_t g) -> auto& {
                return work.reservations[(first + t) * plan_.outputs() + first_output + g];
            };
            // One task: the products start with the zeros. Several: so many zeros would leave the cache.
            worker.zeros.clear();
            const bool alone = tasks.size() == 1;
            observe(server_phase::protect);
            for (std::size_t g = 0; alone && g < outputs; ++g) {
                worker.zeros.push_back(
                    ckks::detail::zero_factors::acquire(*tasks[0].zeros, std::move(reserved(0, g))));
            }
            observe(server_phase::multiply);
            weights_.multiply(plan_, p, requests, worker, worker.products, worker.zeros, tasks[0].zeros);
            for (std::size_t t = 0; t < tasks.size(); ++t) {
                for (std::size_t g = 0; g < outputs; ++g) {
                    auto& product = worker.products[t * outputs + g];
                    observe(server_phase::protect);
                    auto zero = alone ? std::move(worker.zeros[g])
                                      : tasks[t].zeros->acquire(std::move(reserved(t, g)));
                    if (!alone) {
                        rns::add(product.c1, zero.c1);
                    }
                    hide(tasks[t], first_output + g, work, first + t, std::move(zero), product, worker,
                         observe);
                }
            }
            worker.zeros.clear();
        } else {
            // The memory of the replies before is that of these products.
            const auto swap_outputs = [&] {
                for (std::size_t t = 0; t < tasks.size(); ++t) {
                    for (std::size_t g = 0; g < outputs; ++g) {
                        std::swap(worker.products[t * outputs + g], tasks[t].to->outputs[first_output + g]);
                    }
                }
            };
            swap_outputs();
            observe(server_phase::multiply);
            weights_.multiply(plan_, p, requests, worker, worker.products);
            swap_outputs();
        }
    }

    /// Adds the rest of the zero, and the flood, to product o of a task, number `index` of its batch, and
    /// makes bytes of it. It keeps its memory.
    template <class Observer>
    void hide(const task& t, std::size_t o, const workspace& work, std::size_t index,
              ckks::zero<P, request_level<P>> zero, traced_product<P>& product, product_workspace<P>& worker,
              Observer& observe) const {
        random::seed flood_seed = work.seeds[index];
        const memory::wipe_guard guard(flood_seed);
        if (!work.generator.is_explicit()) {
            random::input_hash covered(flood_seed);
            for (std::size_t i = 0; i < product.c0.size(); ++i) {
                covered.add(std::span<const arith::word>(product.c0[i].span()));
                if (!zero.is_factor) {
                    covered.add(std::span<const arith::word>(zero.c0[i].span()));
                }
            }
            flood_seed = covered.result();
        }
        worker.hidden = rerandomize(std::move(product), zero, plan_.budget().flood, flood_seed,
                                    static_cast<std::uint32_t>(o));
        observe(server_phase::serialize);
        serialize(worker.hidden, plan_.targets(o), plan_.reply_bits(o), worker.switched.span(),
                  t.to->outputs[o]);
        product.c0 = std::move(worker.hidden.c0);
        product.c1 = rns::poly<typename traced_product<P>::basis, rns::evaluation_form>(
            std::move(worker.hidden.c1).take());
        t.zeros->release(std::move(zero));
    }

    plan_type plan_;
    weights_type weights_;
    random::seed identity_;  ///< a hash of A, for hedged seeds
};

}  // namespace tensafe::lora
