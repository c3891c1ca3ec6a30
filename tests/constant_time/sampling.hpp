#pragma once

#include <tensafe/ckks/sanitize/flooding.hpp>
#include <tensafe/dp/clip.hpp>
#include <tensafe/dp/sample_discrete_gaussian.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/random/samplers.hpp>

#include "program.hpp"

namespace tests {

inline random::seed secret_seed() {
    return random::fresh_seed();
}

/// Sizes leave a part of a vector over, and of a chunk of the stream.
inline void check_sampling(program& p) {
    p.check("generator from a seed", [] {
        random::generator generator(secret_seed());
        const random::seed seed = generator.next_seed();
        return all_secret(seed.bytes);
    });
    p.check("sample_ternary", [] {
        std::vector<std::int8_t> out(4 * (512 + 37));
        random::sample_ternary(secret_seed(), random::stream_domain::secret_key, 0, out);
        return all_secret(out);
    });
    p.check("sample_error", [] {
        std::vector<std::int8_t> out(64 * (32 + 13));
        random::sample_error(secret_seed(), random::stream_domain::error, 0, out);
        return all_secret(out);
    });
    p.check("sample_discrete_gaussian", [] {
        std::vector<std::int64_t> out(8 * 5 + 3);
        dp::sample_discrete_gaussian(secret_seed(), random::stream_domain::privacy_noise, 0, out);
        return all_secret(out);
    });
    p.check("clip_to_grid", [] {
        std::vector<float> h(77, 0.25F);
        make_secret(h);
        std::vector<std::int64_t> out(h.size());
        dp::clip_to_grid(h, 0x1p-20, 1 << 20, out);
        return all_secret(out);
    });
    p.check("clip", [] {
        std::vector<float> h(77, 0.25F);
        make_secret(h);
        std::vector<double> out(h.size());
        dp::clip(h, 1, out);
        return all_secret(out);
    });
}

}  // namespace tests
