// A server that does not follow the protocol: its replies decrypt to coefficients of the key, and it sees no
// answer, but what the client sends next. What it could wait for is a client that stops: its B makes the next
// hidden states overflow where an answer is not zero.

#include <tensafe/core/real.hpp>
#include <tensafe/lora/model/model_client.hpp>

#include <cfenv>

#include "attack.hpp"

namespace {

using namespace attacks;
using model_client = lora::model_client<P>;

constexpr std::size_t d = 64;
constexpr std::size_t tokens = 12;

lora::adapter one_site() {
    lora::adapter_site site = random_site(d, 4, d, 51);
    site.name = "site";
    return {{site}};
}

/// B after which the next state is this many times as long as the last one, if the first answer is not zero.
lora::adapter planted(double gain, const lora::model_layout& layout) {
    lora::adapter held = lora::client_part(one_site());
    matrix& b = held.sites[0].b;
    std::fill(b.values.begin(), b.values.end(), 0.0F);
    b.row(0)[0] = static_cast<float>(gain / layout.groups[0].row_norm / std::fabs(held.sites[0].scale));
    return held;
}

/// All that the server sees of a client: the bytes of its requests, how many are zeros is its own knowledge.
struct seen {
    std::vector<std::size_t> lengths;
    std::size_t bad_states = 0;
};

/// Generates with replies that show coefficient k of the key as every token's first answer.
seen generate(model_client& client, std::size_t k) {
    const auto& plan = client.plan(0);
    const int bits = plan.reply_bits(0);
    std::vector<std::uint32_t> c1(P::degree);
    // X^0 times (-X^(N-k)) makes s_k the coefficient at 0: its negative, as large as there is.
    c1[(P::degree - k) % P::degree] = (std::uint32_t{1} << (bits - 1)) - 1;
    model_client::reply_type reply;
    reply.rank = plan.rank();
    reply.d = plan.d();
    for (std::size_t o = 0; o < plan.outputs(); ++o) {
        auto& output = reply.outputs.emplace_back();
        output.c0.resize(tensafe::memory::packed_bytes(plan.targets(o), bits));
        output.c1.resize(tensafe::memory::packed_bytes(P::degree, bits));
        tensafe::memory::pack_bits(std::span<const std::uint32_t>(c1), bits, std::span(output.c1));
    }
    std::vector<float> h = random_state(d, 52);
    seen result;
    model_client::query_type query;
    for (std::size_t t = 0; t < tokens; ++t) {
        result.bad_states += client.encrypt_or_zeros(0, h, query) ? 0U : 1U;
        result.lengths.push_back(query.request.bytes());
        const auto deltas = client.deltas(0, reply, query);
        const double longest = plan.layout().row_norm * norm(h) / 0.9 * (1 + 1e-6);
        for (const double answer : client.decrypt(0, reply, query)) {
            CHECK((!std::isfinite(longest) || std::fabs(answer) <= longest));  // whatever the server sends
        }
        for (std::size_t i = 0; i < d; ++i) {
            h[i] += static_cast<float>(deltas[0][i]);
        }
    }
    return result;
}

}  // namespace

TEST_CASE(
    "a server that makes states overflow where a coefficient of the key is not zero sees no difference") {
    const lora::model_layout layout = lora::model_server<P>(one_site()).layout();
    const auto keys =
        std::make_shared<lora::client<P>>(ckks::secret_key<P>(numbered_seed(53)), numbered_generator(54));
    const ckks::secret_key<P> key(numbered_seed(53));
    model_client client(keys, layout, planted(lora::largest_gain, layout));
    std::vector<std::uint32_t> one(P::degree);
    one[0] = 1;
    std::size_t stopped = 0;
    for (std::size_t k = 0; k < 40; ++k) {
        const seen of = generate(client, k);
        CHECK(of.lengths == std::vector<std::size_t>(tokens, of.lengths[0]));
        // The oracle that was: a client that refuses such states stops for these, and for no other.
        CHECK((of.bad_states > 0) == (key.coefficients()[k] != 0));
        stopped += of.bad_states > 0 ? 1 : 0;
    }
    CHECK(stopped > 10);
    CHECK(stopped < 40);
}

TEST_CASE("a key planted in the c1 of a block stops no message either: each token takes the next position") {
    constexpr std::size_t in_block = 32;
    const lora::server<P, lora::token_blocks> server(random_matrix(1, d, 58), in_block);
    const auto& plan = server.plan();
    const int bits = plan.reply_bits(0);
    std::vector<std::uint32_t> c1(P::degree);
    c1[0] = (std::uint32_t{1} << (bits - 1)) - 1;  // position t shows coefficient t * N / 32 of the key
    lora::block_reply planted{1, d, in_block, {{}}};
    planted.c1[0].resize(tensafe::memory::packed_bytes(P::degree, bits));
    tensafe::memory::pack_bits(std::span<const std::uint32_t>(c1), bits, std::span(planted.c1[0]));
    block_sides<P> s(server, 59);
    s.client.accept(s.of_client, planted);

    std::vector<std::uint32_t> one(P::degree);
    one[0] = 1;
    std::vector<float> h = random_state(d, 60);
    std::size_t bytes = 0;
    std::size_t stopped = 0;
    for (std::size_t t = 0; t < in_block; ++t) {
        lora::token_query query;
        const bool encrypted = s.of_client.encrypt_or_zeros(h, query);
        if (t == 0) {
            bytes = query.request.bytes();
        } else {
            // The oracle that was.
            const auto coefficient = s.key.coefficients()[(t - 1) * plan.entries_per_input()];
            CHECK(encrypted == (coefficient == 0));
        }
        stopped += encrypted ? 0 : 1;
        CHECK(query.request.position == t);
        CHECK(query.request.bytes() == bytes);
        const lora::token_reply reply{1, d, t, std::vector<std::uint8_t>(plan.token_reply_bytes())};
        const double answer = s.decrypt(query, reply)[0];
        if (encrypted) {
            CHECK(std::fabs(answer) <= plan.layout().row_norm * norm(h) / 0.9 * (1 + 1e-6));
        }
        h = random_state(d, 61 + t);
        h[0] += static_cast<float>(answer * 1e300);
    }
    CHECK(stopped > 10);
    CHECK(stopped < in_block);
}

TEST_CASE("answers of slots stop at norm(row) norm(h) / 0.9, whatever sums of coefficients a server plants") {
    for (const std::size_t columns : {std::size_t{8}, std::size_t{256}}) {
        CAPTURE(columns);
        const lora::server<P, lora::replicated_slots<>> server(random_matrix(32, columns, 56));
        const auto& plan = server.plan();
        sides<P> s(56, plan.subring_log_n());
        const std::vector<float> h = random_state(columns, 57);
        const auto query = s.client.encrypt(plan, h);
        auto reply = server.apply(query.request, s.pool);
        const double longest = plan.layout().row_norm * norm(h) / 0.9;
        const std::size_t targets = plan.targets(0);
        const int bits = plan.reply_bits(0);
        double largest = 0;
        for (std::size_t root = 1; root < targets; root += 2) {
            // As large as there are coefficients, with the signs of one slot's roots of unity.
            std::vector<std::uint32_t> c0(targets);
            for (std::size_t k = 0; k < targets; ++k) {
                const double angle = std::numbers::pi * static_cast<double>(root * k % (2 * targets));
                const std::uint32_t half = std::uint32_t{1} << (bits - 1);
                c0[k] = std::cos(angle / static_cast<double>(targets)) < 0 ? half + 3000 : half - 3000;
            }
            for (auto& output : reply.outputs) {
                std::fill(output.c1.begin(), output.c1.end(), std::uint8_t{0});
                output.c1[0] = 1;  // zeros alone are refused
                tensafe::memory::pack_bits(std::span<const std::uint32_t>(c0), bits, std::span(output.c0));
            }
            for (const double answer : s.client.decrypt(plan, reply, query)) {
                largest = worse(largest, std::fabs(answer) / longest);
            }
        }
        CHECK(largest <= 1 + 1e-5);
        CHECK(largest > 1 - 1e-5);  // as far as that a server can get
    }
}

TEST_CASE("zeros are encrypted for a state that is no number, and its answers are zeros") {
    const lora::adapter from = one_site();
    const lora::model_server<P> server(from);
    model_client client(server.layout(), lora::client_part(from));
    const random::seed nonce = random::fresh_nonce();
    auto pool = lora::server<P>(from.sites[0].a).pool(nonce, client.rerandomization_key(nonce));
    std::vector<float> h = random_state(d, 55);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        h[9] = bad;
        model_client::query_type query;
        CHECK_FALSE(client.encrypt_or_zeros(0, h, query));
        lora::server_workspace<P> work;
        model_client::reply_type reply;
        lora::server<P>(lora::normalize_rows(from.sites[0]).a).apply(query.request, pool, work, reply);
        for (const double answer : client.decrypt(0, reply, query)) {
            CHECK(std::fabs(answer) < 1e-100);
        }
    }
    h[9] = 0;
    model_client::query_type query;
    CHECK(client.encrypt_or_zeros(0, h, query));
}

TEST_CASE("a gain beyond the base layer's norm is refused before anything is encrypted, and both are named") {
    const lora::model_layout layout = lora::model_server<P>(one_site()).layout();
    CHECK(model_client(layout, planted(7.9, layout), {{"site", 8.0}}).gains()[0] == doctest::Approx(7.9));
    CHECK_THROWS_WITH_AS(model_client(layout, planted(8.1, layout), {{"site", 8.0}}),
                         Contains("expected at most 8, the base layer's norm"), tensafe::parameter_error);
    CHECK_THROWS_WITH_AS(model_client(layout, planted(1.01 * lora::largest_gain, layout)),
                         Contains("site \"site\": got a gain of "), tensafe::parameter_error);
}

// Arithmetic with subnormal numbers takes another time on some processors. A server that makes products
// subnormal where a coefficient of the key is not zero would see it in the time until the next request.

namespace {

/// Whether f met a subnormal number: as an operand (what x86 notes), or as a result that had to be rounded.
bool meets_subnormal(const std::function<void()>& f) {
    std::feclearexcept(FE_ALL_EXCEPT);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() & ~0x3fU);
    f();
    return (__builtin_ia32_stmxcsr() & 0x12U) != 0;
#else
    f();
    return std::fetestexcept(FE_UNDERFLOW) != 0;
#endif
}

/// A message part of a reply in which X^0 of c1 is this, so that answers are multiples of coefficients of the
/// key, and c0 is what `c0_of` says.
template <class Plan, class C0>
typename Plan::reply_type planted_reply(const Plan& plan, std::uint32_t constant, C0 c0_of) {
    typename Plan::reply_type reply;
    reply.rank = plan.rank();
    reply.d = plan.d();
    for (std::size_t o = 0; o < plan.outputs(); ++o) {
        const int bits = plan.reply_bits(o);
        std::vector<std::uint32_t> c1(P::degree);
        c1[0] = constant;
        std::vector<std::uint32_t> c0(plan.targets(o));
        std::generate(c0.begin(), c0.end(), [&] { return c0_of() & ((std::uint32_t{1} << bits) - 1); });
        auto& output = reply.outputs.emplace_back();
        output.c0.resize(plan.c0_bytes(o));
        output.c1.resize(plan.c1_bytes(o));
        tensafe::memory::pack_bits(std::span<const std::uint32_t>(c0), bits, std::span(output.c0));
        tensafe::memory::pack_bits(std::span<const std::uint32_t>(c1), bits, std::span(output.c1));
    }
    return reply;
}

/// The least of everything that a server may choose: row norm, scale, entries of B, and smaller ones among
/// these, which count as 0.
template <class Packing>
lora::model_client<P, Packing> least_client(lora::mode mode) {
    lora::model_options options;
    options.mode = mode;
    auto layout = lora::model_server<P, Packing>(one_site(), options).layout();
    layout.groups[0].row_norm = 0x1p-100;
    layout.groups[0].sites[0].scale = mode == lora::mode::blind ? 0x1p-256 : 0x1p-64;
    lora::adapter held = lora::client_part(one_site(), options);
    for (lora::adapter_site& site : held.sites) {
        site.scale = 0x1p-64;
        constexpr std::array entries{0x1p-100F, 1e-45F, -0x1.000002p-100F, 0x1.fffffep-101F, 0.0F, 3.0F};
        for (std::size_t k = 0; k < site.b.values.size(); ++k) {
            site.b.values[k] = entries[k % entries.size()];
        }
    }
    const auto keys =
        std::make_shared<lora::client<P>>(ckks::secret_key<P>(numbered_seed(53)), numbered_generator(54));
    return {keys, layout, held};
}

/// Hidden states of all sizes, and one of zeros.
std::vector<std::vector<double>> states_of_all_sizes() {
    std::vector<std::vector<double>> result;
    for (const double size : {0.0, 1e-150, 1e-42, 1.0, 1e37, 1e150}) {
        auto& h = result.emplace_back();
        for (const float x : random_state(d, 62)) {
            h.push_back(static_cast<double>(x) * size);
        }
    }
    return result;
}

template <class Packing>
void check_no_answer_is_subnormal(lora::mode mode) {
    auto client = least_client<Packing>(mode);
    const auto& plan = client.plan(0);
    std::mt19937_64 random(63);
    std::size_t not_zero = 0;
    for (const auto& h : states_of_all_sizes()) {
        typename lora::model_client<P, Packing>::query_type query;
        const bool while_encrypted = meets_subnormal([&] { CHECK(client.encrypt_or_zeros(0, h, query)); });
        CHECK_FALSE(while_encrypted);
        const auto least = std::uint32_t{1} << plan.noise_bits(0);
        for (const std::uint32_t constant : {least, 3 * least, std::uint32_t{1}}) {
            for (const bool has_c0 : {false, true}) {
                const auto reply = planted_reply(plan, constant, [&] {
                    return has_c0 ? static_cast<std::uint32_t>(random()) : std::uint32_t{0};
                });
                typename lora::model_client<P, Packing>::site_deltas deltas;
                std::vector<float> floats;
                CHECK_FALSE(meets_subnormal([&] {
                    deltas = client.deltas(0, reply, query);
                    for (const double x : deltas[0]) {
                        floats.push_back(
                            static_cast<float>(flushed(std::clamp(x, -0x1.fffffep127, 0x1.fffffep127))));
                    }
                }));
                for (std::size_t k = 0; k < deltas[0].size(); ++k) {
                    CHECK((deltas[0][k] == 0 || std::isnormal(deltas[0][k])));
                    CHECK((floats[k] == 0 || std::fabs(floats[k]) >= 0x1p-100F));
                    not_zero += deltas[0][k] != 0 ? 1U : 0U;
                }
            }
        }
    }
    CHECK(not_zero > 100);
}

}  // namespace

TEST_CASE(
    "no product of what is decrypted is subnormal, whatever row norm, scale, B and reply a server plants") {
    using packings = lora::coefficient_tiles<4>;
    check_no_answer_is_subnormal<packings>(lora::mode::client_held_b);
    check_no_answer_is_subnormal<packings>(lora::mode::blind);
    check_no_answer_is_subnormal<lora::replicated_slots<>>(lora::mode::client_held_b);
    check_no_answer_is_subnormal<lora::replicated_slots<>>(lora::mode::blind);
    // As it was when a server could choose these.
    std::vector<double> out(1);
    const std::vector<double> answer{1e-10};
    matrix one(1, 1);
    for (const auto& [entry, scale] : {std::pair{1.0F, 1e-305}, {1e-42F, 1.0}}) {
        one.values[0] = entry;
        CHECK(
            meets_subnormal([&] { lora::detail::multiply(one, scale, std::span(answer), std::span(out)); }));
    }
    CHECK(meets_subnormal([&] {
        volatile float narrow = static_cast<float>(answer[0] * 1e-30);
        static_cast<void>(narrow);
    }));
}

TEST_CASE("answers of a block are never subnormal either") {
    using block_server = lora::server<P, lora::token_blocks>;
    const block_server server(random_matrix(2, d, 64), 32);
    auto layout = server.layout();
    layout.row_norm = 0x1p-100;
    lora::client<P> client(ckks::secret_key<P>(numbered_seed(65)), numbered_generator(66));
    auto block = client.prepare(block_server::plan_type(layout));
    const auto& plan = block.plan();
    std::vector<std::uint32_t> c1(P::degree);
    c1[0] = std::uint32_t{1} << plan.noise_bits(0);
    lora::block_reply ahead{2, d, 32, std::vector<std::vector<std::uint8_t>>(2)};
    for (auto& bytes : ahead.c1) {
        bytes.resize(plan.c1_bytes(0));
        tensafe::memory::pack_bits(std::span<const std::uint32_t>(c1), plan.reply_bits(0), std::span(bytes));
    }
    client.accept(block, ahead);
    for (const auto& h : states_of_all_sizes()) {
        lora::token_query query;
        std::vector<double> answers(2);
        CHECK_FALSE(meets_subnormal([&] {
            CHECK(block.encrypt_or_zeros(h, query));
            block.decrypt({2, d, query.request.position, std::vector<std::uint8_t>(plan.token_reply_bytes())},
                          query, answers);
        }));
    }
}

TEST_CASE(
    "scales and row norms with which products would be subnormal are refused, such entries of B are 0") {
    const lora::model_layout layout = lora::model_server<P>(one_site()).layout();
    const auto with = [&](double scale, double row_norm) {
        lora::model_layout changed = layout;
        changed.groups[0].row_norm = row_norm;
        changed.groups[0].sites[0].scale = scale;
        lora::adapter held = lora::client_part(one_site());
        held.sites[0].scale = scale;
        std::fill(held.sites[0].b.values.begin(), held.sites[0].b.values.end(), 1e-42F);
        return model_client(changed, held);
    };
    for (const double scale : {0.0, 0x1p-64, -0x1p-64, 0x1p64}) {
        CHECK_NOTHROW(with(scale, 1));
    }
    for (const double scale : {1e-305, 0x1.fffffffffffffp-65, -0x1p-65, 0x1.0000000000001p64, 1e300}) {
        CHECK_THROWS_WITH_AS(with(scale, 1), Contains("expected 0 or a magnitude from 2^-64 to 2^64"),
                             tensafe::parameter_error);
    }
    for (const double row_norm : {0.0, 0x1p-100}) {
        CHECK_NOTHROW(with(1, row_norm));
    }
    for (const double row_norm : {0x1.fffffffffffffp-101, 1e-305, -1.0}) {
        CHECK_THROWS_WITH_AS(with(1, row_norm), Contains("expected 0 or a number from 2^-100 to 2^100"),
                             tensafe::parameter_error);
    }
    const auto deltas = with(1, 1).deltas(0, std::vector<double>(4, 1e30));
    CHECK(std::ranges::count(deltas[0], 0.0) == static_cast<std::ptrdiff_t>(d));

    // A site in the clear.
    lora::adapter clear{{random_site(d, 4, d, 67)}};
    clear.sites[0].name = "clear";
    clear.sites[0].a.values[0] = 1e-42F;
    clear.sites[0].b.values[0] = 0x1p-101F;
    const auto taken_with = [&](double scale) {
        lora::adapter held = lora::client_part(one_site());
        clear.sites[0].scale = scale;
        held.sites.push_back(clear.sites[0]);
        return model_client(layout, held);
    };
    const auto client = taken_with(1);
    CHECK(client.in_the_clear()[0].a.values[0] == 0);
    CHECK(client.in_the_clear()[0].b.values[0] == 0);
    CHECK(client.in_the_clear()[0].b.values[1] == clear.sites[0].b.values[1]);
    CHECK_THROWS_WITH_AS(taken_with(1e-305), Contains("\"clear\" has the scale 1e-305"),
                         tensafe::parameter_error);
}
