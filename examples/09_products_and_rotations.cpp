// Products and rotations of ciphertexts: the inner product of two encrypted vectors, and how far they are
// apart.

#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/linear_transform.hpp>
#include <tensafe/core/error.hpp>

#include <cmath>
#include <cstddef>
#include <iostream>
#include <vector>

namespace ckks = tensafe::ckks;
using params = ckks::n8192_depth2;  // N = 8192: 4096 slots, two products one after the other

int main() {
    try {
        std::vector<double> x(params::slots);
        std::vector<double> y(params::slots);
        double inner_product = 0;
        double square_distance = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            x[i] = std::sin(static_cast<double>(i)) / 64;
            y[i] = std::sin(static_cast<double>(i) + 1) / 64;
            inner_product += x[i] * y[i];
            square_distance += (x[i] - y[i]) * (x[i] - y[i]);
        }

        // The client has the secret key and gives away keys that compute.
        tensafe::random::generator generator;
        const ckks::secret_key<params> secret(generator);
        const ckks::relinearization_key<params> relinearization(secret, generator);
        const ckks::galois_keys<params, ckks::inner_sum_rotations<params>> galois(secret, generator);
        const auto a = ckks::expand(ckks::encrypt(secret, ckks::encode_slots<params>(x), generator));
        const auto b = ckks::expand(ckks::encrypt(secret, ckks::encode_slots<params>(y), generator));

        // The server multiplies slot by slot, and adds up all slots by rotations.
        const auto products = ckks::inner_product(a, b, relinearization, galois);
        auto difference = a;
        ckks::subtract(difference, b);
        const auto squares = ckks::inner_product(difference, difference, relinearization, galois);

        const auto error = [&](const auto& c, double expected) {
            return std::abs(ckks::decrypt_slots(secret, c)[0] - expected);
        };
        std::cout << "inner product " << inner_product << ", off by " << error(products, inner_product)
                  << "; squared distance " << square_distance << ", off by "
                  << error(squares, square_distance) << '\n';
        return error(products, inner_product) < 1e-5 && error(squares, square_distance) < 1e-5 ? 0 : 1;
    } catch (const tensafe::error& e) {
        std::cerr << "products_and_rotations: " << e.what() << '\n';
        return 1;
    }
}
