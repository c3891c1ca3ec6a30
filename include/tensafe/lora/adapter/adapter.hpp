#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensafe::lora {

/// A dense row-major matrix of single-precision values: BF16, F16 and F32 weights are held exactly.
struct matrix {
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::vector<float> values;  ///< rows * columns entries, row after row

    matrix() = default;
    /// Makes a matrix of entries 0.  @throws shape_error if row_count * column_count passes what fits memory
    matrix(std::size_t row_count, std::size_t column_count)
        : rows(row_count), columns(column_count), values(count(row_count, column_count)) {}

    /// Checks the matrix.  @throws shape_error, naming `what`, unless there are rows * columns values
    void check(std::string_view what) const {
        if (columns == 0 ? !values.empty()
                         : values.size() % columns != 0 || values.size() / columns != rows) {
            throw shape_error({what, ": got ", values.size(), " values for a ", rows, " x ", columns,
                               " matrix, expected ", rows * columns});
        }
    }

    /// The entries of row r.  @pre r < rows
    std::span<const float> row(std::size_t r) const& noexcept {
        return {values.data() + r * columns, columns};
    }
    std::span<float> row(std::size_t r) & noexcept { return {values.data() + r * columns, columns}; }
    std::span<const float> row(std::size_t r) const&& = delete;  // keep the matrix: the row lies in it

  private:
    static std::size_t count(std::size_t row_count, std::size_t column_count) {
        require<shape_error>(
            column_count == 0 || row_count <= std::vector<float>().max_size() / column_count,
            {"matrix: got ", row_count, " x ", column_count, ", more entries than fit memory"});
        return row_count * column_count;
    }
};

/// The dimensions of a site.
struct site_shape {
    std::size_t rank = 0;
    std::size_t d_in = 0;
    std::size_t d_out = 0;
};

/// One place of the model where the adapter acts: delta = scale * B * (A * h).
struct adapter_site {
    std::string name;    ///< module path, for example "model.layers.0.self_attn.q_proj"
    matrix a;            ///< rank x d_in
    matrix b;            ///< d_out x rank
    double scale = 1.0;  ///< lora_alpha / rank, or lora_alpha / sqrt(rank) with rank-stabilised LoRA

    std::size_t rank() const noexcept { return a.rows; }
    std::size_t d_in() const noexcept { return a.columns; }
    std::size_t d_out() const noexcept { return b.rows; }
    site_shape shape() const noexcept { return {rank(), d_in(), d_out()}; }
};

namespace detail {
/// Checks the entries of A and B.  @throws encoding_error, naming the first one that is no finite number
inline void check_entries(const char* who, const adapter_site& site) {
    for (const matrix* m : {&site.a, &site.b}) {
        const auto bad =
            std::find_if_not(m->values.begin(), m->values.end(), [](float x) { return std::isfinite(x); });
        if (bad != m->values.end()) {
            const auto entry = static_cast<std::size_t>(bad - m->values.begin());
            throw encoding_error({who, ": site ", in_quotes(site.name), ": ", (m == &site.a ? "A" : "B"), "[",
                                  entry / m->columns, "][", entry % m->columns, "] is not a finite number"});
        }
    }
}
}  // namespace detail

/// A whole LoRA adapter: its sites, in the order in which the file names them.
struct adapter {
    std::vector<adapter_site> sites;
    std::vector<std::string> notes{};  ///< what a reader of files left out, in sentences; most have none
    /// Activated LoRA: only positions from the last occurrence of these tokens on have deltas, which whoever
    /// asks for deltas must see to. None: all positions have.
    std::vector<std::uint32_t> invocation_tokens{};

    /// The site whose name equals `suffix`, or else the only one whose name ends with "." + suffix.
    /// @throws parameter_error if none or several match; the message lists the candidates
    const adapter_site& site(std::string_view suffix) const& {
        const adapter_site* found = nullptr;
        std::string candidates;
        std::size_t matches = 0;
        for (const adapter_site& candidate : sites) {
            if (candidate.name == suffix) {
                return candidate;
            }
            if (ends_with_component(candidate.name, suffix)) {
                found = &candidate;
                ++matches;
                candidates += "\n  " + quote(candidate.name);
            }
        }
        if (matches == 1) {
            return *found;
        }
        if (matches == 0) {
            for (const adapter_site& candidate : sites) {
                candidates += "\n  " + quote(candidate.name);
            }
        }
        throw parameter_error(
            {"adapter: site ", in_quotes(suffix), " matches ", matches,
             " sites (whole parts between dots count), expected exactly one of:", candidates});
    }
    const adapter_site& site(std::string_view suffix) && = delete;  // the adapter must outlive its site

  private:
    static bool ends_with_component(std::string_view name, std::string_view suffix) noexcept {
        return name.size() > suffix.size() && name.ends_with(suffix) &&
               name[name.size() - suffix.size() - 1] == '.';
    }
};

}  // namespace tensafe::lora
