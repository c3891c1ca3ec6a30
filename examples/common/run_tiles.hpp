#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "run.hpp"

namespace examples {

/// One number of rows that a program was built for, and what it would send for a site.
struct tiling {
    int rows;
    std::size_t bytes;
    report (*run)(const tensafe::lora::adapter_site&, const tensafe::lora::matrix&, const arguments&);
};

/// Rows are part of the type, so the choice at run time is among instantiations. A program for one known
/// model lets the compiler choose: lora::best_tiling.
template <class P, class Protection, int... Rows>
report run_tiles_of(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                    const arguments& args) {
    namespace lora = tensafe::lora;
    std::vector<tiling> tilings;
    std::string reason;
    const auto consider = [&]<int R>() {
        using packing = lora::coefficient_tiles<R>;
        try {
            const auto cost = lora::cost_of<P, packing, Protection>(site.shape(), mode_of(args));
            tilings.push_back({R, cost.bytes(), run_protected<P, packing, Protection>});
        } catch (const tensafe::parameter_error& e) {
            reason = e.what();  // this set cannot hold such replies with R rows
        }
    };
    (consider.template operator()<Rows>(), ...);

    const tiling* chosen = nullptr;
    std::string available;
    for (const tiling& t : tilings) {
        available += " " + std::to_string(t.rows);
        const bool wanted = args.rows == "auto" ? chosen == nullptr || t.bytes < chosen->bytes
                                                : args.rows == std::to_string(t.rows);
        if (wanted) {
            chosen = &t;
        }
    }
    if (chosen == nullptr) {
        throw usage_error(args.params + " cannot serve this site with --rows " + args.rows + ": " + reason +
                          (available.empty() ? "" : "\n--rows that it can:" + available));
    }
    report result = chosen->run(site, hidden, args);
    result.predicted.rows = static_cast<std::size_t>(chosen->rows);
    return result;
}

template <class P, class Protection>
report run_tiles(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                 const arguments& args) {
    return run_tiles_of<P, Protection, 1, 2, 4, 8, 16, 32>(site, hidden, args);
}

}  // namespace examples
