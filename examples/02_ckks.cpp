// CKKS and the NTT alone, without LoRA: a polynomial of encrypted numbers, and a product of polynomials.

#include <tensafe/ckks/encrypt.hpp>
#include <tensafe/ckks/evaluate.hpp>
#include <tensafe/ckks/precision.hpp>
#include <tensafe/core/error.hpp>

#include <complex>
#include <iostream>
#include <vector>

namespace ckks = tensafe::ckks;
namespace rns = tensafe::rns;

/// Computes 3 - 0.5 x (x + w) + x in every slot from Enc(x), two products deep, and prints its precision.
void polynomial_of_encrypted_numbers() {
    using params = ckks::n8192_l4;  // N = 8192: 4096 slots, four primes of 60, 40, 40 and 60 bits

    std::vector<double> x(params::slots);
    std::vector<double> w(params::slots);
    std::vector<std::complex<double>> expected(params::slots);
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<double>(i) / static_cast<double>(x.size()) - 0.5;
        w[i] = 1 - 2 * x[i];
        expected[i] = 3 - 0.5 * x[i] * w[i] + x[i];
    }

    tensafe::random::generator generator;
    const ckks::secret_key<params> key(generator);
    const ckks::public_key<params> public_key(key, generator);

    // Whoever has the public key can encrypt.
    const auto c = ckks::encrypt(public_key, ckks::encode_slots<params>(x), generator);  // level 3

    // Whoever has nothing can compute. A factor is encoded for the ciphertext that it multiplies.
    auto product = c;
    ckks::multiply_plain(product, ckks::encode_factor(product, w));
    auto once = ckks::rescale(product);  // level 2, the scale is what it was
    ckks::multiply_scalar(once, 0.5);
    auto result = ckks::rescale(once);  // level 1
    ckks::negate(result);
    ckks::add(result, ckks::level_reduce<1>(c));
    ckks::add_scalar(result, 3);

    // Whoever has the secret key can decrypt.
    const auto precision = ckks::measure_precision(expected, ckks::decrypt_slots(key, result));
    std::cout << "two products deep: " << precision.worst_bits() << " bits right in the worst slot, "
              << precision.mean_bits() << " in the mean\n";
}

/// (1 + X) * X^(N-1) in Z_q[X] / (X^N + 1), by the NTT.
void product_of_polynomials() {
    using basis = rns::basis<10, 12289>;  // N = 1024, one prime: q = 1 modulo 2N
    rns::poly<basis, rns::coefficient_form> a;
    rns::poly<basis, rns::coefficient_form> b;
    a.limb<0>()[0] = 1;
    a.limb<0>()[1] = 1;
    b.limb<0>()[basis::degree - 1] = 1;

    auto product = rns::forward(a);  // evaluation form, bit-reversed order
    rns::multiply(product, product, rns::forward(b));
    const auto c = rns::inverse(product);
    std::cout << "(1 + X) X^1023 = X^1023 + " << c.limb<0>()[0] << ": X^1024 is -1, and that is "
              << "12288 modulo 12289\n";
}

int main() {
    try {
        polynomial_of_encrypted_numbers();
        product_of_polynomials();
    } catch (const tensafe::error& e) {
        std::cerr << "ckks: " << e.what() << '\n';
        return 1;
    }
}
