// The program of README.md. Run it from the top of the source tree.
#include <tensafe/io/peft.hpp>
#include <tensafe/tensafe.hpp>

#include <iostream>
#include <vector>

int main() {
    namespace lora = tensafe::lora;
    using params = tensafe::ckks::n16384_l4;  // N = 16384, primes of 60, 40, 40, 60 bits, scale 2^40
    const tensafe::exec::host here;

    const lora::adapter adapter = tensafe::io::load_peft("examples/data/qwen_rank32");
    const lora::adapter_site& site = adapter.site("q_proj");

    const lora::server<params> server(site.a);  // packs A once; cannot be given a secret key
    lora::client<params> client;                // makes the secret key from the system's entropy

    const std::vector<float> h(site.d_in(), 0.5F);
    const auto request = client.encrypt(here, server.layout(), h);      // up: 0.5 MB
    const auto reply = server.apply(here, request);                     // no rotation, no key
    const auto product = client.decrypt(here, server.layout(), reply);  // A*h
    const std::vector<double> delta = lora::apply_b(site, product);     // scale * B * A * h

    std::cout << delta.size() << " entries, the first " << delta[0] << "\n";
}
