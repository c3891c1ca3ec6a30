// The rank-32 token by rotations beside the packings that need none: server and client apart, bytes of
// messages and keys, and the error. And rotations of one ciphertext, hoisted and not.

#include <tensafe/ckks/linear_transform.hpp>
#include <tensafe/wire/ciphertext.hpp>
#include <tensafe/wire/evaluation_key.hpp>

#include <algorithm>
#include <numeric>
#include <optional>

#include "common.hpp"

namespace {

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;

constexpr std::size_t rank = 32;
constexpr std::size_t d = 2048;

/// Root mean square of the errors over that of the answers.
double relative_error(const lora::matrix& a, const lora::matrix& h, const auto& answers) {
    double error = 0;
    double size = 0;
    for (std::size_t r = 0; r < rank; ++r) {
        const auto row = a.row(r);
        const double exact = std::inner_product(row.begin(), row.end(), h.row(0).begin(), 0.0);
        error += (answers[r] - exact) * (answers[r] - exact);
        size += exact * exact;
    }
    return std::sqrt(error / size);
}

/// One ciphertext of 2048 slots each way, double hoisted.
struct by_rotations {
    using P = ckks::n4096_depth0;
    using transform = ckks::linear_transform<P, ckks::matrix<rank, d>>;

    void encrypt() { request = ckks::encrypt(secret, ckks::encode_slots<P>(hidden, 0x1p25), generator); }
    void apply() { reply = ckks::multiply(adapter, ckks::expand(*request), keys); }
    void decrypt() {
        const auto slots = ckks::decrypt_slots(secret, *reply);
        std::transform(slots.begin(), slots.begin() + rank, answers.begin(), [](auto z) { return z.real(); });
    }
    void count(benchmark::State& state) const {
        state.counters["bytes_up"] = static_cast<double>(tensafe::wire::seeded_ciphertext_bytes<P, 0>);
        state.counters["bytes_down"] = static_cast<double>(tensafe::wire::ciphertext_bytes<P, 0>);
        state.counters["keys"] =
            static_cast<double>(tensafe::wire::galois_keys_bytes<P, 0, transform::rotations>);
    }

    lora::matrix a = bench::random_matrix(rank, d, 2);
    lora::matrix h = bench::random_matrix(1, d, 3);
    std::vector<double> hidden{h.values.begin(), h.values.end()};
    tensafe::random::generator generator;
    ckks::secret_key<P> secret{generator};
    ckks::galois_keys<P, transform::rotations> keys{secret, generator};
    transform adapter{std::vector<double>(a.values.begin(), a.values.end()), d, 0x1p19};
    std::optional<ckks::seeded_ciphertext<P>> request;
    std::optional<ckks::ciphertext<P>> reply;
    std::vector<double> answers = std::vector<double>(rank);
};

/// A packing of lora/, with all replies of the token.
template <class P, class Packing, class Protection>
struct without_rotations {
    void encrypt() { client.encrypt(server.plan(), h.row(0), query); }
    void apply() {
        if constexpr (Protection::protects) {
            server.apply(query.request, zeros, work, reply);
        } else {
            server.apply(query.request, work, reply);
        }
    }
    void decrypt() { client.decrypt(server.plan(), reply, query, reading, answers); }
    void count(benchmark::State& state) const {
        state.counters["bytes_up"] = static_cast<double>(query.request.bytes());
        state.counters["bytes_down"] = static_cast<double>(reply.bytes());
        state.counters["keys"] = 0;
    }

    lora::matrix a = bench::random_matrix(rank, d, 2);
    lora::matrix h = bench::random_matrix(1, d, 3);
    lora::server<P, Packing, Protection> server{a, lora::trusts_clients{}};
    lora::client<P> client;
    tensafe::random::seed nonce = tensafe::random::fresh_nonce();
    lora::rerandomization_pool<P> zeros{nonce, client.rerandomization_key(nonce),
                                        server.layout().subring_log_n()};
    typename decltype(server)::workspace work;
    typename decltype(server)::reply_type reply;
    lora::query<P> query;
    lora::decryption_workspace<P> reading;
    std::vector<double> answers = std::vector<double>(rank);
};

template <class Method>
void server(benchmark::State& state) {
    Method m;
    m.encrypt();
    for (auto _ : state) {
        m.apply();
    }
    m.decrypt();
    m.count(state);
    state.counters["error"] = relative_error(m.a, m.h, m.answers);
}

template <class Method>
void client(benchmark::State& state) {
    Method m;
    m.encrypt();
    m.apply();
    for (auto _ : state) {
        m.encrypt();
        m.decrypt();
    }
}

/// Rotations of one ciphertext by so many steps.
template <class P, bool Hoisted>
void rotations(benchmark::State& state) {
    using steps = ckks::rotations<1, 2, 3, 4, 5, 6, 7, 8>;
    tensafe::random::generator generator;
    const ckks::secret_key<P> secret(generator);
    const ckks::galois_keys<P, steps> keys(secret, generator);
    const auto c =
        ckks::expand(ckks::encrypt(secret, ckks::encode_slots<P>(bench::random_slots<P>()), generator));
    for (auto _ : state) {
        const auto all = [&]<int... Steps>(ckks::rotations<Steps...>, const auto& from) {
            (benchmark::DoNotOptimize(ckks::rotate<Steps>(from, keys)), ...);
        };
        if constexpr (Hoisted) {
            all(steps(), ckks::hoist(c, keys));
        } else {
            all(steps(), c);
        }
    }
}

using bare = lora::reveals_adapter_rows;
using worst_case = lora::protects_adapter_rows<>;
using ckks::private_n4096;
using tiles_that_show_rows = without_rotations<private_n4096, lora::coefficient_tiles<4>, bare>;
using protected_tiles = without_rotations<private_n4096, lora::coefficient_tiles<4>, worst_case>;
using protected_slots = without_rotations<private_n4096, lora::replicated_slots<>, worst_case>;

#define TENSAFE_BENCH_METHOD(method)                          \
    BENCHMARK(server<method>)->Unit(benchmark::kMicrosecond); \
    BENCHMARK(client<method>)->Unit(benchmark::kMicrosecond)
TENSAFE_BENCH_METHOD(by_rotations);
TENSAFE_BENCH_METHOD(tiles_that_show_rows);
TENSAFE_BENCH_METHOD(protected_tiles);
TENSAFE_BENCH_METHOD(protected_slots);

#define TENSAFE_BENCH_ROTATIONS(set)                                       \
    BENCHMARK(rotations<ckks::set, false>)->Unit(benchmark::kMicrosecond); \
    BENCHMARK(rotations<ckks::set, true>)->Unit(benchmark::kMicrosecond)
TENSAFE_BENCH_ROTATIONS(n4096_depth0);
TENSAFE_BENCH_ROTATIONS(n8192_depth2);
TENSAFE_BENCH_ROTATIONS(n16384_depth5);
TENSAFE_BENCH_ROTATIONS(n32768_depth10);

}  // namespace
