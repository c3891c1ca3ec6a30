// The kernels of encrypted LoRA, for the named parameter sets: what they compile to is looked at elsewhere.
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/device_space.cuh>
#include <tensafe/device/lora/hide.hpp>
#include <tensafe/device/lora/open.hpp>
#include <tensafe/device/rns/products.hpp>
#include <tensafe/device/wire/bits.hpp>

#include <cstddef>
#include <cstdint>

namespace {

using namespace tensafe;

template <class P>
void launch_all(const exec::cuda& where, const rns::block_products& products,
                const lora::block_hiding& hiding, double* values) {
    using basis = typename lora::traced_product<P>::basis;
    rns::multiply_blocks<basis>(where, products);
    wire::pack_blocks<basis>(where, products.c0, 1, hiding.replies);
    wire::unpack_blocks<basis>(where, hiding.replies, 1, products.c1_out, nullptr, 1);
    const rns::block_trace<basis, exec::cuda::space> trace(where, 2);
    lora::hide_c0_blocks<basis>(where, trace, ckks::irwin_hall_smudging{1}, hiding);
    lora::hide_c1_blocks<basis>(where, hiding);
    lora::open_blocks<P>(where, hiding.replies, hiding.stride, hiding.places, 1, 1, hiding.e1,
                         products.client_of, 2, values);
}

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void launch_every_lora_kernel(const exec::cuda& where, const rns::block_products& products,
                              const lora::block_hiding& hiding, double* values);
void launch_every_lora_kernel(const exec::cuda& where, const rns::block_products& products,
                              const lora::block_hiding& hiding, double* values) {
    launch_all<ckks::n16384_l4>(where, products, hiding, values);
    launch_all<ckks::private_n4096>(where, products, hiding, values);
    launch_all<ckks::minimal_n2048>(where, products, hiding, values);
}
