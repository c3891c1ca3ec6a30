// The word arithmetic is one source for host and device: each policy compiles inside a kernel.
#include <tensafe/arith/barrett.hpp>
#include <tensafe/arith/below.hpp>
#include <tensafe/arith/fp64.hpp>
#include <tensafe/arith/modulus.hpp>
#include <tensafe/arith/montgomery.hpp>
#include <tensafe/arith/shoup.hpp>
#include <tensafe/arith/word.hpp>
#include <tensafe/core/macros.hpp>
#include <tensafe/core/precondition.hpp>

namespace {

using namespace tensafe::arith;

template <class Policy>
__device__ word product(const Policy& policy, typename Policy::factor factor, word value) {
    using operand = below<1, typename Policy::modulus_type, decltype(Policy::from_word(0))>;
    const auto lazy = policy.multiply(operand{Policy::from_word(value)}, factor);
    return Policy::to_word(reduce<1>(policy.modulus(), lazy).value);
}

/// A modulus known at run time: the policy is a kernel argument.
template <class Policy>
__global__ void scale(Policy policy, typename Policy::factor factor, word* values) {
    values[threadIdx.x] = product(policy, factor, values[threadIdx.x]);
}

/// A modulus in the type: the policy is empty, which nvcc rejects as an argument, so the kernel makes its
/// own.
template <class Policy>
__global__ void scale_fixed(typename Policy::factor factor, word* values) {
    values[threadIdx.x] = product(Policy(), factor, values[threadIdx.x]);
}

template <template <class> class Policy, word Q>
void launch_both(word* values) {
    using fixed = Policy<fixed_modulus<Q>>;
    using runtime = Policy<runtime_modulus<fixed_modulus<Q>::bits>>;
    scale_fixed<fixed><<<1, 32>>>(fixed().prepare(3), values);
    const runtime policy{typename runtime::modulus_type(Q)};
    scale<runtime><<<1, 32>>>(policy, policy.prepare(3), values);
}

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void launch_every_policy(word* values);
void launch_every_policy(word* values) {
    constexpr word prime_of_60_bits = 1152921504606584833;
    constexpr word prime_of_50_bits = 1125899906826241;
    launch_both<barrett, prime_of_60_bits>(values);
    launch_both<montgomery, prime_of_60_bits>(values);
    launch_both<shoup, prime_of_60_bits>(values);
    launch_both<fp64, prime_of_50_bits>(values);
}
