#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/adapter.hpp>
#include <tensafe/lora/column_batched.hpp>
#include <tensafe/lora/layout.hpp>
#include <tensafe/lora/messages.hpp>
#include <tensafe/lora/reply_protection.hpp>
#include <tensafe/lora/work_count.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/rns/limb.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tensafe::lora {

/// Memory that a server works in, kept by the caller from token to token; one for each thread.
template <ckks::parameter_set P>
struct server_workspace {
    using basis = typename folded_product<P>::basis;

    std::vector<rns::poly<basis, rns::evaluation_form>> c0;  ///< inputs of the request, unpacked
    std::vector<rns::poly<basis, rns::evaluation_form>> c1;
    std::vector<folded_product<P>> products;               ///< after multiply
    std::vector<protected_product<P>> protected_products;  ///< after protect
    random::generator generator;  ///< of flood seeds; to give one that is not the default is for tests
    std::size_t tokens = 0;       ///< of the request that was multiplied
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

/// A as plaintexts: inputs * outputs of them, encoded and transformed once.
template <ckks::parameter_set P, class Packing>
class packed_weights {
  public:
    template <class Layout>
    packed_weights(const Layout& layout, const reply_budget& budget, const matrix& a) {
        const exec::host here;
        layout.check_matrix(a);
        for (std::size_t o = 0; o < layout.outputs(); ++o) {
            for (std::size_t i = 0; i < layout.inputs(); ++i) {
                plaintexts_.push_back(ckks::forward(here, layout.encode_weights(here, a, budget, o, i)));
            }
        }
    }

    template <class Layout>
    void expand(exec::host where, const Layout& layout, const request<P>& r,
                server_workspace<P>& work) const {
        work.c0.resize(layout.inputs());
        work.c1.resize(layout.inputs());
        for (std::size_t i = 0; i < layout.inputs(); ++i) {
            expand_input(where, r, i, work.c0[i], work.c1[i]);
        }
    }

    /// For every output the sum over inputs of plaintext times ciphertext. c1 takes one reduction for each
    /// coefficient, c0 one for each wanted coefficient and input.
    template <class Layout>
    void multiply(exec::host, const Layout& layout, const request<P>&, server_workspace<P>& work) const {
        using basis = typename folded_product<P>::basis;
        const std::size_t inputs = layout.inputs();
        if (work.c0.size() != inputs || work.c1.size() != inputs) {
            throw shape_error("server::multiply: got a workspace with " + std::to_string(work.c0.size()) +
                              " inputs, wanted " + std::to_string(inputs) + ": call expand() first");
        }
        std::vector<const arith::word*> a(inputs);
        std::vector<const arith::word*> b(inputs);
        work.products.resize(layout.outputs());
        for (std::size_t o = 0; o < layout.outputs(); ++o) {
            folded_product<P>& product = work.products[o];
            if (product.c1.words().empty()) {
                product.c1 = rns::poly<basis, rns::evaluation_form>(memory::uninitialized);
            }
            const auto* weights = plaintexts_.data() + o * inputs;
            rns::for_each_limb<basis>([&]<int I>() {
                constexpr auto policy = rns::variable_arithmetic<basis::template prime<I>>;
                product.c0[I] = memory::buffer<arith::word>(std::size_t{1} << layout.fold_log_n());
                for (std::size_t i = 0; i < inputs; ++i) {
                    a[i] = work.c1[i].template limb<I>().data();
                    b[i] = weights[i].value.template limb<I>().data();
                    rns::limb::add_block_sums(policy, product.c0[I].span(), work.c0[i].template limb<I>(),
                                              weights[i].value.template limb<I>());
                }
                rns::limb::sum_products(policy, product.c1.template limb<I>(), a, b);
            });
        }
    }

  private:
    std::vector<ckks::plaintext<P, rns::evaluation_form, request_level<P>>> plaintexts_;
};

/// A as integers, for column batches: a product is a number times a ciphertext.
template <ckks::parameter_set P>
class packed_weights<P, column_batched> {
  public:
    template <class Layout>
    packed_weights(const Layout& layout, const reply_budget& budget, const matrix& a) {
        integers_ = memory::secret_buffer<std::int64_t>(a.values.size(), memory::uninitialized);
        for (std::size_t k = 0; k < integers_.size(); ++k) {
            integers_[k] =
                static_cast<std::int64_t>(layout.integer_weight(budget, static_cast<double>(a.values[k])));
        }
    }

    /// Nothing: `multiply` expands a few inputs at a time, so that memory does not grow with d.
    template <class Layout>
    void expand(exec::host, const Layout&, const request<P>&, server_workspace<P>&) const noexcept {}

    template <class Layout>
    void multiply(exec::host where, const Layout& layout, const request<P>& r,
                  server_workspace<P>& work) const {
        using basis = typename folded_product<P>::basis;
        work.products.clear();
        work.products.resize(layout.rank);
        for (auto& product : work.products) {
            for (auto& limb : product.c0) {
                limb = memory::buffer<arith::word>(P::degree);
            }
        }
        work.c0.resize(inputs_at_once);
        work.c1.resize(inputs_at_once);
        for (std::size_t first = 0; first < layout.d; first += inputs_at_once) {
            const std::size_t count = std::min(inputs_at_once, layout.d - first);
            for (std::size_t j = 0; j < count; ++j) {
                expand_input(where, r, first + j, work.c0[j], work.c1[j]);
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
                for (std::size_t row = 0; row < layout.rank; ++row) {
                    for (std::size_t j = 0; j < count; ++j) {
                        const std::int64_t x = integers_[row * layout.d + first + j];
                        const arith::word negative = static_cast<arith::word>(x >> 63);
                        const arith::word residue =
                            policy.reduce_fully((static_cast<arith::word>(x) ^ negative) - negative);
                        factors[j] =
                            arith::subtract_if_not_below((residue ^ negative) - negative + (q & negative), q);
                    }
                    folded_product<P>& product = work.products[row];
                    rns::limb::add_scaled(policy, product.c0[I].span(), std::span(c0).first(count), used);
                    rns::limb::add_scaled(policy, product.c1.template limb<I>(), std::span(c1).first(count),
                                          used);
                }
            });
        }
    }

  private:
    /// Ciphertexts expanded at once: 4 MiB at N = 4096 with two limbs.
    static constexpr std::size_t inputs_at_once = 32;

    memory::secret_buffer<std::int64_t> integers_;
};

}  // namespace detail

}  // namespace tensafe::lora
