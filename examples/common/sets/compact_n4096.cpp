#include "../run_tiles.hpp"
#include "../sets.hpp"

namespace examples {

// A shorter modulus, paid for with a calibrated range: an answer beyond six times the usual size wraps
// around, which the client notices.
report run_compact_n4096(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                         const arguments& args) {
    namespace lora = tensafe::lora;
    using protection = lora::protects_adapter_rows<lora::calibrated<6>, lora::standard_precision>;
    return run_tiles<tensafe::ckks::compact_n4096, protection>(site, hidden, args);
}

}  // namespace examples
