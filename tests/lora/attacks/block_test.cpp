// Blocks of tokens. Each rule of docs/design/lora.md is broken by hand, and the attack succeeds; as the
// library keeps it, the same attack finds nothing or is refused.

#include <sys/wait.h>
#include <unistd.h>

#include "attack.hpp"

namespace {

using namespace attacks;
using basis = basis_of<P>;
using block_server = lora::server<P, lora::token_blocks>;
using exchange = block_sides<P>;

constexpr std::size_t d = 200;
constexpr std::size_t tokens = 32;

/// The integers that a client encrypts.
std::vector<double> message(const std::vector<float>& h, double scale) {
    std::vector<double> result;
    for (const float x : h) {
        result.push_back(std::nearbyint(static_cast<double>(x) * scale));
    }
    return result;
}
std::vector<double> minus(std::vector<double> a, const std::vector<double>& b) {
    for (std::size_t k = 0; k < a.size(); ++k) {
        a[k] -= b[k];
    }
    return a;
}

/// A x of the integers that stand for A, as fractions of Q.
std::vector<double> integer_products(const block_server& server, const matrix& a,
                                     const std::vector<double>& x) {
    const auto& layout = server.layout();
    const lora::reply_budget budget = layout.budget();
    std::vector<double> result(a.rows);
    for (std::size_t r = 0; r < a.rows; ++r) {
        for (std::size_t k = 0; k < x.size(); ++k) {
            result[r] += static_cast<double>(layout.rows().integer_weight(a, budget, r, k)) * x[k];
        }
        result[r] /= budget.modulus;
    }
    return result;
}

double root_mean_square(const std::vector<double>& x) {
    return norm(x) / std::sqrt(static_cast<double>(x.size()));
}

/// What an observer takes off two messages of one client: c0 of one less that of the other.
std::vector<double> sent_difference(const lora::token_query& x, const lora::token_query& y) {
    return centred(difference(token_fractions<P>(x.request), token_fractions<P>(y.request)));
}
std::vector<double> sent_difference(const block_server& server, const lora::token_reply& x,
                                    const lora::token_reply& y) {
    const auto& plan = server.plan();
    return centred(difference(sent_fractions(x.c0, plan.rank(), plan.reply_bits(0)),
                              sent_fractions(y.c0, plan.rank(), plan.reply_bits(0))));
}

/// A b of the coefficients that a token sends, which everybody can compute who has A: first in a polynomial.
rns::poly<basis, rns::coefficient_form> products_of_token(const block_server& server,
                                                          const lora::token_request& r) {
    const auto b = token_residues<P>(r);
    const auto sums = bare_token(server, std::array{b.limb<0>().first(d), b.limb<1>().first(d)});
    rns::poly<basis, rns::coefficient_form> result;
    rns::for_each_limb<basis>([&]<int I>() { std::ranges::copy(sums[I], result.limb<I>().begin()); });
    return result;
}

using limbs = std::array<tensafe::memory::secret_buffer<word>, 2>;
const limbs& masks_of(const exchange::client_block& block);
/// An explicit instantiation may name what is private.
template <auto member>
struct opened {
    friend const limbs& masks_of(const exchange::client_block& block) { return block.*member; }
};
template struct opened<&exchange::client_block::masks_>;

random::seed& flood_secret_of(lora::server_block<P>& block);
template <auto member>
struct opened_secret {
    friend random::seed& flood_secret_of(lora::server_block<P>& block) { return (block.*member)[0]; }
};
template struct opened_secret<&lora::server_block<P>::flood_secret_>;

/// The mask of a position as it stands in the client's memory.
std::vector<std::uint64_t> mask_at(const exchange::client_block& block, std::size_t position) {
    rns::poly<basis, rns::coefficient_form> mask;
    rns::for_each_limb<basis>([&]<int I>() {
        std::ranges::copy(masks_of(block)[I].span().subspan(position * d, d), mask.limb<I>().begin());
    });
    std::vector<std::uint64_t> result = fractions(mask);
    result.resize(d);
    return result;
}

}  // namespace

TEST_CASE("two states under one mask show their difference to everybody on the line") {
    const block_server server(random_matrix(2, d, 1), tokens);
    const auto h = random_state(d, 2);
    const auto other = random_state(d, 3);
    const std::vector<double> direction(h.begin(), h.end());
    exchange first(server, 21);
    const auto sent = first.encrypt(h);
    {
        exchange copy(server, 21);
        const auto again = copy.encrypt(other);
        CHECK(correlation(sent_difference(sent, again),
                          minus(message(h, sent.scale), message(other, again.scale))) > 0.999);
    }
    {
        exchange copy(server, 21);
        CHECK(correlation(sent_difference(sent, copy.encrypt(h, 2)), direction) >
              0.999);  // a retry with headroom
    }
    // The next position, whatever is encrypted, until there is none.
    for (std::size_t t = 1; t < tokens; ++t) {
        CHECK(first.of_client.left() == tokens - t);
        const auto& state = t % 2 == 0 ? h : other;
        const auto next = first.encrypt(state, t % 3 == 0 ? 2 : 1);
        CHECK(next.request.position == t);
        const auto second = token_fractions<P>(next.request);
        const auto shown = difference(token_fractions<P>(sent.request), second);
        CHECK(std::fabs(concentration(shown)) < null_concentration(d));
        CHECK(std::fabs(correlation(centred(shown), direction)) < null_correlation(d));
        CHECK(std::fabs(correlation(centred(second), direction)) < null_correlation(d));
    }
    CHECK(first.of_client.left() == 0);
    CHECK(contains(refusal<parameter_error>([&] { first.encrypt(other); }), "no position is left of 32"));
}

TEST_CASE("the child of a fork, which has its parent's masks, hides nothing under them") {
    const block_server server(random_matrix(2, d, 1), tokens);
    exchange s(server, 22);
    s.encrypt(random_state(d, 1));
    const pid_t child = ::fork();
    if (child == 0) {
        bool refuses = s.of_client.left() == 0;
        try {
            s.encrypt(random_state(d, 2));
            refuses = false;
        } catch (const parameter_error&) {
        }
        ::_exit(refuses ? 0 : 1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    CHECK(s.of_client.left() == tokens - 1);
}

TEST_CASE("who gets at a client's memory later, and has its messages, does not open them: masks are gone") {
    const block_server server(random_matrix(2, d, 1), tokens);
    const auto h = random_state(d, 2);
    const std::vector<double> direction(h.begin(), h.end());
    exchange s(server, 23);
    const auto opened_with = [&](const lora::token_query& query, const std::vector<std::uint64_t>& mask) {
        return correlation(centred(difference(token_fractions<P>(query.request), mask)), direction);
    };
    for (std::size_t t = 0; t < 2; ++t) {
        const auto before = mask_at(s.of_client, t);
        const auto query = s.encrypt(h);
        CHECK(opened_with(query, before) > 0.999);
        CHECK(mask_at(s.of_client, t) == std::vector<std::uint64_t>(d));
        CHECK(std::fabs(opened_with(query, mask_at(s.of_client, t))) < null_correlation(d));
    }
    CHECK(mask_at(s.of_client, 2) != std::vector<std::uint64_t>(d));
}

TEST_CASE("two answers at a position show A(h - h') to everybody on the line") {
    constexpr std::size_t rank = 100;
    const matrix a = random_matrix(rank, d, 1);
    const block_server server(a, tokens);
    const auto h = random_state(d, 2);
    const auto other = random_state(d, 3);
    exchange s(server, 24);
    const auto query = s.encrypt(h);
    const auto reply = s.answer(query.request);
    exchange copy(server, 24);
    const auto again = copy.encrypt(other);
    const auto apart =
        integer_products(server, a, minus(message(h, query.scale), message(other, again.scale)));
    CHECK(correlation(sent_difference(server, reply, copy.answer(again.request)), apart) > 0.999);

    const auto second = [&] { s.answer(again.request); };
    CHECK(contains(refusal<parameter_error>(second), "position 0 of this block was answered already"));
    const auto next = s.encrypt(other);
    CHECK(std::fabs(correlation(sent_difference(server, reply, s.answer(next.request)), apart)) <
          null_correlation(rank));
    // What is answered twice after all, because a copy does, is the same bytes.
    exchange third(server, 24);
    CHECK(third.answer(query.request).c0 == reply.c0);
}

TEST_CASE("many answers at a position average the flood away") {
    constexpr std::size_t rank = 128;
    constexpr std::size_t copies = 32;
    const matrix a = random_matrix(rank, d, 1);
    const block_server server(a, 2);
    const auto h = random_state(d, 2);
    const lora::reply_budget budget = server.plan().budget();
    const double unit = std::exp2(-budget.reply_bits);
    // Of one state with more and more headroom: the errors of b and of c1 are the same in each.
    std::vector<std::vector<double>> errors;
    for (std::size_t i = 0; i < 2 * copies; ++i) {
        exchange copy(server, 25);
        const auto query = copy.encrypt(h, 1 + static_cast<double>(i) * 1e-3);
        const auto exact = integer_products(server, a, message(h, query.scale));
        auto& of_copy = errors.emplace_back();
        for (std::size_t r = 0; const std::int32_t x : copy.exact(copy.answer(query.request))) {
            of_copy.push_back((x - exact[r++] / unit) * unit * budget.modulus);
        }
    }
    const auto apart = [&](std::size_t count) {  // the means of so many answers, and of as many others
        std::vector<double> result(rank);
        for (std::size_t r = 0; r < rank; ++r) {
            for (std::size_t i = 0; i < count; ++i) {
                result[r] += (errors[2 * i][r] - errors[2 * i + 1][r]) / static_cast<double>(count);
            }
        }
        return root_mean_square(result) / std::numbers::sqrt2;
    };
    CHECK(apart(1) > 0.8 * budget.flood.deviation());
    CHECK(apart(copies) < 0.25 * budget.flood.deviation());
}

namespace {

/// Asks for single entries of a row of A with four bits each, for each at all positions of a block, with a
/// key that is 0. Tries all that the sum of an answer can be before the flood, the entry's 16 values and what
/// is left of the encryption of zero, and takes the likeliest value. Returns how many of 8 entries are right.
/// @param secret_is_sent  whether the floods come from the block's request, which everybody has
std::size_t entries_read(const block_server& server, const matrix& a, bool secret_is_sent) {
    constexpr std::int64_t largest_rest = 12;  // a coefficient of v and one of e0
    constexpr double variance = 10.5 + 2.0 / 3;
    const auto& plan = server.plan();
    const lora::reply_budget& budget = plan.budget();
    sides<P> s(29, plan.subring_log_n());
    auto open = s.open;
    rns::for_each_limb<basis>([&]<int I>() {
        std::ranges::fill(open.b.limb<I>(), word{1});  // b = 1, of the key 0
    });
    lora::rerandomization_pool<P> zeros(s.server_nonce, open, plan.subring_log_n(), numbered_generator(30));
    lora::block_workspace<P> work;
    work.generator = numbered_generator(31);
    /// What is sent of this sum if the request makes the floods.
    const auto sent_of = [&](const random::seed& request, std::uint64_t position, std::int64_t sum) {
        auto residues = lifted<basis>({sum});
        const rns::residue_spans<basis> first{residues.limb<0>().first(1), residues.limb<1>().first(1)};
        random::input_hash covered(request);
        covered.add(std::span<const std::uint64_t>(&position, 1));
        covered.add(first[0]);
        covered.add(first[1]);
        ckks::add_flood<basis>(budget.flood, covered.result(), static_cast<std::uint32_t>(position),
                               {residues.limb<0>().first(1), residues.limb<1>().first(1)});
        std::array<std::uint32_t, 1> result;
        rns::switch_modulus<basis>(first, budget.reply_bits, std::span<std::uint32_t>(result));
        return result[0];
    };
    std::size_t right = 0;
    for (std::size_t entry = 0; entry < 8; ++entry) {
        const lora::block_request request{d, tokens, numbered_seed(32 + entry)};
        lora::server_block<P> block;
        lora::block_reply ahead;
        server.prepare(request, zeros, work, block, ahead);
        if (secret_is_sent) {
            flood_secret_of(block) = request.seed;
        }
        std::vector<word> unit(d);
        unit[entry] = 1;
        std::array<double, 16> likelihood{};  // its logarithm
        for (std::size_t position = 0; position < tokens; ++position) {
            lora::token_request one{d, position, 0, {}};
            one.c0.resize(lora::packed_residues_bytes<P>(d));
            lora::detail::for_packed_limbs<P>(std::span(one.c0), d, [&]<int I>(auto bytes, int bits) {
                tensafe::memory::pack_bits(std::span<const word>(unit), bits, bytes);
            });
            lora::token_reply reply;
            server.answer(block, one, work, reply);
            std::array<std::uint32_t, 1> sent;
            tensafe::memory::unpack_bits(std::span<const std::uint8_t>(reply.c0), budget.reply_bits,
                                         std::span<std::uint32_t>(sent));
            for (int value = 0; value < 16; ++value) {
                const auto of_entry = static_cast<std::int64_t>(
                    std::round((value - 8) / 8.0 * (budget.weight_norm / plan.layout().row_norm)));
                double sum = 1e-3;
                for (std::int64_t rest = -largest_rest; rest <= largest_rest; ++rest) {
                    const bool fits = sent_of(request.seed, position, of_entry + rest) == sent[0];
                    sum += fits ? std::exp(-static_cast<double>(rest * rest) / (2 * variance)) : 0;
                }
                likelihood[static_cast<std::size_t>(value)] += std::log(sum);
            }
        }
        const auto best = std::ranges::max_element(likelihood) - likelihood.begin();
        right += static_cast<float>(best - 8) / 8 == a.row(0)[entry] ? 1U : 0U;
    }
    return right;
}

}  // namespace

TEST_CASE("floods whose secret is public are tried one by one, and show a row of A exactly") {
    matrix a(1, d);
    for (std::size_t k = 0; k < d; ++k) {
        a.values[k] = static_cast<float>(static_cast<int>(k * k * 31 % 97 % 16) - 8) / 8;
    }
    const block_server server(a, tokens);
    CHECK(entries_read(server, a, true) == 8);
    CHECK(entries_read(server, a, false) < 4);  // each with a chance of 1/16
}

TEST_CASE("one zero under two blocks confirms a guess of A, without a key") {
    const matrix a = random_matrix(2, d, 1);
    const block_server server(a, tokens);
    const auto& layout = server.layout();
    const sides<P> s(26, layout.subring_log_n());
    const lora::block_request requests[] = {{d, tokens, numbered_seed(1)}, {d, tokens, numbered_seed(2)}};
    const auto prepared = [&](const lora::block_request& request, lora::rerandomization_pool<P>& pool) {
        lora::server_block<P> block;
        lora::block_reply reply;
        lora::block_workspace<P> work;
        server.prepare(request, pool, work, block, reply);
        return reply;
    };
    const auto pool = [&](std::uint64_t start) {
        return lora::rerandomization_pool<P>(s.server_nonce, s.open, layout.subring_log_n(),
                                             numbered_generator(start));
    };
    const auto confirmation = [&](const lora::block_reply& x, const lora::block_reply& y, std::size_t r) {
        const int bits = layout.budget().reply_bits;
        const auto guess = difference(fractions(bare_block<P>(server, requests[0].seed)[r]),
                                      fractions(bare_block<P>(server, requests[1].seed)[r]));
        return concentration(difference(
            difference(sent_fractions(x.c1[r], P::degree, bits), sent_fractions(y.c1[r], P::degree, bits)),
            guess));
    };
    auto one = pool(50);
    auto filled_alike = pool(50);
    const auto first = prepared(requests[0], one);
    CHECK(confirmation(first, prepared(requests[1], filled_alike), 0) > 0.999);
    const auto second = prepared(requests[1], one);
    CHECK(std::fabs(confirmation(first, second, 0)) < null_concentration(P::degree));
    CHECK(std::fabs(confirmation(first, second, 1)) < null_concentration(P::degree));
    // A request that comes again takes new zeros too.
    const auto again = prepared(requests[0], one);
    for (std::size_t r = 0; r < 2; ++r) {
        const auto apart = difference(sent_fractions(first.c1[r], P::degree, server.plan().reply_bits(r)),
                                      sent_fractions(again.c1[r], P::degree, server.plan().reply_bits(r)));
        CHECK(std::fabs(concentration(apart)) < null_concentration(P::degree));
        CHECK(uniformity_p(apart) > 1e-6);
    }
}

TEST_CASE("an answer confirms a guess of A, without a key, if its encryption of zero is left out") {
    constexpr std::size_t rank = 32;
    const block_server server(random_matrix(rank, d, 1), tokens);
    const lora::reply_budget budget = server.plan().budget();
    exchange s(server, 28);
    std::vector<std::uint64_t> without;
    std::vector<std::uint64_t> with;
    for (std::size_t t = 0; t < tokens; ++t) {
        const auto query = s.encrypt(random_state(d, t));
        auto products = products_of_token(server, query.request);
        std::vector<std::uint64_t> guess = fractions(products);
        ckks::add_flood<basis>(budget.flood, numbered_seed(t), 0,
                               {products.limb<0>().first(rank), products.limb<1>().first(rank)});
        const std::vector<std::uint64_t> flooded = fractions(products);
        const auto sent = sent_fractions(s.answer(query.request).c0, rank, budget.reply_bits);
        for (std::size_t r = 0; r < rank; ++r) {
            without.push_back(flooded[r] - guess[r]);
            with.push_back(sent[r] - guess[r]);
        }
    }
    CHECK(concentration(without) > 0.999);
    CHECK(std::fabs(concentration(with)) < null_concentration(with.size()));
    CHECK(uniformity_p(with) > 1e-6);
}

TEST_CASE("c1 sent ahead shows nothing of A, also to who prepares one block over and over") {
    const block_server server(random_matrix(1, d, 1), tokens);
    const int bits = server.plan().reply_bits(0);
    exchange s(server, 27);
    const auto bare = bare_block<P>(server, s.of_client.request().seed)[0];
    const auto guess = fractions(bare);
    // A server that keeps its encryptions of zero until there is a token to hide.
    CHECK(concentration(difference(switched_fractions<P>(bare, bits), guess)) > 0.999);

    std::vector<double> sums(P::degree);
    for (int i = 0; i < 100; ++i) {
        s.server.prepare(s.of_client.request(), s.pool, s.work, s.of_server, s.ahead);
        const auto c1 = sent_fractions(s.ahead.c1[0], P::degree, bits);
        CHECK(std::fabs(concentration(difference(c1, guess))) < null_concentration(P::degree));
        for (std::size_t k = 0; k < P::degree; ++k) {
            sums[k] += centred(c1[k]);
        }
    }
    CHECK(std::fabs(correlation(sums, centred(guess))) < null_correlation(P::degree));
}

namespace {

/// The noise of all answers of a block of zeros, before flood and rounding: [position][row].
std::vector<std::vector<double>> noise_of(exchange& s, const std::vector<lora::token_query>& queries) {
    const auto& plan = s.server.plan();
    lora::rerandomization_pool<P> zeros(s.server_nonce, s.open, plan.subring_log_n(),
                                        numbered_generator(s.number + 3));
    const auto bare = bare_block<P>(s.server, s.of_client.request().seed);
    std::vector<std::vector<std::array<word, 2>>> sums(tokens,
                                                       std::vector<std::array<word, 2>>(plan.outputs()));
    for (std::size_t o = 0; o < plan.outputs(); ++o) {
        auto zero = zeros.acquire();
        auto c1 = rns::inverse(std::move(zero.c1));
        ckks::add_small(zero.e1.span(), c1);
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr word q = basis::prime<I>;
            constexpr auto m = rns::modulus_of<q>(q);
            const auto limb = c1.template limb<I>();
            rns::limb::add(m, limb, limb, bare[o].template limb<I>());
            tensafe::ntt::forward(rns::shared_plan<P::log_n, q>(), limb);
            rns::limb::multiply(rns::variable_arithmetic<q>, limb, limb, s.key.value().template limb<I>());
            tensafe::ntt::inverse(rns::shared_plan<P::log_n, q>(), limb);
            ckks::block_sums_to_coefficients<P::log_n, q>(zero.log_n, zero.c0[I].span());
            rns::limb::add_small(m, zero.c0[I].span(), zero.e0.span());
            for (std::size_t t = 0; t < tokens; ++t) {
                sums[t][o][I] = (zero.c0[I][t] + limb[t * plan.entries_per_input()]) % q;
            }
        });
    }
    std::vector<std::vector<double>> result(tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
        const auto products = products_of_token(s.server, queries[t].request);
        rns::for_each_limb<basis>([&]<int I>() {
            for (std::size_t o = 0; o < plan.outputs(); ++o) {
                sums[t][o][I] = (sums[t][o][I] + products.limb<I>()[o]) % basis::prime<I>;
            }
        });
        for (const auto& residues : sums[t]) {
            result[t].push_back(rns::to_double<basis>(residues));
        }
    }
    return result;
}

}  // namespace

TEST_CASE("noise is within a bit of its bound at all positions, and answers err as they should") {
    constexpr std::size_t rank = 32;
    const matrix a = random_matrix(rank, d, 1);
    const block_server server(a, tokens);
    const lora::reply_budget budget = server.plan().budget();
    const double unit = budget.modulus * std::exp2(-budget.reply_bits);
    std::vector<std::vector<double>> noise(tokens);
    std::vector<std::vector<double>> errors(tokens);
    for (std::uint64_t number = 30; number < 38; ++number) {
        exchange s(server, number);
        std::vector<lora::token_query> queries;
        for (std::size_t t = 0; t < tokens; ++t) {
            queries.push_back(s.encrypt(std::vector<float>(d)));
        }
        const auto of_block = noise_of(s, queries);
        for (std::size_t t = 0; t < tokens; ++t) {
            noise[t].insert(noise[t].end(), of_block[t].begin(), of_block[t].end());
            for (const std::int32_t x : s.exact(s.answer(queries[t].request))) {
                errors[t].push_back(x * unit);
            }
        }
    }
    // 256 of each position: their root mean square is off by a fifth less than once in 10^5 positions.
    const double of_answers = std::hypot(budget.flood.deviation(), budget.rounding_deviation);
    std::vector<double> one;
    std::vector<double> next;
    for (std::size_t t = 0; t < tokens; ++t) {
        INFO("position := ", t);
        CHECK(root_mean_square(noise[t]) < 1.2 * budget.leak_deviation());
        CHECK(root_mean_square(noise[t]) > 0.5 * budget.leak_deviation());
        for (const double x : noise[t]) {
            CHECK(std::fabs(x) < budget.noise_worst + budget.zero_worst);
        }
        CHECK(root_mean_square(errors[t]) < 1.2 * of_answers);
        CHECK(root_mean_square(errors[t]) > 0.8 * of_answers);
        if (t + 1 < tokens) {
            one.insert(one.end(), errors[t].begin(), errors[t].end());
            next.insert(next.end(), errors[t + 1].begin(), errors[t + 1].end());
        }
    }
    CHECK(std::fabs(correlation(one, next)) < 0.072);
}

TEST_CASE("states that are chosen by the c1 sent ahead, and by earlier answers, get the same errors") {
    constexpr std::size_t rank = 32;
    const matrix a = random_matrix(rank, d, 1);
    const block_server server(a, tokens);
    const lora::reply_budget budget = server.plan().budget();
    const double unit = budget.modulus * std::exp2(-budget.reply_bits);
    exchange s(server, 40);
    std::vector<double> errors;
    std::vector<double> last(rank);
    for (std::size_t t = 0; t < tokens; ++t) {
        const auto c1 = centred(sent_fractions(s.ahead.c1[t % rank], P::degree, budget.reply_bits));
        std::vector<float> h(d);
        for (std::size_t k = 0; k < d; ++k) {
            h[k] = static_cast<float>(c1[t * server.plan().entries_per_input() + k % 32] + last[k % rank]);
        }
        const auto query = s.encrypt(h);
        const auto reply = s.answer(query.request);
        last = s.decrypt(query, reply);
        const auto exact = integer_products(server, a, message(h, query.scale));
        for (std::size_t r = 0; const std::int32_t x : s.exact(reply)) {
            errors.push_back(x * unit - exact[r++] * budget.modulus);
        }
    }
    const double of_answers = std::hypot(budget.flood.deviation(), budget.rounding_deviation);
    CHECK(root_mean_square(errors) < 1.1 * of_answers);
    CHECK(root_mean_square(errors) > 0.9 * of_answers);
}
