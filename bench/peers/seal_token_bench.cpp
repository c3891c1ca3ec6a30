// A LoRA token, A: 32 x 2048, client and server on one thread, and the NTT of one limb: SEAL's and ours. SEAL
// packs four rows in the slots of a plaintext (two at N = 8192), encrypts with the secret key and multiplies
// eight times (sixteen); the client decrypts, decodes and sums. Messages stay in memory: neither side
// serialises. SEAL keeps the last prime of a chain for key switching, so a ciphertext has one limb fewer than
// the chain.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <seal/seal.h>
#include <seal/util/ntt.h>
#include <string>
#include <vector>

#include "../common.hpp"
#include "ratios.hpp"

namespace {

namespace arith = tensafe::arith;
namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;
namespace ntt = tensafe::ntt;

constexpr std::size_t rank = 32;
constexpr std::size_t d = 2048;

// The keys and the packed rows of A for one chain.
class seal_token {
  public:
    seal_token(int log_n, const std::vector<int>& chain, bool rescales)
        : rescales_(rescales),
          context_(parameters(log_n, chain)),
          generator_(context_),
          encryptor_(context_, generator_.secret_key()),
          decryptor_(context_, generator_.secret_key()),
          evaluator_(context_),
          encoder_(context_),
          a_(bench::random_matrix(rank, d, 2)),
          h_(bench::random_matrix(1, d, 3)),
          rows_each_(encoder_.slot_count() / d),
          weights_(rank / rows_each_),
          reply_(weights_.size()) {
        std::vector<double> slots(encoder_.slot_count());
        for (std::size_t w = 0; w < weights_.size(); ++w) {
            for (std::size_t i = 0; i < slots.size(); ++i) {
                slots[i] = a_.values[w * slots.size() + i];
            }
            encoder_.encode(slots, scale, weights_[w]);
        }
    }

    void encrypt() {
        std::vector<double> slots(encoder_.slot_count());
        for (std::size_t i = 0; i < slots.size(); ++i) {
            slots[i] = h_.values[i % d];
        }
        encoder_.encode(slots, scale, input_);
        encryptor_.encrypt_symmetric(input_, request_);
    }

    void apply() {
        for (std::size_t w = 0; w < weights_.size(); ++w) {
            evaluator_.multiply_plain(request_, weights_[w], reply_[w]);
            if (rescales_) {
                evaluator_.rescale_to_next_inplace(reply_[w]);
            }
        }
    }

    std::vector<double> decrypt() {
        std::vector<double> answers(rank);
        std::vector<double> slots;
        for (std::size_t w = 0; w < reply_.size(); ++w) {
            decryptor_.decrypt(reply_[w], output_);
            encoder_.decode(output_, slots);
            for (std::size_t i = 0; i < slots.size(); ++i) {
                answers[w * rows_each_ + i / d] += slots[i];
            }
        }
        return answers;
    }

    /// The largest difference between these answers and A * h.
    double error_of(const std::vector<double>& answers) const {
        double error = 0;
        for (std::size_t r = 0; r < rank; ++r) {
            double exact = 0;
            for (std::size_t t = 0; t < d; ++t) {
                exact += static_cast<double>(a_.values[r * d + t]) * static_cast<double>(h_.values[t]);
            }
            error = std::max(error, std::abs(exact - answers[r]));
        }
        return error;
    }

    /// With a seed in place of the uniform half.
    double bytes_up() {
        return static_cast<double>(
            encryptor_.encrypt_symmetric(input_).save_size(seal::compr_mode_type::none));
    }
    double bytes_down() const {
        return static_cast<double>(reply_.size()) *
               static_cast<double>(reply_[0].save_size(seal::compr_mode_type::none));
    }

  private:
    static constexpr double scale = 0x1p40;

    static seal::EncryptionParameters parameters(int log_n, const std::vector<int>& chain) {
        seal::EncryptionParameters p(seal::scheme_type::ckks);
        p.set_poly_modulus_degree(std::size_t{1} << log_n);
        p.set_coeff_modulus(seal::CoeffModulus::Create(std::size_t{1} << log_n, chain));
        return p;
    }

    bool rescales_;
    seal::SEALContext context_;
    seal::KeyGenerator generator_;
    seal::Encryptor encryptor_;
    seal::Decryptor decryptor_;
    seal::Evaluator evaluator_;
    seal::CKKSEncoder encoder_;
    lora::matrix a_;
    lora::matrix h_;
    std::size_t rows_each_;
    std::vector<seal::Plaintext> weights_;
    seal::Plaintext input_;
    seal::Plaintext output_;
    seal::Ciphertext request_;
    std::vector<seal::Ciphertext> reply_;
};

void peer_token(benchmark::State& state, int log_n, const std::vector<int>& chain, bool rescales) {
    seal_token token(log_n, chain, rescales);
    std::vector<double> answers;
    for (auto _ : state) {
        token.encrypt();
        token.apply();
        benchmark::DoNotOptimize(answers = token.decrypt());
    }
    state.counters["error"] = token.error_of(answers);
    if (token.error_of(answers) > 1e-5) {
        state.SkipWithError("wrong answers");
    }
    state.counters["bytes_up"] = token.bytes_up();
    state.counters["bytes_down"] = token.bytes_down();
}

template <class P, class Packing>
void classic_token(benchmark::State& state) {
    const lora::server<P, Packing, lora::reveals_adapter_rows> server(bench::random_matrix(rank, d, 2));
    lora::client<P> client;
    const lora::matrix h = bench::random_matrix(1, d, 3);
    typename decltype(server)::workspace work;
    typename decltype(server)::reply_type reply;
    std::size_t bytes_up = 0;
    for (auto _ : state) {
        const auto query = client.encrypt(server.plan(), h.row(0));
        server.apply(query.request, work, reply);
        benchmark::DoNotOptimize(client.decrypt(server.plan(), reply, query));
        bytes_up = query.request.bytes();
    }
    state.counters["bytes_up"] = static_cast<double>(bytes_up);
    state.counters["bytes_down"] = static_cast<double>(reply.bytes());
}

void protected_token(benchmark::State& state) {
    using set = ckks::private_n4096;
    using server_type = lora::server<set, lora::coefficient_tiles<4>, lora::protects_adapter_rows<>>;
    const server_type server(bench::random_matrix(rank, d, 2));
    lora::client<set> client;
    const lora::matrix h = bench::random_matrix(1, d, 3);
    const tensafe::random::seed nonce = tensafe::random::fresh_nonce();
    lora::rerandomization_pool<set> zeros(nonce, client.rerandomization_key(nonce),
                                          server.layout().subring_log_n());
    server_type::workspace work;
    server_type::reply_type reply;
    std::size_t bytes_up = 0;
    for (auto _ : state) {
        const auto query = client.encrypt(server.plan(), h.row(0));
        server.apply(query.request, zeros, work, reply);
        benchmark::DoNotOptimize(client.decrypt(server.plan(), reply, query));
        bytes_up = query.request.bytes();
    }
    state.counters["bytes_up"] = static_cast<double>(bytes_up);
    state.counters["bytes_down"] = static_cast<double>(reply.bytes());
}

template <bool Forward>
void peer_transform(benchmark::State& state, int log_n) {
    const arith::word q = arith::ntt_prime_below(arith::word{1} << 60, log_n);
    const seal::util::NTTTables tables(log_n, seal::Modulus(q));
    auto limb = bench::mixed_residues(std::size_t{1} << log_n, q);
    for (auto _ : state) {
        if constexpr (Forward) {
            seal::util::ntt_negacyclic_harvey(seal::util::CoeffIter(limb.data()), tables);
        } else {
            seal::util::inverse_ntt_negacyclic_harvey(seal::util::CoeffIter(limb.data()), tables);
        }
        benchmark::ClobberMemory();
    }
    bench::count_butterflies(state, log_n);
}

template <bool Forward>
void our_transform(benchmark::State& state, int log_n) {
    using modulus = arith::runtime_modulus<60>;
    const modulus q(arith::ntt_prime_below(arith::word{1} << 60, log_n));
    const ntt::plan<arith::shoup<modulus>> plan(arith::shoup<modulus>(q), log_n);
    auto limb = bench::mixed_residues(plan.degree(), q.value());
    for (auto _ : state) {
        if constexpr (Forward) {
            ntt::forward(plan, limb.span());
        } else {
            ntt::inverse(plan, limb.span());
        }
        benchmark::ClobberMemory();
    }
    bench::count_butterflies(state, log_n);
}

template <class... F>
void add(const std::string& name, F... f) {
    benchmark::RegisterBenchmark(name.c_str(), f...)->Unit(benchmark::kMicrosecond);
}

void add_peer_token(const std::string& name, int log_n, const std::vector<int>& chain, bool rescales) {
    add("token/rank:32/d:2048/" + name,
        [=](benchmark::State& state) { peer_token(state, log_n, chain, rescales); });
}

}  // namespace

int main(int argc, char** argv) {
    add_peer_token("seal_n16384_4_limbs", 14, {60, 40, 40, 60, 60}, false);
    add_peer_token("seal_n16384_3_limbs", 14, {60, 40, 40, 60}, false);
    add_peer_token("seal_n16384_2_limbs", 14, {60, 40, 60}, false);
    add_peer_token("seal_n16384_2_limbs_rescaled", 14, {60, 40, 60}, true);
    add_peer_token("seal_n8192_2_limbs_rescaled", 13, {60, 40, 60}, true);
    using pairs = lora::replicated_slots<lora::paired_rows>;
    using singles = lora::replicated_slots<lora::single_rows>;
    add("token/rank:32/d:2048/tensafe_n16384_l4_singles", classic_token<ckks::n16384_l4, singles>);
    add("token/rank:32/d:2048/tensafe_n16384_l4_pairs", classic_token<ckks::n16384_l4, pairs>);
    add("token/rank:32/d:2048/tensafe_private_n4096", protected_token);
    for (int log_n = 12; log_n <= 15; ++log_n) {
        const std::string size = "/q60/log_n:" + std::to_string(log_n);
        add("ntt/forward" + size + "/seal", peer_transform<true>, log_n);
        add("ntt/forward" + size + "/tensafe", our_transform<true>, log_n);
        add("ntt/inverse" + size + "/seal", peer_transform<false>, log_n);
        add("ntt/inverse" + size + "/tensafe", our_transform<false>, log_n);
    }
    return bench::run_with_ratios(argc, argv);
}
