// Many sequences at once: while the model's forward of some runs, hidden states of others are encrypted,
// answered and decrypted. The forward is simulated by a pause, as a GPU's would leave the processor free. One
// sequence alone gains nothing from it: its next forward needs the answers to its last request.

#include <tensafe/core/error.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/safetensors.hpp>
#include <tensafe/lora/adapter/normalize.hpp>
#include <tensafe/serving/host_engine.hpp>
#include <tensafe/serving/token_pipeline.hpp>
#include <tensafe/tensafe.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace lora = tensafe::lora;
namespace serving = tensafe::serving;
using params = tensafe::ckks::private_n4096;
using engine_type = serving::host_engine<params>;

constexpr std::chrono::milliseconds forward_time(4);
constexpr int tokens = 40;

double milliseconds(std::chrono::nanoseconds t) {
    return static_cast<double>(t.count()) / 1e6;
}

/// `sequences` streams of `tokens` tokens, each a forward and one encrypted hidden state.
serving::pipeline_report decode(engine_type& engine, const lora::matrix& hidden, std::size_t sequences,
                                std::size_t forward_threads) {
    serving::pipeline_options options;
    options.forward_threads = forward_threads;
    serving::token_pipeline<engine_type> pipeline(engine, options);
    std::vector<serving::sequence_handle> handles;
    for (std::size_t s = 0; s < sequences; ++s) {
        handles.push_back(pipeline.submit([&, s, token = 0](std::span<const double>) mutable {
            if (token++ == tokens) {
                return serving::step::end();
            }
            // Here the model would take the answers (A*h), apply B, and go on to its next encrypted site.
            std::this_thread::sleep_for(forward_time);
            return serving::step::ask_last(0, hidden.row(s % hidden.rows));
        }));
    }
    for (const auto& handle : handles) {
        handle.wait();  // throws what went wrong with this sequence
    }
    return pipeline.report();
}

/// Times in seconds, of which throughput is made.
struct load {
    std::size_t sequences = 1;
    std::size_t forward_threads = 1;
    std::size_t batch = 1;  ///< the largest
    double forward = 0;     ///< one forward, from request to request
    double alone = 0;       ///< a request in a batch of one
    double together = 0;    ///< a whole batch of min(batch, sequences)
};

/// Requests a second that no order of work passes: a sequence waits for its own answers, threads do one
/// forward at a time, the engine one batch.
double throughput_bound(const load& of) {
    const auto batch = static_cast<double>(std::min(of.batch, of.sequences));
    return std::min({static_cast<double>(of.sequences) / (of.forward + of.alone),
                     static_cast<double>(of.forward_threads) / of.forward, batch / of.together});
}

/// The engine alone, for a batch of this size: the best of a few.
double batch_seconds(engine_type& engine, const lora::matrix& hidden, std::size_t size) {
    std::vector<std::vector<double>> answers(size, std::vector<double>(engine.rows(0)));
    std::vector<serving::request> batch;
    for (std::size_t i = 0; i < size; ++i) {
        batch.push_back({0, hidden.row(i % hidden.rows), answers[i], nullptr});
    }
    double best = 1;
    for (int i = 0; i < 20; ++i) {
        const auto before = std::chrono::steady_clock::now();
        engine.run(batch);
        best =
            std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
    }
    return best;
}

}  // namespace

int main() {
    try {
        const std::string data = TENSAFE_EXAMPLE_DATA "/qwen_rank32";
        const auto adapter = tensafe::io::load_peft(data);
        const auto site = lora::normalize_rows(adapter.site("q_proj"));
        const auto hidden = tensafe::io::safetensors_file::open(data + "/hidden_states.safetensors")
                                .read_matrix("self_attn.q_proj");

        // Server, client and zeros as everywhere; the engine is what brings them together.
        const lora::server<params> server(site.a);
        lora::client<params> client;
        const auto nonce = tensafe::random::fresh_seed();
        auto zeros = server.pool(nonce, client.rerandomization_key(nonce));
        const std::vector<const lora::server<params>*> groups{&server};
        engine_type engine(client, groups, zeros);

        std::printf("Forwards of %.0f ms. Tokens per second, and milliseconds from token to token:\n",
                    milliseconds(forward_time));
        std::printf("  S threads  bound  measured   p50    p90    p99    max  batch  overlap\n");
        load of;
        of.forward = std::chrono::duration<double>(forward_time).count();
        of.alone = batch_seconds(engine, hidden, 1);
        for (const std::size_t threads : {1U, 4U}) {
            for (const std::size_t sequences : {1U, 2U, 4U, 8U}) {
                of.sequences = sequences;
                of.forward_threads = threads;
                of.batch = serving::pipeline_options{}.largest_batch;
                of.together = batch_seconds(engine, hidden, std::min(of.batch, sequences));
                const auto report = decode(engine, hidden, sequences, threads);
                std::printf("%3zu %7zu %6.0f %9.0f", sequences, threads, throughput_bound(of),
                            report.tokens_per_second());
                for (const double percent : {50.0, 90.0, 99.0, 100.0}) {
                    std::printf("  %5.1f", milliseconds(report.token.percentile(percent)));
                }
                std::printf("  %5.1f  %5.0f %%\n", report.mean_batch(), 100 * report.overlap());
            }
        }
        return 0;
    } catch (const tensafe::error& e) {
        std::fprintf(stderr, "token_pipeline: %s\n", e.what());
        return 1;
    }
}
