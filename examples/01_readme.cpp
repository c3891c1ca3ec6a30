// The program of README.md. Run it from the top of the source tree.
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/tensafe.hpp>

#include <iostream>
#include <string>
#include <vector>

int main() {
    namespace lora = tensafe::lora;
    using params = tensafe::ckks::private_n4096;  // N = 4096, primes of 45 and 44 bits
    const std::string data = "examples/data/qwen_rank32";

    const lora::adapter adapter = tensafe::io::load_peft(data);
    const lora::adapter_site site = lora::normalize_rows(adapter.site("q_proj"));  // rows of A at norm 1
    const auto states = tensafe::io::safetensors_file::open(data + "/hidden_states.safetensors")
                            .read_matrix("self_attn.q_proj");  // one hidden state per row
    const auto h = states.row(0);

    const lora::server<params> server(site.a);       // server: packs A once; no member takes a secret key
    const lora::packing_plan plan(server.layout());  // client: of rank, d and a norm, which are public
    lora::client<params> client;  // client: a fresh secret key; docs/guide.md tells how to keep one

    // Once per session the server sends a nonce and the client a key, with which the server makes the
    // encryptions of zero that hide A.
    const auto nonce = tensafe::random::fresh_nonce();
    auto pool = server.pool(nonce, client.rerandomization_key(nonce));

    const auto query = client.encrypt(plan, h);                      // client: query.request goes up
    const auto reply = server.apply(query.request, pool);            // server: no rotation, no evaluation key
    const auto product = client.decrypt(plan, reply, query);         // client: A*h
    const std::vector<double> delta = lora::apply_b(site, product);  // client: scale * B * A * h

    const auto plain = lora::plain_delta(site, h);
    std::cout << query.request.bytes() << " bytes up, " << reply.bytes() << " down, "
              << tensafe::ckks::measure_precision(plain, delta).relative_error << " relative error\n";
}
