// Whole encrypted LoRA tokens, client and server on one GPU, rank 32 and d = 2048: one at a time from host
// memory to host memory, and batches with states and answers on the device or on the host.

#include <tensafe/ckks/parameters.hpp>
#include <tensafe/device/cuda/stream.cuh>
#include <tensafe/device/lora/client.hpp>
#include <tensafe/device/lora/server.hpp>
#include <tensafe/device/lora/slots.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness.cuh"

namespace {

namespace ckks = tensafe::ckks;
namespace device = tensafe::device;
namespace lora = tensafe::lora;
namespace memory = tensafe::memory;
namespace random_source = tensafe::random;

constexpr std::size_t rank = 32;
constexpr std::size_t width = 2048;

lora::matrix weights() {
    lora::matrix a(rank, width);
    std::uint32_t state = 1;
    for (float& x : a.values) {
        state = state * 1664525 + 1013904223;
        x = static_cast<float>(state >> 8) * 0x1p-24F - 0.5F;
    }
    return a;
}

/// Client and server of one stream.
template <ckks::parameter_set P, class Packing, class Protection>
class pair_of_sides {
  public:
    using client_type = device::client<P, device::cuda, Packing, Protection>;
    using server_type = device::server<P, device::cuda, Packing, Protection>;
    static constexpr bool protects = Protection::protects;

    pair_of_sides(const device::cuda& where, std::size_t tokens)
        : tokens_(tokens),
          key_(random_source::fresh_seed()),
          server_(where, weights()),
          client_(where, server_.layout(), std::array<const ckks::secret_key<P>*, 1>{&key_}),
          client_work_(client_, tokens),
          server_work_(server_, tokens),
          requests_(server_.layout(), tokens),
          replies_(replies_for(tokens)),
          host_states_(tokens * width),
          states_(tokens * width),
          answers_(tokens * rank) {
        for (std::size_t k = 0; k < host_states_.size(); ++k) {
            host_states_[k] = static_cast<float>(k * 2654435761U % 1000) * 0.002F - 1.0F;
        }
        where.upload(std::span<const float>(host_states_), states_.data());
        if constexpr (protects) {
            const auto nonce = random_source::fresh_nonce();
            random_source::generator generator;
            server_.add_client(
                where, nonce, ckks::make_rerandomization_key<lora::request_level<P>>(key_, nonce, generator));
            client_of_.assign(tokens, 0);
        }
        where.wait();
    }

    void stage(bool on_device) {
        if (on_device) {
            client_.stage_on_device(client_work_, states_.data(), tokens_);
        } else {
            client_.stage(client_work_, host_states_);
        }
        if constexpr (protects) {
            server_.stage(server_work_, client_of_);
        }
    }
    void enqueue(const device::cuda& where, bool on_device) {
        client_.encrypt(where, client_work_, requests_);
        server_.apply(where, requests_, server_work_, replies_);
        client_.decrypt(where, replies_, client_work_, !on_device);
    }
    std::pair<const void*, std::size_t> weight_bytes() const noexcept {
        const auto& w = server_.weights();
        if constexpr (protects) {
            return {w.data(), w.size() * sizeof(*w.data())};
        } else {
            return {w.data(), w.count() * w.stride * sizeof(*w.data())};
        }
    }
    void finish(bool on_device) {
        if constexpr (protects) {
            server_.check(server_work_);
        }
        if (!on_device) {
            client_.collect(client_work_, answers_);
        }
    }

  private:
    auto replies_for(std::size_t tokens) const {
        if constexpr (protects) {
            return typename server_type::replies(server_.layout(), tokens);
        } else {
            return server_.replies_for(tokens);
        }
    }

    std::size_t tokens_;
    ckks::secret_key<P> key_;
    server_type server_;
    client_type client_;
    typename client_type::workspace client_work_;
    typename server_type::workspace server_work_;
    typename client_type::requests requests_;
    typename server_type::replies replies_;
    std::vector<float> host_states_;
    device::device_buffer<float> states_;
    std::vector<double> answers_;
    std::vector<std::uint32_t> client_of_;
};

/// One token as a caller sees it, staging and waiting included: in a graph, or launch by launch.
template <class Sides>
void one_token(const device::cuda& where, bench::table& results, const std::string& name, double goal) {
    if (!results.wants("token/" + name)) {
        return;
    }
    Sides sides(where, 1);
    const auto token = [&](auto&& enqueue) {
        return bench::median_microseconds_of_caller(where, [&] {
            sides.stage(false);
            enqueue();
            where.wait();
            sides.finish(false);
        });
    };
    sides.stage(false);
    const device::graph graph =
        device::capture(where, [&](const device::cuda& w) { sides.enqueue(w, false); });
    if (results.host_clock()) {
        results.report("token/" + name + "/graph", token([&] { graph.launch(where); }), 0, 0, goal);
        results.report("token/" + name + "/launches", token([&] { sides.enqueue(where, false); }));
    }
    // The device's part alone: replays without staging run the same kernels, and are erased.
    results.report("token/" + name + "/device_only",
                   bench::median_microseconds(where, [&] { graph.launch(where); }));
    std::printf("    %zu kernels in the graph\n", graph.kernels());
}

/// Microseconds for each token of a batch, staging included, over so many streams that take turns: while the
/// host stages one batch, the others run.
template <class Sides>
void batch(const device::cuda& where, bench::table& results, const std::string& name, std::size_t tokens,
           std::size_t streams, bool on_device, double goal_tokens_per_second, bool keep_in_l2 = false) {
    const std::string full = "batch/" + name + "/" + std::to_string(tokens) + "/streams" +
                             std::to_string(streams) + (on_device ? "/device" : "/host") +
                             (keep_in_l2 ? "/l2_window" : "");
    if (!results.wants(full) || (streams != 1 && !results.host_clock())) {
        return;
    }
    struct lane {
        lane(std::size_t batch_size) : sides(stream.where(), batch_size) {}
        device::stream stream;
        Sides sides;
        std::unique_ptr<device::l2_window> window;
        std::unique_ptr<device::graph> graph;
    };
    std::vector<std::unique_ptr<lane>> lanes;
    for (std::size_t s = 0; s < streams; ++s) {
        lanes.push_back(std::make_unique<lane>(tokens));
        lane& l = *lanes.back();
        l.sides.stage(on_device);
        // The window belongs to the stream, and to what is recorded from it.
        const auto [data, bytes] = l.sides.weight_bytes();
        l.window = std::make_unique<device::l2_window>(l.stream.where(), data, bytes, keep_in_l2);
        l.graph = std::make_unique<device::graph>(
            device::capture(l.stream.where(), [&](const device::cuda& w) { l.sides.enqueue(w, on_device); }));
    }
    if (streams == 1) {
        results.report(full + "/device_only", bench::median_microseconds(lanes[0]->stream.where(), [&] {
                                                  lanes[0]->graph->launch(lanes[0]->stream.where());
                                              }) / static_cast<double>(tokens));
    }
    if (!results.host_clock()) {
        return;
    }
    const auto round = [&] {
        for (auto& l : lanes) {
            l->stream.where().wait();
            l->sides.finish(on_device);
            l->sides.stage(on_device);
            l->graph->launch(l->stream.where());
        }
    };
    // Windows end in the reverse order of their making.
    struct in_reverse {
        std::vector<std::unique_ptr<lane>>& lanes;
        ~in_reverse() {
            while (!lanes.empty()) {
                lanes.pop_back();
            }
        }
    } const end{lanes};
    for (auto& l : lanes) {  // so that the first round finds something finished
        l->graph->launch(l->stream.where());
    }
    round();
    std::vector<double> times;
    constexpr int rounds = 10;
    for (int repetition = 0; repetition < 7; ++repetition) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < rounds; ++i) {
            round();
        }
        for (auto& l : lanes) {
            l->stream.where().wait();
        }
        times.push_back(
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
            static_cast<double>(rounds * streams * tokens));
    }
    std::sort(times.begin(), times.end());
    static_cast<void>(where);
    results.report(full, times[times.size() / 2], 0, 0,
                   goal_tokens_per_second > 0 ? 1e6 / goal_tokens_per_second : 0);
}

using slots = pair_of_sides<ckks::n16384_l4, lora::replicated_slots<>, lora::reveals_adapter_rows>;
using tiles = pair_of_sides<ckks::private_n4096, lora::coefficient_tiles<4>, lora::protects_adapter_rows<>>;
using minimal = pair_of_sides<ckks::minimal_n2048, lora::coefficient_tiles<4>,
                              lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>>;

}  // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](const device::cuda& where, bench::table& results) {
        one_token<slots>(where, results, "slots_n16384_l4", 30);
        one_token<tiles>(where, results, "tiles_private_n4096", 40);
        one_token<minimal>(where, results, "tiles_minimal_n2048", 0);
        for (const bool keep : {false, true}) {
            batch<tiles>(where, results, "l2_tiles_private_n4096", 8, 1, true, 0, keep);
            batch<slots>(where, results, "l2_slots_n16384_l4", 8, 1, true, 0, keep);
        }
        for (const bool on_device : {true, false}) {
            const double goal = on_device ? 1 : 0;
            for (const std::size_t streams : {std::size_t{1}, std::size_t{4}}) {
                batch<slots>(where, results, "slots_n16384_l4", 64, streams, on_device, goal * 250e3);
                batch<tiles>(where, results, "tiles_private_n4096", 64, streams, on_device, goal * 400e3);
                batch<minimal>(where, results, "tiles_minimal_n2048", 64, streams, on_device, goal * 1.5e6);
                batch<minimal>(where, results, "tiles_minimal_n2048", 1024, streams, on_device, goal * 3e6);
            }
        }
    });
}
