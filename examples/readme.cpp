// The program of README.md. Run it from the top of the source tree.
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/tensafe.hpp>

#include <iostream>
#include <string>
#include <vector>

int main() {
    namespace lora = tensafe::lora;
    using params = tensafe::ckks::n16384_l4;  // N = 16384, primes of 60, 40, 40, 60 bits, scale 2^40
    const tensafe::exec::host here;
    const std::string data = "examples/data/qwen_rank32";

    const lora::adapter adapter = tensafe::io::load_peft(data);
    const lora::adapter_site& site = adapter.site("q_proj");
    const auto states = tensafe::io::safetensors_file::open(data + "/hidden_states.safetensors")
                            .read_matrix("self_attn.q_proj");  // one hidden state per row
    const auto h = states.row(0);

    const lora::server<params> server(site.a);  // packs A once; cannot be given a secret key
    lora::client<params> client;                // a fresh secret key; docs/guide.md tells how to keep one

    const auto request = client.encrypt(here, server.layout(), h);      // up: 0.5 MB
    const auto reply = server.apply(here, request);                     // no rotation, no key
    const auto product = client.decrypt(here, server.layout(), reply);  // A*h
    const std::vector<double> delta = lora::apply_b(site, product);     // scale * B * A * h

    const auto plain = lora::plain_delta(site, h);
    std::cout << tensafe::ckks::measure_precision(plain, delta).relative_error << " relative error\n";
}
