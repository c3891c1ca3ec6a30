// A machine that is restored twice from one snapshot draws the same randomness twice. What two such copies
// do with different inputs must not show the difference; here the operating system's generator is the copy.

#include <tensafe/dp/gaussian_release.hpp>
#include <tensafe/dp/ledger.hpp>

#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attack.hpp"

namespace {

std::optional<std::uint64_t> replayed;  ///< how much of the snapshot's randomness was read

}  // namespace

/// Stands before the C library's.
extern "C" ssize_t getrandom(void* out, std::size_t length, unsigned flags) {
    if (!replayed) {
        return ::syscall(SYS_getrandom, out, length, flags);
    }
    auto* const bytes = static_cast<std::uint8_t*>(out);
    for (std::size_t i = 0; i < length; ++i) {
        bytes[i] = static_cast<std::uint8_t>((*replayed)++ * 0x9e3779b97f4a7c15 >> 56);
    }
    return static_cast<ssize_t>(length);
}

namespace {

using namespace attacks;
using block_server = lora::server<P, lora::token_blocks>;
constexpr std::size_t d = 100;

/// What f does on a machine that was just restored.
template <class F>
auto restored(F f) {
    replayed = 0;
    auto result = f();
    replayed.reset();
    return result;
}

/// Generators of two copies: the default one, or one that depends on nothing else.
random::generator copied(bool hedged) {
    return hedged ? random::generator() : numbered_generator(70);
}

std::vector<std::uint64_t> fractions_of(evaluation_poly<P> p) {
    return fractions(rns::inverse(std::move(p)));
}

lora::expanded_request<P> expanded(const tile_server& server, const lora::request<P>& r) {
    lora::expanded_request<P> result;
    lora::detail::server_internals::weights(server).expand(server.plan(), r, result);
    return result;
}

/// A h, of the integers that stand for A.
std::vector<double> exact_answers(const tile_server::plan_type& plan, const matrix& a,
                                  const std::vector<float>& h) {
    const double weight = plan.budget().weight_norm / plan.layout().row_norm;
    std::vector<double> result(a.rows);
    for (std::size_t r = 0; r < a.rows; ++r) {
        for (std::size_t k = 0; k < h.size(); ++k) {
            result[r] +=
                std::round(static_cast<double>(a.row(r)[k]) * weight) / weight * static_cast<double>(h[k]);
        }
    }
    return result;
}

lora::request<P> request_of(bool hedged, const std::vector<float>& h, std::uint64_t key, double margin = 1) {
    const lora::packing_plan<P> plan(4, d, 1);
    return restored([&] {
        lora::client<P> client(ckks::secret_key<P>(numbered_seed(key)), copied(hedged));
        return client.encrypt(plan, h, margin).request;
    });
}

}  // namespace

TEST_CASE("after a hedge seeds come from the operating system again, and also after a move under one") {
    const std::array<double, 1> input{1};
    const auto second = restored([] {
        static_cast<void>(random::fresh_seed());
        return random::fresh_seed();
    });
    CHECK(restored([&] {
              random::generator generator;
              { const auto hedging = generator.hedge(input); }
              return generator.next_seed();
          }) == second);
    CHECK(restored([&] {
              random::generator generator;
              const auto hedging = generator.hedge(input);
              random::generator other = std::move(generator);
              return other.next_seed();
          }) == second);
}

namespace {

/// What an observer has of a copy that makes a key for each session.
struct recorded {
    std::vector<random::seed> sent;  ///< all of 32 random bytes
    std::vector<lora::request<P>> requests;
};

std::vector<float> state_of_session(std::size_t session) {
    return random_state(d, 1000 + session);
}

/// Eight sessions with so many states each.
/// @param raw  whether nonces are the system's bytes, which made them in version 0.2
recorded record(bool raw, std::size_t states) {
    const lora::packing_plan<P> plan(4, d, 1);
    return restored([&] {
        recorded result;
        for (std::size_t session = 0; session < 8; ++session) {
            lora::client<P> client;
            if (raw) {
                result.sent.push_back(random::fresh_seed());
                static_cast<void>(random::fresh_seed());  // of the key's error
            } else {
                result.sent.push_back(client.rerandomization_key(numbered_seed(session)).client_nonce);
            }
            for (std::size_t i = 0; i < states; ++i) {
                result.requests.push_back(client.encrypt(plan, state_of_session(session)).request);
                result.sent.push_back(result.requests.back().seed);
            }
        }
        return result;
    });
}

/// How many hidden states of one copy are read with what the other one sent in the place of its key.
std::size_t states_read(const recorded& from, std::size_t states, const recorded& other) {
    const tile_server server(random_matrix(4, d, 71));
    std::size_t result = 0;
    for (const random::seed& guess : other.sent) {
        const ckks::secret_key<P> key(guess);
        for (std::size_t i = 0; i < from.requests.size(); ++i) {
            auto opened = expanded(server, from.requests[i]);
            rns::for_each_limb<basis_of<P>>([&]<int I>() {
                const auto c0 = opened.c0[0].template limb<I>();
                rns::limb::multiply_add(rns::variable_arithmetic<basis_of<P>::template prime<I>>, c0,
                                        opened.c1[0].template limb<I>(), key.value().template limb<I>(), c0);
            });
            auto read = centred(fractions_of(std::move(opened.c0[0])));
            read.resize(d);
            const std::vector<float> h = state_of_session(i / states);
            result += correlation(read, std::vector<double>(h.begin(), h.end())) > 0.999 ? 1U : 0U;
        }
    }
    return result;
}

}  // namespace

TEST_CASE("what one copy of a client sends is not the key of another that draws in another order") {
    // Nonces 1 and 7 of the first were keys 1 and 6 of the second, which encrypts three states with each.
    CHECK(states_read(record(true, 3), 3, record(true, 2)) == 6);
    CHECK(states_read(record(false, 3), 3, record(false, 2)) == 0);
    CHECK(states_read(record(false, 2), 2, record(false, 3)) == 0);
    // Copies that do the same do send the same.
    CHECK(record(false, 2).sent == record(false, 2).sent);
}

TEST_CASE("what one copy of a server sends does not make the zeros that another has stored") {
    const sides<P> s(98, 2);
    // The pool and what fills it take a seed each.
    const std::vector<std::int8_t> stored = restored([&] {
        lora::rerandomization_pool<P> pool(s.server_nonce, s.open, 2);
        pool.fill(1);
        const auto zero = pool.acquire();
        return std::vector<std::int8_t>(zero.e1.begin(), zero.e1.end());
    });
    const auto is_made_of = [&](const random::seed& of_pool, const random::seed& of_zero) {
        const auto a = ckks::detail::expand_public_key<basis_of<P>>(
            random::joint_seed(s.open.client_nonce, s.server_nonce));
        random::input_hash key(of_pool);
        key.add(std::span<const word>(a.limb<0>()));
        key.add(std::span<const word>(s.open.b.words()));
        const random::seed of_key = key.result();
        random::input_hash start(of_zero);
        start.add(std::span<const std::uint8_t>(of_key.bytes));
        std::vector<std::int8_t> e1(P::degree);
        random::sample_error(random::generator(start.result()).next_seed(), random::stream_domain::error, 1,
                             std::span(e1));
        return e1 == stored;
    };
    const auto found = [&](auto draw) {
        const auto sent = restored([&] { return std::array{draw(), draw(), draw()}; });
        std::size_t result = 0;
        for (const random::seed& first : sent) {
            for (const random::seed& second : sent) {
                result += is_made_of(first, second) ? 1U : 0U;
            }
        }
        return result;
    };
    CHECK(found(random::fresh_seed) == 1);
    CHECK(found(random::fresh_nonce) == 0);
}

TEST_CASE("two copies of a client show nothing of the difference of their states, scales and keys") {
    const tile_server server(random_matrix(4, d, 71));
    const auto close = [&](bool hedged, const std::vector<float>& h, std::uint64_t key, double margin) {
        const auto of = expanded(server, request_of(hedged, random_state(d, 72), 73));
        const auto other = expanded(server, request_of(hedged, h, key, margin));
        return concentration(difference(fractions_of(of.c0[0]), fractions_of(other.c0[0])));
    };
    const double chance = null_concentration(P::degree);
    // Another state, and the same one at another scale.
    CHECK(close(false, random_state(d, 74), 73, 1) > 0.9);
    CHECK(std::fabs(close(true, random_state(d, 74), 73, 1)) < chance);
    CHECK(close(false, random_state(d, 72), 73, 2) > 0.9);
    CHECK(std::fabs(close(true, random_state(d, 72), 73, 2)) < chance);
    // Another key: the same c1 twice would show the difference of the keys.
    const auto seed_of = [](bool hedged, std::uint64_t key) {
        return request_of(hedged, random_state(d, 72), key).seed;
    };
    CHECK(seed_of(false, 73) == seed_of(false, 75));
    CHECK_FALSE(seed_of(true, 73) == seed_of(true, 75));
    // Nothing but the input differs: these are copies.
    CHECK(seed_of(true, 73) == seed_of(true, 73));
}

TEST_CASE("two copies that encrypt two messages by hand do not use one c1, or one v") {
    const ckks::secret_key<P> key(numbered_seed(90));
    random::generator explicit_start = numbered_generator(91);
    const ckks::public_key<P> open(key, explicit_start);
    const auto message = [](double x) { return ckks::encode_coefficients<P>(std::vector<double>{x}); };
    const auto seed_of = [&](bool hedged, double x) {
        random::generator generator = copied(hedged);
        return restored([&] { return ckks::encrypt(key, message(x), generator).seed; });
    };
    CHECK(seed_of(false, 1) == seed_of(false, 2));
    CHECK_FALSE(seed_of(true, 1) == seed_of(true, 2));
    const auto c1_of = [&](bool hedged, double x) {
        random::generator generator = copied(hedged);
        return restored([&] { return ckks::encrypt(open, message(x), generator).c1; });
    };
    CHECK(c1_of(false, 1) == c1_of(false, 2));
    CHECK_FALSE(c1_of(true, 1) == c1_of(true, 2));
}

TEST_CASE("two copies of a client that answer two nonces do not show their key") {
    constexpr word q = basis_of<P>::prime<0>;
    const ckks::secret_key<P> key(numbered_seed(76));
    const auto ternary = [&](bool hedged) {
        const auto opened = [&](std::uint64_t nonce) {
            return restored([&] {
                return lora::client<P>(ckks::secret_key<P>(numbered_seed(76)), copied(hedged))
                    .rerandomization_key(numbered_seed(nonce));
            });
        };
        const auto first = opened(77);
        const auto second = opened(78);
        const auto a = [](const auto& k) {
            return ckks::detail::expand_public_key<basis_of<P>>(
                random::joint_seed(k.client_nonce, k.server_nonce));
        };
        const auto a1 = a(first);
        const auto a2 = a(second);
        std::vector<word> ratio(P::degree);  // (b - b') / (a' - a)
        for (std::size_t k = 0; k < P::degree; ++k) {
            const word b = (first.b.limb<0>()[k] + q - second.b.limb<0>()[k]) % q;
            const word da = (a2.limb<0>()[k] + q - a1.limb<0>()[k]) % q;
            ratio[k] = arith::multiply_mod(b, arith::inverse_mod(da, q), q);
        }
        tensafe::ntt::inverse(rns::shared_plan<P::log_n, q>(), std::span(ratio));
        return std::ranges::count_if(ratio, [&](word x) { return std::abs(centred(x, q)) <= 1; });
    };
    CHECK(ternary(false) == P::degree);
    CHECK(ternary(true) == 0);
}

TEST_CASE("two copies of a server show nothing of A") {
    const matrix a = random_matrix(4, d, 79);
    const matrix other_a = random_matrix(4, d, 80);
    const tile_server server(a);
    const tile_server other_server(other_a);
    sides<P> s(81, server.plan().subring_log_n());
    const auto first = s.client.encrypt(server.plan(), random_state(d, 82)).request;
    const auto second = s.client.encrypt(server.plan(), random_state(d, 83)).request;

    const auto reply_of = [&](bool hedged, const tile_server& from, const lora::request<P>& r) {
        return restored([&] {
            lora::rerandomization_pool<P> pool(s.server_nonce, s.open, from.plan().subring_log_n(),
                                               copied(hedged));
            lora::server_workspace<P> work;
            work.generator = copied(hedged);
            tile_server::reply_type reply;
            from.apply(r, pool, work, reply);
            return reply;
        });
    };
    // Whether the difference of two replies is that of their products without encryptions of zero.
    const auto close = [&](bool hedged, const tile_server& from, const lora::request<P>& r) {
        const auto c1 = [&](const tile_server& of, const lora::request<P>& request) {
            return difference(
                reply_fractions(reply_of(hedged, of, request).outputs[0], P::degree, of.plan().reply_bits(0)),
                fractions_of(bare_products(of, request)[0].c1));
        };
        return concentration(difference(c1(server, first), c1(from, r)));
    };
    const double chance = null_concentration(P::degree);
    CHECK(close(false, server, second) > 0.9);
    CHECK(std::fabs(close(true, server, second)) < chance);
    CHECK(close(false, other_server, first) > 0.9);
    CHECK(std::fabs(close(true, other_server, first)) < chance);

    // Not protected: encryptions of zero that were made before their requests were known.
    const auto ahead = [&](const lora::request<P>& r) {
        return restored([&] {
            lora::rerandomization_pool<P> pool(s.server_nonce, s.open, server.plan().subring_log_n());
            pool.fill(server.plan().outputs());
            lora::server_workspace<P> work;
            tile_server::reply_type reply;
            server.apply(r, pool, work, reply);
            return reply_fractions(reply.outputs[0], P::degree, server.plan().reply_bits(0));
        });
    };
    CHECK(concentration(difference(difference(ahead(first), ahead(second)),
                                   difference(fractions_of(bare_products(server, first)[0].c1),
                                              fractions_of(bare_products(server, second)[0].c1)))) > 0.9);

    // Of two clients: v would be the same under two a.
    const auto errors_of = [&](bool hedged, std::uint64_t client) {
        const sides<P> other(client, server.plan().subring_log_n());
        return restored([&] {
            lora::rerandomization_pool<P> pool(other.server_nonce, other.open, server.plan().subring_log_n(),
                                               copied(hedged));
            const auto zero = pool.acquire();
            return std::vector<std::int8_t>(zero.e1.span().begin(), zero.e1.span().end());
        });
    };
    CHECK(errors_of(false, 84) == errors_of(false, 85));
    CHECK(errors_of(true, 84) != errors_of(true, 85));
    CHECK(errors_of(true, 84) == errors_of(true, 84));
}

TEST_CASE(
    "two copies that prepare blocks show nothing of A or of the key, but the difference of two states") {
    const matrix a = random_matrix(2, d, 91);
    const matrix other_a = random_matrix(2, d, 92);
    const block_server server(a, 32);
    const block_server other_server(other_a, 32);
    const sides<P> s(93, server.plan().subring_log_n());
    const auto c1 = [&](bool hedged, const block_server& from, std::uint64_t request) {
        const auto reply = restored([&] {
            lora::rerandomization_pool<P> pool(s.server_nonce, s.open, from.plan().subring_log_n(),
                                               copied(hedged));
            lora::block_workspace<P> work;
            work.generator = copied(hedged);
            lora::server_block<P> block;
            lora::block_reply result;
            from.prepare({d, 32, numbered_seed(request)}, pool, work, block, result);
            return result;
        });
        return difference(sent_fractions(reply.c1[0], P::degree, from.plan().reply_bits(0)),
                          fractions(bare_block<P>(from, numbered_seed(request))[0]));
    };
    const double chance = null_concentration(P::degree);
    const auto close = [&](bool hedged, const block_server& from, std::uint64_t request) {
        return concentration(difference(c1(hedged, server, 1), c1(hedged, from, request)));
    };
    CHECK(close(false, server, 2) > 0.9);
    CHECK(std::fabs(close(true, server, 2)) < chance);
    CHECK(close(false, other_server, 1) > 0.9);
    CHECK(std::fabs(close(true, other_server, 1)) < chance);

    const auto prepared = [&](bool hedged, std::uint64_t key, std::uint64_t state) {
        return restored([&] {
            lora::client<P> client(ckks::secret_key<P>(numbered_seed(key)), copied(hedged));
            auto block = client.prepare(server.plan());
            lora::token_query query;
            block.encrypt(random_state(d, state), query);
            return std::pair{block.request().seed, token_fractions<P>(query.request)};
        });
    };
    CHECK(prepared(false, 94, 95).first == prepared(false, 96, 95).first);
    CHECK_FALSE(prepared(true, 94, 95).first == prepared(true, 96, 95).first);
    // Not protected: masks are drawn before the states that they hide are known.
    CHECK(concentration(difference(prepared(true, 94, 95).second, prepared(true, 94, 97).second)) > 0.9);
}

TEST_CASE("two copies that prepare parts of one block hide each under zeros of its own") {
    const block_server server(random_matrix(16, d, 91), 32);
    const auto bare = bare_block<P>(server, numbered_seed(1));
    const sides<P> s(93, server.plan().subring_log_n());
    // What hides the first output of a part: of the second part in one copy, in another of the same block
    // anew.
    const auto zero = [&](bool hedged, std::size_t first) {
        lora::block_workspace<P> work;
        lora::server_block<P> block;
        lora::block_reply result;
        lora::block_request part{d, 32, numbered_seed(1), 8, 0};
        if (first != 0) {
            lora::rerandomization_pool<P> earlier(s.server_nonce, s.open, server.plan().subring_log_n());
            server.prepare(part, earlier, work, block, result);
        }
        part.first = first;
        restored([&] {
            lora::rerandomization_pool<P> pool(s.server_nonce, s.open, server.plan().subring_log_n(),
                                               copied(hedged));
            work.generator = copied(hedged);
            if (first != 0) {
                random::generator().next_seed();  // as the other copy draws the secret of its block
            }
            server.prepare(part, pool, work, block, result);
            return 0;
        });
        return difference(sent_fractions(result.c1[0], P::degree, server.plan().reply_bits(first)),
                          fractions(bare[first]));
    };
    CHECK(concentration(difference(zero(false, 0), zero(false, 8))) > 0.9);
    CHECK(std::fabs(concentration(difference(zero(true, 0), zero(true, 8)))) < null_concentration(P::degree));
}

TEST_CASE("two copies of a server draw other floods for the same c1 with another c0") {
    const matrix a = random_matrix(32, d, 88);
    const tile_server server(a);
    const auto& plan = server.plan();
    // Copies of a client with an explicit start: one c1, one error, two states.
    const auto errors = [&](bool hedged, std::uint64_t state) {
        sides<P> s(89, plan.subring_log_n());
        std::vector<double> result;
        lora::decryption_workspace<P> work;
        for (std::uint64_t t = 0; t < 10; ++t) {
            const std::vector<float> h = random_state(d, state + t);
            const auto query = s.client.encrypt(plan, h);
            const auto reply = restored([&] {
                s.work.generator = copied(hedged);
                tile_server::reply_type r;
                server.apply(query.request, s.pool, s.work, r);
                return r;
            });
            std::vector<double> answers(plan.rank());
            s.client.decrypt_exposing_key(plan, reply, query, work, answers);
            const double unit = query.scale * plan.budget().weight_norm / plan.layout().row_norm;
            const std::vector<double> exact = exact_answers(plan, a, h);
            for (std::size_t r = 0; r < plan.rank(); ++r) {
                result.push_back((answers[r] - exact[r]) * unit);
            }
        }
        return result;
    };
    // The rounding of c1 is the same; floods that are the same too leave the rounding of c0.
    const auto apart = [&](bool hedged) {
        const std::vector<double> first = errors(hedged, 900);
        const std::vector<double> second = errors(hedged, 950);
        double sum = 0;
        for (std::size_t k = 0; k < first.size(); ++k) {
            sum += (first[k] - second[k]) * (first[k] - second[k]);
        }
        return std::sqrt(sum / static_cast<double>(first.size()));
    };
    CHECK(apart(true) > 3 * apart(false));
}

TEST_CASE("two copies of a program that releases vectors with noise do not release their difference") {
    const auto release = tensafe::dp::gaussian_release::of({1.0, 1e-5}, 1, d);
    const auto noise = [&](bool hedged, std::uint64_t state) {
        std::vector<float> h = random_state(d, state);
        const auto grid = restored([&] {
            tensafe::dp::ledger ledger({1e9, 0.5});
            auto charge = ledger.charge("user", release.cost(), 1);
            random::generator generator = copied(hedged);
            std::vector<float> out(d);
            release(charge, generator, h, out);
            return out;
        });
        double length = 0;
        for (const float x : h) {
            length += static_cast<double>(x) * static_cast<double>(x);
        }
        std::vector<double> result;
        for (std::size_t i = 0; i < d; ++i) {
            result.push_back(static_cast<double>(grid[i]) -
                             static_cast<double>(h[i]) / std::max(1.0, std::sqrt(length)));
        }
        return result;
    };
    CHECK(correlation(noise(false, 86), noise(false, 87)) > 0.99);
    CHECK(std::fabs(correlation(noise(true, 86), noise(true, 87))) < null_correlation(d));

    // One vector at two clip norms and one deviation: the difference of what is released is exact.
    const auto released = [&](bool hedged, double clip_norm) {
        const tensafe::dp::gaussian_release at(clip_norm, release.deviation(), d);
        return restored([&] {
            tensafe::dp::ledger ledger({1e9, 0.5});
            auto charge = ledger.charge("user", at.cost(), 1);
            random::generator generator = copied(hedged);
            std::vector<float> out(d);
            at(charge, generator, random_state(d, 86), out);
            return std::vector<double>(out.begin(), out.end());
        });
    };
    const auto close = [&](bool hedged) { return correlation(released(hedged, 1), released(hedged, 0.5)); };
    CHECK(close(false) > 0.99);
    CHECK(std::fabs(close(true)) < null_correlation(d));
}
