#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/tiny_lm/transformer.hpp"

// What a client learns of an adapter by using it: no cryptography is attacked.

namespace studies {

using namespace examples::tiny_lm;

/// The linear map with y = x W that is likeliest after these rows of x and y, for entries of W that are
/// independent, normal and of one size, and noise of y of the deviation `noise` relative to what they make of
/// x: ridge regression. Without noise the shortest W that fits.
/// @param x, y  [tokens, d_in], [tokens, d_out];  @return [d_in, d_out]
inline at::Tensor ridge_regression(const at::Tensor& x, const at::Tensor& y, double noise) {
    const at::Tensor norms = x.to(at::kDouble).norm(2, -1, true).clamp_min(1e-30);
    const at::Tensor states = x / norms;  // noise follows the norm of the state
    // Floats err by 1e-7 or so; directions that are known no better than that would count as if known.
    const double least = 1e-6;
    const at::Tensor gram = torch::matmul(states, states.t()) +
                            (noise * noise + least * least) * torch::eye(x.size(0), at::kDouble);
    return torch::matmul(states.t(), torch::linalg_solve(gram, y / norms));
}

/// Watches the hidden states of a client, and the deltas that it gets for them, and imitates the adapter.
class thief {
  public:
    /// The same deltas; what passes by is kept. Refers to this object.
    adapter_deltas watching(adapter_deltas asked) {
        return [this, asked = std::move(asked)](const std::vector<std::string>& sites, const at::Tensor& x) {
            const std::vector<at::Tensor> deltas = asked(sites, x);
            for (std::size_t i = 0; i < sites.size(); ++i) {
                seen_[sites[i]] = {x.reshape({-1, x.size(-1)}).clone(),
                                   deltas[i].reshape({-1, deltas[i].size(-1)}).clone()};
            }
            return deltas;
        };
    }

    /// Imitates each site after the first `tokens` of the text that was watched last.
    /// @param noise  of ridge_regression
    adapter_deltas stolen(std::int64_t tokens, double noise) const {
        std::map<std::string, at::Tensor> maps;
        for (const auto& [site, pairs] : seen_) {
            const std::int64_t count = std::min(tokens, pairs.first.size(0));
            maps[site] =
                ridge_regression(pairs.first.narrow(0, 0, count), pairs.second.narrow(0, 0, count), noise)
                    .to(at::kFloat);
        }
        return [maps = std::move(maps)](const std::vector<std::string>& sites, const at::Tensor& x) {
            std::vector<at::Tensor> results;
            for (const std::string& site : sites) {
                results.push_back(torch::matmul(x, maps.at(site)));
            }
            return results;
        };
    }

  private:
    std::map<std::string, std::pair<at::Tensor, at::Tensor>> seen_;
};

}  // namespace studies
