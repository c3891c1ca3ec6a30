#include <tensafe/lora/packing/column_batched.hpp>

#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tiles_fixture;

namespace {

using protected_server = server<small, column_batched>;
using bare_server = server<small, column_batched, reveals_adapter_rows>;

/// Up to 1024 states of d entries, with norms from 1e-20 to 1e20 and one of zero.
matrix random_batch(std::size_t tokens, std::size_t d, std::uint64_t seed) {
    matrix states = random_matrix(tokens, d, seed);
    for (std::size_t t = 0; t < tokens; ++t) {
        scale(states.row(t), t % 9 == 5 ? 0.0F : std::pow(10.0F, static_cast<float>(t % 5) * 10 - 20));
    }
    return states;
}

/// A*h for each state, through encryption.
template <class Protection>
std::vector<std::vector<double>> encrypted_products(session& with,
                                                    const server<small, column_batched, Protection>& s,
                                                    const matrix& states) {
    const auto q = with.key_holder.encrypt(s.plan(), states);
    if constexpr (Protection::protects) {
        return with.key_holder.decrypt(s.plan(), s.apply(q.request, with.zeros), q);
    } else {
        return with.key_holder.decrypt(s.plan(), s.apply(q.request), q);
    }
}

/// The largest error of all answers, each in units of the budget's standard deviation for its own state.
template <class Server>
double error_in_deviations(session& with, const Server& s, const matrix& a, const matrix& states) {
    const auto answers = encrypted_products(with, s, states);
    REQUIRE(answers.size() == states.rows);
    const double unit =
        s.layout().budget().relative_error * s.layout().row_norm / std::sqrt(static_cast<double>(a.columns));
    double largest = 0;
    for (std::size_t t = 0; t < states.rows; ++t) {
        const std::vector<float> h = row_of(states, t);
        const std::vector<double> expected = product(a, h);
        const double deviation = unit * std::fmax(norm(h), 1e-100);
        for (std::size_t r = 0; r < a.rows; ++r) {
            largest = worse(largest, std::fabs(answers[t][r] - expected[r]) / deviation);
        }
    }
    return largest;
}

}  // namespace

TEST_CASE_TEMPLATE(
    "batches of any number of states give A*h for each, with an error that follows its own norm", Server,
    protected_server, bare_server) {
    session with(small::log_n);
    // Inputs are expanded 32 at a time.
    for (const std::size_t d : {1UL, 31UL, 33UL, 70UL}) {
        const matrix a = random_matrix(3, d, d);
        const Server s(a);
        for (const std::size_t tokens : {std::size_t{1}, std::size_t{2}, std::size_t{37}, small::degree}) {
            INFO("d := ", d, ", tokens := ", tokens);
            CHECK(error_in_deviations(with, s, a, random_batch(tokens, d, tokens)) < most_deviations);
        }
    }
}

TEST_CASE_TEMPLATE("random shapes give A*h for each state of a batch", Server, protected_server,
                   bare_server) {
    std::mt19937_64 generator(5);
    session with(small::log_n);
    for (int round = 0; round < trials(8); ++round) {
        const std::size_t rank = 1 + generator() % 20;
        const std::size_t d = 1 + generator() % 100;
        INFO("rank := ", rank, ", d := ", d);
        const matrix a = random_matrix(rank, d, generator());
        CHECK(error_in_deviations(with, Server(a), a, random_batch(1 + generator() % 50, d, generator())) <
              most_deviations);
    }
}

TEST_CASE("answers that fill the range do not wrap around, and nothing of the range is given away") {
    session with(small::log_n);
    const std::size_t d = 60;
    const std::vector<float> h = random_state(d, 1);
    matrix a(2, d);
    matrix states(3, d);
    for (std::size_t t = 0; t < d; ++t) {
        a.row(0)[t] = h[t];
        a.row(1)[t] = -h[t];
        states.row(0)[t] = h[t];
        states.row(1)[t] = -h[t] * 1e9F;
        states.row(2)[t] = h[t] * 1e-9F;
    }
    const protected_server s(a);
    const reply_budget budget = s.layout().budget();
    const double length = norm(h);
    CHECK(budget.weight_norm * s.layout().message_scale(budget, length) * length > 0.98 * budget.modulus / 2);
    CHECK(error_in_deviations(with, s, a, states) < most_deviations);
}

TEST_CASE("zeros on either side of a batch give zeros") {
    session with(small::log_n);
    for (const auto& answers :
         encrypted_products(with, protected_server(matrix(3, 20)), random_batch(4, 20, 1))) {
        CHECK(norm(answers) == 0);
    }
    for (const auto& answers :
         encrypted_products(with, protected_server(random_matrix(3, 20, 1)), matrix(2, 20))) {
        CHECK(norm(answers) < 1e-100);
    }
}

TEST_CASE("a batch of no states, or of more than N, is refused on both sides") {
    session with(small::log_n);
    const protected_server s(random_matrix(2, 3, 1));
    CHECK_THROWS_WITH_AS(encrypted_products(with, s, matrix(0, 3)),
                         Contains("got a batch of 0 hidden states, expected 1 to 1024"), shape_error);
    CHECK_THROWS_WITH_AS(encrypted_products(with, s, matrix(1025, 3)),
                         Contains("got a batch of 1025 hidden states"), shape_error);
    auto request = with.key_holder.encrypt(s.plan(), random_batch(5, 3, 1)).request;
    for (const std::size_t tokens :
         {std::size_t{0}, std::size_t{1025}, std::numeric_limits<std::size_t>::max()}) {
        request.tokens = tokens;
        CHECK_THROWS_AS(s.apply(request, with.zeros), shape_error);
    }
}

TEST_CASE("states of another length, or with entries that are no numbers, are refused") {
    client<small> c;
    const protected_server s(random_matrix(2, 3, 1));
    const auto encrypt = [&](const matrix& states) { static_cast<void>(c.encrypt(s.plan(), states)); };
    CHECK_THROWS_AS(encrypt(matrix(2, 4)), shape_error);
    matrix states = random_batch(4, 3, 1);
    states.row(2)[1] = std::numeric_limits<float>::quiet_NaN();
    CHECK_THROWS_WITH_AS(encrypt(states), Contains("entry 1 of the hidden state is not a number"),
                         encoding_error);
    states.values.pop_back();
    CHECK_THROWS_AS(encrypt(states), shape_error);
    matrix a = random_matrix(2, 3, 1);
    a.row(1)[2] = std::numeric_limits<float>::infinity();
    CHECK(contains(refusal<encoding_error>([&] { protected_server refused(a); }), "row 1, column 2"));
}

TEST_CASE("malformed requests of a batch are refused") {
    session with(small::log_n);
    const protected_server s(random_matrix(2, 3, 1));
    const auto good = with.key_holder.encrypt(s.plan(), random_batch(5, 3, 1)).request;
    const auto refused = [&](auto change) {
        auto r = good;
        change(r);
        CHECK_THROWS_AS(s.apply(r, with.zeros), shape_error);
    };
    refused([](auto& r) { r.d = 4; });
    refused([](auto& r) { r.block = 3; });
    refused([](auto& r) { r.inputs.pop_back(); });
    refused([](auto& r) { r.inputs.push_back(r.inputs[0]); });
    refused([](auto& r) { r.inputs[2].pop_back(); });
    refused([](auto& r) { r.inputs[0].push_back(0); });
    auto all_ones = good;
    std::fill(all_ones.inputs[1].begin(), all_ones.inputs[1].end(), std::uint8_t{255});
    CHECK_THROWS_AS(s.apply(all_ones, with.zeros), format_error);
    session other_degree(3);
    CHECK_THROWS_AS(s.apply(good, other_degree.zeros), parameter_error);
}

TEST_CASE("replies carry the coefficients of their states only, and malformed ones are refused") {
    session with(small::log_n);
    const protected_server s(random_matrix(2, 3, 1));
    const auto q = with.key_holder.encrypt(s.plan(), random_batch(5, 3, 1));
    const auto good = s.apply(q.request, with.zeros);
    const int bits = s.layout().budget().reply_bits;
    CHECK(good.outputs[0].c0.size() == tensafe::memory::packed_bytes(5, bits));
    const auto open = [&](const auto& reply, const query<small>& sent) {
        static_cast<void>(with.key_holder.decrypt(s.plan(), reply, sent));
    };
    const auto refused = [&](auto change) {
        auto r = good;
        change(r);
        CHECK_THROWS_AS(open(r, q), shape_error);
    };
    refused([](auto& r) { r.rank = 1; });
    refused([](auto& r) { r.d = 2; });
    refused([](auto& r) { r.tokens = 4; });
    refused([](auto& r) { r.outputs.pop_back(); });
    refused([](auto& r) { r.outputs[1].c0.push_back(0); });
    refused([](auto& r) { r.outputs[1].c1.pop_back(); });
    refused([](auto& r) { r = {}; });
    auto of_four = q;
    of_four.scales.pop_back();
    CHECK_THROWS_AS(open(good, of_four), shape_error);
    auto padded = good;
    REQUIRE(5 * bits % 8 != 0);
    padded.outputs[1].c0.back() |= 0x80U;
    CHECK_THROWS_AS(open(padded, q), format_error);
}

TEST_CASE("a kept workspace gives the answers of a fresh one, also for other shapes and smaller batches") {
    session with(small::log_n);
    protected_server::workspace work;
    for (const std::size_t d : {40UL, 7UL, 33UL}) {
        const matrix a = random_matrix(4, d, d);
        const protected_server s(a);
        for (const std::size_t tokens : {20UL, 3UL}) {
            const auto q = with.key_holder.encrypt(s.plan(), random_batch(tokens, d, tokens));
            protected_server::reply_type kept;
            s.apply(q.request, with.zeros, work, kept);
            const auto fresh = s.apply(q.request, with.zeros);
            const auto got = with.key_holder.decrypt(s.plan(), kept, q);
            const auto expected = with.key_holder.decrypt(s.plan(), fresh, q);
            // Two floods: sqrt(2) of one reply's deviation, at most.
            const double unit =
                s.layout().budget().relative_error * s.layout().row_norm / std::sqrt(static_cast<double>(d));
            for (std::size_t t = 0; t < tokens; ++t) {
                const double length =
                    norm(std::span<const float>(row_of(random_batch(tokens, d, tokens), t)));
                for (std::size_t r = 0; r < a.rows; ++r) {
                    CHECK(std::fabs(got[t][r] - expected[t][r]) <=
                          1.5 * most_deviations * unit * std::fmax(length, 1e-100));
                }
            }
        }
    }
}

TEST_CASE("a server that was given a largest batch refuses a longer one") {
    session with(small::log_n);
    const protected_server s(random_matrix(2, 8, 1), 5);
    const auto five = with.key_holder.encrypt(s.plan(), random_batch(5, 8, 1));
    CHECK_NOTHROW(s.apply(five.request, with.zeros));
    const auto six = with.key_holder.encrypt(s.plan(), random_batch(6, 8, 1));
    CHECK_THROWS_WITH_AS(s.apply(six.request, with.zeros),
                         Contains("got a request of 6 hidden states, expected 1 to 5"), shape_error);
}

TEST_CASE("integers of A that are longer than a limb are right all the same") {
    using short_limb = ckks::parameters<10, ckks::limb_bits<60, 15>, 30, ckks::insecure_for_tests>;
    matrix a(2, 1024);
    a.row(0)[0] = -1;
    a.row(1)[1] = 1;
    const server<short_limb, tensafe::lora::column_batched> s(a);
    REQUIRE(s.layout().budget().weight_norm > 0x1p15);
    client<short_limb> c;
    const auto nonce = tensafe::random::fresh_seed();
    auto zeros = s.pool(nonce, c.rerandomization_key(nonce));
    const auto q = c.encrypt(s.plan(), random_batch(3, 1024, 1));
    const auto got = c.decrypt(s.plan(), s.apply(q.request, zeros), q);
    const matrix states = random_batch(3, 1024, 1);
    for (std::size_t t = 0; t < 3; ++t) {
        CHECK(std::fabs(got[t][0] + static_cast<double>(states.row(t)[0])) < 0.05);
        CHECK(std::fabs(got[t][1] - static_cast<double>(states.row(t)[1])) < 0.05);
    }
}

TEST_CASE("more targets under one zero than leave RLWE at 128 bits are refused, but with trusts_clients") {
    static_assert(most_targets<ckks::private_n4096, protects_adapter_rows<>> == 38);
    static_assert(most_targets<ckks::quantum_n4096, protects_adapter_rows<>> == 59);
    static_assert(most_targets<ckks::compact_n4096, protects_adapter_rows<average_case<6>>> == 126);
    static_assert(
        most_targets<ckks::minimal_n2048, protects_adapter_rows<average_case<5>, reduced_precision>> == 46);
    using batches = server<ckks::private_n4096, column_batched>;
    using rows = server<ckks::private_n4096, coefficient_tiles<64>>;
    const matrix a = random_matrix(64, 2, 1);
    CHECK_NOTHROW(batches(a, 38));
    CHECK_THROWS_WITH_AS(batches(a, 39),
                         Contains("got 39 target coefficients under one encryption of zero, "
                                  "expected at most 38; pass lora::trusts_clients"),
                         parameter_error);
    CHECK_NOTHROW(batches(a, trusts_clients{}));
    CHECK_THROWS_WITH_AS(rows{a}, Contains("got 64 target coefficients"), parameter_error);
    CHECK_NOTHROW(rows(a, trusts_clients{}));
    CHECK_NOTHROW(rows(random_matrix(38, 2, 1)));

    const batches by_default(a);
    client<ckks::private_n4096> c;
    const auto nonce = random::fresh_seed();
    auto pool = by_default.pool(nonce, c.rerandomization_key(nonce));
    const auto query = c.encrypt(by_default.plan(), random_batch(39, 2, 1));
    CHECK_THROWS_WITH_AS(by_default.apply(query.request, pool), Contains("expected 1 to 38"), shape_error);
}

TEST_CASE_TEMPLATE("no shape makes a target coefficient tell more of v than most_targets counts with",
                   Protection, protects_adapter_rows<>, protects_adapter_rows<average_case<6>>,
                   protects_adapter_rows<worst_case, answer_bits<6>>) {
    const auto most_of = []<class P>(P) {
        double most = 0;
        const auto look = [&](const reply_geometry& geometry) {
            const auto [budget, problem] = lora::detail::compute_budget<P, Protection>(geometry);
            most = problem == nullptr ? std::fmax(most, budget.channel_bits() / std::log2(3.0)) : most;
        };
        for (double d = lora::detail::largest_dimension; d >= 1; d /= 1.1) {
            const auto columns = static_cast<std::size_t>(d);
            look(layout<P, coefficient_tiles<4>, Protection>::geometry(32, columns));
            if constexpr (!Protection::range::can_overflow) {
                look(layout<P, column_batched, Protection>::geometry(1, columns));
                look(layout<P, replicated_slots<>, Protection>{32, columns, 1}.geometry());
                look(layout<P, replicated_slots<>, Protection>{512, columns, 1}.geometry());
            }
        }
        return most;
    };
    constexpr int counted = lora::detail::most_digits<Protection>;
    const double of_short = most_of(ckks::private_n4096());
    CHECK(of_short <= counted);
    CHECK(of_short > counted - 2);
    CHECK(most_of(ckks::n8192_l4()) <= counted);
    CHECK(most_of(ckks::n16384_l4()) <= counted);
}
