#include <tensafe/ckks/sanitize/rerandomization.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include "../fixture.hpp"
#include "../noise_bounds.hpp"

using namespace tests;

namespace {

using namespace fixture;
using random::stream_domain;
using tensafe::arith::word;
using P = four_limbs;

// A zero is used once, so it cannot be copied; a pool cannot be doubled.
using one_zero = ckks::zero<P, 1>;
static_assert(!std::is_copy_constructible_v<one_zero>);
static_assert(!std::is_copy_assignable_v<one_zero>);
static_assert(std::is_nothrow_move_constructible_v<one_zero>);
static_assert(std::is_nothrow_move_assignable_v<one_zero>);
static_assert(!std::is_default_constructible_v<one_zero>);
using one_pool = ckks::rerandomization_pool<P, 1>;
static_assert(!std::is_copy_constructible_v<one_pool> && !std::is_move_constructible_v<one_pool>);
static_assert(!std::is_copy_assignable_v<one_pool> && !std::is_move_assignable_v<one_pool>);

// Every part of a zero is wiped on release.
static_assert(std::is_same_v<decltype(one_zero::c1)::release_type, memory::wipe_on_release>);
static_assert(std::is_same_v<decltype(one_zero::c0)::value_type, memory::secret_buffer<word>>);
static_assert(std::is_same_v<decltype(one_zero::e0), memory::secret_buffer<std::int8_t>>);
static_assert(std::is_same_v<decltype(one_zero::e1), memory::secret_buffer<std::int8_t>>);

// A client sends b and nonces, nothing that an `a` could be in: this compiles for three members only.
static_assert([](const ckks::rerandomization_key<P, 1>* key) {
    using nonces_and_b = decltype([](const ckks::rerandomization_key<P, 1>& k) {
        const auto& [client_nonce, b, server_nonce] = k;
        return std::tuple(client_nonce, b, server_nonce);
    }(*key));
    return std::is_same_v<
        nonces_and_b,
        std::tuple<random::seed, rns::poly<P::basis_at<1>, rns::evaluation_form>, random::seed>>;
}(nullptr));

/// A client and its pool of a server, both from explicit seeds.
template <int Level>
struct session {
    explicit session(std::uint8_t number, int subring_log_n)
        : pool_number(static_cast<std::uint8_t>(number + 100)),
          source(generator(number)),
          key(source),
          open(ckks::make_rerandomization_key<Level>(key, server_nonce, source)),
          pool(server_nonce, open, subring_log_n, generator(pool_number)) {}

    random::seed server_nonce = numbered_seed(0xa5);
    std::uint8_t pool_number;
    random::generator source;
    ckks::secret_key<P> key;
    ckks::rerandomization_key<P, Level> open;
    ckks::rerandomization_pool<P, Level> pool;
};

template <class Basis>
rns::poly<Basis, rns::evaluation_form> expanded_a(const random::seed& client, const random::seed& server) {
    rns::poly<Basis, rns::evaluation_form> a;
    ckks::expand_uniform(random::joint_seed(client, server), stream_domain::public_key, a);
    return a;
}

template <class Basis>
rns::secret_poly<Basis, rns::evaluation_form> transformed(std::span<const std::int8_t> small) {
    rns::secret_poly<Basis, rns::coefficient_form> p;
    ckks::add_small(small, p);
    return rns::forward(std::move(p));
}

/// Adds the errors as the documentation says, decrypts, traces, and takes the factor N/2^log_n off: the
/// coefficients of X^(i*N/2^log_n), which must be the same modulo every prime.
template <int Level>
std::vector<std::int64_t> decrypted(const ckks::secret_key<P>& key, const ckks::zero<P, Level>& z) {
    using basis = typename P::template basis_at<Level>;
    auto c1 = rns::inverse(z.c1);
    ckks::add_small(z.e1.span(), c1);
    const auto noisy_c1 = rns::forward(std::move(c1));
    const std::size_t points = std::size_t{1} << z.log_n;
    std::vector<std::int64_t> first;
    rns::for_each_limb<basis>([&]<int I>() {
        constexpr word q = basis::template prime<I>;
        constexpr auto policy = rns::variable_arithmetic<q>;
        const std::vector<word> nothing(P::degree);
        std::vector<word> sums(points);
        rns::limb::block_sums(policy, std::span(sums), noisy_c1.template limb<I>(),
                              key.value().template limb<I>(), std::span(nothing));
        rns::limb::add(rns::modulus_of<q>(q), std::span(sums), std::span(sums), z.c0[I].span());
        if (z.log_n > 0) {
            tensafe::ntt::inverse(rns::shared_subring_plan<P::log_n, q>(z.log_n), std::span(sums));
        }
        const word unfold = tensafe::arith::power_mod(P::degree / points, q - 2, q);
        std::vector<std::int64_t> values;
        for (std::size_t i = 0; i < points; ++i) {
            const word x = policy.reduce_fully(tensafe::arith::mul_wide(sums[i], unfold));
            values.push_back(centred(x, q) + z.e0[i]);
        }
        if constexpr (I == 0) {
            first = values;
        }
        CHECK(values == first);
    });
    return first;
}

/// e*v + e0 + e1*s at the same coefficients, from what the page says a seed stands for.
template <int Level>
std::vector<std::int64_t> predicted(const session<Level>& c, const random::seed& seed, int log_n) {
    using basis = typename P::template basis_at<Level>;
    const auto a = expanded_a<basis>(c.open.client_nonce, c.server_nonce);
    const auto s = rns::level_reduce<Level + 1>(c.key.value());
    auto e = c.open.b;
    rns::multiply_accumulate(e, a, s);

    std::vector<std::int8_t> v(P::degree);
    std::vector<std::int8_t> e0(P::degree);
    std::vector<std::int8_t> e1(P::degree);
    random::sample_ternary(seed, stream_domain::zero, 0, v);
    random::sample_error(seed, stream_domain::error, 0, e0);
    random::sample_error(seed, stream_domain::error, 1, e1);
    rns::secret_poly<basis, rns::evaluation_form> sum;
    rns::multiply_accumulate(sum, e, transformed<basis>(v));
    rns::multiply_accumulate(sum, s, transformed<basis>(e1));
    const auto coefficients = small_coefficients(rns::inverse(std::move(sum)));

    std::vector<std::int64_t> expected;
    const std::size_t points = std::size_t{1} << log_n;
    for (std::size_t i = 0; i < points; ++i) {
        expected.push_back(coefficients[i * (P::degree / points)] + e0[i]);
    }
    return expected;
}

template <int Level>
void check_decryption(int log_n) {
    INFO("Level := ", Level, ", log_n := ", log_n);
    session<Level> c(static_cast<std::uint8_t>(10 + log_n), log_n);
    auto seeds = generator(c.pool_number);
    constexpr auto worst = static_cast<std::int64_t>(21 * (2 * P::degree + 1));
    for (int round = 0; round < 2; ++round) {
        const auto z = c.pool.acquire();
        CHECK(z.log_n == log_n);
        const auto noise = decrypted(c.key, z);
        CHECK(noise == predicted(c, seeds.next_seed(), log_n));
        for (const std::int64_t x : noise) {
            CHECK(std::abs(x) <= worst);
        }
    }
}

template <int Level>
bool same(const ckks::zero<P, Level>& a, const ckks::zero<P, Level>& b) {
    bool equal = a.c1 == b.c1 && a.log_n == b.log_n && std::ranges::equal(a.e1, b.e1) &&
                 std::ranges::equal(a.e0, b.e0);
    for (std::size_t i = 0; i < a.c0.size(); ++i) {
        equal &= std::ranges::equal(a.c0[i], b.c0[i]);
    }
    return equal;
}

/// Whether no part of one is a part of the other.
template <int Level>
bool share_nothing(const ckks::zero<P, Level>& a, const ckks::zero<P, Level>& b) {
    bool shared = a.c1 == b.c1 || std::ranges::equal(a.e1, b.e1) || std::ranges::equal(a.e0, b.e0);
    for (std::size_t i = 0; i < a.c0.size(); ++i) {
        shared |= std::ranges::equal(a.c0[i], b.c0[i]);
    }
    return !shared;
}

}  // namespace

TEST_CASE("A zero decrypts to e*v + e0 + e1*s at the target coefficients, for every subring") {
    for (int log_n = 0; log_n <= P::log_n; ++log_n) {
        check_decryption<1>(log_n);
    }
    check_decryption<0>(5);
    check_decryption<3>(0);
    check_decryption<3>(5);
}

TEST_CASE("The noise of zeros has the deviation that is predicted for the public key") {
    // Keys differ in weight by a few percent, so several are averaged.
    double squares = 0;
    double sum = 0;
    double largest = 0;
    std::size_t count = 0;
    for (std::uint8_t number = 0; number < 8; ++number) {
        session<0> c(static_cast<std::uint8_t>(30 + number), 6);
        for (int round = 0; round < 16; ++round) {
            for (const std::int64_t x : decrypted(c.key, c.pool.acquire())) {
                const auto noise = static_cast<double>(x);
                sum += noise;
                squares += noise * noise;
                largest = std::max(largest, std::fabs(noise));
                ++count;
            }
        }
    }
    const auto predicted_noise = public_key_noise<P>();
    const auto n = static_cast<double>(count);
    const double deviation = std::sqrt(squares / n);
    INFO("deviation := ", deviation, ", predicted_noise.deviation := ", predicted_noise.deviation);
    CHECK(deviation < 1.05 * predicted_noise.deviation);
    CHECK(deviation * 1.05 > predicted_noise.deviation);
    CHECK(std::fabs(sum / n) < 5 * predicted_noise.deviation / std::sqrt(n));
    CHECK(largest < 6 * predicted_noise.deviation);
}

TEST_CASE(
    "b + a*s of a re-randomization key is the error of its own seed, for the a that both sides expand") {
    using basis = P::basis_at<2>;
    const session<2> c(1, 4);
    auto e = c.open.b;
    rns::multiply_accumulate(e, expanded_a<basis>(c.open.client_nonce, c.server_nonce),
                             rns::level_reduce<3>(c.key.value()));
    auto seeds = generator(1);
    seeds.next_seed();  // the secret key's
    CHECK(c.open.client_nonce == seeds.next_seed());
    std::vector<std::int8_t> error(P::degree);
    random::sample_error(seeds.next_seed(), stream_domain::error, 0, error);
    CHECK(std::ranges::equal(small_coefficients(rns::inverse(std::move(e))), error));
}

TEST_CASE("c1 is a*v for the a of both nonces, whatever b the client sends") {
    using basis = P::basis_at<1>;
    const session<1> c(2, 3);
    std::vector<std::int8_t> v(P::degree);
    random::sample_ternary(generator(7).next_seed(), stream_domain::zero, 0, v);
    const auto honest = expanded_a<basis>(c.open.client_nonce, c.server_nonce);
    rns::secret_poly<basis, rns::evaluation_form> expected;
    rns::multiply(expected, honest, transformed<basis>(v));

    auto planted = c.open;
    planted.b = {};
    for (const auto& key : {c.open, planted}) {
        one_pool pool(c.server_nonce, key, 3, generator(7));
        CHECK(pool.acquire().c1 == expected);
    }
}

TEST_CASE("Another nonce of either side gives another a") {
    const session<1> c(3, 3);
    const auto c1_of = [](ckks::rerandomization_key<P, 1> key, const random::seed& server_nonce) {
        key.server_nonce = server_nonce;  // as if it had been made for this one
        one_pool pool(server_nonce, std::move(key), 3, generator(7));
        return pool.acquire().c1;
    };
    const auto c1 = c1_of(c.open, c.server_nonce);
    CHECK(c1 == c1_of(c.open, c.server_nonce));
    auto other = c.open;
    other.client_nonce.bytes[31] ^= 1;
    CHECK(!(c1 == c1_of(other, c.server_nonce)));
    CHECK(!(c1 == c1_of(c.open, numbered_seed(0xa6))));
}

TEST_CASE("A client draws a fresh nonce and a fresh error for every re-randomization key") {
    session<1> c(4, 3);
    const auto second = ckks::make_rerandomization_key<1>(c.key, c.server_nonce, c.source);
    CHECK(!(second.client_nonce == c.open.client_nonce));
    CHECK(!(second.b == c.open.b));
    CHECK(!(second.client_nonce == c.server_nonce));
}

TEST_CASE("No two zeros of a pool share a part, and no two pools give the same zeros") {
    session<1> c(5, 6);
    std::vector<one_zero> taken;
    c.pool.fill(3);
    for (int i = 0; i < 5; ++i) {
        taken.push_back(c.pool.acquire());
    }
    one_pool fresh(c.server_nonce, c.open, 6);
    one_pool also_fresh(c.server_nonce, c.open, 6);
    taken.push_back(fresh.acquire());
    taken.push_back(also_fresh.acquire());
    for (std::size_t i = 0; i < taken.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            CHECK(share_nothing(taken[i], taken[j]));
        }
    }
}

TEST_CASE("The child of a fork has none of its parent's stored zeros, and makes others" *
          doctest::skip(!has_fork)) {
    session<1> c(5, 6);
    c.pool.fill(2);
    // Of c1, which tells zeros apart.
    const auto digest = [](const one_zero& zero) {
        std::uint64_t sum = 0;
        for (const word x : zero.c1.words()) {
            sum = 31 * sum + x;
        }
        return sum;
    };
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const std::uint64_t seen[] = {digest(c.pool.acquire()), c.pool.size()};
        ::_exit(::write(ends[1], seen, sizeof seen) == sizeof seen ? 0 : 1);
    }
    ::close(ends[1]);
    std::uint64_t seen[2] = {};
    CHECK(::read(ends[0], seen, sizeof seen) == sizeof seen);
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(seen[1] == 0);
    CHECK(c.pool.size() == 2);
    for (int i = 0; i < 2; ++i) {
        CHECK(digest(c.pool.acquire()) != seen[0]);
    }
}

TEST_CASE("A filled pool hands out what it stored, oldest first, and what an empty one would make") {
    session<1> stored(6, 4);
    session<1> empty(6, 4);
    CHECK(stored.pool.size() == 0);
    stored.pool.fill(3);
    CHECK(stored.pool.size() == 3);
    stored.pool.fill(2);
    CHECK(stored.pool.size() == 3);
    stored.pool.fill(0);
    CHECK(stored.pool.size() == 3);
    for (const std::size_t left : {2U, 1U, 0U, 0U, 0U}) {
        CHECK(same(stored.pool.acquire(), empty.pool.acquire()));
        CHECK(stored.pool.size() == left);
        CHECK(empty.pool.size() == 0);
    }
    stored.pool.fill(1);
    CHECK(same(stored.pool.acquire(), empty.pool.acquire()));
}

TEST_CASE("Moving a zero hands over its parts") {
    session<1> c(7, 4);
    session<1> again(7, 4);
    one_zero first = c.pool.acquire();
    one_zero second = c.pool.acquire();
    one_zero moved(std::move(first));
    CHECK(same(moved, again.pool.acquire()));
    moved = std::move(second);
    CHECK(same(moved, again.pool.acquire()));
}

TEST_CASE("Threads that fill and take at the same time never get the same zero, and none is lost") {
    session<1> sequence(8, 4);
    session<1> c(8, 4);
    constexpr std::size_t each = 20;
    std::vector<one_zero> taken[2];
    tests::on_threads(3, [&](std::size_t t) {
        for (std::size_t i = 0; i < each; ++i) {
            if (t == 2) {
                c.pool.fill((i + 1) % 4);
            } else {
                taken[t].push_back(c.pool.acquire());
            }
        }
    });
    CHECK(c.pool.size() <= 3);

    std::vector<one_zero> all = std::move(taken[0]);
    std::ranges::move(taken[1], std::back_inserter(all));
    while (c.pool.size() > 0) {
        all.push_back(c.pool.acquire());
    }
    // As many seeds as zeros, and each zero once: what the threads got is the sequence in another order.
    for (std::size_t i = 0; i < all.size(); ++i) {
        const one_zero expected = sequence.pool.acquire();
        CHECK(std::ranges::count_if(all, [&](const one_zero& z) { return same(z, expected); }) == 1);
    }
    CHECK(same(c.pool.acquire(), sequence.pool.acquire()));
}

TEST_CASE("Two threads that fill at the same time store one more zero at most") {
    session<1> c(9, 4);
    tests::on_threads(2, [&](std::size_t) { c.pool.fill(10); });
    CHECK(c.pool.size() >= 10);
    CHECK(c.pool.size() <= 11);
}

TEST_CASE("A trace to a degree that no subring of the set has is refused") {
    const session<1> c(10, 4);
    for (const int log_n : {-1, P::log_n + 1, 64}) {
        CAPTURE(log_n);
        CHECK(refusal<tensafe::parameter_error>([&] { one_pool(c.server_nonce, c.open, log_n); }) ==
              "rerandomization_pool: subring_log_n: got " + std::to_string(log_n) + ", expected 0 to 10");
    }
}

TEST_CASE("A re-randomization key that was made for another nonce, or holds more than residues, is refused") {
    const session<1> c(9, 3);
    CHECK_THROWS_AS(one_pool(numbered_seed(0xa7), c.open, 3), tensafe::parameter_error);
    auto malformed = c.open;
    malformed.b.template limb<1>()[5] = P::basis::prime<1>;
    CHECK(refusal<tensafe::format_error>([&] { one_pool(c.server_nonce, malformed, 3); }) ==
          "rerandomization_pool: a residue of limb 1 of the re-randomization key is not below its prime " +
              std::to_string(P::basis::prime<1>));
}

TEST_CASE(
    "reservations give the zeros in the order in which they were drawn, in whatever order they are "
    "redeemed") {
    const session<1> c(11, 3);
    one_pool sequence(c.server_nonce, c.open, 3, random::generator(numbered_seed(12)));
    one_pool pool(c.server_nonce, c.open, 3, random::generator(numbered_seed(12)));
    pool.fill(2);
    std::vector<one_pool::reservation> reservations;
    for (int i = 0; i < 4; ++i) {
        reservations.push_back(pool.reserve());
    }
    std::vector<one_zero> expected;
    for (int i = 0; i < 4; ++i) {
        expected.push_back(sequence.acquire());
    }
    for (const std::size_t i : {3U, 0U, 2U, 1U}) {
        CHECK(same(pool.acquire(std::move(reservations[i])), expected[i]));
    }
    // A reservation is worth one zero.
    CHECK_THROWS_AS(pool.acquire(std::move(reservations[3])), tensafe::error);
    CHECK_THROWS_AS(pool.acquire(std::move(reservations[0])), tensafe::error);
}

TEST_CASE("memory of used zeros serves new ones, and only whole ones of the same shape are taken back") {
    const session<1> c(13, 3);
    one_pool fresh(c.server_nonce, c.open, 3, random::generator(numbered_seed(14)));
    one_pool pool(c.server_nonce, c.open, 3, random::generator(numbered_seed(14)));
    one_pool other(c.server_nonce, c.open, 2, random::generator(numbered_seed(14)));
    for (int i = 0; i < 3; ++i) {
        one_zero zero = pool.acquire();
        CHECK(same(zero, fresh.acquire()));
        CHECK_THROWS_AS(other.release(std::move(zero)), tensafe::parameter_error);
        pool.release(pool.acquire());
        static_cast<void>(fresh.acquire());
    }
    one_zero zero = pool.acquire();
    const one_zero moved = std::move(zero);
    CHECK_THROWS_AS(pool.release(std::move(zero)), tensafe::parameter_error);
}
