// A whole LoRA token with protected replies, client and server on one thread, and its steps. A: rank x d,
// normal entries; rows of the axes are those of coefficient_tiles. "pooled" takes encryptions of zero that
// were made before. Items per second are hidden states; times of blocks are a token's.

#include <tensafe/exec/host_parallel.hpp>

#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common.hpp"
#include "phase_clock.hpp"

namespace {

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;
using tensafe::exec::host;

using worst_case = lora::protects_adapter_rows<>;
using average_case = lora::protects_adapter_rows<lora::average_case<6>>;
using reduced = lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>;
using bare = lora::reveals_adapter_rows;

/// Server, client and pool for the shape of a benchmark's arguments.
template <class P, class Packing, class Protection>
struct setting {
    using server_type = lora::server<P, Packing, Protection>;

    explicit setting(const benchmark::State& state)
        : server(bench::random_matrix(static_cast<std::size_t>(state.range(0)),
                                      static_cast<std::size_t>(state.range(1)), 2),
                 lora::trusts_clients{}),
          h(bench::random_matrix(1, static_cast<std::size_t>(state.range(1)), 3)),
          key_seed(tensafe::random::fresh_seed()),
          client(ckks::secret_key<P>(key_seed)),
          nonce(tensafe::random::fresh_nonce()),
          zeros(nonce, client.rerandomization_key(nonce), server.layout().subring_log_n()) {}

    server_type server;
    lora::matrix h;
    tensafe::random::seed key_seed;
    lora::client<P> client;
    tensafe::random::seed nonce;
    lora::rerandomization_pool<P> zeros;
    typename server_type::workspace work;
    typename server_type::reply_type reply;
    lora::query<P> query;
    lora::decryption_workspace<P> reading;
    std::vector<double> answers = std::vector<double>(server.layout().rank);
};

template <class P, class Packing, class Protection, bool Pooled = false>
void token(benchmark::State& state) {
    setting<P, Packing, Protection> s(state);
    for (auto _ : state) {
        if constexpr (Pooled) {
            state.PauseTiming();
            s.zeros.fill(s.server.plan().outputs());
            state.ResumeTiming();
        }
        s.client.encrypt(s.server.plan(), s.h.row(0), s.query);
        if constexpr (Protection::protects) {
            s.server.apply(s.query.request, s.zeros, s.work, s.reply);
        } else {
            s.server.apply(s.query.request, s.work, s.reply);
        }
        s.client.decrypt(s.server.plan(), s.reply, s.query, s.reading, s.answers);
        benchmark::ClobberMemory();
    }
    state.counters["bytes_up"] = static_cast<double>(s.query.request.bytes());
    state.counters["bytes_down"] = static_cast<double>(s.reply.bytes());
    state.counters["products"] = static_cast<double>(s.server.plan().inputs() * s.server.plan().outputs());
}

/// As many tokens at once as the third argument says, client and server.
template <class P, class Packing, class Protection, class Where>
void time_tokens(benchmark::State& state, const Where& here) {
    setting<P, Packing, Protection> s(state);
    const auto count = static_cast<std::size_t>(state.range(2));
    std::vector<lora::query<P>> queries(count);
    std::vector<typename lora::server<P, Packing, Protection>::reply_type> replies(count);
    std::vector<typename lora::server<P, Packing, Protection>::task> tasks;
    for (std::size_t t = 0; t < count; ++t) {
        tasks.push_back({&queries[t].request, &s.zeros, &replies[t]});
    }
    std::vector<lora::client<P>> clients;
    for (std::size_t i = 0; i < here.threads(); ++i) {
        clients.emplace_back(tensafe::ckks::secret_key<P>(s.key_seed));
    }
    std::vector<lora::decryption_workspace<P>> reading(here.threads());
    std::vector<std::vector<double>> answers(here.threads(), s.answers);
    for (auto _ : state) {
        here.for_each(count, [&](std::size_t t, std::size_t slot) {
            clients[slot].encrypt(s.server.plan(), s.h.row(0), queries[t]);
        });
        s.server.apply(here, tasks, s.work);
        here.for_each(count, [&](std::size_t t, std::size_t slot) {
            clients[slot].decrypt(s.server.plan(), replies[t], queries[t], reading[slot], answers[slot]);
        });
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(count));
}

/// On as many threads as the fourth argument says.
template <class P, class Packing, class Protection>
void tokens(benchmark::State& state) {
    time_tokens<P, Packing, Protection>(state,
                                        tensafe::exec::host_parallel(static_cast<int>(state.range(3))));
}

/// On one thread, next to what cost.hpp expects: millions of word multiplications for one token.
template <class P, class Packing, class Protection>
void scaling(benchmark::State& state) {
    time_tokens<P, Packing, Protection>(state, host{});
    const auto rank = static_cast<std::size_t>(state.range(0));
    const auto d = static_cast<std::size_t>(state.range(1));
    state.counters["model"] =
        lora::cost_of<P, Packing, Protection>({rank, d, d}, lora::mode::client_held_b).word_multiplications /
        1e6;
}

/// Sites in blocks of so many tokens, each for so many sessions.
template <class P, class Protection>
struct block_setting {
    struct site {
        std::shared_ptr<const lora::server<P, lora::token_blocks, Protection>> server;
        std::optional<lora::client_block<P, Protection>> of_client;
        lora::server_block<P> of_server;
    };

    block_setting(std::size_t count, std::size_t rank, std::size_t d, std::size_t tokens,
                  std::size_t sessions = 1)
        : h(bench::random_matrix(1, d, 3)),
          nonce(tensafe::random::fresh_nonce()),
          zeros(nonce, client.rerandomization_key(nonce), std::countr_zero(tokens)),
          queries(sessions),
          replies(sessions),
          answers(rank) {
        const lora::matrix a = bench::random_matrix(rank, d, 2);
        for (std::size_t i = 0; i < count; ++i) {
            const auto server = std::make_shared<lora::server<P, lora::token_blocks, Protection>>(
                a, tokens, lora::trusts_clients{});
            for (std::size_t s = 0; s < sessions; ++s) {
                sites.push_back({server, {}, {}});
            }
        }
    }

    void prepare(site& s) {
        s.of_client = client.prepare(s.server->plan());
        s.server->prepare(s.of_client->request(), zeros, work, s.of_server, ahead);
        client.accept(*s.of_client, ahead);
    }
    /// Of all sessions of one site, answered in one call.
    void token(std::span<site> sessions) {
        calls.clear();
        for (std::size_t i = 0; i < sessions.size(); ++i) {
            sessions[i].of_client->encrypt(h.row(0), queries[i]);
            calls.push_back({&sessions[i].of_server, &queries[i].request, &replies[i]});
        }
        sessions.front().server->answer(calls, work);
        for (std::size_t i = 0; i < sessions.size(); ++i) {
            sessions[i].of_client->decrypt(replies[i], queries[i], answers);
        }
        benchmark::ClobberMemory();
    }
    void token(site& s) { token(std::span(&s, 1)); }

    lora::matrix h;
    lora::client<P> client;
    tensafe::random::seed nonce;
    lora::rerandomization_pool<P> zeros;
    lora::block_workspace<P> work;
    lora::block_reply ahead;
    std::vector<lora::token_query> queries;  ///< of each session
    std::vector<lora::token_reply> replies;
    std::vector<lora::block_token<P>> calls;
    std::vector<double> answers;
    std::vector<site> sites;
};

/// Tokens in blocks, all phases.
template <class P, std::size_t Tokens, class Protection>
void token_of_block(benchmark::State& state) {
    block_setting<P, Protection> all(1, static_cast<std::size_t>(state.range(0)),
                                     static_cast<std::size_t>(state.range(1)), Tokens);
    auto& s = all.sites.front();
    while (state.KeepRunningBatch(Tokens)) {
        all.prepare(s);
        for (std::size_t t = 0; t < Tokens; ++t) {
            all.token(s);
        }
    }
    const auto of_token = [](std::size_t ahead, std::size_t online) {
        return static_cast<double>(ahead) / Tokens + static_cast<double>(online);
    };
    state.counters["bytes_up"] =
        of_token(s.of_client->request().bytes(), all.queries.front().request.bytes());
    state.counters["bytes_down"] = of_token(all.ahead.bytes(), all.replies.front().bytes());
}

/// Encrypting, answering and decrypting alone, over so many sites in turn, for so many sessions at once: of
/// 280 no A is in a cache.
void online(benchmark::State& state) {
    constexpr std::size_t tokens = 32;
    const auto sessions = static_cast<std::size_t>(state.range(1));
    block_setting<ckks::private_n4096, worst_case> all(static_cast<std::size_t>(state.range(0)), 32, 2048,
                                                       tokens, sessions);
    while (state.KeepRunningBatch(static_cast<std::int64_t>(all.sites.size() * tokens))) {
        state.PauseTiming();
        for (auto& s : all.sites) {
            all.prepare(s);
        }
        state.ResumeTiming();
        for (std::size_t t = 0; t < tokens; ++t) {
            for (std::size_t first = 0; first < all.sites.size(); first += sessions) {
                all.token(std::span(all.sites).subspan(first, sessions));
            }
        }
    }
}

enum class block_phase { client_prepare, server_prepare, accept, encrypt, answer, decrypt };

/// A token's share of one phase.
template <block_phase Timed>
void step_of_block(benchmark::State& state) {
    const auto tokens = static_cast<std::size_t>(state.range(0));
    block_setting<ckks::private_n4096, worst_case> all(1, 32, 2048, tokens);
    auto& site = all.sites.front();
    const auto& server = *site.server;
    auto& of_client = site.of_client;
    auto& of_server = site.of_server;
    std::vector<lora::token_query> queries(tokens);
    std::vector<lora::token_reply> replies(tokens);
    const auto run = [&](block_phase phase, auto f) {
        if (phase == Timed) {
            state.ResumeTiming();
        }
        f();
        if (phase == Timed) {
            state.PauseTiming();
        }
    };
    const auto for_tokens = [&](block_phase phase, auto f) {
        run(phase, [&] {
            for (std::size_t t = 0; t < tokens; ++t) {
                f(queries[t], replies[t]);
            }
        });
    };
    while (state.KeepRunningBatch(state.range(0))) {
        state.PauseTiming();
        run(block_phase::client_prepare, [&] { of_client = all.client.prepare(server.plan()); });
        run(block_phase::server_prepare,
            [&] { server.prepare(of_client->request(), all.zeros, all.work, of_server, all.ahead); });
        run(block_phase::accept, [&] { all.client.accept(*of_client, all.ahead); });
        for_tokens(block_phase::encrypt,
                   [&](auto& query, auto&) { of_client->encrypt(all.h.row(0), query); });
        for_tokens(block_phase::answer, [&](const auto& query, auto& reply) {
            server.answer(of_server, query.request, all.work, reply);
        });
        for_tokens(block_phase::decrypt, [&](const auto& query, const auto& reply) {
            of_client->decrypt(reply, query, all.answers);
        });
        state.ResumeTiming();
    }
}

// The steps of a token of private_n4096 with four rows in a plaintext.
using steps = setting<ckks::private_n4096, lora::coefficient_tiles<4>, worst_case>;

void encrypt(benchmark::State& state) {
    steps s(state);
    for (auto _ : state) {
        s.client.encrypt(s.server.plan(), s.h.row(0), s.query);
        benchmark::ClobberMemory();
    }
}
/// A phase of whole replies, from a filled pool: only it is timed.
template <lora::server_phase Phase>
void server_step(benchmark::State& state) {
    steps s(state);
    s.client.encrypt(s.server.plan(), s.h.row(0), s.query);
    for (auto _ : state) {
        s.zeros.fill(s.server.plan().outputs());
        bench::phase_clock clock;
        s.server.apply(s.query.request, s.zeros, s.work, s.reply, clock);
        clock.stop();
        state.SetIterationTime(clock.milliseconds(Phase) * 1e-3);
    }
}
void expand(benchmark::State& state) {
    server_step<lora::server_phase::expand>(state);
}
void multiply(benchmark::State& state) {
    server_step<lora::server_phase::multiply>(state);
}
void protect_pooled(benchmark::State& state) {
    server_step<lora::server_phase::protect>(state);
}
void finish(benchmark::State& state) {
    server_step<lora::server_phase::serialize>(state);
}
void make_zeros(benchmark::State& state) {
    steps s(state);
    for (auto _ : state) {
        for (std::size_t o = 0; o < s.server.layout().outputs(); ++o) {
            auto zero = s.zeros.acquire();
            benchmark::DoNotOptimize(zero);
            s.zeros.release(std::move(zero));
        }
    }
}
void decrypt(benchmark::State& state) {
    steps s(state);
    const auto query = s.client.encrypt(s.server.plan(), s.h.row(0));
    s.server.apply(query.request, s.zeros, s.work, s.reply);
    for (auto _ : state) {
        s.client.decrypt(s.server.plan(), s.reply, query, s.reading, s.answers);
        benchmark::ClobberMemory();
    }
}

using tiles_4 = lora::coefficient_tiles<4>;
using tiles_8 = lora::coefficient_tiles<8>;
using tiles_16 = lora::coefficient_tiles<16>;
using tiles_32 = lora::coefficient_tiles<32>;
using tiles_64 = lora::coefficient_tiles<64>;
using slots = lora::replicated_slots<>;

#define TENSAFE_BENCH_TOKEN(set, packing, protection)                \
    BENCHMARK(token<ckks::set, packing, protection>)                 \
        ->Name("protected_token/" #set "/" #packing "/" #protection) \
        ->ArgNames({"rank", "d"})                                    \
        ->Unit(benchmark::kMillisecond)                              \
        ->Args({32, 2048})

TENSAFE_BENCH_TOKEN(private_n4096, tiles_4, worst_case)->Args({16, 2048})->Args({32, 4096})->Args({32, 512});
TENSAFE_BENCH_TOKEN(private_n4096, tiles_4, bare);
TENSAFE_BENCH_TOKEN(private_n4096, tiles_8, worst_case);
TENSAFE_BENCH_TOKEN(private_n4096, tiles_16, worst_case);
TENSAFE_BENCH_TOKEN(private_n4096, slots, worst_case);
TENSAFE_BENCH_TOKEN(quantum_n4096, tiles_4, worst_case)->Args({32, 4096});
TENSAFE_BENCH_TOKEN(compact_n4096, tiles_4, average_case);
TENSAFE_BENCH_TOKEN(minimal_n2048, tiles_4, reduced);
BENCHMARK(token<ckks::private_n4096, tiles_4, worst_case, true>)
    ->Name("protected_token/private_n4096/tiles_4/worst_case/pooled")
    ->ArgNames({"rank", "d"})
    ->Unit(benchmark::kMillisecond)
    ->Args({32, 2048});
BENCHMARK(token<ckks::private_n4096, tiles_32, worst_case>)
    ->Name("protected_token/private_n4096/tiles_32/worst_case/blind")
    ->ArgNames({"rank", "d"})
    ->Unit(benchmark::kMillisecond)
    ->Args({2048, 2048});
#define TENSAFE_BENCH_TOKENS(packing, name)                                   \
    BENCHMARK(tokens<ckks::private_n4096, packing, worst_case>)               \
        ->Name("protected_tokens/private_n4096/" #packing "/worst_case" name) \
        ->ArgNames({"rank", "d", "batch", "threads"})                         \
        ->Unit(benchmark::kMillisecond)                                       \
        ->UseRealTime()

TENSAFE_BENCH_TOKENS(tiles_4, "")
    ->Args({32, 2048, 1, 1})
    ->Args({32, 2048, 16, 1})
    ->Args({32, 2048, 1, 2})
    ->Args({32, 2048, 16, 2});
TENSAFE_BENCH_TOKENS(tiles_16, "/blind")->Args({2048, 2048, 1, 1})->Args({2048, 2048, 16, 1});
TENSAFE_BENCH_TOKENS(tiles_32, "/blind")
    ->Args({2048, 2048, 1, 1})
    ->Args({2048, 2048, 16, 1})
    ->Args({2048, 2048, 16, 2});
TENSAFE_BENCH_TOKENS(tiles_64, "/blind")->Args({2048, 2048, 1, 1})->Args({2048, 2048, 16, 1});

// One axis at a time, away from A of 32 x 2048 and one token of private_n4096; scripts/plot_bench draws them.
#define TENSAFE_BENCH_SCALING(axis, set, protection)   \
    BENCHMARK(scaling<ckks::set, tiles_4, protection>) \
        ->Name("protected_scaling/" #axis "/" #set)    \
        ->ArgNames({"rank", "d", "batch"})             \
        ->Unit(benchmark::kMillisecond)

TENSAFE_BENCH_SCALING(d, private_n4096, worst_case)->ArgsProduct({{32}, {512, 1024, 2048, 4096, 8192}, {1}});
TENSAFE_BENCH_SCALING(rank, private_n4096, worst_case)->ArgsProduct({{8, 16, 32, 64, 128}, {2048}, {1}});
TENSAFE_BENCH_SCALING(batch, private_n4096, worst_case)->ArgsProduct({{32}, {2048}, {1, 2, 4, 8, 16}});
TENSAFE_BENCH_SCALING(set, minimal_n2048, reduced)->Args({32, 2048, 1});
TENSAFE_BENCH_SCALING(set, compact_n4096, average_case)->Args({32, 2048, 1});
TENSAFE_BENCH_SCALING(set, private_n4096, worst_case)->Args({32, 2048, 1});
TENSAFE_BENCH_SCALING(set, n8192_l4, worst_case)->Args({32, 2048, 1});

#define TENSAFE_BENCH_BLOCKS(set, tokens, protection)                      \
    BENCHMARK(token_of_block<ckks::set, tokens, protection>)               \
        ->Name("protected_token/" #set "/blocks_" #tokens "/" #protection) \
        ->ArgNames({"rank", "d"})                                          \
        ->Unit(benchmark::kMillisecond)                                    \
        ->Args({32, 2048})

TENSAFE_BENCH_BLOCKS(private_n4096, 32, worst_case);
TENSAFE_BENCH_BLOCKS(private_n4096, 128, worst_case)->Args({2048, 2048});
TENSAFE_BENCH_BLOCKS(compact_n4096, 32, average_case);
TENSAFE_BENCH_BLOCKS(minimal_n2048, 32, reduced);

BENCHMARK(online)
    ->Name("protected_block/online")
    ->ArgNames({"sites", "sessions"})
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(4 * 280 * 32)
    ->Args({1, 1})
    ->Args({280, 1})
    ->Args({70, 4});

#define TENSAFE_BENCH_BLOCK_STEP(step)          \
    BENCHMARK(step_of_block<block_phase::step>) \
        ->Name("protected_block/" #step)        \
        ->ArgName("tokens")                     \
        ->Unit(benchmark::kMicrosecond)         \
        ->Iterations(4096)                      \
        ->Arg(32)                               \
        ->Arg(128)

TENSAFE_BENCH_BLOCK_STEP(client_prepare);
TENSAFE_BENCH_BLOCK_STEP(server_prepare);
TENSAFE_BENCH_BLOCK_STEP(accept);
TENSAFE_BENCH_BLOCK_STEP(encrypt);
TENSAFE_BENCH_BLOCK_STEP(answer);
TENSAFE_BENCH_BLOCK_STEP(decrypt);

#define TENSAFE_BENCH_STEP(step)        \
    BENCHMARK(step)                     \
        ->Name("protected_step/" #step) \
        ->ArgNames({"rank", "d"})       \
        ->Unit(benchmark::kMicrosecond) \
        ->Args({32, 2048})

TENSAFE_BENCH_STEP(encrypt);
TENSAFE_BENCH_STEP(expand)->UseManualTime();
TENSAFE_BENCH_STEP(multiply)->UseManualTime();
TENSAFE_BENCH_STEP(make_zeros);
TENSAFE_BENCH_STEP(protect_pooled)->UseManualTime();
TENSAFE_BENCH_STEP(finish)->UseManualTime();
TENSAFE_BENCH_STEP(decrypt);

}  // namespace
