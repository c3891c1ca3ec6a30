// Many sequences at once: while the model's forward of some runs, hidden states of others are encrypted,
// answered and decrypted in blocks, and the next block is prepared. The forward is simulated by a pause, as a
// GPU's would leave the processor free. One sequence alone gains little from it: its next forward needs the
// answers to its last request.

#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/serving.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace lora = tensafe::lora;
namespace session = tensafe::session;
using params = tensafe::ckks::private_n4096;
using seconds = std::chrono::duration<double>;

constexpr std::chrono::milliseconds forward_time(4);
constexpr int tokens = 20;

}  // namespace

int main() {
    try {
        const std::string data = TENSAFE_EXAMPLE_DATA "/qwen_rank32";
        lora::adapter adapter = tensafe::io::load_peft(data);
        adapter.sites = {adapter.site("q_proj")};
        const lora::matrix hidden = tensafe::io::safetensors_file::open(data + "/hidden_states.safetensors")
                                        .read_matrix("self_attn.q_proj");

        // Server and client as for one sequence; in_process brings them together.
        lora::model_options options;
        options.tokens_ahead = 32;
        const auto model = std::make_shared<const lora::model_server<params>>(adapter, options);
        const auto keys = std::make_shared<lora::model_client<params>>(model->layout(),
                                                                       lora::client_part(adapter, options));
        const auto nonce = tensafe::random::fresh_nonce();
        session::server_session<params> theirs(model, nonce, keys->rerandomization_key(nonce));
        session::client_session<params> mine(keys);
        session::in_process answers(mine, theirs);

        std::printf("Forwards of %d ms on 8 threads.\n", static_cast<int>(forward_time.count()));
        for (const std::size_t count : {1U, 2U, 4U, 8U, 16U}) {
            const auto began = std::chrono::steady_clock::now();
            session::sequences running(answers, 8);
            std::vector<session::sequence_handle> handles;
            for (std::size_t s = 0; s < count; ++s) {
                handles.push_back(running.submit([&, s, token = 0](std::span<const double>) mutable {
                    if (token++ == tokens) {
                        return session::step::end();
                    }
                    // Here the model would take the answers (A*h), apply B, and go on to its next site.
                    std::this_thread::sleep_for(forward_time);
                    return session::step::ask(0, hidden.row(s % hidden.rows));
                }));
            }
            for (const auto& handle : handles) {
                handle.wait();  // throws what went wrong with this sequence
            }
            const seconds took = std::chrono::steady_clock::now() - began;
            std::printf("%2zu sequences: %5.0f tokens a second\n", count,
                        static_cast<double>(count * tokens) / took.count());
        }
        return 0;
    } catch (const tensafe::error& e) {
        std::fprintf(stderr, "sequences: %s\n", e.what());
        return 1;
    }
}
