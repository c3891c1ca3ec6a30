// A hidden state of 2048 entries through an adapter of rank 32 and back, client and server on one core: what
// bench.py compares Python with. token COUNT ROWS: nanoseconds of each of COUNT times ROWS hidden states.
#include <tensafe/random/entropy.hpp>
#include <tensafe/serving.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

int main(int, char** argv) {
    namespace lora = tensafe::lora;
    using P = tensafe::ckks::private_n4096;
    using tiles = lora::coefficient_tiles<4>;
    using protection = lora::protects_adapter_rows<>;
    const std::size_t count = std::strtoul(argv[1], nullptr, 10);
    const std::size_t rows = std::strtoul(argv[2], nullptr, 10);
    constexpr std::size_t d = 2048;

    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    const auto matrix = [&](std::size_t r, std::size_t c) {
        lora::matrix m(r, c);
        for (float& x : m.values) {
            x = normal(generator) / 32;
        }
        return m;
    };
    lora::adapter adapter;
    adapter.sites.push_back({"q_proj", matrix(32, d), matrix(d, 32), 1.0});
    const lora::model_server<P, tiles, protection> server(adapter, {});
    lora::model_client<P, tiles, protection> client(server.layout(), lora::client_part(adapter, {}));
    const auto nonce = tensafe::random::fresh_nonce();
    lora::server_zeros<P> session(nonce, client.rerandomization_key(nonce));
    std::vector<float> h(rows * d);
    for (float& x : h) {
        x = normal(generator);
    }

    lora::model_client<P, tiles, protection>::query_type query;
    lora::reply<P, tiles, protection> reply;
    lora::model_client<P, tiles, protection>::workspace work;
    std::vector<double> product;
    std::vector<std::vector<double>> deltas;
    for (std::size_t k = 0; k < count; ++k) {
        const auto begin = std::chrono::steady_clock::now();
        std::vector<float> result(rows * d);
        for (std::size_t i = 0; i < rows; ++i) {
            client.encrypt(0, std::span(h).subspan(i * d, d), query);
            session.apply(server, 0, query.request, reply);
            client.decrypt(0, reply, query, work, product);
            client.deltas(0, product, deltas);
            for (std::size_t j = 0; j < d; ++j) {
                result[i * d + j] = static_cast<float>(deltas[0][j]);
            }
        }
        const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
        std::printf("%lld\n", static_cast<long long>(took.count()));
    }
}
