#pragma once

#include <tensafe/ckks/ciphertext.hpp>

#include <cstddef>
#include <vector>

namespace tensafe::lora {

/// Kinds of reply. Whoever decrypts one of these, knowing h, can compute rows of A; even the ciphertexts
/// alone show them. They exist to measure against other systems and for adapters that are no secret.
struct reveals_adapter_rows {};

/// What a client sends for one hidden state: fresh seeded encryptions of its replicated slots, and for which
/// layout they were made. Value semantics.
template <ckks::parameter_set P>
struct request {
    std::size_t d = 0;       ///< entries of the hidden state
    std::size_t stride = 0;  ///< slots from one entry to the next: how often h stands there
    std::vector<ckks::seeded_ciphertext<P>> inputs;

    /// Bytes as stored here: words of c0, and the seeds.
    std::size_t bytes() const noexcept {
        return inputs.size() * (P::degree * static_cast<std::size_t>(P::limbs) * sizeof(arith::word) +
                                sizeof(random::seed::bytes));
    }
};

/// What a server sends back: encrypted products for a rank x d matrix. Packing and kind of protection are
/// part of the type. Value semantics.
template <ckks::parameter_set P, class Packing, class Protection>
struct reply {
    static constexpr int level = Packing::template reply_level<P>;

    std::size_t rank = 0;
    std::size_t d = 0;
    std::vector<ckks::ciphertext<P, level>> products;

    std::size_t bytes() const noexcept {
        return products.size() * 2 * P::degree * static_cast<std::size_t>(level + 1) * sizeof(arith::word);
    }
};

}  // namespace tensafe::lora
