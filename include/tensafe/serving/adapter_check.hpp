#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/quoted_name.hpp>
#include <tensafe/lora/adapter/adapter.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>

namespace tensafe::serving {

/// Refuses an adapter that nothing can be packed from, whoever made it: every site needs a name of its own,
/// an A and a B that fit each other, and numbers. Reads every value once. Thread safety: a pure function.
/// @throws parameter_error without sites, for a site without a name, a name that occurs twice, or a scale
///         that is not finite; shape_error for matrices that are empty or do not fit; encoding_error for a
///         value that is not finite. The message names the site.
inline void check_adapter(const lora::adapter& matrices) {
    if (matrices.sites.empty()) {
        throw parameter_error("adapter: got no sites, wanted at least one");
    }
    std::set<std::string_view> names;
    for (const lora::adapter_site& site : matrices.sites) {
        const auto where = [&] { return "adapter: site " + lora::detail::quoted_name(site.name) + ": "; };
        if (site.name.empty() || !names.insert(site.name).second) {
            throw parameter_error(where() + (site.name.empty() ? "it has no name" : "the name occurs twice"));
        }
        try {
            site.a.check("A");
            site.b.check("B");
        } catch (const shape_error& e) {
            throw shape_error(where() + e.what());
        }
        if (site.a.values.empty() || site.b.values.empty() || site.b.columns != site.a.rows) {
            throw shape_error(where() + "got A " + std::to_string(site.a.rows) + " x " +
                              std::to_string(site.a.columns) + " and B " + std::to_string(site.b.rows) +
                              " x " + std::to_string(site.b.columns) +
                              ", wanted rank x d_in and d_out x rank");
        }
        if (!std::isfinite(site.scale)) {
            throw parameter_error(where() + "the scale is not a finite number");
        }
        for (const lora::matrix* m : {&site.a, &site.b}) {
            const auto bad = std::find_if_not(m->values.begin(), m->values.end(),
                                              [](float x) { return std::isfinite(x); });
            if (bad != m->values.end()) {
                const auto entry = static_cast<std::size_t>(bad - m->values.begin());
                throw encoding_error(where() + (m == &site.a ? "A" : "B") + "[" +
                                     std::to_string(entry / m->columns) + "][" +
                                     std::to_string(entry % m->columns) + "] is not a finite number");
            }
        }
    }
}

}  // namespace tensafe::serving
