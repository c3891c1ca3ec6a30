#pragma once

#include <tensafe/lora/adapter/adapter.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace tensafe::lora {

namespace detail {

/// A value, and how often it occurs.
struct counted_value {
    double value;
    double count;
};

/// The distinct values, in order.
inline std::vector<counted_value> counted(std::vector<float> values) {
    std::sort(values.begin(), values.end());
    std::vector<counted_value> result;
    for (auto first = values.cbegin(); first != values.cend();) {
        const auto last = std::upper_bound(first, values.cend(), *first);
        result.push_back({static_cast<double>(*first), static_cast<double>(last - first)});
        first = last;
    }
    return result;
}

/// The bits that it takes to name `all` values that occur so often: the entropy of order 0.
inline double order_0_bits(std::span<const counted_value> values, double all) {
    double bits = 0;
    for (const counted_value& each : values) {
        bits += each.count > 0 ? each.count * std::log2(all / each.count) : 0;
    }
    return bits;
}

/// The most steps that a quantised value has.
inline constexpr int most_steps = 128;

/// Writes which multiples of a step these distinct values are, the largest of them `steps` of it. Returns
/// whether they are, to the precision of BF16, or if not `is_exact` whether the nearest ones are distinct.
inline bool are_multiples(std::span<const counted_value> values, int steps, bool is_exact,
                          std::vector<int>& multiples) {
    const double largest = std::fmax(std::fabs(values.front().value), std::fabs(values.back().value));
    multiples.clear();
    for (const counted_value& each : values) {
        const double exact = largest > 0 ? each.value / largest * steps : 0;
        const double nearest = std::nearbyint(exact);
        const auto multiple = static_cast<int>(nearest);
        if ((is_exact && std::fabs(exact - nearest) > 0x1p-7 * std::fabs(nearest)) ||
            (!multiples.empty() && multiples.back() >= multiple)) {
            return false;
        }
        multiples.push_back(multiple);
    }
    return true;
}

/// The bits of rows that were quantised in pieces of so many entries, each with a table of its values or, if
/// that is less, a scale.
inline double bits_of_pieces(const matrix& m, std::size_t size) {
    constexpr double number_bits = 16;  // of a scale, and of a value of a table
    double with_tables = 0;
    double with_scales = 0;
    std::array<counted_value, 2 * most_steps + 1> counts{};
    std::vector<int> multiples;
    for (std::size_t begin = 0; begin < m.values.size();) {
        const std::size_t end = begin + std::min(size, m.columns - begin % m.columns);
        const auto values = counted({m.values.data() + begin, m.values.data() + end});
        with_tables += order_0_bits(values, static_cast<double>(end - begin)) +
                       number_bits * static_cast<double>(values.size());
        begin = end;
        int steps = 1;
        while (steps <= most_steps && !are_multiples(values, steps, true, multiples)) {
            ++steps;
        }
        const bool has_scale = steps <= most_steps || are_multiples(values, most_steps, false, multiples);
        with_scales += has_scale ? number_bits : std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; has_scale && i < values.size(); ++i) {
            counts[static_cast<std::size_t>(multiples[i] + most_steps)].count += values[i].count;
        }
    }
    return std::min(with_tables, with_scales + order_0_bits(counts, static_cast<double>(m.values.size())));
}

}  // namespace detail

/// The bits that it takes to name all values of a matrix as it is stored, to hold against what requests can
/// carry away (reply_budget::channel_bits): the least of
///
/// - their number times the entropy of how often each value occurs (order 0);
/// - for rows, and for pieces of 64 and of 32 entries of a row, the sum over these of the same count and 16
///   bits for each distinct value;
/// - for each of the same pieces 16 bits, and the entropy of what is left when each piece is divided by its
///   scale. It has one if its values are multiples of a step, 128 at most, or different ones after rounding
///   to 128ths of the largest.
///
/// Four bits an entry for weights of sixteen equally frequent values, 4.25 with a scale for 64 of them, 8 to
/// 11 for BF16. No entry counts for more than log2(number of entries): F32 weights are mostly distinct values
/// and get that limit, 16 bits in a 32 x 2048 matrix; a small matrix of any type gets less than its type
/// could hold. **An upper bound on what a client must read**: entries may be alike in other ways, as with
/// scales for columns or for pieces of other sizes. The result is 0 for an empty matrix; -0, and what is not
/// finite, count as 0.
///
/// @throws shape_error unless there are rows * columns values
/// Cost: four sorts of a copy, for 64 x 8192 about 0.2 s. Thread safety: a pure function.
inline double entropy_bits(const matrix& m) {
    m.check("entropy_bits");
    matrix finite = m;
    std::replace_if(
        finite.values.begin(), finite.values.end(), [](float x) { return !std::isfinite(x); }, 0.0F);
    double least =
        detail::order_0_bits(detail::counted(finite.values), static_cast<double>(finite.values.size()));
    for (const std::size_t size : {m.columns, std::size_t{64}, std::size_t{32}}) {
        least = std::min(least, detail::bits_of_pieces(finite, size));
    }
    return least;
}

}  // namespace tensafe::lora
