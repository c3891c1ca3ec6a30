// The butterflies of the transforms and the block function of the random streams are one source for host and
// device.
#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/ntt/butterfly.hpp>
#include <tensafe/ntt/order.hpp>
#include <tensafe/random/chacha20_block.hpp>

namespace {

using namespace tensafe;

template <class Policy>
__global__ void butterfly(Policy policy, typename Policy::factor w, arith::word* data) {
    using value = ntt::residue<Policy, 1>;
    arith::word* x = data + threadIdx.x;
    arith::word* y = x + blockDim.x;
    const auto f =
        ntt::forward_butterfly(policy, value{Policy::from_word(*x)}, value{Policy::from_word(*y)}, w);
    const auto g = ntt::inverse_butterfly(policy, arith::reduce<1>(policy.modulus(), f.first),
                                          arith::reduce<1>(policy.modulus(), f.second), w);
    *x = Policy::to_word(arith::reduce<1>(policy.modulus(), g.first).value);
    *y = Policy::to_word(arith::reduce<1>(policy.modulus(), g.second).value);
    data[2 * blockDim.x + ntt::bit_reverse(threadIdx.x, 5)] = *x;
}

__global__ void key_stream(const std::uint32_t* key, const std::uint32_t* nonce, std::uint32_t* out) {
    random::chacha20_block(key, threadIdx.x, nonce, out + 16 * threadIdx.x);
}

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void launch_butterflies(arith::word* data, const std::uint32_t* key, std::uint32_t* out);
void launch_butterflies(arith::word* data, const std::uint32_t* key, std::uint32_t* out) {
    const arith::shoup<arith::runtime_modulus<60>> words{arith::runtime_modulus<60>(1152921504606584833)};
    const arith::fp64<arith::runtime_modulus<50>> doubles{arith::runtime_modulus<50>(1125899906826241)};
    butterfly<<<1, 32>>>(words, words.prepare(3), data);
    butterfly<<<1, 32>>>(doubles, doubles.prepare(3), data);
    key_stream<<<1, 32>>>(key, key + 8, out);
}
