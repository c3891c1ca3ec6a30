#pragma once

// Inputs for the LoRA tests: the same in each run.

#include <tensafe/lora/adapter/adapter.hpp>

#include "random_numbers.hpp"
#include "refusal.hpp"
#include "small_sets.hpp"

/// Weights of the size that trained adapters have; every row differs.
inline tensafe::lora::matrix random_matrix(std::size_t rows, std::size_t columns, std::uint64_t seed) {
    tensafe::lora::matrix m(rows, columns);
    m.values = tests::random_numbers(seed).normals<float>(rows * columns, 0.05F);
    return m;
}

inline std::vector<float> random_state(std::size_t d, std::uint64_t seed) {
    return tests::random_numbers(seed).normals<float>(d);
}

inline tensafe::lora::adapter_site random_site(std::size_t d_out, std::size_t rank, std::size_t d_in,
                                               std::uint64_t seed) {
    return {"layers.0.q_proj", random_matrix(rank, d_in, seed), random_matrix(d_out, rank, seed + 1), 2.0};
}

/// m * h, straight from the definition.
template <class Real>
std::vector<double> product(const tensafe::lora::matrix& m, const std::vector<Real>& h) {
    std::vector<double> result(m.rows);
    for (std::size_t r = 0; r < m.rows; ++r) {
        for (std::size_t k = 0; k < m.columns; ++k) {
            result[r] += static_cast<double>(m.values[r * m.columns + k]) * static_cast<double>(h[k]);
        }
    }
    return result;
}

inline void scale(std::span<float> values, float factor) {
    for (float& x : values) {
        x *= factor;
    }
}

template <class Range>
double norm(const Range& values) {
    double sum = 0;
    for (const auto x : values) {
        sum += static_cast<double>(x) * static_cast<double>(x);
    }
    return std::sqrt(sum);
}

using tests::contains;
