#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/adapter/entropy.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/chacha20.hpp>
#include <tensafe/random/input_hash.hpp>
#include <tensafe/random/seed.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensafe::lora {

/// The magnitudes that marks have, times 32: centroids of 128 equal shares of |N(0, 1)|, rounded. With a fair
/// sign their mean is 0 and their variance 1.0032; they are sub-Gaussian with a proxy of the same size, so
/// that a sum of entries times independent marks passes t times the entries' norm with a probability of at
/// most exp(-t^2 / 2.0064).
inline constexpr std::array<std::int8_t, 128> mark_magnitudes = {
    0,  0,  1,  1,  1,  2,  2,  2,  3,  3,  3,  4,  4,  4,  5,  5,  5,  6,  6,  6,  6,  7,  7,  7,  8,  8,
    8,  9,  9,  9,  10, 10, 10, 11, 11, 11, 12, 12, 12, 13, 13, 13, 14, 14, 14, 15, 15, 15, 16, 16, 17, 17,
    17, 18, 18, 18, 19, 19, 19, 20, 20, 21, 21, 21, 22, 22, 23, 23, 23, 24, 24, 25, 25, 25, 26, 26, 27, 27,
    28, 28, 29, 29, 30, 30, 31, 31, 32, 32, 33, 33, 34, 34, 35, 35, 36, 37, 37, 38, 38, 39, 40, 40, 41, 42,
    43, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 56, 57, 59, 61, 63, 65, 67, 71, 75, 81, 95};

/// The mark that a byte of a key stream names, times 32.
constexpr std::int8_t mark_level(std::uint8_t byte) noexcept {
    const std::int8_t magnitude = mark_magnitudes[byte & 0x7f];
    return static_cast<std::int8_t>(byte < 0x80 ? magnitude : -magnitude);
}

/// The matrix of a site that is marked. The values are part of docs/design/random-streams.md.
enum class marked_matrix : std::uint32_t { b = 0, a = 1 };

/// The secret marks of one tenant in one adapter, by which a copy of the tenant's matrices names it: small
/// changes that nobody tells from noise without the seed. They belong to the name of a site, so that neither
/// another order of the sites nor a new revision changes them, and every machine computes the same bits
/// (docs/design/random-streams.md, "Marks").
///
/// Wiped on destruction. Const members may be called from any thread.
class marks {
  public:
    /// The change of an entry, in parts of its column's or row's root mean square, that is a compromise:
    /// smaller ones drown sooner where a copy is quantised, larger ones cost quality.
    static constexpr double default_strength = 0x1p-5;

    /// Names the marks of a tenant.
    /// @param tenant    a secret seed that is used for nothing else; keystore::mark_key gives it
    /// @param strength  in [2^-9, 2^-3]: below that they are lost where a copy is rounded to BF16
    /// @throws parameter_error for another strength
    explicit marks(const random::seed& tenant, double strength = default_strength)
        : tenant_(tenant), strength_(strength) {
        require<parameter_error>(strength >= 0x1p-9 && strength <= 0x1p-3,
                                 {"marks: got the strength ", strength, ", expected one in [2^-9, 2^-3]"});
    }
    marks(const marks&) = default;
    marks& operator=(const marks&) = default;
    ~marks() { memory::wipe(tenant_); }

    /// Returns the bytes of a site's marks: those of the matrix's entries, row after row, for mark_level.
    random::chacha20_stream bytes(std::string_view site, marked_matrix of) const {
        random::input_hash hash(tenant_);
        hash.add(std::span<const char>(site));
        random::seed of_site = hash.result();
        const memory::wipe_guard guard(of_site);
        return random::chacha20_stream(of_site, random::stream_domain::mark, static_cast<std::uint32_t>(of));
    }

    /// Returns the marks of the first `count` entries of a site's matrix, row after row, times 32.
    std::vector<std::int8_t> levels(std::string_view site, marked_matrix of, std::size_t count) const {
        constexpr std::size_t block = random::chacha20_block_bytes;
        std::vector<std::int8_t> result((count + block - 1) / block * block);
        bytes(site, of).generate(0, {reinterpret_cast<std::uint8_t*>(result.data()), result.size()});
        result.resize(count);
        std::transform(result.begin(), result.end(), result.begin(),
                       [](std::int8_t each) { return mark_level(static_cast<std::uint8_t>(each)); });
        return result;
    }

    /// Adds to each entry of B, or of A, its mark times the strength and the root mean square of its column
    /// of B, or its row of A. Columns or rows of zeros, and empty matrices, stay as they are.
    ///
    /// As columns of B may be scaled first without changing what is added to them but by rounding, it is all
    /// one whether B has the norms of A's rows (client_part) or not.
    /// @throws shape_error, and encoding_error for an entry that is not finite, before or with its mark
    adapter added_to(marked_matrix which, adapter to) const {
        for (adapter_site& site : to.sites) {
            add_to(site, which);
        }
        return to;
    }
    /// Adds them to a matrix of one site.  @throws as added_to
    void add_to(adapter_site& site, marked_matrix which) const {
        const bool of_b = which == marked_matrix::b;
        matrix& to = of_b ? site.b : site.a;
        to.check(text_of({"marks: ", of_b ? "B" : "A", " of site ", in_quotes(site.name)}));
        detail::check_entries("marks", site);
        // Squares of floats, and steps times marks, are exact: a fused product changes no bit.
        std::vector<double> sums(of_b ? to.columns : to.rows);
        const auto for_each = [&](auto f) {
            for (std::size_t r = 0, i = 0; r < to.rows; ++r) {
                for (std::size_t c = 0; c < to.columns; ++c, ++i) {
                    f(i, of_b ? c : r);
                }
            }
        };
        for_each([&](std::size_t i, std::size_t k) {
            const double x = to.values[i];
            sums[k] += x * x;
        });
        std::vector<float> steps(sums.size());
        const auto entries = static_cast<double>(of_b ? to.rows : to.columns);
        std::transform(sums.begin(), sums.end(), steps.begin(), [&](double sum) {
            return static_cast<float>(strength_ / 32 * std::sqrt(sum / entries));
        });
        const std::vector<std::int8_t> level = levels(site.name, which, to.values.size());
        for_each([&](std::size_t i, std::size_t k) {
            const double change = static_cast<double>(steps[k]) * level[i];
            to.values[i] = static_cast<float>(to.values[i] + change);
        });
        detail::check_entries("marks, in a sum that passes float", site);
    }

    /// Returns a number that tells these marks, with whatever is added, from others. It says nothing of them.
    std::uint64_t number(std::span<const std::uint64_t> with = {}) const {
        random::input_hash hash(tenant_);
        hash.add(std::span(&strength_, 1));
        hash.add(with);
        random::seed result = hash.result();
        const memory::wipe_guard guard(result);
        std::uint64_t number = 0;
        std::memcpy(&number, result.bytes.data(), sizeof number);
        return number;
    }

  private:
    random::seed tenant_;
    double strength_;
};

/// Checks that a copy rounded back to the grid of an adapter's entries, where they stand on one, still has
/// its marks of default_strength: a matrix of 64 entries or more must take 4.5 bits an entry (entropy_bits).
/// One of zeros, which has no marks anyway, passes.
/// @throws parameter_error, naming the site, for a coarser grid; as entropy_bits
inline void check_markable(const adapter& from, marked_matrix which) {
    for (const adapter_site& site : from.sites) {
        const matrix& m = which == marked_matrix::b ? site.b : site.a;
        const double bits = entropy_bits(m) / static_cast<double>(std::max<std::size_t>(m.values.size(), 1));
        require<parameter_error>(
            bits >= 4.5 || bits == 0 || m.values.size() < 64,
            {"marks: ", which == marked_matrix::b ? "B" : "A", " of site ", in_quotes(site.name), " has ",
             bits,
             " bits an entry, expected 4.5: whoever rounds a copy to so coarse a grid removes its marks"});
    }
}

}  // namespace tensafe::lora
