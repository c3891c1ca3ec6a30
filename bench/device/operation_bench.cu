// Operations of CKKS on a GPU at N = 16384, four limbs: encryption with sampling and encoding, plaintext
// products of a rank-32 adapter, decryption with trace, decryption with decoding. One at a time, recorded as
// a graph.

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/ckks/ciphertext.hpp>
#include <tensafe/device/ckks/decrypt.hpp>
#include <tensafe/device/ckks/encrypt.hpp>
#include <tensafe/device/encoding/decode.hpp>
#include <tensafe/device/encoding/reals.hpp>
#include <tensafe/device/encoding/slot_transform.hpp>
#include <tensafe/device/rns/poly_stack.hpp>
#include <tensafe/device/rns/products.hpp>
#include <tensafe/random/generator.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness.cuh"

namespace {

namespace arith = tensafe::arith;
namespace ckks = tensafe::ckks;
namespace encoding = tensafe::encoding;
namespace device = tensafe::device;
namespace memory = tensafe::memory;
namespace ntt = tensafe::ntt;
namespace random_source = tensafe::random;
namespace rns = tensafe::rns;

using P = ckks::n16384_l4;
using space = device::cuda::space;
using stack = device::poly_stack<P::basis, rns::evaluation_form, space>;

constexpr std::size_t words = device::words_of_poly<P::basis>;
constexpr double word_bytes = sizeof(arith::word);

device::device_buffer<random_source::seed> fresh_seeds(const device::cuda& where, std::size_t count) {
    std::vector<random_source::seed> seeds(count);
    random_source::generator generator;
    generator.next_seeds(seeds);
    device::device_buffer<random_source::seed> result(count);
    where.upload(std::span<const random_source::seed>(seeds), result.data());
    where.wait();
    return result;
}

void measure(const device::cuda& where, bench::table& results, const std::string& name, double bytes,
             double goal, auto&& f) {
    if (results.wants(name)) {
        results.report(name, bench::median_microseconds_in_graph(where, f), bytes, 0, goal);
    }
}

}  // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const device::cuda& where, bench::table& results) {
        random_source::generator generator;
        const ckks::secret_key<P> key(generator);
        const ckks::public_key<P> open(key, generator);
        const device::secret_keys<P, space> secret_key(where, key);
        const device::public_key<P, space> public_key(where, open);
        const device::plan<P::basis, space> plan(where);
        const device::slot_tables<space> slots(where, P::log_n);
        const auto seeds = fresh_seeds(where, 2);
        device::device_buffer<double> values(P::degree);
        device::device_buffer<double> coefficients(P::degree);
        device::encryption_workspace<P, space> work(1);
        device::public_encryption_workspace<P, space> public_work(1);
        stack ciphertext(2);

        const device::load_rounded<P::basis> message{coefficients.data(), P::degree, P::degree, nullptr,
                                                     nullptr};
        const auto encode = [&](const device::cuda& w) {
            device::to_coefficients<P::log_n>(w, slots, device::load_slots{P::log_n, values.data()},
                                              coefficients.data(), 1);
        };
        measure(where, results, "encrypt/secret_key_with_encoding", 3 * words * word_bytes, 8,
                [&](const device::cuda& w) {
                    encode(w);
                    device::encrypt<P>(w, plan, secret_key, message, 1, {seeds.data(), seeds.data() + 1},
                                       ciphertext.at(0), ciphertext.at(1), work);
                });
        measure(where, results, "encrypt/public_key_with_encoding", 8 * words * word_bytes, 12,
                [&](const device::cuda& w) {
                    encode(w);
                    device::encrypt<P>(w, plan, public_key, message, 1, seeds.data(), ciphertext.at(0),
                                       public_work);
                });

        // Rank 32, d = 2048: four rows to a slot as pairs, so four products of one input.
        constexpr std::uint32_t outputs = 4;
        const stack weights(outputs);
        stack products(2 * outputs);
        for (const std::uint32_t tokens : {1U, 64U}) {
            const stack inputs(2 * tokens);
            stack sums(2 * tokens * outputs);
            device::product_batch p;
            p.weights = weights.data();
            p.c0 = inputs.data();
            p.c1 = inputs.at(tokens);
            p.c0_sums = sums.data();
            p.c1_out = sums.at(std::size_t{tokens} * outputs);
            p.tokens = tokens;
            p.inputs = 1;
            p.outputs = outputs;
            p.blocks = static_cast<std::uint32_t>(P::degree);
            const double moved = (outputs + 2.0 * tokens + 2.0 * tokens * outputs) * words * word_bytes;
            measure(where, results, "multiply/rank32/" + std::to_string(tokens) + "_tokens", moved,
                    tokens == 1 ? 3 : 0, [&](const device::cuda& w) { device::multiply<P::basis>(w, p); });
        }

        // The reply to a token: two of the four limbs hold the answers.
        constexpr int limbs = 2;
        using kept = rns::prefix<P::basis, limbs>;
        const device::folded_slot_tables<kept, space> trace(where, 3);
        device::device_buffer<arith::word> sums(outputs * limbs * 8);
        device::device_buffer<double> answers(outputs * 8);
        measure(where, results, "decrypt/fold/4_products", outputs * 2.0 * words / 2 * word_bytes, 4,
                [&](const device::cuda& w) {
                    device::decrypt_trace<limbs>(w, secret_key, device::view_of(products),
                                                 device::view_of<P::basis>(products.at(outputs)), outputs, 3,
                                                 sums.data());
                    device::decode_trace(w, trace, sums.data(), P::scale, answers.data(), outputs);
                });
        device::device_buffer<arith::word> decrypted(words);
        measure(where, results, "decrypt/decode_all_slots", 3.0 * words * word_bytes, 10,
                [&](const device::cuda& w) {
                    device::decrypt_to_coefficients<P::limbs>(w, plan, secret_key, device::view_of(products),
                                                              device::view_of<P::basis>(products.at(1)), 1,
                                                              decrypted.data());
                    device::decode_slots<P::basis>(w, slots, decrypted.data(), P::scale, coefficients.data(),
                                                   values.data(), 1);
                });
    });
}
