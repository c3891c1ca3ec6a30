#include "../run_tiles.hpp"
#include "../sets.hpp"

namespace examples {

// The shortest messages: half the precision, and a flood that hides little.
report run_minimal_n2048(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                         const arguments& args) {
    namespace lora = tensafe::lora;
    using protection = lora::protects_adapter_rows<lora::calibrated<5>, lora::reduced_precision>;
    return run_tiles<tensafe::ckks::minimal_n2048, protection>(site, hidden, args);
}

}  // namespace examples
