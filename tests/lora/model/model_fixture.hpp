#pragma once

// What tests of whole models share: an adapter, both sides, and the error that is allowed.

#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/server_zeros.hpp>

#include "../../random_values.hpp"
#include "../../test.hpp"
#include "../../worst.hpp"

namespace model_fixture {

using namespace tests;

using tensafe::exec::host;

using model_server = lora::model_server<small>;
using model_client = lora::model_client<small>;
using server_zeros = lora::server_zeros<small>;
using average_case = lora::protects_adapter_rows<lora::average_case<6>>;

inline constexpr host here{};

/// Ranks of their own, so that a mix-up of sites shows; rows of B of different sizes.
inline lora::adapter random_adapter(std::size_t layers) {
    lora::adapter result;
    std::uint64_t seed = 1;
    for (std::size_t layer = 0; layer < layers; ++layer) {
        const auto add = [&](const char* name, std::size_t rank, std::size_t d_in, std::size_t d_out,
                             double scale) {
            auto site = random_site(d_out, rank, d_in, seed += 2);
            site.name = "model.layers." + std::to_string(layer) + "." + name;
            site.scale = scale;
            result.sites.push_back(std::move(site));
        };
        add("self_attn.q_proj", 5, 70, 33, 2.0);
        add("self_attn.k_proj", 3, 70, 9, 0.5);
        add("self_attn.v_proj", 4, 70, 9, 64.0);
        add("self_attn.o_proj", 5, 300, 70, 1.0);
        add("mlp.gate_proj", 2, 70, 11, 2.0);
        add("mlp.up_proj", 6, 70, 11, 2.0);
        add("mlp.down_proj", 5, 11, 70, 2.0);
    }
    return result;
}

/// The default has none.
inline lora::model_options with_blocks() {
    lora::model_options options;
    options.tokens_ahead = 128;
    return options;
}

/// Everything of both sides, as in two processes: the server has the adapter, the client its part.
template <class P, class Packing, class Protection>
struct served {
    using server_type = lora::model_server<P, Packing, Protection>;
    using client_type = lora::model_client<P, Packing, Protection>;
    using block_workspace = lora::block_workspace<P>;
    using server_block = lora::server_block<P>;

    explicit served(const lora::adapter& from, const lora::model_options& options = with_blocks())
        : server(from, options),
          client(server.layout(), lora::client_part(from, options)),
          nonce(tensafe::random::fresh_nonce()),
          session(nonce, client.rerandomization_key(nonce)) {}

    server_type server;
    client_type client;
    tensafe::random::seed nonce;
    lora::server_zeros<P> session;
};
using served_small = served<small, lora::coefficient_tiles<4>, lora::protects_adapter_rows<>>;

/// Standard deviation of the worst entry of a site's delta: errors of answers are independent.
template <class Layout>
double deviation(const lora::model_layout& model, lora::model_layout::place place, const Layout& l,
                 const lora::adapter_site& site, std::span<const float> h) {
    const double of_answer =
        l.budget().relative_error * l.row_norm * norm(h) / std::sqrt(static_cast<double>(l.d));
    if (model.mode == lora::mode::blind) {
        return of_answer * model.groups[place.group].sites[place.site].scale;
    }
    const lora::adapter_site balanced = lora::normalize_rows(site);
    double largest = 0;
    for (std::size_t k = 0; k < balanced.d_out(); ++k) {
        largest = std::fmax(largest, norm(balanced.b.row(k)));
    }
    return of_answer * largest * std::fabs(site.scale);
}

/// How many deviations the worst delta is off. Their tails are thinner than a Gaussian's (tiles_fixture.hpp).
inline constexpr double most_deviations = 7;

template <class Served, class Layout>
void check_deltas(const Served& s, const lora::adapter& from, std::size_t group, const Layout& l,
                  const std::vector<std::vector<double>>& deltas, const std::vector<float>& h) {
    const auto& sites = s.server.layout().groups[group].sites;
    REQUIRE(deltas.size() == sites.size());
    for (std::size_t i = 0; i < sites.size(); ++i) {
        const lora::adapter_site& site = from.site(sites[i].name);
        const auto expected = lora::plain_delta(site, h);
        REQUIRE(deltas[i].size() == expected.size());
        const double allowed = most_deviations * deviation(s.server.layout(), {group, i}, l, site, h);
        double worst = 0;
        double size = 0;
        for (std::size_t k = 0; k < expected.size(); ++k) {
            worst = worse(worst, std::fabs(deltas[i][k] - expected[k]));
            size = std::fmax(size, std::fabs(expected[k]));
        }
        CAPTURE(sites[i].name);
        CHECK(worst < allowed);
        CHECK(allowed < 0.05 * size);  // so that a wrong delta would show
    }
}

/// A block of a group, prepared by both sides.
template <class Served>
struct prepared_block {
    prepared_block(Served& s, std::size_t group) : of_client(s.client.prepare(group)) {
        s.session.prepare(here, s.server, group, of_client.request(), work, of_server, ahead);
        s.client.accept(of_client, ahead);
    }
    /// A*h of the next position.
    void product(Served& s, std::size_t group, const std::vector<float>& h, std::vector<double>& to) {
        of_client.encrypt(h, query);
        s.server.blocks(group)->answer(of_server, query.request, work, reply);
        to.resize(of_client.plan().rank());
        of_client.decrypt(reply, query, to);
    }

    typename Served::client_type::block_type of_client;
    typename Served::block_workspace work;
    typename Served::server_block of_server;
    lora::block_reply ahead;
    lora::token_query query;
    lora::token_reply reply;
};

template <class Served>
void check_tokens_and_blocks(Served& s, const lora::adapter& from) {
    for (std::size_t g = 0; g < s.server.layout().groups.size(); ++g) {
        const std::size_t d = s.server.layout().groups[g].d;
        const auto h = random_state(d, g);
        const auto query = s.client.encrypt(g, h);
        typename Served::client_type::reply_type reply;
        s.session.apply(s.server, g, query.request, reply);
        check_deltas(s, from, g, s.server.plan(g).layout(), s.client.deltas(g, reply, query), h);

        prepared_block block(s, g);
        for (std::size_t t = 0; t < 3; ++t) {
            const auto state = random_state(d, 100 * d + t);
            std::vector<double> product;
            block.product(s, g, state, product);
            check_deltas(s, from, g, s.server.plan_of_blocks(g).layout(), s.client.deltas(g, product), state);
        }
    }
}

}  // namespace model_fixture
