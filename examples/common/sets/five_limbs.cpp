#include "../run_slots.hpp"
#include "../sets.hpp"

namespace examples {

report run_n16384_l5(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                     const arguments& args) {
    return run_slots<tensafe::ckks::n16384_l5>(site, hidden, args);
}

report run_n32768_l5(const tensafe::lora::adapter_site& site, const tensafe::lora::matrix& hidden,
                     const arguments& args) {
    return run_slots<tensafe::ckks::n32768_l5>(site, hidden, args);
}

}  // namespace examples
