#pragma once

#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>
#include <tensafe/lora/tracing/marks.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/simd/dispatch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

namespace tensafe::lora {

namespace detail {

/// The sum of the products of two arrays, in single precision: for short ones.
template <class Target>
TENSAFE_INLINE float short_product(const float* x, const float* y, std::size_t count) noexcept {
    using vector = typename Target::template vector<float>;
    constexpr std::size_t width = vector::width;
    vector sums[4] = {};
    std::size_t i = 0;
    for (; i + 4 * width <= count; i += 4 * width) {
        for (std::size_t k = 0; k < 4; ++k) {
            sums[k] = sums[k] + vector::load(x + i + k * width) * vector::load(y + i + k * width);
        }
    }
    std::array<float, width> each;
    ((sums[0] + sums[1]) + (sums[2] + sums[3])).store(each.data());
    const float whole = std::accumulate(each.begin(), each.end(), 0.0F);
    return std::inner_product(x + i, x + count, y + i, whole);
}

}  // namespace detail

/// Adds to sums[t * statistics.size() + k] the sum of the entries of statistic k, each times the mark of
/// tenant t at its place. Divided by the norm of a statistic that does not depend on the tenant's marks, such
/// a sum passes z with a probability of 2 exp(-z^2 / 2.0064) at most (mark_magnitudes).
///
/// Cost: about 1 ns for each tenant and entry. Thread-safe for other sums. Single precision within 2048
/// entries.
/// @param statistics  one or more arrays of as many entries as each other: those of a site's matrix, row
///                    after row
/// @pre  sums has tenants.size() * statistics.size() entries
inline void add_scores(std::span<const marks> tenants, std::string_view site, marked_matrix of,
                       std::span<const std::span<const float>> statistics, std::span<double> sums) {
    TENSAFE_PRECONDITION(sums.size() == tenants.size() * statistics.size());
    std::array<float, 256> values;
    for (std::size_t k = 0; k < values.size(); ++k) {
        values[k] = static_cast<float>(mark_level(static_cast<std::uint8_t>(k))) / 32;
    }
    constexpr std::size_t run = 2048;
    std::array<std::uint8_t, run> bytes;
    std::array<float, run> mark;
    const memory::wipe_guard guard(bytes);
    const memory::wipe_guard guard_of_marks(mark);
    const std::size_t count = statistics.front().size();
    for (std::size_t t = 0; t < tenants.size(); ++t) {
        const random::chacha20_stream stream = tenants[t].bytes(site, of);
        for (std::size_t first = 0; first < count; first += run) {
            const std::size_t length = std::min(run, count - first);
            stream.generate(first / random::chacha20_block_bytes, bytes);
            std::transform(bytes.begin(), bytes.end(), mark.begin(),
                           [&](std::uint8_t byte) { return values[byte]; });
            for (std::size_t k = 0; k < statistics.size(); ++k) {
                sums[t * statistics.size() + k] += simd::on_active_target([&](auto target) {
                    using to = decltype(target);
                    return to::template kernel<&detail::short_product<to>>(
                        mark.data(), statistics[k].data() + first, length);
                });
            }
        }
    }
}

}  // namespace tensafe::lora
