#pragma once

#include "run.hpp"

namespace examples {

/// The classic packing on a long chain, bare or protected.
template <class P>
report run_slots(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                 const arguments& args) {
    namespace lora = tensafe::lora;
    if (args.protection == "protected") {
        return run_protected<P, lora::replicated_slots<>, lora::protects_adapter_rows<>>(site, hidden, args);
    }
    if (args.rescale) {
        return run_bare<P, lora::replicated_slots<lora::paired_rows, lora::rescaled_replies>>(site, hidden,
                                                                                              args);
    }
    return run_bare<P, lora::replicated_slots<lora::paired_rows>>(site, hidden, args);
}

}  // namespace examples
