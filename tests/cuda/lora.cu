// The kernels of encrypted LoRA for n16384_l4; token.cu has those of the other named sets.
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/lora/decrypt.hpp>
#include <tensafe/device/lora/messages.hpp>
#include <tensafe/device/lora/rerandomize.hpp>
#include <tensafe/device/rns/products.hpp>

// Called by nobody: the kernels are compiled because they are named here.
void launch_every_lora_kernel(const tensafe::device::cuda& where,
                              const tensafe::device::product_batch& products,
                              const tensafe::device::rerandomization& hiding, double* values);
void launch_every_lora_kernel(const tensafe::device::cuda& where,
                              const tensafe::device::product_batch& products,
                              const tensafe::device::rerandomization& hiding, double* values) {
    using namespace tensafe;
    using P = ckks::n16384_l4;
    using basis = lora::traced_product<P>::basis;
    device::multiply<basis>(where, products);
    device::pack<basis>(where, products.c0, 1, hiding.replies);
    device::unpack<basis>(where, hiding.replies, 1, products.c1_out, nullptr, 1);
    const device::trace_tables<basis, device::cuda::space> trace(where, 2);
    device::rerandomize_c0<basis>(where, trace, ckks::irwin_hall_smudging{1}, hiding);
    device::rerandomize_c1<basis>(where, hiding);
    device::decrypt_replies<P>(where, hiding.replies, hiding.stride, hiding.places, 1, 1, hiding.e1,
                               products.client_of, 2, values);
}
