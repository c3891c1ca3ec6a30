#pragma once

#include <tensafe/lora/protocol/server.hpp>

namespace tests {

/// c1 of all outputs of a block as they are without any protection, in coefficient form: what a server never
/// sends.
template <tensafe::ckks::parameter_set P, class Protection>
auto bare_block(const tensafe::lora::server<P, tensafe::lora::token_blocks, Protection>& server,
                const tensafe::random::seed& seed) {
    using basis = typename tensafe::lora::traced_product<P>::basis;
    const auto& weights = tensafe::lora::detail::server_internals::weights(server);
    constexpr std::size_t lanes = std::remove_cvref_t<decltype(weights)>::lanes;
    std::vector<tensafe::rns::poly<basis, tensafe::rns::coefficient_form>> result(server.plan().outputs());
    tensafe::lora::detail::block_products_workspace work;
    std::vector<tensafe::arith::word> windows(weights.window_words());
    std::vector<tensafe::arith::word> limbs(lanes * P::degree);
    tensafe::rns::for_each_limb<basis>([&]<int I>() {
        for (std::size_t i = 0; i < server.plan().inputs(); i += lanes) {
            weights.template transform_inputs<I>(seed, i, work, limbs, windows);
        }
        for (std::size_t o = 0; o < result.size(); ++o) {
            if (o % lanes == 0) {
                weights.template multiply<I>(windows, o, work, limbs);
            }
            std::ranges::copy(std::span(limbs).subspan(o % lanes * P::degree, P::degree),
                              result[o].template limb<I>().begin());
        }
    });
    return result;
}

/// Row by row, the product of A with the coefficients of one token: room for each limb.
template <tensafe::ckks::parameter_set P, class Protection, class Token>
auto bare_token(const tensafe::lora::server<P, tensafe::lora::token_blocks, Protection>& server,
                const Token& token) {
    const auto& weights = tensafe::lora::detail::server_internals::weights(server);
    std::array<std::vector<tensafe::arith::word>,
               static_cast<std::size_t>(tensafe::lora::traced_product<P>::basis::limbs)>
        sums;
    for (auto& limb : sums) {
        limb.resize(weights.padded_outputs());
    }
    weights.multiply_token(std::array{token[0].data(), token[1].data()}, sums);
    for (auto& limb : sums) {
        limb.resize(server.plan().outputs());
    }
    return sums;
}

}  // namespace tests
