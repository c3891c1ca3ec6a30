// CKKS on stacks: operations entry by entry, rescaling, encryption and decryption.
#include <tensafe/device/ckks/ciphertext.hpp>
#include <tensafe/device/ckks/decrypt.hpp>
#include <tensafe/device/ckks/encrypt.hpp>
#include <tensafe/device/cuda/cuda.cuh>

#include <cstddef>

namespace {

using namespace tensafe;
using space = device::cuda::space;

/// What every set does.
template <class P, class Schedule>
void use_set(device::cuda where, const random::seed* seeds, arith::word* words,
             const ckks::secret_key<P>& key) {
    using basis = typename P::basis;
    constexpr int limbs = P::limbs < 2 ? P::limbs : 2;
    const device::secret_keys<P, space> keys(where, key);
    const device::plan<basis, space> plan(where);
    device::encryption_workspace<P, space> work(1);
    device::encrypt<P, P::max_level, Schedule>(where, plan, keys, device::load_words<basis>{words}, 1,
                                               {seeds, seeds}, words, words, work);
    const device::stack_view c = device::view_of<basis>(words);
    device::decrypt_trace<limbs>(where, keys, c, c, 1, 4, words);
    if constexpr (P::limbs != 2) {  // the inverse is slow to compile
        const device::plan<rns::prefix<basis, limbs>, space> short_plan(where);
        device::decrypt_to_coefficients<limbs, Schedule>(where, short_plan, keys, c, c, 1, words);
    }
}

/// Public keys and a server's operations.
template <class P, class Schedule>
void use_all(device::cuda where, const random::seed* seeds, arith::word* words,
             const ckks::public_key<P>& key) {
    using basis = typename P::basis;
    using form = rns::evaluation_form;
    const device::public_key<P, space> keys(where, key);
    const device::plan<basis, space> plan(where);
    device::public_encryption_workspace<P, space> work(1);
    device::encrypt<P, P::max_level, Schedule>(where, plan, keys, device::load_words<basis>{words}, 1, seeds,
                                               words, work);
    device::ciphertexts<P, space> a(1);
    const device::ciphertexts<P, space> b(1);
    const device::plaintexts<P, form, space> plain{device::secret_poly_stack<basis, form, space>(1)};
    device::add(where, a, b);
    device::subtract(where, a, b);
    device::negate(where, a.halves);
    device::multiply_plain(where, a, plain);
    const device::rescale_plans<basis, space> plans(where);
    static_cast<void>(device::rescale<Schedule>(where, plans, b));
    static_cast<void>(device::level_reduce<0>(where, b));
}

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void launch_ckks(device::cuda where, const random::seed* seeds, arith::word* words);
void launch_ckks(device::cuda where, const random::seed* seeds, arith::word* words) {
    random::generator source;
    using large = ckks::n16384_l4;
    // Two passes: one block for a limb of this size takes ptxas as long as all of these together.
    const ckks::secret_key<large> key(source);
    use_set<large, device::schedule::two_pass>(where, seeds, words, key);
    use_all<large, device::schedule::two_pass>(where, seeds, words, ckks::public_key<large>(key, source));
    use_set<ckks::private_n4096, device::schedule::tuned>(where, seeds, words,
                                                          ckks::secret_key<ckks::private_n4096>(source));
    use_set<ckks::minimal_n2048, device::schedule::tuned>(where, seeds, words,
                                                          ckks::secret_key<ckks::minimal_n2048>(source));
}
