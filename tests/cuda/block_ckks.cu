// CKKS on stacks: operations entry by entry, rescaling, encryption and decryption.
#include <tensafe/device/ckks/ciphertext.hpp>
#include <tensafe/device/ckks/decrypt.hpp>
#include <tensafe/device/ckks/encrypt.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/cuda/device_space.cuh>

#include <cstddef>

namespace {

using namespace tensafe;
using space = exec::cuda::space;

/// What every set does.
template <class P, class Schedule>
void use_set(exec::cuda where, const random::seed* seeds, arith::word* words,
             const ckks::secret_key<P>& key) {
    using basis = typename P::basis;
    constexpr int limbs = P::limbs < 2 ? P::limbs : 2;
    const ckks::block_secret_key<P, space> keys(where, key);
    const ntt::block_plan<basis, space> plan(where);
    ckks::block_encryption_workspace<P, space> work(1);
    ckks::encrypt_blocks<P, P::max_level, Schedule>(where, plan, keys, ntt::load_words<basis>{words}, 1,
                                                    {seeds, seeds}, words, words, work);
    const rns::stack_view c = rns::view_of<basis>(words);
    ckks::decrypt_trace_blocks<limbs>(where, keys, c, c, 1, 4, words);
    if constexpr (P::limbs != 2) {  // the inverse is slow to compile
        const ntt::block_plan<rns::prefix<basis, limbs>, space> short_plan(where);
        ckks::decrypt_to_coefficients_blocks<limbs, Schedule>(where, short_plan, keys, c, c, 1, words);
    }
}

/// Public keys and a server's operations.
template <class P, class Schedule>
void use_all(exec::cuda where, const random::seed* seeds, arith::word* words,
             const ckks::public_key<P>& key) {
    using basis = typename P::basis;
    using form = rns::evaluation_form;
    const ckks::block_public_key<P, space> keys(where, key);
    const ntt::block_plan<basis, space> plan(where);
    ckks::block_public_encryption_workspace<P, space> work(1);
    ckks::encrypt_blocks<P, P::max_level, Schedule>(where, plan, keys, ntt::load_words<basis>{words}, 1,
                                                    seeds, words, work);
    ckks::block_ciphertexts<P, space> a(1);
    const ckks::block_ciphertexts<P, space> b(1);
    const ckks::block_plaintexts<P, form, space> plain{rns::secret_poly_stack<basis, form, space>(1)};
    ckks::add(where, a, b);
    ckks::subtract(where, a, b);
    rns::negate(where, a.halves);
    ckks::multiply_plain(where, a, plain);
    const rns::rescale_plans<basis, space> plans(where);
    static_cast<void>(ckks::rescale<Schedule>(where, plans, b));
    static_cast<void>(ckks::level_reduce<0>(where, b));
}

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void launch_ckks(exec::cuda where, const random::seed* seeds, arith::word* words);
void launch_ckks(exec::cuda where, const random::seed* seeds, arith::word* words) {
    random::generator source;
    using large = ckks::n16384_l4;
    // Two passes: one block for a limb of this size takes ptxas as long as all of these together.
    const ckks::secret_key<large> key(source);
    use_set<large, ntt::two_pass>(where, seeds, words, key);
    use_all<large, ntt::two_pass>(where, seeds, words, ckks::public_key<large>(key, source));
    use_set<ckks::private_n4096, ntt::tuned>(where, seeds, words,
                                             ckks::secret_key<ckks::private_n4096>(source));
    use_set<ckks::minimal_n2048, ntt::tuned>(where, seeds, words,
                                             ckks::secret_key<ckks::minimal_n2048>(source));
}
