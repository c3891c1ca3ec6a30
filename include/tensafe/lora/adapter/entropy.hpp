#pragma once

#include <tensafe/lora/adapter/adapter.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace tensafe::lora {

namespace detail {

/// A value, and how often it occurs.
struct counted_value {
    double value;
    double count;
};

/// Sorts finite values: many of them by their digits, several times faster than std::sort.
inline void sort_values(std::vector<float>& values) {
    if (values.size() < 512) {
        return std::sort(values.begin(), values.end());
    }
    // Bits that are in the order of the values.
    constexpr std::uint32_t sign = std::uint32_t{1} << 31;
    std::vector<std::uint32_t> keys(values.size());
    std::transform(values.begin(), values.end(), keys.begin(), [](float x) {
        const auto bits = std::bit_cast<std::uint32_t>(x);
        return (bits & sign) != 0 ? ~bits : bits | sign;
    });
    std::vector<std::uint32_t> sorted(keys.size());
    constexpr std::uint32_t digits = std::uint32_t{1} << 8;
    for (const int shift : {0, 8, 16, 24}) {
        std::array<std::size_t, digits + 1> places{};
        const auto digit = [&](std::uint32_t key) { return key >> shift & (digits - 1); };
        for (const std::uint32_t key : keys) {
            ++places[digit(key) + 1];
        }
        std::partial_sum(places.begin(), places.end(), places.begin());
        for (const std::uint32_t key : keys) {
            sorted[places[digit(key)]++] = key;
        }
        keys.swap(sorted);
    }
    std::transform(keys.begin(), keys.end(), values.begin(), [](std::uint32_t key) {
        return std::bit_cast<float>((key & sign) != 0 ? key & ~sign : ~key);
    });
}

/// The distinct values, in order.
inline std::vector<counted_value> counted(std::vector<float> values) {
    sort_values(values);
    std::vector<counted_value> result;
    result.reserve(values.size());
    for (auto first = values.cbegin(); first != values.cend();) {
        const auto last = std::find_if(first, values.cend(), [&](float x) { return x != *first; });
        result.push_back({static_cast<double>(*first), static_cast<double>(last - first)});
        first = last;
    }
    return result;
}

/// The bits that it takes to name `all` values that occur so often: the entropy of order 0.
inline double order_0_bits(std::span<const counted_value> values, double all) {
    double bits = 0;
    double count = 0;
    double each_bits = 0;  // for many values occur as often as the one before
    for (const counted_value& each : values) {
        if (each.count != count) {
            count = each.count;
            each_bits = count > 0 ? count * std::log2(all / count) : 0;
        }
        bits += each_bits;
    }
    return bits;
}

/// The most steps that a quantised value has.
inline constexpr int most_steps = 128;

/// A value as a multiple of a step, and the nearest whole one, halves to even.
struct multiple {
    /// @param of_largest  the value over the largest one, which is `steps` of the step
    multiple(double of_largest, int steps) noexcept : exact(of_largest * steps) {
        constexpr double shift = 0x1.8p52;  // rounds; a third of what std::nearbyint takes
        nearest = (exact + shift) - shift;
    }
    /// To the precision of BF16.
    bool is_whole() const noexcept { return !(std::fabs(exact - nearest) > 0x1p-7 * std::fabs(nearest)); }

    double exact;
    double nearest;
};

/// Writes which multiples of a step these distinct values are, the largest of them `steps` of it. Returns
/// whether they are, or if not `is_exact` whether the nearest ones are distinct.
inline bool are_multiples(std::span<const counted_value> values, double largest, int steps, bool is_exact,
                          std::vector<int>& multiples) {
    multiples.clear();
    for (const counted_value& each : values) {
        const multiple of(largest > 0 ? each.value / largest : 0, steps);
        const auto nearest = static_cast<int>(of.nearest);
        if ((is_exact && !of.is_whole()) || (!multiples.empty() && multiples.back() >= nearest)) {
            return false;
        }
        multiples.push_back(nearest);
    }
    return true;
}

inline constexpr double number_bits = 16;  // of a scale, and of a value of a table

/// No more than the bits of pieces with tables, if the matrix has so many distinct values: a piece of k
/// entries and d distinct values takes at least (d - 1) log2 k bits and its table, and all pieces together
/// have every value at least once.
inline double least_bits_of_tables(const matrix& m, std::size_t size, std::size_t distinct) {
    // Of the full size: what only shorter ones have, and one value of each, takes its table's bits alone.
    const std::size_t pieces = m.rows * (m.columns / size);
    const std::size_t shorter = m.values.size() - pieces * size;
    const std::size_t others = std::min(distinct, shorter + pieces);
    return number_bits * static_cast<double>(distinct) +
           static_cast<double>(distinct - others) * std::log2(static_cast<double>(size));
}

/// The bits of rows that were quantised in pieces of so many entries, each with a table of its values or, if
/// that is less, a scale; or where that is known to be no less than `most`, this.
///
/// @param distinct  how many different values the matrix has
inline double bits_of_pieces(const matrix& m, std::size_t size, std::size_t distinct, double most) {
    const bool tables_take_most = least_bits_of_tables(m, size, distinct) >= most;
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
        if (with_scales == std::numeric_limits<double>::infinity()) {
            if (tables_take_most || with_tables >= most) {
                return most;
            }
            continue;
        }
        double largest = 0;
        double least = std::numeric_limits<double>::infinity();  // but 0: few steps of it are whole
        for (const counted_value& each : values) {
            const double magnitude = std::fabs(each.value);
            largest = std::max(largest, magnitude);
            least = magnitude > 0 ? std::min(least, magnitude) : least;
        }
        const double of_largest = largest > 0 ? least / largest : 0;
        // There are 2 steps + 1 different multiples.
        int steps = static_cast<int>(std::clamp<std::size_t>(values.size() / 2, 1, most_steps + 1));
        while (steps <= most_steps && !(multiple(of_largest, steps).is_whole() &&
                                        are_multiples(values, largest, steps, true, multiples))) {
            ++steps;
        }
        const bool has_scale =
            steps <= most_steps || are_multiples(values, largest, most_steps, false, multiples);
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
/// Cost: one sort of a copy where nearly all values differ, at most four otherwise. Thread safety: a pure
/// function.
inline double entropy_bits(const matrix& m) {
    m.check("entropy_bits");
    if (m.values.empty()) {
        return 0;
    }
    matrix finite = m;
    std::replace_if(
        finite.values.begin(), finite.values.end(), [](float x) { return !std::isfinite(x); }, 0.0F);
    const std::vector<detail::counted_value> all = detail::counted(finite.values);
    double least = detail::order_0_bits(all, static_cast<double>(finite.values.size()));
    for (const std::size_t size : {m.columns, std::size_t{64}, std::size_t{32}}) {
        least = std::min(least, detail::bits_of_pieces(finite, size, all.size(), least));
    }
    return least;
}

}  // namespace tensafe::lora
