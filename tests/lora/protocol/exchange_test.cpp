#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/request.hpp>

#include <nlohmann/json.hpp>

#include "../attacks/attack.hpp"

// Known answers of a whole exchange, by a program in another language: tests/data/exchange/make.py. Messages
// are compared as a whole; the steps say where a difference begins.

namespace {

using namespace tests;
using arith::word;
using nlohmann::json;

std::string hex(std::span<const std::uint8_t> bytes) {
    std::string text;
    for (const std::uint8_t byte : bytes) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

random::seed seed_of(const std::string& text) {
    random::seed seed;
    for (std::size_t i = 0; i < random::seed_bytes; ++i) {
        seed.bytes[i] = static_cast<std::uint8_t>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    }
    REQUIRE(hex(seed.bytes) == text);
    return seed;
}

/// The digest D of tests/data/random_streams.json.
template <class Values>
json digest(const Values& values) {
    std::uint64_t d = 0;
    for (const auto x : values) {
        d = d * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(x);
    }
    std::array<std::uint8_t, 8> bytes;
    for (std::size_t i = 0; i < 8; ++i) {
        bytes[i] = static_cast<std::uint8_t>(d >> (56 - 8 * i));
    }
    return hex(bytes);
}

json described(std::span<const std::uint8_t> message) {
    return {{"bytes", message.size()},
            {"first", hex(message.first(std::min<std::size_t>(message.size(), 160)))},
            {"last", hex(message.last(32))},
            {"digest", digest(message)}};
}

/// The coefficients that block sums stand for, modulo each prime.
template <ckks::parameter_set P, class Limbs>
json coefficients(const Limbs& limbs, int subring_log_n) {
    json result;
    rns::for_each_limb<attacks::basis_of<P>>([&]<int I>() {
        std::vector<word> sums(limbs[I].begin(), limbs[I].end());
        ckks::block_sums_to_coefficients<P::log_n, attacks::basis_of<P>::template prime<I>>(subring_log_n,
                                                                                            std::span(sums));
        result.push_back(sums);
    });
    return result;
}

json read_known(const std::string& name) {
    std::ifstream file(TENSAFE_TEST_DATA "/exchange/" + name + ".json");
    REQUIRE(file.good());
    return json::parse(file);
}

lora::matrix matrix_of(const json& known) {
    lora::matrix a(known.at("rank"), known.at("d"));
    for (std::size_t k = 0; k < a.values.size(); ++k) {
        a.values[k] = known.at("a_times_1024")[k / a.columns][k % a.columns].get<float>() / 1024;
    }
    return a;
}

std::vector<double> state_of(const json& known) {
    std::vector<double> h = known.at("h_times_64");
    for (double& x : h) {
        x /= 64;
    }
    return h;
}

template <class Plan>
json numbers_of(const Plan& plan) {
    const auto& budget = plan.budget();
    return {{"row_norm", plan.layout().row_norm},
            {"weight_norm", budget.weight_norm},
            {"range", budget.range},
            {"reply_bits", budget.reply_bits},
            {"checksum_bits", budget.checksum_bits},
            {"flood_bits", budget.flood.bits},
            {"inputs", plan.inputs()},
            {"outputs", plan.outputs()}};
}

template <class Plan>
void check_answers(const Plan& plan, const std::vector<double>& h, const std::vector<double>& answers,
                   const json& known) {
    const double deviation = plan.budget().relative_error * plan.layout().row_norm *
                             lora::detail::norm_of_state(attacks::view(h), h.size()) /
                             std::sqrt(static_cast<double>(h.size()));
    for (std::size_t r = 0; r < answers.size(); ++r) {
        CHECK(std::fabs(answers[r] - known[r].get<double>()) < 6 * deviation);
    }
}

template <ckks::parameter_set P, class Packing, class Protection>
void check_exchange(const std::string& name) {
    const json known = read_known(name);
    const auto seed = [&](const char* who) { return seed_of(known.at("seeds").at(who)); };
    const auto generator = [&](const char* who) { return random::generator(seed(who)); };

    const lora::matrix a = matrix_of(known);
    const std::vector<double> h = state_of(known);
    const lora::server<P, Packing, Protection> server(a);
    const auto& plan = server.plan();
    const auto& budget = plan.budget();
    CHECK(json(P::basis::primes) == known.at("primes"));
    CHECK(numbers_of(plan) == known.at("plan"));

    const wire::envelope envelope{known.at("number"), known.at("group")};
    std::vector<std::int8_t> s(P::degree);
    random::sample_ternary(seed("secret_key"), random::stream_domain::secret_key, 0, std::span(s));
    CHECK(digest(s) == known.at("s"));
    lora::client<P> client(ckks::secret_key<P>(seed("secret_key")), generator("client"));
    const auto key = client.rerandomization_key(seed("server_nonce"));
    const random::seed joint = random::joint_seed(key.client_nonce, key.server_nonce);
    CHECK(json(hex(key.client_nonce.bytes)) == known.at("client_nonce"));
    CHECK(json(hex(joint.bytes)) == known.at("joint_seed"));
    CHECK(digest(ckks::detail::expand_public_key<attacks::basis_of<P>>(joint).words()) == known.at("a"));
    CHECK(digest(key.b.words()) == known.at("b"));
    CHECK(described(wire::write_rerandomization_key(key, envelope)) == known.at("key"));

    const auto query = client.encrypt(plan, h);
    CHECK(json(query.scale) == known.at("scale"));
    CHECK(json(hex(query.request.seed.bytes)) == known.at("request_seed"));
    lora::expanded_request<P> expanded;
    lora::detail::server_internals::weights(server).expand(plan, query.request, expanded);
    for (std::size_t i = 0; i < plan.inputs(); ++i) {
        CHECK(digest(expanded.c0[i].words()) == known.at("inputs")[i].at("c0"));
        CHECK(digest(expanded.c1[i].words()) == known.at("inputs")[i].at("c1"));
    }
    CHECK(described(wire::write_request<Packing, Protection>(query.request, envelope)) ==
          known.at("request"));

    auto pool = server.pool(seed("server_nonce"), key, generator("pool"));
    lora::server_workspace<P> work;
    work.generator = generator("server");
    lora::reply<P, Packing, Protection> reply;
    server.apply(query.request, pool, work, reply);
    CHECK(described(wire::write_reply(reply, envelope)) == known.at("reply"));

    // The server's steps, from the same seeds: the switch to short words leaves no trace of e0 and e1.
    const int log_n = plan.subring_log_n();
    auto pool_again = server.pool(seed("server_nonce"), key, generator("pool"));
    const random::seed flood_seed = generator("server").next_seed();
    auto products = attacks::bare_products(server, query.request);
    for (std::size_t o = 0; o < plan.outputs(); ++o) {
        CAPTURE(o);
        const json& step = known.at("outputs")[o];
        CHECK(coefficients<P>(products[o].c0, log_n) == step.at("product_c0"));
        CHECK(digest(products[o].c1.words()) == step.at("product_c1"));
        const auto zero = pool_again.acquire();
        CHECK(coefficients<P>(zero.c0, log_n) == step.at("zero_c0"));
        CHECK(digest(zero.c1.words()) == step.at("zero_c1"));
        CHECK(json(std::vector(zero.e0.begin(), zero.e0.end())) == step.at("e0"));
        CHECK(digest(zero.e1) == step.at("e1"));
        rns::add(products[o].c1, zero.c1);
        const auto lane = static_cast<std::uint32_t>(o);
        const auto hidden =
            lora::rerandomize<P>(std::move(products[o]), zero, budget.flood, flood_seed, lane);
        std::vector<arith::uint128> draws(plan.subring_degree());
        budget.flood.sample({flood_seed, random::stream_domain::flood, lane}, 0, draws);
        std::vector<word> halves;
        for (const arith::uint128 x : draws) {
            halves.insert(halves.end(), {arith::low_word(x), arith::high_word(x)});
        }
        CHECK(digest(halves) == step.at("floods"));
        for (std::size_t i = 0; i < hidden.c0.size(); ++i) {
            CHECK(json(std::vector(hidden.c0[i].begin(), hidden.c0[i].end())) == step.at("hidden_c0")[i]);
        }
        CHECK(digest(hidden.c1.words()) == step.at("hidden_c1"));

        // c0 + c1 s, term by term.
        const int bits = plan.reply_bits(o);
        std::vector<word> c0(plan.targets(o));
        std::vector<word> c1(P::degree);
        tensafe::memory::unpack_bits(std::span<const std::uint8_t>(reply.outputs[o].c0), bits, std::span(c0));
        tensafe::memory::unpack_bits(std::span<const std::uint8_t>(reply.outputs[o].c1), bits, std::span(c1));
        CHECK(json(c0) == step.at("reply_c0"));
        CHECK(digest(c1) == step.at("reply_c1"));
        for (std::size_t k = 0; k < c0.size(); ++k) {
            const std::size_t target = k * (P::degree >> log_n);
            for (std::size_t i = 0; i < P::degree; ++i) {
                const word term = c1[i] * static_cast<word>(s[(target - i) % P::degree]);
                c0[k] += i <= target ? term : 0 - term;
            }
            const auto opened = static_cast<std::int64_t>(c0[k] << (64 - bits)) >> (64 - bits);
            CHECK(json(opened) == step.at("decrypted")[k]);
        }
    }

    check_answers(plan, h, client.decrypt(plan, reply, query), known.at("answers"));
}

template <ckks::parameter_set P>
using zeros_of_block = lora::detail::of_each_limb<P, tensafe::memory::secret_buffer<word>>;
const zeros_of_block<ckks::private_n4096>& zeros_of(const lora::server_block<ckks::private_n4096>& block);
const zeros_of_block<ckks::minimal_n2048>& zeros_of(const lora::server_block<ckks::minimal_n2048>& block);
/// An explicit instantiation may name what is private.
template <ckks::parameter_set P, auto member>
struct opened {
    friend const zeros_of_block<P>& zeros_of(const lora::server_block<P>& block) { return block.*member; }
};
template struct opened<ckks::private_n4096, &lora::server_block<ckks::private_n4096>::c0_>;
template struct opened<ckks::minimal_n2048, &lora::server_block<ckks::minimal_n2048>::c0_>;

template <ckks::parameter_set P, class Protection>
void check_block_exchange(const std::string& name) {
    const json known = read_known(name);
    const auto seed = [&](const char* who) { return seed_of(known.at("seeds").at(who)); };
    const auto generator = [&](const char* who) { return random::generator(seed(who)); };
    const lora::server<P, lora::token_blocks, Protection> server(matrix_of(known), known.at("tokens"));
    const auto& plan = server.plan();
    CHECK(numbers_of(plan) == known.at("plan"));

    const wire::envelope envelope{known.at("number"), known.at("group")};
    lora::client<P> client(ckks::secret_key<P>(seed("secret_key")), generator("client"));
    const auto key = client.rerandomization_key(seed("server_nonce"));
    auto block = client.prepare(plan);
    std::vector<std::uint8_t> message;
    wire::write_block_request<P, Protection>(block.request(), envelope, message);
    CHECK(described(message) == known.at("request"));

    auto pool = server.pool(seed("server_nonce"), key, generator("pool"));
    lora::block_workspace<P> work;
    work.generator = generator("server");
    lora::server_block<P> prepared;
    lora::block_reply ahead;
    server.prepare(block.request(), pool, work, prepared, ahead);
    wire::write_block_reply<P, Protection>(ahead, envelope, message);
    CHECK(described(message) == known.at("reply"));
    json zeros;
    for (const auto& limb : zeros_of(prepared)) {
        zeros.push_back(std::vector(limb.begin(), limb.end()));
    }
    CHECK(zeros == known.at("zeros"));
    client.accept(block, ahead);

    std::vector<lora::token_query> queries;
    for (const json& step : known.at("answered")) {
        auto& query = queries.emplace_back();
        block.encrypt(state_of(step), query);
        query.request.block = envelope.number;
        CHECK(json(query.scale) == step.at("scale"));
        wire::write_token_request<P, Protection>(query.request, envelope, message);
        CHECK(described(message) == step.at("request"));
    }
    for (std::size_t t = queries.size(); t-- > 0;) {
        CAPTURE(t);
        const json& step = known.at("answered")[t];
        lora::token_reply reply;
        server.answer(prepared, queries[t].request, work, reply);
        wire::write_token_reply<P, Protection>(reply, envelope, message);
        CHECK(described(message) == step.at("reply"));
        std::vector<double> answers(plan.rank());
        block.decrypt(reply, queries[t], answers);
        check_answers(plan, state_of(step), answers, step.at("answers"));
    }
}

}  // namespace

TEST_CASE("an exchange of two inputs and a worst-case range has the bytes that the documents say") {
    check_exchange<ckks::private_n4096, lora::coefficient_tiles<4>, lora::protects_adapter_rows<>>(
        "private_n4096");
}

TEST_CASE("an exchange with checksum rows and one prime has the bytes that the documents say") {
    using protection = lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>;
    check_exchange<ckks::minimal_n2048, lora::coefficient_tiles<4>, protection>("minimal_n2048");
}

TEST_CASE("a block of tokens and a worst-case range has the bytes that the documents say") {
    check_block_exchange<ckks::private_n4096, lora::protects_adapter_rows<>>("block_private_n4096");
}

TEST_CASE("a block of tokens with checksum rows has the bytes that the documents say") {
    using protection = lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>;
    check_block_exchange<ckks::minimal_n2048, protection>("block_minimal_n2048");
}
