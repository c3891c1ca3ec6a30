#pragma once

#include <tensafe/ckks/ciphertext.hpp>

#include <cstddef>
#include <vector>

namespace tensafe::lora {

/// Kinds of reply. Whoever decrypts one of these, knowing h, can compute rows of A; even the ciphertexts
/// alone show them. They exist to measure against other systems and for adapters that are no secret.
struct reveals_adapter_rows {};

/// What a client sends for one hidden state: fresh seeded encryptions of its replicated slots.
template <ckks::parameter_set P>
struct request {
    std::vector<ckks::seeded_ciphertext<P>> inputs;

    /// Bytes as stored here: words of c0, and the seeds.
    std::size_t bytes() const noexcept {
        return inputs.size() * (P::degree * static_cast<std::size_t>(P::limbs) * sizeof(arith::word) +
                                sizeof(random::seed::bytes));
    }
};

/// What a server sends back; the kind of protection is part of the type.
template <ckks::parameter_set P, int Level, class Protection>
struct reply {
    std::vector<ckks::ciphertext<P, Level>> products;

    std::size_t bytes() const noexcept {
        return products.size() * 2 * P::degree * static_cast<std::size_t>(Level + 1) * sizeof(arith::word);
    }
};

}  // namespace tensafe::lora
