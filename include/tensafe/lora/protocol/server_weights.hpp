#pragma once

#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/sanitize/rerandomization.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/exec/host.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/packing/plan.hpp>
#include <tensafe/lora/protocol/phases.hpp>
#include <tensafe/lora/protocol/reply_protection.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/rns/limb.hpp>
#include <tensafe/rns/panel.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tensafe::lora {

/// The inputs of a request as polynomials.
template <ckks::parameter_set P>
struct expanded_request {
    using form = rns::poly<typename traced_product<P>::basis, rns::evaluation_form>;

    std::vector<form> c0;
    std::vector<form> c1;
};

/// Memory for products on their way to bytes: up to four outputs, for each request of a batch.
template <ckks::parameter_set P>
struct product_workspace {
    std::vector<traced_product<P>> products;
    std::vector<ckks::zero<P, request_level<P>>> zeros;
    protected_product<P> hidden;
    memory::buffer<std::uint32_t> switched{P::degree, memory::uninitialized};
    std::vector<const arith::word*> c0;  ///< one limb of the inputs
    std::vector<const arith::word*> c1;
};

/// Memory of a server, one for each thread that calls it: from the second token on nothing is allocated.
template <ckks::parameter_set P>
struct server_workspace {
    std::vector<expanded_request<P>> requests;
    std::vector<product_workspace<P>> workers;  ///< memory of each worker
    random::generator generator;  ///< draws flood seeds; to give one that is not the default is for tests
    memory::secret_buffer<random::seed> seeds;  ///< seeds of floods, one for each request
    std::vector<typename ckks::rerandomization_pool<P, request_level<P>>::reservation> reservations;
    work_count work;  ///< added up over calls
};

/// Memory that a server of replies that are whole ciphertexts works in, one for each thread that calls it.
template <ckks::parameter_set P>
struct ciphertext_workspace {
    std::vector<rns::poly<typename P::basis, rns::evaluation_form>> c1;  ///< uniform halves of the request
    std::vector<ckks::ciphertext<P>> products;
    work_count work;  ///< added up over calls
};

namespace detail {

/// Makes room for a product: c0 is set to 0, c1 is to be written.
template <ckks::parameter_set P>
void prepare(traced_product<P>& product, std::size_t trace) {
    product.make_room(trace);
    for (auto& limb : product.c0) {
        std::fill(limb.begin(), limb.end(), arith::word{0});
    }
}

/// The matrix A as inputs * outputs plaintexts, encoded and transformed once, in panels of four outputs.
template <ckks::parameter_set P, class Packing, class Protection>
class packed_weights {
    using basis = typename traced_product<P>::basis;

  public:
    using plan_type = packing_plan<P, Packing, Protection>;

    packed_weights(const plan_type& plan, const matrix& a)
        : panels_(ceil_divide(plan.outputs(), rns::panel_outputs)) {
        plan.layout().check_matrix(a);
        for (std::size_t p = 0; p < panels_.size(); ++p) {
            const rns::panel_shape shape = shape_of(plan, p);
            rns::for_each_limb<basis>([&]<int I>() {
                panels_[p][I] = memory::secret_buffer<std::uint8_t>(shape.bytes<modulus<I>>(P::degree));
            });
            for (std::size_t g = 0; g < shape.outputs; ++g) {
                for (std::size_t i = 0; i < shape.inputs; ++i) {
                    const auto weights = ckks::forward(
                        plan.layout().encode_weights(a, plan.budget(), p * rns::panel_outputs + g, i));
                    rns::for_each_limb<basis>([&]<int I>() {
                        rns::fill_panel(policy<I>, shape, weights.value.template limb<I>(), i, g,
                                        panels_[p][I].span());
                    });
                }
            }
        }
    }

    std::size_t panels() const noexcept { return panels_.size(); }

    /// Makes room for the polynomials of a request; those with fewer ciphertexts leave the memory of others.
    void make_room(const plan_type& plan, expanded_request<P>& to) const {
        if (to.c1.size() < plan.inputs()) {  // the last to grow
            to.c0.resize(plan.inputs());
            to.c1.resize(plan.inputs());
        }
    }
    /// Expands input i of a checked request.  @throws format_error for a residue that is not below its prime
    void expand(const request<P>& r, std::size_t i, expanded_request<P>& to) const {
        unpack_residues<P>("server::apply", r.inputs[i], P::degree,
                           [&]<int I>() -> std::span<arith::word> { return to.c0[i].template limb<I>(); });
        ckks::expand_uniform(r.seed, random::stream_domain::uplink, to.c1[i],
                             static_cast<std::uint32_t>(i * static_cast<std::size_t>(basis::limbs)));
    }
    /// Expands all inputs of a checked request.  @throws format_error as for one input
    void expand(const plan_type& plan, const request<P>& r, expanded_request<P>& to) const {
        make_room(plan, to);
        for (std::size_t i = 0; i < plan.inputs(); ++i) {
            expand(r, i, to);
        }
    }

    /// Computes the outputs of panel p for each request: the sum over inputs of plaintext times ciphertext.
    /// c1 takes one reduction for each coefficient, c0 one for each target coefficient.
    /// @param to     product g of request r stands at r * shape_of(plan, p).outputs + g
    /// @param zeros  at the same places: their c1 is added, or the products of a factor; or none
    /// @param pool   the zeros' pool, if any is a factor
    void multiply(const plan_type& plan, std::size_t p, std::span<const expanded_request<P>> requests,
                  product_workspace<P>& work, std::span<traced_product<P>> to,
                  std::span<const ckks::zero<P, request_level<P>>> zeros = {},
                  const ckks::rerandomization_pool<P, request_level<P>>* pool = nullptr) const {
        const rns::panel_shape shape = shape_of(plan, p);
        const std::size_t trace = plan.subring_degree();
        work.c0.resize(shape.inputs);
        work.c1.resize(shape.inputs);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            for (std::size_t g = 0; g < shape.outputs; ++g) {
                prepare(to[r * shape.outputs + g], trace);
            }
        }
        rns::for_each_limb<basis>([&]<int I>() {
            const rns::panel_view panel{shape, panels_[p][I].data()};
            // Blocks of coefficients whose weights all requests find in cache.
            const std::size_t at_once =
                std::clamp(cached_bytes * trace / panels_[p][I].size(), std::size_t{1}, trace);
            for (std::size_t first = 0; first < trace; first += at_once) {
                const rns::block_range range{first, std::min(first + at_once, trace)};
                for (std::size_t r = 0; r < requests.size(); ++r) {
                    multiply_limb<I>(panel, requests[r], work, to.subspan(r * shape.outputs, shape.outputs),
                                     zeros.empty() ? zeros : zeros.subspan(r * shape.outputs, shape.outputs),
                                     pool, range);
                }
            }
        });
    }

    static rns::panel_shape shape_of(const plan_type& plan, std::size_t p) noexcept {
        return {plan.inputs(), std::min(rns::panel_outputs, plan.outputs() - p * rns::panel_outputs)};
    }

  private:
    /// The bytes of weights that requests find in cache: a quarter of the L2 cache of current server cores.
    static constexpr std::size_t cached_bytes = std::size_t{1} << 18;

    template <int I>
    static constexpr auto policy = rns::variable_arithmetic<basis::template prime<I>>;
    template <int I>
    using modulus = typename decltype(rns::variable_arithmetic<basis::template prime<I>>)::modulus_type;

    template <int I>
    static void multiply_limb(const rns::panel_view& panel, const expanded_request<P>& r,
                              product_workspace<P>& work, std::span<traced_product<P>> to,
                              std::span<const ckks::zero<P, request_level<P>>> zeros,
                              const ckks::rerandomization_pool<P, request_level<P>>* pool,
                              rns::block_range range) {
        for (std::size_t i = 0; i < panel.shape.inputs; ++i) {
            work.c0[i] = r.c0[i].template limb<I>().data();
            work.c1[i] = r.c1[i].template limb<I>().data();
        }
        rns::panel_results results;
        results.blocks = to.front().c0[I].size();
        for (std::size_t g = 0; g < to.size(); ++g) {
            results.c0[g] = to[g].c0[I].data();
            results.c1[g] = to[g].c1.template limb<I>().data();
            if (!zeros.empty()) {
                const arith::word* const values = zeros[g].c1.template limb<I>().data();
                if (zeros[g].is_factor) {
                    TENSAFE_PRECONDITION(pool != nullptr);
                    results.factor[g] = values;
                    results.of_factors = {pool->b().template limb<I>().data(),
                                          pool->a().template limb<I>().data()};
                } else {
                    results.addend[g] = values;
                }
            }
        }
        rns::multiply_panel(policy<I>, panel, {P::degree, work.c0.data(), work.c1.data()}, results, range);
    }

    std::vector<std::array<memory::secret_buffer<std::uint8_t>, static_cast<std::size_t>(basis::limbs)>>
        panels_;  ///< the limbs of each panel
};

/// The matrix A as plaintexts of the whole chain, for replies that are whole ciphertexts.
template <ckks::parameter_set P, class Rows, class Replies>
class packed_weights<P, replicated_slots<Rows, Replies>, reveals_adapter_rows> {
  public:
    using packing = replicated_slots<Rows, Replies>;
    using plan_type = packing_plan<P, packing, reveals_adapter_rows>;

    packed_weights(const plan_type& plan, const matrix& a) {
        for (std::size_t o = 0; o < plan.outputs(); ++o) {
            for (std::size_t i = 0; i < plan.inputs(); ++i) {
                weights_.push_back(ckks::forward(plan.layout().encode_weights(a, plan.budget(), o, i)));
            }
        }
    }

    /// Computes the whole reply. Its old memory goes to the workspace.
    template <exec::host_execution Where, class Observer>
    void answer(const Where& where, const plan_type& plan, const typename plan_type::request_type& r,
                ciphertext_workspace<P>& work, typename plan_type::reply_type& to, Observer& observe) const {
        observe(server_phase::expand);
        work.c1.resize(plan.inputs());
        where.for_each(plan.inputs(),
                       [&](std::size_t i, std::size_t) { ckks::expand_c1(r.inputs[i], work.c1[i]); });
        observe(server_phase::multiply);
        work.products.resize(plan.outputs());
        where.for_each(plan.outputs(),
                       [&](std::size_t o, std::size_t) { multiply_output(r, work.c1, o, work.products[o]); });
        observe(server_phase::serialize);
        if constexpr (packing::rescales) {
            to.outputs.resize(plan.outputs());
            where.for_each(plan.outputs(), [&](std::size_t o, std::size_t) {
                to.outputs[o] = ckks::rescale(work.products[o]);
            });
        } else {
            std::swap(to.outputs, work.products);
        }
    }

  private:
    /// Adds up plaintext times ciphertext over the inputs.
    void multiply_output(const typename plan_type::request_type& r,
                         const std::vector<rns::poly<typename P::basis, rns::evaluation_form>>& c1,
                         std::size_t o, ckks::ciphertext<P>& sum) const {
        const auto* const weights = weights_.data() + o * r.inputs.size();
        sum.scale = P::scale * weights->scale;
        rns::multiply(sum.c0, r.inputs.front().c0, weights->value);
        rns::multiply(sum.c1, c1.front(), weights->value);
        for (std::size_t i = 1; i < r.inputs.size(); ++i) {
            rns::multiply_accumulate(sum.c0, r.inputs[i].c0, weights[i].value);
            rns::multiply_accumulate(sum.c1, c1[i], weights[i].value);
        }
    }

    std::vector<ckks::plaintext<P, rns::evaluation_form>> weights_;
};

}  // namespace detail

}  // namespace tensafe::lora
