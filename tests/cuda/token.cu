// Whole tokens on a device: every kernel of the named sets that the kernels' own units do not name. And the
// engine of batches under session::sequences, which has none of its own.
#include <tensafe/device/lora/client.hpp>
#include <tensafe/device/lora/engine.hpp>
#include <tensafe/device/lora/server.hpp>
#include <tensafe/device/lora/slots.hpp>
#include <tensafe/serving/engine_answers.hpp>
#include <tensafe/session/sequences.hpp>
#include <tensafe/tensafe.cuh>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace {

using namespace tensafe;

template <ckks::parameter_set P, class Protection>
void token(const device::cuda& where, const lora::matrix& a, std::span<double> answers) {
    using packing = lora::coefficient_tiles<4>;
    device::server<P, device::cuda, packing, Protection> server(where, a);
    const ckks::secret_key<P> key(random::fresh_seed());
    const std::array<const ckks::secret_key<P>*, 1> keys{&key};
    device::client<P, device::cuda, packing, Protection> client(where, server.layout(), keys);
    random::generator generator;
    const random::seed nonce = random::fresh_nonce();
    const std::uint32_t number = server.add_client(
        where, nonce, ckks::make_rerandomization_key<lora::request_level<P>>(key, nonce, generator));
    typename decltype(client)::workspace client_work(client, 1);
    typename decltype(server)::workspace server_work(server, 1);
    device::request_batch<P, device::cuda> requests(server.layout(), 1);
    typename decltype(server)::replies replies(server.layout(), 1);
    const std::vector<float> h(a.columns);
    client.stage(client_work, h);
    client.stage_on_device(client_work, reinterpret_cast<const float*>(requests.bytes()), 1);
    client.encrypt(where, client_work, requests);
    server.stage(server_work, std::span(&number, 1));
    server.apply(where, requests, server_work, replies);
    client.decrypt(where, replies, client_work);
    where.wait();
    server.check(server_work);
    client.collect(client_work, answers);
}

template <ckks::parameter_set P>
void slot_token(const device::cuda& where, const lora::matrix& a, std::span<double> answers) {
    using packing = lora::replicated_slots<>;
    using bare = lora::reveals_adapter_rows;
    const device::server<P, device::cuda, packing, bare> server(where, a);
    const ckks::secret_key<P> key(random::fresh_seed());
    const std::array<const ckks::secret_key<P>*, 1> keys{&key};
    device::client<P, device::cuda, packing, bare> client(where, server.layout(), keys);
    typename decltype(client)::workspace client_work(client, 1);
    typename decltype(server)::workspace server_work(server, 1);
    device::slot_request_batch<P, device::cuda> requests(server.layout(), 1);
    auto replies = server.replies_for(1);
    client.stage(client_work, std::vector<float>(a.columns));
    client.encrypt(where, client_work, requests);
    server.apply(where, requests, server_work, replies);
    client.decrypt(where, replies, client_work);
    where.wait();
    client.collect(client_work, answers);
}

/// Batches of an engine as graphs.
struct replay {
    device::graph_cache<std::size_t> graphs{16};

    template <class F>
    void operator()(const device::cuda& where, std::size_t key, F&& f) {
        graphs.run(where, key, std::forward<F>(f));
    }
};
using engine_type = device::engine<ckks::private_n4096, device::cuda, lora::coefficient_tiles<4>,
                                   lora::protects_adapter_rows<>, replay>;

}  // namespace

// Called by nobody: the kernels are compiled because they are named here.
void run_tokens(const device::cuda& where, const lora::matrix& a, std::span<double> answers);
void run_tokens(const device::cuda& where, const lora::matrix& a, std::span<double> answers) {
    token<ckks::private_n4096, lora::protects_adapter_rows<>>(where, a, answers);
    token<ckks::minimal_n2048, lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>>(
        where, a, answers);
    slot_token<ckks::n16384_l4>(where, a, answers);
}

void run_sequences(const device::cuda& where, const engine_type::group_type& group, std::vector<float>& h);
void run_sequences(const device::cuda& where, const engine_type::group_type& group, std::vector<float>& h) {
    engine_type engine(where, std::span<const engine_type::group_type>(&group, 1), 8);
    serving::engine_answers<engine_type> answers(engine);
    session::sequences<serving::engine_answers<engine_type>> runs(answers);
    const auto handle = runs.submit([&](std::span<const double> of_last) {
        return of_last.empty() ? session::step::ask(0, h) : session::step::end();
    });
    handle.wait();
}
