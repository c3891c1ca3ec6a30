// The module of libtorch, in one unit with its sessions: libtorch's headers take a minute. Its CHECK replaces
// doctest's, so that names here are the long ones.
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/interop/torch_lora.hpp>
#include <tensafe/session/server_session.hpp>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "../random_values.hpp"
#include "../test.hpp"

using namespace tests;

namespace {

using model_client = lora::model_client<small>;
using encrypted_lora = interop::encrypted_lora<small>;
using client_session = session::client_session<small>;
using server_session = session::server_session<small>;

constexpr std::int64_t d = 70;

/// Sites of one input with ranks and lengths of their own, so that a mix-up of sites shows, and one apart. A
/// scale of 8 makes deltas of some 0.2, with errors of some 5e-5 in this small set.
lora::adapter three_sites(double scale) {
    lora::adapter result;
    const auto add = [&](const char* name, std::size_t rank, std::size_t d_out, double site_scale,
                         std::uint64_t seed) {
        auto site = random_site(d_out, rank, static_cast<std::size_t>(d), seed);
        site.name = name;
        site.scale = site_scale;
        result.sites.push_back(std::move(site));
    };
    add("layers.0.q_proj", 5, 33, scale, 1);
    add("layers.0.v_proj", 3, 9, 0.5 * scale, 3);
    add("layers.0.o_proj", 4, 70, 0.25 * scale, 5);
    return result;
}

/// Client and server in one process. Counts calls and requests, and can be told to fail.
struct served {
    using workspace = server_session::workspace;

    explicit served(double scale = 8, const lora::model_options& options = {})
        : adapter(three_sites(scale)),
          server(std::make_shared<const lora::model_server<small>>(adapter, options)),
          client(std::make_shared<model_client>(server->layout(), lora::client_part(adapter, options))),
          mine(client),
          theirs(server, nonce, client->rerandomization_key(nonce)) {}

    /// As a server_session does.
    void answer(const wire::envelope& of, const auto& from, workspace& memory, auto& to) {
        if (requests == fail_at) {
            throw std::runtime_error("the line is dead");
        }
        ++requests;
        theirs.answer(of, from, memory, to);
    }

    lora::adapter adapter;
    std::shared_ptr<const lora::model_server<small>> server;
    std::shared_ptr<model_client> client;
    random::seed nonce = random::fresh_nonce();
    client_session mine;
    server_session theirs;
    workspace work;
    std::size_t calls = 0;
    std::size_t requests = 0;
    std::size_t fail_at = std::numeric_limits<std::size_t>::max();
    encrypted_lora encrypted{client, [this](session::call& asked) {
                                 ++calls;
                                 session::answer_in_process(mine, *this, work, asked, [] {});
                             }};
};

/// scale * (x A^T) B^T by libtorch, in double precision.
at::Tensor plain(const lora::adapter_site& site, const at::Tensor& x) {
    const at::Tensor a = interop::as_tensor(site.a).to(at::kDouble);
    const at::Tensor b = interop::as_tensor(site.b).to(at::kDouble);
    return site.scale * x.detach().to(at::kDouble).matmul(a.t()).matmul(b.t());
}

/// Largest difference of two tensors of one shape; infinite if the shapes differ.
double difference(const at::Tensor& a, const at::Tensor& b) {
    if (a.sizes() != b.sizes()) {
        return std::numeric_limits<double>::infinity();
    }
    return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// What an encrypted_lora keeps: an explicit instantiation may name private members.
template <class Tag, typename Tag::type Member>
struct opened {
    friend typename Tag::type member_of(Tag) { return Member; }
};
struct row_tag {
    using type = std::vector<float> encrypted_lora::*;
    friend type member_of(row_tag);
};
struct deltas_tag {
    using type = model_client::site_deltas encrypted_lora::*;
    friend type member_of(deltas_tag);
};
// And what its client_session keeps.
struct reading_tag {
    using type = model_client::workspace client_session::*;
    friend type member_of(reading_tag);
};
struct spare_tag {
    using type = std::list<client_session::message> client_session::*;
    friend type member_of(spare_tag);
};
struct query_tag {
    using type = lora::query<small> client_session::message::*;
    friend type member_of(query_tag);
};
template struct opened<row_tag, &encrypted_lora::row_>;
template struct opened<deltas_tag, &encrypted_lora::deltas_>;
template struct opened<reading_tag, &client_session::reading_>;
template struct opened<spare_tag, &client_session::spare_>;
template struct opened<query_tag, &client_session::message::query_>;

bool is_wiped(const auto& values) {
    return std::all_of(values.begin(), values.end(), [](const auto& x) { return x == decltype(x + x){}; });
}

}  // namespace

DOCTEST_TEST_CASE(
    "encrypted deltas are those of plaintext LoRA within 1e-3, each row and each site at its place") {
    torch::manual_seed(1);
    served s;
    encrypted_lora& encrypted = s.encrypted;
    const at::Tensor x = torch::randn({2, 3, d});
    const auto place = s.server->layout().at("layers.0.q_proj");
    const std::vector<at::Tensor> deltas = encrypted.deltas(place.group, x);
    DOCTEST_REQUIRE(deltas.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        const at::Tensor expected = plain(s.adapter.sites[i], x);
        DOCTEST_CHECK(deltas[i].sizes() == expected.sizes());
        DOCTEST_CHECK((deltas[i].scalar_type() == at::kFloat));
        DOCTEST_CHECK(difference(deltas[i], expected) < 1e-3);
        DOCTEST_CHECK(expected.abs().max().item<double>() > 0.1);
        DOCTEST_CHECK(!deltas[i].requires_grad());
    }
    DOCTEST_CHECK(s.requests == 6);  // one for q and v together, for each row
    DOCTEST_CHECK(s.calls == 1);
}

DOCTEST_TEST_CASE_FIXTURE(served, "delta gives the one site that is named, and shapes follow x") {
    for (const std::vector<std::int64_t>& front :
         {std::vector<std::int64_t>{}, std::vector<std::int64_t>{1}, std::vector<std::int64_t>{2, 1, 2}}) {
        std::vector<std::int64_t> sizes = front;
        sizes.push_back(d);
        const at::Tensor x = torch::randn(sizes);
        for (const lora::adapter_site& site : adapter.sites) {
            DOCTEST_CHECK(difference(encrypted.delta(site.name, x), plain(site, x)) < 1e-3);
        }
    }
}

DOCTEST_TEST_CASE_FIXTURE(served, "deltas have the type of x, and are rounded once") {
    const at::Tensor x = torch::randn({2, d});
    for (const auto& [type, unit] : {std::pair{at::kHalf, 0x1p-11}, std::pair{at::kBFloat16, 0x1p-8}}) {
        const at::Tensor narrow = x.to(type);
        const at::Tensor expected = plain(adapter.sites[0], narrow);
        const at::Tensor delta = encrypted.delta("layers.0.q_proj", narrow);
        DOCTEST_CHECK((delta.scalar_type() == type));
        DOCTEST_CHECK(difference(delta, expected) < 1e-3 + unit * expected.abs().max().item<double>());
    }
}

DOCTEST_TEST_CASE_FIXTURE(served, "a batch without rows has deltas without rows, and asks for nothing") {
    const std::vector<at::Tensor> deltas = encrypted.deltas(0, torch::empty({2, 0, d}, at::kHalf));
    DOCTEST_REQUIRE(deltas.size() == 2);
    DOCTEST_CHECK(deltas[0].sizes() == at::IntArrayRef({2, 0, 33}));
    DOCTEST_CHECK(deltas[1].sizes() == at::IntArrayRef({2, 0, 9}));
    DOCTEST_CHECK((deltas[1].scalar_type() == at::kHalf));
    DOCTEST_CHECK(calls == 0);
}

DOCTEST_TEST_CASE_FIXTURE(served, "an input that records gradients is refused before anything is sent") {
    const at::Tensor x = torch::randn({d}, at::requires_grad());
    const std::string message =
        refusal<unsupported_error>([&] { return encrypted.delta("layers.0.q_proj", x); });
    DOCTEST_CHECK(contains(message, "torch::NoGradGuard"));
    DOCTEST_CHECK(calls == 0);
    DOCTEST_CHECK(difference(encrypted.delta("layers.0.q_proj", x.detach()), plain(adapter.sites[0], x)) <
                  1e-3);
    const torch::NoGradGuard no_gradient;
    DOCTEST_CHECK(difference(encrypted.delta("layers.0.q_proj", x), plain(adapter.sites[0], x)) < 1e-3);
}

DOCTEST_TEST_CASE_FIXTURE(
    served,
    "inputs that do not fit are refused before anything is sent, and the message says what was needed") {
    DOCTEST_CHECK(refusal<shape_error>([&] {
                      return encrypted.deltas(0, torch::randn({2, d + 1}));
                  }) ==
                  "encrypted_lora: got a tensor of Float, shape [2, 71], expected [..., 70] for the input "
                  "\"layers.0.input\"");
    DOCTEST_CHECK(contains(refusal<unsupported_error>([&] {
                               return encrypted.deltas(0, torch::randn({2, d}, at::kDouble));
                           }),
                           "x.to(torch::kFloat)"));
    DOCTEST_CHECK_THROWS_AS(encrypted.deltas(0, at::Tensor()), parameter_error);
    DOCTEST_CHECK_THROWS_AS(encrypted.deltas(2, torch::randn({d})), parameter_error);
    DOCTEST_CHECK(contains(
        refusal<parameter_error>([&] { return encrypted.delta("layers.0.k_proj", torch::randn({d})); }),
        "layers.0.k_proj"));
    DOCTEST_CHECK(calls == 0);
}

DOCTEST_TEST_CASE_FIXTURE(
    served, "a row that is no finite number has a delta of zeros, is asked all the same, and is counted") {
    at::Tensor x = torch::randn({2, 2, d});
    const std::size_t before = requests;
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        x[1][0][5] = bad;
        const at::Tensor delta = encrypted.delta("layers.0.q_proj", x);
        DOCTEST_CHECK(delta[1][0].abs().max().item<double>() == 0);
        DOCTEST_CHECK(delta[1][1].abs().max().item<double>() > 0);
    }
    DOCTEST_CHECK(requests == before + 8);
    DOCTEST_CHECK(encrypted.bad_states() == 2);
    x[1][0][5] = 1;
    DOCTEST_CHECK(difference(encrypted.delta("layers.0.q_proj", x), plain(adapter.sites[0], x)) < 1e-3);
}

DOCTEST_TEST_CASE("a delta beyond the range of halves is the largest of them, and is counted") {
    served s(400);
    encrypted_lora& encrypted = s.encrypted;
    at::Tensor x = torch::randn({2, d});
    x[1] *= 30000;  // halves still; deltas of some 1e5
    x = x.clamp(-60000, 60000).to(at::kHalf);
    const at::Tensor expected = plain(s.adapter.sites[0], x);
    DOCTEST_REQUIRE(expected.abs().max().item<double>() > 70000);
    const at::Tensor halves = encrypted.delta("layers.0.q_proj", x);
    DOCTEST_CHECK(halves.abs().max().item<double>() == 65504);
    DOCTEST_CHECK(encrypted.clamped_deltas() ==
                  static_cast<std::size_t>((halves.abs() == 65504).sum().item<std::int64_t>()));
    DOCTEST_CHECK(difference(encrypted.delta("layers.0.q_proj", x.to(at::kFloat)), expected) <
                  1e-2 * expected.abs().max().item<double>());
}

DOCTEST_TEST_CASE_FIXTURE(served, "what the asker throws comes through, and the next call works") {
    const at::Tensor x = torch::randn({3, d});
    fail_at = 1;
    DOCTEST_CHECK(refusal<std::runtime_error>([&] { return encrypted.deltas(0, x); }) == "the line is dead");
    DOCTEST_CHECK(requests == 1);
    fail_at = std::numeric_limits<std::size_t>::max();
    DOCTEST_CHECK(difference(encrypted.delta("layers.0.q_proj", x), plain(adapter.sites[0], x)) < 1e-3);
    DOCTEST_CHECK(requests == 4);
}

DOCTEST_TEST_CASE_FIXTURE(
    served,
    "rows that were answered before an error have their deltas, others NaN, and bad states of both count") {
    at::Tensor x = torch::randn({2, 2, d}).to(at::kHalf);
    x[0][0][5] = std::numeric_limits<float>::quiet_NaN();
    fail_at = 2;
    std::vector<at::Tensor> results;
    DOCTEST_CHECK_THROWS_AS(encrypted.deltas(0, x, results), std::runtime_error);
    DOCTEST_REQUIRE(results.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        DOCTEST_REQUIRE((results[i].sizes() == at::IntArrayRef({2, 2, i == 0 ? 33 : 9})));
        DOCTEST_CHECK((results[i].scalar_type() == at::kHalf));
        DOCTEST_CHECK(results[i][0][0].abs().max().item<double>() == 0);
        const at::Tensor expected = plain(adapter.sites[i], x[0][1]);
        DOCTEST_CHECK(difference(results[i][0][1], expected) <
                      1e-3 + 0x1p-11 * expected.abs().max().item<double>());
        DOCTEST_CHECK(results[i][1].isnan().all().item<bool>());
    }
    DOCTEST_CHECK(encrypted.bad_states() == 1);
    // What is refused before anything is asked leaves nothing.
    DOCTEST_CHECK_THROWS_AS(encrypted.deltas(0, torch::randn({d + 1}), results), shape_error);
    DOCTEST_CHECK(results.empty());
}

DOCTEST_TEST_CASE_FIXTURE(served, "an asker that leaves rows without an answer is an error, not a delta") {
    const at::Tensor x = torch::randn({3, d});
    static_cast<void>(encrypted.delta("layers.0.q_proj", x));
    encrypted_lora silent(client, [](session::call&) {});
    DOCTEST_CHECK(contains(refusal<parameter_error>([&] { return silent.delta("layers.0.q_proj", x); }),
                           "got answers to 0 of 3 rows"));
    encrypted_lora halting(client, [this](session::call& asked) {
        session::answer_in_process(mine, theirs, work, asked, [&] { asked.stop(); });
    });
    std::vector<at::Tensor> results;
    DOCTEST_CHECK(contains(refusal<parameter_error>([&] { halting.deltas(0, x, results); }),
                           "got answers to 1 of 3 rows"));
    DOCTEST_CHECK(difference(results[0][0], plain(adapter.sites[0], x[0])) < 1e-3);
    DOCTEST_CHECK(results[0][1].isnan().all().item<bool>());
}

DOCTEST_TEST_CASE_FIXTURE(served, "a call that failed throws, whatever the asker made of that") {
    encrypted_lora lenient(client, [](session::call& asked) {
        asked.fail(std::make_exception_ptr(std::runtime_error("the line is dead")));
    });
    DOCTEST_CHECK(refusal<std::runtime_error>([&] { return lenient.deltas(0, torch::randn({d})); }) ==
                  "the line is dead");
}

DOCTEST_TEST_CASE(
    "rows at positions of blocks have the deltas that they have alone, also of no finite norm") {
    torch::manual_seed(5);
    lora::model_options options;
    options.tokens_ahead = 8;
    served s(8, options);
    at::Tensor x = torch::randn({2, 8, d});
    for (const char* const site : {"layers.0.q_proj", "layers.0.o_proj"}) {
        DOCTEST_CHECK(difference(s.encrypted.delta(site, x), plain(s.adapter.site(site), x)) < 1e-3);
    }
    DOCTEST_CHECK(s.calls == 2);
    DOCTEST_CHECK(s.requests > 2 * 16);  // with the blocks'
    DOCTEST_CHECK(s.mine.has_blocks());
    x[1][3][5] = std::numeric_limits<float>::quiet_NaN();
    const at::Tensor delta = s.encrypted.delta("layers.0.v_proj", x);
    DOCTEST_CHECK(delta[1][3].abs().max().item<double>() < 1e-3);
    DOCTEST_CHECK(difference(delta[1][4], plain(s.adapter.sites[1], x[1][4])) < 1e-3);
    DOCTEST_CHECK(s.encrypted.bad_states() == 1);
}

DOCTEST_TEST_CASE("nothing of a state or an answer stays between calls, also after an error") {
    served s;
    encrypted_lora& encrypted = s.encrypted;
    auto& row = encrypted.*member_of(row_tag());
    const auto check = [&] {
        DOCTEST_CHECK(row.size() == static_cast<std::size_t>(d));
        DOCTEST_CHECK(is_wiped(row));
        DOCTEST_CHECK((encrypted.*member_of(deltas_tag())).size() == 2);
        for (const std::vector<double>& delta : encrypted.*member_of(deltas_tag())) {
            DOCTEST_CHECK(is_wiped(delta));
        }
        DOCTEST_CHECK((s.mine.*member_of(reading_tag())).coefficients.empty());  // wiped on release
        DOCTEST_CHECK((s.mine.*member_of(reading_tag())).sums.empty());
        DOCTEST_CHECK(!(s.mine.*member_of(spare_tag())).empty());
        for (const client_session::message& each : s.mine.*member_of(spare_tag())) {
            DOCTEST_CHECK((each.*member_of(query_tag())).scale == 0);  // it follows from the norm of a state
        }
    };
    const at::Tensor x = torch::randn({2, d}).to(at::kHalf);  // widened, so that a copy is made
    static_cast<void>(encrypted.deltas(0, x));
    check();
    row.assign(row.size(), 1);
    s.fail_at = s.requests + 1;
    DOCTEST_CHECK_THROWS_AS(encrypted.deltas(0, x), std::runtime_error);
    check();

    const std::vector<float> h(d, 1);
    session::call given_up(0, 1, [&](std::size_t) { return std::span<const float>(h); });
    s.mine.begin(given_up);
    const client_session::message* const under_way = s.mine.next();
    DOCTEST_REQUIRE(under_way != nullptr);
    DOCTEST_CHECK((under_way->*member_of(query_tag())).scale != 0);
    s.mine.end(given_up);
    DOCTEST_CHECK((under_way->*member_of(query_tag())).scale == 0);
}

DOCTEST_TEST_CASE(
    "an answer beyond an average-case range names its row, and goes through with overflow margin") {
    torch::manual_seed(3);
    using tiles = lora::coefficient_tiles<4>;
    using narrow = lora::protects_adapter_rows<lora::average_case<3>>;
    const lora::adapter adapter = three_sites(8);
    const auto server = std::make_shared<const lora::model_server<small, tiles, narrow>>(adapter);
    const auto client = std::make_shared<lora::model_client<small, tiles, narrow>>(
        server->layout(), lora::client_part(adapter));
    const auto nonce = random::fresh_nonce();
    session::client_session<small, tiles, narrow> mine(client);
    session::server_session<small, tiles, narrow> theirs(server, nonce, client->rerandomization_key(nonce));
    session::server_session<small, tiles, narrow>::workspace work;
    interop::encrypted_lora<small, tiles, narrow> encrypted(
        client, [&](session::call& asked) { session::answer_in_process(mine, theirs, work, asked, [] {}); });
    // Parallel to a row of A: sqrt(70) times the usual answer, where the range is 3 times that.
    const at::Tensor x = torch::randn({2, d});
    x[1].copy_(interop::as_tensor(adapter.sites[0].a)[0] * 20);
    const auto place = server->layout().at("layers.0.q_proj");
    std::vector<at::Tensor> results;
    const std::string message =
        refusal<range_exceeded_error>([&] { encrypted.deltas(place.group, x, results); });
    DOCTEST_CAPTURE(message);
    DOCTEST_CHECK(contains(message, "row 1 of 2: "));
    const at::Tensor expected = plain(adapter.sites[0], x);
    DOCTEST_CHECK(difference(results[place.site][0], expected[0]) < 1e-3);
    DOCTEST_CHECK(results[place.site][1].isnan().all().item<bool>());
    DOCTEST_CHECK_THROWS_AS(encrypted.delta("layers.0.q_proj", x), range_exceeded_error);
    const double close = 1e-3 * expected.abs().max().item<double>();
    DOCTEST_CHECK(difference(encrypted.deltas(place.group, x, 4)[place.site], expected) < close);
    DOCTEST_CHECK(difference(encrypted.delta("layers.0.q_proj", x, 4), expected) < close);
}

DOCTEST_TEST_CASE("an encrypted_lora without a client or a function to ask is refused") {
    const served s;
    DOCTEST_CHECK_THROWS_AS(encrypted_lora(nullptr, [](session::call&) {}), parameter_error);
    DOCTEST_CHECK_THROWS_AS(encrypted_lora(s.client, nullptr), parameter_error);
}

DOCTEST_TEST_CASE("encrypted_linear gives what Linear and plaintext LoRA give together, within 1e-3") {
    torch::manual_seed(2);
    served s;
    encrypted_lora& encrypted = s.encrypted;
    const torch::nn::Linear layer(d, 33);
    interop::encrypted_linear module(
        layer, [&](const at::Tensor& x) { return encrypted.delta("layers.0.q_proj", x); });
    const torch::NoGradGuard no_gradient;
    const at::Tensor x = torch::randn({2, 3, d});
    const at::Tensor expected = torch::linear(x, layer->weight, layer->bias) + plain(s.adapter.sites[0], x);
    DOCTEST_CHECK(difference(module.forward(x), expected) < 1e-3);
}

DOCTEST_TEST_CASE("the Linear is a submodule: parameters, to, save and load see it as base") {
    const torch::nn::Linear layer(4, 3);
    const auto module = std::make_shared<interop::encrypted_linear>(layer, [](const at::Tensor& x) {
        return torch::ones({x.size(0), 3}, x.options());
    });
    const auto names = module->named_parameters();
    DOCTEST_CHECK(names.size() == 2);
    DOCTEST_CHECK(names.contains("base.weight"));
    DOCTEST_CHECK(names.contains("base.bias"));
    DOCTEST_CHECK(module->base.get() == layer.get());

    std::stringstream stored;
    {
        torch::serialize::OutputArchive archive;
        module->save(archive);
        archive.save_to(stored);
    }
    const auto other =
        std::make_shared<interop::encrypted_linear>(torch::nn::Linear(4, 3), [](const at::Tensor& x) {
            return torch::ones({x.size(0), 3}, x.options());
        });
    torch::serialize::InputArchive archive;
    archive.load_from(stored);
    other->load(archive);
    DOCTEST_CHECK(torch::equal(other->base->weight, layer->weight));

    module->to(at::kBFloat16);
    const torch::NoGradGuard no_gradient;
    DOCTEST_CHECK((module->forward(torch::ones({2, 4}, at::kBFloat16)).scalar_type() == at::kBFloat16));

    torch::nn::Sequential sequence(other, torch::nn::ReLU());
    const at::Tensor x = torch::randn({2, 4});
    DOCTEST_CHECK(torch::equal(sequence->forward(x), torch::relu(other->base->forward(x) + 1)));
    std::ostringstream text;
    text << *module;
    DOCTEST_CHECK(contains(text.str(), "encrypted_linear(in_features=4, out_features=3)"));
}

DOCTEST_TEST_CASE("an encrypted_linear is not cloned, neither alone nor in a model") {
    const auto module = std::make_shared<interop::encrypted_linear>(torch::nn::Linear(4, 3),
                                                                    [](const at::Tensor& x) { return x; });
    DOCTEST_CHECK_THROWS_AS(module->clone(), c10::Error);
    const torch::nn::Sequential sequence(module, torch::nn::ReLU());
    DOCTEST_CHECK_THROWS_AS(sequence->clone(), c10::Error);
}

DOCTEST_TEST_CASE("encrypted_linear refuses a delta that libtorch would broadcast or convert") {
    const auto with = [](const at::Tensor& delta) {
        interop::encrypted_linear module(torch::nn::Linear(4, 3),
                                         [delta](const at::Tensor&) { return delta; });
        static_cast<void>(module.forward(torch::ones({2, 4})));
    };
    DOCTEST_CHECK(
        contains(refusal<shape_error>([&] { with(torch::ones({3})); }), "shape [3], expected [2, 3]"));
    DOCTEST_CHECK(contains(refusal<shape_error>([&] { with(at::Tensor()); }), "none"));
    DOCTEST_CHECK(contains(refusal<parameter_error>([&] {
                               with(torch::ones({2, 3}, at::kHalf));
                           }),
                           "Half, expected Float"));
    DOCTEST_CHECK_THROWS_AS(interop::encrypted_linear(nullptr, [](const at::Tensor& x) { return x; }),
                            parameter_error);
    DOCTEST_CHECK_THROWS_AS(interop::encrypted_linear(torch::nn::Linear(4, 3), nullptr), parameter_error);
}

DOCTEST_TEST_CASE(
    "an input that does not fit the layer is libtorch's to refuse, before the delta is asked for") {
    bool was_asked = false;
    interop::encrypted_linear module(torch::nn::Linear(4, 3), [&](const at::Tensor& x) {
        was_asked = true;
        return x;
    });
    DOCTEST_CHECK_THROWS_AS(module.forward(torch::ones({2, 5})), c10::Error);
    DOCTEST_CHECK(!was_asked);
}

DOCTEST_TEST_CASE("gradients flow to the layer, and not to the adapter") {
    const torch::nn::Linear layer(4, 3);
    interop::encrypted_linear module(layer, [](const at::Tensor& x) {
        return torch::ones({x.size(0), 3}, x.options());
    });
    module.forward(torch::ones({2, 4})).sum().backward();
    DOCTEST_CHECK(torch::equal(layer->weight.grad(), torch::full({3, 4}, 2.0)));
}
