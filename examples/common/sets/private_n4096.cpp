#include "../run_tiles.hpp"
#include "../sets.hpp"

namespace examples {

// Room for a rigorous range and a wide flood: the default, and all packings.
report run_private_n4096(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                         const arguments& args) {
    namespace lora = tensafe::lora;
    using params = tensafe::ckks::private_n4096;
    using protection = lora::protects_adapter_rows<lora::rigorous, lora::standard_precision>;
    if (args.packing == "replicated_slots") {
        return run_protected<params, lora::replicated_slots<>, protection>(site, hidden, args);
    }
    if (args.packing == "column_batched") {
        return run_batch<params, protection>(site, hidden, args);
    }
    return run_tiles<params, protection>(site, hidden, args);
}

}  // namespace examples
