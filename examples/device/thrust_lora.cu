// Encrypted LoRA between Thrust's vectors: a batch of hidden states on a GPU, each for one of two adapters.
// They are grouped by adapter, encrypted, applied and decrypted; deltas return to the places of their hidden
// states. No hidden state, product or delta is copied to the host but for the comparison at the end.

#include <tensafe/ckks/precision.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/device/cuda/stream.cuh>
#include <tensafe/device/lora/client.hpp>
#include <tensafe/device/lora/server.hpp>
#include <tensafe/interop/thrust.cuh>
#include <tensafe/lora/adapter/plain.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <thrust/tabulate.h>
#include <vector>

namespace {

namespace ckks = tensafe::ckks;
namespace device = tensafe::device;
namespace interop = tensafe::interop;
namespace lora = tensafe::lora;
using params = ckks::private_n4096;
using client_type = device::client<params, device::cuda>;
using server_type = device::server<params, device::cuda>;

constexpr std::size_t d = 1024;
constexpr std::size_t d_out = 256;
constexpr std::size_t tokens = 7;
constexpr std::size_t most_tokens = 8;

/// Entry k of scale * B * product, row after row.
struct apply_b {
    const float* b;
    const double* products;
    std::size_t rank;
    double scale;

    __host__ __device__ float operator()(std::size_t k) const {
        double sum = 0;
        for (std::size_t r = 0; r < rank; ++r) {
            sum += static_cast<double>(b[k % d_out * rank + r]) * products[k / d_out * rank + r];
        }
        return static_cast<float>(scale * sum);
    }
};

/// One adapter: a server that holds A, and a client with a key of its own and B.
class adapter {
  public:
    adapter(const device::cuda& where, lora::adapter_site s)
        : site(std::move(s)),
          b_(site.b.values.begin(), site.b.values.end()),
          key_(tensafe::random::fresh_seed()),
          server_(where, site.a),
          client_(where, server_.layout(), std::array<const ckks::secret_key<params>*, 1>{&key_}),
          client_work_(client_, most_tokens),
          server_work_(server_, most_tokens),
          requests_(server_.layout(), most_tokens),
          replies_(server_.layout(), most_tokens) {
        const auto nonce = tensafe::random::fresh_nonce();
        number_ = server_.add_client(where, nonce, device::make_rerandomization_key(key_, nonce));
    }

    /// Deltas of hidden states, both on the device.
    void run(const device::cuda& where, interop::device_rows<const float> states,
             interop::device_rows<float> deltas) {
        interop::stage(client_, client_work_, states);
        server_.stage(server_work_, std::vector<std::uint32_t>(states.rows, number_));
        client_.encrypt(where, client_work_, requests_);
        server_.apply(where, requests_, server_work_, replies_);
        client_.decrypt(where, replies_, client_work_, false);
        const auto products = interop::answers(client_, client_work_);
        thrust::tabulate(
            interop::execution_policy(where), deltas.begin(), deltas.end(),
            apply_b{thrust::raw_pointer_cast(b_.data()), products.values, products.columns, site.scale});
        client_.check(where, client_work_);  // waits
        server_.check(server_work_);
    }

    const lora::adapter_site site;

  private:
    thrust::device_vector<float> b_;
    ckks::secret_key<params> key_;
    server_type server_;
    client_type client_;
    client_type::workspace client_work_;
    server_type::workspace server_work_;
    client_type::requests requests_;
    client_type::replies replies_;
    std::uint32_t number_ = 0;
};

std::vector<float> random_floats(std::size_t count, float deviation, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> distribution(0.0F, deviation);
    std::vector<float> result(count);
    std::generate(result.begin(), result.end(), [&] { return distribution(generator); });
    return result;
}
lora::adapter_site random_site(std::size_t rank, std::uint64_t seed) {
    lora::adapter_site site{"q_proj", lora::matrix(rank, d), lora::matrix(d_out, rank), 2.0};
    site.a.values = random_floats(rank * d, 0.05F, seed);
    site.b.values = random_floats(d_out * rank, 0.05F, seed + 1);
    return site;
}

/// The worst relative error against plaintext LoRA.
double run(const device::cuda& where) {
    adapter first(where, random_site(16, 1));
    adapter second(where, random_site(8, 3));
    const std::array<adapter*, 2> adapters{&first, &second};
    const std::vector<float> states = random_floats(tokens * d, 1.0F, 5);
    const std::array<int, tokens> asked{1, 0, 1, 1, 0, 1, 0};

    const thrust::device_vector<float> hidden(states.begin(), states.end());
    const thrust::device_vector<int> adapter_of(asked.begin(), asked.end());
    thrust::device_vector<float> grouped(tokens * d);
    thrust::device_vector<float> grouped_deltas(tokens * d_out);
    thrust::device_vector<float> deltas(tokens * d_out);

    interop::adapter_batches batches(tokens, adapters.size());
    batches.group(where, adapter_of);
    batches.gather(where, interop::as_rows(hidden, d), interop::as_rows(grouped, d));
    where.wait();
    for (std::size_t a = 0; a < adapters.size(); ++a) {
        const auto [start, count] = batches.segment(a);
        if (count != 0) {
            adapters[a]->run(where, interop::as_rows(std::as_const(grouped), d).slice(start, count),
                             interop::as_rows(grouped_deltas, d_out).slice(start, count));
        }
    }
    batches.scatter(where, interop::as_rows(grouped_deltas, d_out), interop::as_rows(deltas, d_out));

    std::vector<float> got(deltas.size());
    where.download(thrust::raw_pointer_cast(deltas.data()), std::span<float>(got));
    where.wait();
    double worst = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
        const auto plain = lora::plain_delta(adapters[static_cast<std::size_t>(asked[t])]->site,
                                             std::span<const float>(states).subspan(t * d, d));
        const std::vector<double> delta(got.begin() + static_cast<std::ptrdiff_t>(t * d_out),
                                        got.begin() + static_cast<std::ptrdiff_t>((t + 1) * d_out));
        worst = std::max(worst, ckks::measure_precision(plain, delta).relative_error);
    }
    return worst;
}

}  // namespace

int main() {
    try {
        if (device::device_count() == 0) {
            std::puts("no device");
            return 0;
        }
        const device::stream stream;
        const double worst = run(stream.where());
        std::printf("%zu tokens of two adapters: relative error %.2e against plaintext LoRA (worst token)\n",
                    tokens, worst);
        return worst < 1e-3 ? 0 : 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "thrust_lora: %s\n", e.what());
        return 1;
    }
}
