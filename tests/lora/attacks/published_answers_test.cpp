// Whoever has replies, which the server and everybody on the line see, and the answers that were decrypted
// from them, has linear equations in the key: c0 + c1*s modulo 2^w. Exact answers make them equations without
// an error, which Gauss solves; rounded ones leave LWE. The attacker knows the layout, not h, its scale, or
// A.

#include "attack.hpp"

namespace {

using namespace attacks;

constexpr std::size_t rank = 32;
constexpr std::size_t d = 200;

/// One equation: N coefficients and, last, what their product with the key is; modulo 2^w, with w <= 32.
using equation = std::vector<std::uint32_t>;

/// Integers of w bits from numbers that are multiples of one unknown real, by continued fractions of their
/// ratios; none if the attacker learns that it failed.
std::vector<std::int64_t> integers(const std::vector<double>& answers) {
    const auto denominator = [](double ratio) {
        double x = std::fabs(ratio);
        std::int64_t q[2] = {0, 1};
        std::int64_t p[2] = {1, 0};
        while (std::fabs(static_cast<double>(p[0]) - std::fabs(ratio) * static_cast<double>(q[0])) >
                   0x1p-47 * static_cast<double>(p[0]) ||
               q[0] == 0) {
            const auto whole = static_cast<std::int64_t>(x);
            p[1] = std::exchange(p[0], whole * p[0] + p[1]);
            q[1] = std::exchange(q[0], whole * q[0] + q[1]);
            x = 1 / (x - static_cast<double>(whole));
            if (q[0] > 1 << 24) {
                return std::int64_t{0};
            }
        }
        return q[0];
    };
    std::int64_t first = 1;
    for (const double y : answers) {
        first = std::lcm(first, denominator(y / answers[0]));
        if (first == 0 || first > 1 << 24) {
            return {};
        }
    }
    std::vector<std::int64_t> result;
    for (const double y : answers) {
        result.push_back(std::llround(y / std::fabs(answers[0]) * static_cast<double>(first)));
    }
    return result;
}

/// Solves as many of the equations as there are unknowns.
/// @return modulo 2^32, of which w bits count; none if they do not determine it
std::vector<std::uint32_t> solve(std::vector<equation> m) {
    constexpr std::size_t n = P::degree;
    for (std::size_t c = 0; c < n; ++c) {
        const auto pivot = std::find_if(m.begin() + static_cast<std::ptrdiff_t>(c), m.end(),
                                        [&](const equation& e) { return e[c] % 2 != 0; });
        if (pivot == m.end()) {
            return {};
        }
        std::swap(m[c], *pivot);
        std::uint32_t inverse = 1;
        for (int i = 0; i < 5; ++i) {
            inverse *= 2 - m[c][c] * inverse;
        }
        for (std::size_t k = c; k <= n; ++k) {
            m[c][k] *= inverse;
        }
        for (std::size_t r = c + 1; r < m.size(); ++r) {
            const std::uint32_t factor = m[r][c];
            for (std::size_t k = c; k <= n; ++k) {
                m[r][k] -= factor * m[c][k];
            }
        }
    }
    std::vector<std::uint32_t> x(n);
    for (std::size_t c = n; c-- > 0;) {
        x[c] = m[c][n];
        for (std::size_t k = c + 1; k < n; ++k) {
            x[c] -= m[c][k] * x[k];
        }
    }
    return x;
}

/// A client, its server, and what the two let others see.
struct published {
    tile_server server{random_matrix(rank, d, 41)};
    sides<P> s{41, server.layout().subring_log_n()};
    int bits = server.plan().reply_bits(0);
    int noise_bits = server.plan().noise_bits(0);
    lora::decryption_workspace<P> work;
    std::uint64_t token = 0;

    /// Equations of one token from its reply and its published answers; none if the integers were not found.
    std::vector<equation> next(bool exact, std::vector<double>* dropped = nullptr) {
        const auto query = s.client.encrypt(server.plan(), random_state(d, 4100 + token++));
        tile_server::reply_type reply;
        server.apply(query.request, s.pool, s.work, reply);
        std::vector<double> answers(rank);
        std::vector<double> rounded(rank);
        s.client.decrypt(server.plan(), reply, query, work, rounded);
        s.client.decrypt_exposing_key(server.plan(), reply, query, work, answers);
        const lora::reply_budget& budget = server.plan().budget();
        const double unit =
            query.scale * budget.weight_norm / server.layout().row_norm / budget.modulus * std::exp2(bits);
        if (dropped != nullptr) {
            for (std::size_t r = 0; r < rank; ++r) {
                dropped->push_back((answers[r] - rounded[r]) * unit);
            }
        }
        std::vector<equation> result;
        const std::vector<std::int64_t> values = integers(exact ? answers : rounded);
        for (std::size_t r = 0; r < values.size(); ++r) {
            const auto& output = reply.outputs[r / 4];
            std::vector<std::uint32_t> c0(4);
            std::vector<std::uint32_t> c1(P::degree);
            tensafe::memory::unpack_bits(std::span<const std::uint8_t>(output.c0), bits, std::span(c0));
            tensafe::memory::unpack_bits(std::span<const std::uint8_t>(output.c1), bits, std::span(c1));
            const std::size_t p = r % 4 * (P::degree / 4);
            equation e(P::degree + 1);
            for (std::size_t j = 0; j < P::degree; ++j) {
                e[j] = j <= p ? c1[p - j] : 0 - c1[P::degree + p - j];
            }
            const std::int64_t value = exact ? values[r] : values[r] * (std::int64_t{1} << noise_bits);
            CHECK(value == std::llround((exact ? answers : rounded)[r] * unit));  // so far the attacker gets
            e.back() = static_cast<std::uint32_t>(value) - c0[r % 4];
            result.push_back(std::move(e));
        }
        return result;
    }

    /// How many coefficients of the key come out of the equations of so many answers.
    std::size_t recovered(bool exact) {
        std::vector<equation> all;
        // A few more than unknowns, or some are not determined.
        for (int tries = 0; all.size() < P::degree + 16; ++tries) {
            REQUIRE(tries < 100);
            for (equation& e : next(exact)) {
                all.push_back(std::move(e));
            }
        }
        const std::vector<std::uint32_t> found = solve(std::move(all));
        REQUIRE(found.size() == P::degree);
        std::vector<std::uint32_t> one(P::degree);
        one[0] = 1;
        std::size_t right = 0;
        for (std::size_t k = 0; k < P::degree; ++k) {
            const std::uint32_t difference =
                found[k] - static_cast<std::uint32_t>(std::int32_t{s.key.coefficients()[k]});
            right += (difference << (32 - bits)) == 0 ? 1U : 0U;
        }
        return right;
    }
};

}  // namespace

TEST_CASE(
    "replies and exact answers are the key; with answers as decrypt gives them no coefficient comes out") {
    published seen;
    CHECK(seen.recovered(true) == P::degree);
    // Twice as many: chance finds one of all in 8000 runs.
    CHECK(seen.recovered(false) == 0);
    CHECK(seen.recovered(false) == 0);
}

TEST_CASE("what decrypt rounds away is uniform, as an error of LWE that does not depend on the key") {
    published seen;
    std::vector<double> dropped;
    for (int t = 0; t < 100; ++t) {
        seen.next(true, &dropped);
    }
    REQUIRE(seen.noise_bits >= 4);
    std::vector<double> counts(std::size_t{1} << seen.noise_bits);
    const double expected = static_cast<double>(dropped.size()) / static_cast<double>(counts.size());
    for (const double x : dropped) {
        REQUIRE(std::fabs(x - std::nearbyint(x)) < 1e-3);
        const auto bucket = static_cast<std::size_t>(std::llround(x)) + counts.size() / 2;
        REQUIRE(bucket < counts.size());
        counts[bucket] += 1;
    }
    double chi_square = 0;
    for (const double count : counts) {
        chi_square += (count - expected) * (count - expected) / expected;
    }
    const double p = chi_square_p(chi_square, static_cast<double>(counts.size() - 1));
    MESSAGE("p = ", p);
    CHECK(p > 1e-3);
}

namespace {

/// Answers are multiples of a unit, the nearest ones to the exact answers.
/// @param integers  what makes answers multiples of 1
void check_rounding(const std::vector<double>& rounded, const std::vector<double>& exact, double integers) {
    CHECK(rounded != exact);
    for (std::size_t r = 0; r < rounded.size(); ++r) {
        CHECK(std::fabs(rounded[r] * integers - std::nearbyint(rounded[r] * integers)) < 1e-6);
        CHECK(std::fabs(rounded[r] - exact[r]) * integers <= 0.5 + 1e-6);
    }
}

}  // namespace

TEST_CASE_TEMPLATE(
    "answers of tiles are rounded in all protections", Server, tile_server,
    lora::server<P, lora::coefficient_tiles<8>, lora::protects_adapter_rows<lora::average_case<6>>>,
    lora::server<P, lora::coefficient_tiles<4>, lora::reveals_adapter_rows>) {
    const Server server(random_matrix(rank, 64, 42));
    const auto& plan = server.plan();
    sides<P> s(42, server.layout().subring_log_n());
    const auto query = s.client.encrypt(plan, random_state(64, 43));
    typename Server::reply_type reply;
    const typename Server::task task{&query.request, &s.pool, &reply};
    typename Server::workspace server_work;
    server.apply(tensafe::exec::host{}, std::span(&task, 1), server_work);
    std::vector<double> rounded(rank);
    std::vector<double> exact(rank);
    lora::decryption_workspace<P> work;
    s.client.decrypt(plan, reply, query, work, rounded);
    s.client.decrypt_exposing_key(plan, reply, query, work, exact);
    const lora::reply_budget& budget = plan.budget();
    const double unit = std::exp2(budget.noise_bits) *
                        (budget.reply_bits > 0 ? budget.modulus * std::exp2(-budget.reply_bits) : 1);
    check_rounding(rounded, exact, query.scale * budget.weight_norm / server.layout().row_norm / unit);
}

TEST_CASE("answers of blocks are rounded, at every position") {
    const lora::server<P, lora::token_blocks> server(random_matrix(rank, 64, 42), 8);
    const lora::reply_budget& budget = server.plan().budget();
    block_sides<P> s(server, 42);
    for (std::size_t t = 0; t < 8; ++t) {
        const auto query = s.encrypt(random_state(64, 43 + t));
        const auto reply = s.answer(query.request);
        const double weight = query.scale * budget.weight_norm / server.layout().row_norm;
        const double unit = budget.modulus * std::exp2(-budget.reply_bits);
        std::vector<double> exact;
        for (const std::int32_t x : s.exact(reply)) {
            exact.push_back(x * unit / weight);
        }
        check_rounding(s.decrypt(query, reply), exact, weight / unit / std::exp2(budget.noise_bits));
    }
}
