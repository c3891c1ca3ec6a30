// The kernels of encrypted LoRA, for the named parameter sets: what they compile to is looked at elsewhere.
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/lora/decrypt.hpp>
#include <tensafe/device/lora/messages.hpp>
#include <tensafe/device/lora/rerandomize.hpp>
#include <tensafe/device/rns/products.hpp>

#include <cstddef>
#include <cstdint>

namespace {

using namespace tensafe;

template <class P>
void launch_all(const device::cuda& where, const device::product_batch& products,
                const device::rerandomization& hiding, double* values) {
    using basis = typename lora::traced_product<P>::basis;
    device::multiply<basis>(where, products);
    device::pack<basis>(where, products.c0, 1, hiding.replies);
    device::unpack<basis>(where, hiding.replies, 1, products.c1_out, nullptr, 1);
    const device::trace_tables<basis, device::cuda::space> trace(where, 2);
    device::rerandomize_c0<basis>(where, trace, ckks::irwin_hall_smudging{1}, hiding);
    device::rerandomize_c1<basis>(where, hiding);
    device::decrypt_replies<P>(where, hiding.replies, hiding.stride, hiding.places, 1, 1, hiding.e1,
                               products.client_of, 2, values);
}

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void launch_every_lora_kernel(const device::cuda& where, const device::product_batch& products,
                              const device::rerandomization& hiding, double* values);
void launch_every_lora_kernel(const device::cuda& where, const device::product_batch& products,
                              const device::rerandomization& hiding, double* values) {
    launch_all<ckks::n16384_l4>(where, products, hiding, values);
    launch_all<ckks::private_n4096>(where, products, hiding, values);
    launch_all<ckks::minimal_n2048>(where, products, hiding, values);
}
