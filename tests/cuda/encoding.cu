// The kernels of encodings, as the named parameter sets use them.
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/cuda/cuda.cuh>
#include <tensafe/device/encoding/decode.hpp>
#include <tensafe/device/encoding/reals.hpp>
#include <tensafe/device/encoding/slot_transform.hpp>
#include <tensafe/device/exec/thread_blocks.hpp>

namespace {

using namespace tensafe;

/// What the first step of a transform does with its load functor.
template <class Basis, class Load>
struct store_loaded {
    static constexpr int threads = 256;
    using shared_type = device::no_shared;

    Load load;
    device::store_words<Basis> store;

    template <class Context>
    TENSAFE_HOST_DEVICE void operator()(Context& ctx) const {
        device::with_index<Basis::limbs>(static_cast<int>(ctx.block().y), [&]<int I>() {
            ctx.last([&](int t) {
                const std::size_t k = 2 * static_cast<std::size_t>(t);
                store.template pair<I>(ctx.block().x, k, load.template pair<I>(ctx.block().x, k));
            });
        });
    }
};

template <class Basis>
struct launches {
    static constexpr int log_n = Basis::log_n;
    const device::cuda where;
    const device::slot_tables<device::device_space> tables{where, log_n};

    void of_slots(const float* states, double* a, double* b, arith::word* words) {
        device::to_coefficients<log_n>(where, tables,
                                       device::load_replicated<float>{states, 4096, a, 1, 4096, 1}, b, 1);
        device::decode_slots<Basis>(where, tables, words, 1.0, a, b, 1);
    }

    template <class Real>
    void of_coefficients(const Real* values, const double* scales, const std::int8_t* errors,
                         arith::word* words) {
        using load = device::load_rounded<Basis, Real>;
        where.launch(
            store_loaded<Basis, load>{load{values, 4096, 4096, scales, errors, 1, Basis::degree}, {words}},
            {1, static_cast<std::uint32_t>(Basis::limbs)});
    }

    template <int Limbs>
    void of_traces(const arith::word* sums, double* slots) {
        using basis = rns::prefix<Basis, Limbs>;
        const device::folded_slot_tables<basis, device::device_space> traces(where, 2);
        device::decode_trace<basis>(where, traces, sums, 1.0, slots, 1);
    }
};

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void launch_encodings(float* states, double* a, double* b, std::int8_t* errors, arith::word* words);
void launch_encodings(float* states, double* a, double* b, std::int8_t* errors, arith::word* words) {
    launches<ckks::n16384_l4::basis> large;
    large.of_slots(states, a, b, words);
    large.of_coefficients(a, nullptr, errors, words);
    large.of_traces<2>(words, a);
    launches<ckks::private_n4096::basis> middle;
    middle.of_slots(states, a, b, words);
    middle.of_coefficients(states, a, errors, words);
    middle.of_traces<2>(words, a);
    launches<ckks::minimal_n2048::basis>{}.of_coefficients(states, a, errors, words);
    device::to_coefficients<14>(large.where, large.tables, device::load_slots{14, a}, b, 1);
    const device::slot_tables<device::device_space> two_launches(large.where, 15);
    device::to_slots<15>(large.where, two_launches, a, b, 1);
    device::to_coefficients<15>(large.where, two_launches, device::load_slots{15, b}, a, 1, b + 32768);
    device::squared_norms(large.where, states, 4096, 1, a);
}
