// A client that plants a public key. If it could choose `a`, the encryptions of zero would hide nothing; it
// can choose b, and then reads some of the zeros' randomness v in the coefficients that are sent. How much
// decides.

#include <tensafe/random/samplers.hpp>

#include "attack.hpp"

namespace {

using namespace attacks;
using basis = basis_of<P>;
using tiles = lora::coefficient_tiles<4>;
using block_server = lora::server<P, lora::token_blocks, lora::protects_adapter_rows<>>;

constexpr std::size_t rank = 4;
constexpr std::size_t d = 200;
constexpr std::size_t block = P::degree / 4;

/// Digits that one target coefficient shows for d = 200: 3^9 levels are 2^14.3, and the largest flood is
/// below Q * 2^-16.
constexpr std::size_t most_digits = 9;

/// b = sum over i < digits of round(Q / 3^(i+1)) X^(-i * step): coefficient k of b*v is v_k, v_(k+step), ...
/// as the digits of a fraction of Q.
evaluation_poly<P> ternary_reader(std::size_t step, std::size_t digits) {
    rns::poly<basis, rns::coefficient_form> b;
    uint128 share = modulus<basis>();
    for (std::size_t i = 0; i < digits; ++i) {
        share /= 3;
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr word q = basis::prime<I>;
            const auto residue = static_cast<word>(share % q);
            b.limb<I>()[i == 0 ? 0 : P::degree - i * step] = i == 0 ? residue : (q - residue) % q;
        });
    }
    return rns::forward(std::move(b));
}

/// The digits of a fraction, the largest first.
std::vector<std::int8_t> ternary_digits(double fraction, std::size_t digits) {
    auto value = std::llround(fraction * std::pow(3.0, static_cast<double>(digits)));
    std::vector<std::int8_t> result(digits);
    for (std::size_t i = digits; i-- > 0;) {
        const auto digit = ((value % 3) + 4) % 3 - 1;
        result[i] = static_cast<std::int8_t>(digit);
        value = (value - digit) / 3;
    }
    return result;
}

evaluation_poly<P> constant(uint128 value) {
    rns::poly<basis, rns::coefficient_form> b;
    rns::for_each_limb<basis>(
        [&]<int I>() { b.limb<I>()[0] = static_cast<word>(value % uint128{basis::prime<I>}); });
    return rns::forward(std::move(b));
}

evaluation_poly<P> a_of(const random::seed& client_nonce, const random::seed& server_nonce) {
    evaluation_poly<P> a(memory::uninitialized);
    ckks::expand_uniform(random::joint_seed(client_nonce, server_nonce), random::stream_domain::public_key,
                         a);
    return a;
}

/// a * v for the digits of v that the client knows.
std::vector<std::uint64_t> mask_of(const evaluation_poly<P>& a, const std::vector<std::int64_t>& v) {
    evaluation_poly<P> product = rns::forward(lifted<basis>(v));
    rns::multiply(product, product, a);
    return fractions(rns::inverse(std::move(product)));
}

/// The v of the zero that a pool with this generator makes next.
std::vector<std::int64_t> true_v(random::generator& generator) {
    std::vector<std::int8_t> v(P::degree);
    random::sample_ternary(generator.next_seed(), random::stream_domain::zero, 0, v);
    return {v.begin(), v.end()};
}

/// c0 of a reply: a client whose s is zero has nothing to add.
std::vector<double> sent_c0(const std::vector<std::uint8_t>& c0, std::size_t targets, int bits) {
    return centred(sent_fractions(c0, targets, bits));
}

/// A request of the key s = 0 for the state 0, where c0 = 0: the answers leave the reply's c0 to b*v alone.
template <class Layout>
lora::request<P> empty_request(const Layout& layout, std::uint64_t seed) {
    return {layout.d, layout.entries_per_input(), numbered_seed(seed),
            std::vector<std::vector<std::uint8_t>>(
                layout.inputs(), std::vector<std::uint8_t>(lora::packed_residues_bytes<P>(P::degree)))};
}

}  // namespace

TEST_CASE("with an `a` of the client's choice the zeros hide nothing: a = 0 shows A exactly") {
    const matrix a = random_matrix(rank, d, 1);
    const tile_server server(a);
    const auto& layout = server.layout();
    sides<P> s(7, layout.subring_log_n());
    const auto query = s.client.encrypt(server.plan(), random_state(d, 2));
    const lora::traced_product<P> bare = bare_products(server, query.request)[0];

    // The server of this client computes c1*W + a*v + e1 with a = 0. One request, sent 2000 times, averages
    // e1 (deviation 3.24) out to 0.07: no coefficient of 1024 is then off by 1/2, six deviations and more.
    constexpr int replies = 2000;
    random::generator zeros = numbered_generator(99);
    std::vector<std::int64_t> sums(P::degree);
    std::vector<std::int8_t> e1(P::degree);
    for (int reply = 0; reply < replies; ++reply) {
        random::sample_error(zeros.next_seed(), random::stream_domain::error, 1, e1);
        for (std::size_t k = 0; k < P::degree; ++k) {
            sums[k] += e1[k];
        }
    }
    for (std::int64_t& x : sums) {
        x = std::llround(static_cast<double>(x) / replies);
    }
    evaluation_poly<P> seen = bare.c1;
    rns::add(seen, rns::forward(lifted<basis>(sums)));
    constexpr word q = basis::prime<0>;
    std::vector<word> ratio(P::degree);
    const evaluation_poly<P> c1 = uniform_half<P>(query.request, 0);
    for (std::size_t k = 0; k < P::degree; ++k) {
        ratio[k] = arith::multiply_mod(seen.limb<0>()[k], arith::inverse_mod(c1.limb<0>()[k], q), q);
    }
    tensafe::ntt::inverse(rns::shared_plan<P::log_n, q>(), std::span(ratio));
    const auto weights = layout.encode_weights(a, layout.budget(), 0, 0);
    CHECK(std::ranges::equal(ratio, weights.value.limb<0>()));

    // As it is sent, rounded, a single reply confirms a guess of A.
    const int bits = layout.budget().reply_bits;
    lora::protected_product<P> product = without_zero<P>(bare, layout.subring_log_n());
    ckks::add_small(std::span<const std::int8_t>(e1), product.c1);
    output_bytes output;
    pack_alone(product, layout.targets(0), bits, output);
    CHECK(concentration(difference(reply_fractions(output, P::degree, bits),
                                   fractions(rns::inverse(bare.c1)))) > 0.999);
}

TEST_CASE(
    "no b that a client plants is in c1, where A is: what hides A there is a*v, and a is not its choice") {
    const matrix a = random_matrix(rank, d, 1);
    const tile_server server(a);
    const auto& layout = server.layout();
    sides<P> s(8, layout.subring_log_n());
    const auto query = s.client.encrypt(server.plan(), random_state(d, 2));
    const auto c1_under = [&](const evaluation_poly<P>& b) {
        // The same randomness of zeros, so that nothing but b can differ.
        lora::rerandomization_pool<P> pool(s.server_nonce, {s.open.client_nonce, b, s.server_nonce},
                                           layout.subring_log_n(), numbered_generator(200));
        tile_server::reply_type reply;
        server.apply(query.request, pool, s.work, reply);
        return reply.outputs[0].c1;
    };
    const auto honest = c1_under(s.open.b);
    for (const auto& b : {evaluation_poly<P>(), constant(1), constant(modulus<basis>() / 4),
                          constant(modulus<basis>() - 1), uniform_half<P>(query.request, 0),
                          a_of(s.open.client_nonce, s.server_nonce), ternary_reader(1, most_digits)}) {
        CHECK(c1_under(b) == honest);
    }
}

TEST_CASE(
    "a planted b reads a few digits of v in each coefficient that is sent; with tiles most stay unknown") {
    const matrix a = random_matrix(rank, d, 1);
    const tile_server server(a);
    const auto& layout = server.layout();
    const int bits = layout.budget().reply_bits;
    sides<P> s(9, layout.subring_log_n());
    lora::rerandomization_pool<P> pool(s.server_nonce,
                                       {s.open.client_nonce, ternary_reader(1, most_digits), s.server_nonce},
                                       layout.subring_log_n(), numbered_generator(9));
    random::generator mirror = numbered_generator(9);
    const auto v = true_v(mirror);

    const auto request = empty_request(layout, 3);
    const auto expected = fractions(rns::inverse(bare_products(server, request)[0].c1));
    tile_server::reply_type reply;
    server.apply(request, pool, s.work, reply);

    std::vector<std::int64_t> known(P::degree);
    const auto c0 = sent_c0(reply.outputs[0].c0, layout.targets(0), bits);
    for (std::size_t k = 0; k < c0.size(); ++k) {
        const auto read = ternary_digits(c0[k], most_digits);
        std::ranges::copy(read, known.begin() + static_cast<std::ptrdiff_t>(k * block));
        CHECK(std::ranges::equal(read, std::span(v).subspan(k * block, most_digits)));
    }
    // 36 of 1024 digits: RLWE in 988 dimensions is left, and the rest of a*v covers c1*W as well as all of
    // it.
    const auto joint_a = a_of(s.open.client_nonce, s.server_nonce);
    const auto seen = reply_fractions(reply.outputs[0], P::degree, bits);
    const auto left = difference(difference(seen, mask_of(joint_a, known)), expected);
    CHECK(std::fabs(concentration(left)) < null_concentration(P::degree));
    CHECK(uniformity_p(left) > 1e-6);
    // Whoever knew all of v would see c1*W.
    CHECK(concentration(difference(difference(seen, mask_of(joint_a, v)), expected)) > 0.999);
}

namespace {

/// What a client that plants b sees of a block of states 0, with the zeros taken off.
struct bared_block {
    std::vector<std::vector<std::int64_t>> v;          ///< as read, for each row of A; 0 where it is not
    std::vector<std::vector<std::uint64_t>> products;  ///< what is left, rounded: the sum of entries times
    std::vector<std::vector<std::uint64_t>> c1;        ///< these
};

/// @param digits  that are read at each position
bared_block take_zeros_off(const block_server& server, sides<P>& s, std::size_t digits) {
    const auto& layout = server.layout();
    const int bits = layout.budget().reply_bits;
    lora::rerandomization_pool<P> pool(s.server_nonce,
                                       {s.open.client_nonce, ternary_reader(1, digits), s.server_nonce},
                                       layout.subring_log_n(), numbered_generator(10));
    const lora::block_request request{layout.d, layout.tokens, numbered_seed(3)};
    lora::server_block<P> of_server;
    lora::block_reply reply;
    block_server::workspace work;
    server.prepare(request, pool, work, of_server, reply);
    const auto joint_a = a_of(s.open.client_nonce, s.server_nonce);
    bared_block result;
    for (std::size_t j = 0; j < layout.d; ++j) {
        result.c1.push_back(fractions(uniform_of_entry<P>(server, request.seed, j)));
    }
    result.v.resize(layout.rank, std::vector<std::int64_t>(P::degree));
    for (std::size_t t = 0; t < layout.tokens; ++t) {
        const lora::token_request token{layout.d, t, 0,
                                        std::vector<std::uint8_t>(lora::packed_residues_bytes<P>(layout.d))};
        lora::token_reply answer;
        server.answer(of_server, token, work, answer);
        const auto c0 = sent_c0(answer.c0, layout.rank, bits);
        for (std::size_t r = 0; r < layout.rank; ++r) {
            std::ranges::copy(
                ternary_digits(c0[r], digits),
                result.v[r].begin() + static_cast<std::ptrdiff_t>(t * layout.entries_per_input()));
        }
    }
    for (std::size_t r = 0; r < layout.rank; ++r) {
        const output_bytes output{{}, reply.c1[r]};
        result.products.push_back(
            difference(reply_fractions(output, P::degree, bits), mask_of(joint_a, result.v[r])));
    }
    return result;
}

std::vector<std::int64_t> integer_row(const block_server& server, const matrix& a, std::size_t r) {
    std::vector<std::int64_t> result;
    for (std::size_t t = 0; t < a.columns; ++t) {
        result.push_back(server.layout().rows().integer_weight(a, server.layout().budget(), r, t));
    }
    return result;
}

/// How well the true A explains what is left of a row: 1 if all of the zero is gone.
double explained(const block_server& server, const matrix& a, const bared_block& seen, std::size_t r,
                 std::vector<std::uint64_t> left) {
    const auto weights = integer_row(server, a, r);
    for (std::size_t j = 0; j < a.columns; ++j) {
        for (std::size_t k = 0; k < P::degree; ++k) {
            left[k] -= static_cast<std::uint64_t>(weights[j]) * seen.c1[j][k];
        }
    }
    return concentration(left);
}

}  // namespace

TEST_CASE("a planted b reads at each position of a block what an answer has room for, so v stays unknown") {
    constexpr std::size_t tokens = 32;
    constexpr std::size_t tried = 14;
    const matrix a = random_matrix(rank, d, 1);
    const block_server server(a, tokens);
    sides<P> s(10, server.layout().subring_log_n());
    const double room = server.layout().budget().channel_bits() / std::log2(3);
    REQUIRE(room > most_digits);
    REQUIRE(room + 2 < tried);

    random::generator mirror = numbered_generator(10);
    const bared_block seen = take_zeros_off(server, s, tried);
    std::vector<double> right(tried);
    for (std::size_t r = 0; r < rank; ++r) {
        const auto v = true_v(mirror);
        for (std::size_t t = 0; t < tokens; ++t) {
            for (std::size_t i = 0; i < tried; ++i) {
                const std::size_t k = t * (P::degree / tokens) + i;
                right[i] += seen.v[r][k] == v[k] ? 1.0 / (rank * tokens) : 0;
            }
        }
    }
    for (std::size_t i = 0; i < tried; ++i) {
        INFO("digit := ", i);
        if (i < most_digits) {
            CHECK(right[i] > 0.9);
        } else if (static_cast<double>(i) > room + 1) {
            CHECK(right[i] < 0.5);  // a guess has a third
        }
    }

    // 288 of 1024: what is left of a*v covers A as well as all of it. Whoever knew all of v would see A.
    mirror = numbered_generator(10);
    const auto joint_a = a_of(s.open.client_nonce, s.server_nonce);
    const bared_block known = take_zeros_off(server, s, most_digits);
    for (std::size_t r = 0; r < rank; ++r) {
        std::vector<std::int64_t> v = true_v(mirror);
        CHECK(std::fabs(explained(server, a, known, r, known.products[r])) < null_concentration(P::degree));
        CHECK(uniformity_p(known.products[r]) > 1e-6);
        for (std::size_t k = 0; k < P::degree; ++k) {
            v[k] -= known.v[r][k];
        }
        CHECK(explained(server, a, known, r, difference(known.products[r], mask_of(joint_a, v))) > 0.999);
    }

    // The largest blocks leave enough of v for any shape; at this one eleven digits of a position are read.
    using set = ckks::private_n4096;
    using in_full = lora::layout<set, lora::token_blocks, lora::protects_adapter_rows<>>;
    constexpr std::size_t targets = lora::most_targets<set, lora::protects_adapter_rows<>>;
    const double digits = in_full::of(32, 2048, 1, 32).budget().channel_bits() / std::log2(3);
    CHECK(std::floor(digits) == 11);
    const double unknown =
        static_cast<double>(set::degree) - std::ceil(digits) * static_cast<double>(targets);
    CHECK(unknown / std::log2(static_cast<double>(modulus<basis_of<set>>())) > 4096.0 / 106);
    const auto refused = [&] { lora::server<set, lora::token_blocks>(random_matrix(1, 64, 1), targets + 1); };
    CHECK(contains(refusal<parameter_error>(refused), "got 39 tokens of a block"));
}

// Long blocks are for clients that follow the protocol (lora::trusts_clients). What these two tests show is
// why.

TEST_CASE("a planted b reads all of v from a block of N/8 tokens, and takes the zeros off") {
    constexpr std::size_t tokens = P::degree / 8;
    const matrix a = random_matrix(2, d, 1);
    const block_server server(a, tokens, lora::trusts_clients{});
    sides<P> s(10, server.layout().subring_log_n());
    random::generator mirror = numbered_generator(10);
    static_assert(tokens < d);  // so few answers do not determine A
    const bared_block seen = take_zeros_off(server, s, P::degree / tokens);
    for (std::size_t r = 0; r < 2; ++r) {
        CHECK(seen.v[r] == true_v(mirror));
        CHECK(explained(server, a, seen, r, seen.products[r]) > 0.999);
    }
}

TEST_CASE("where d is small, what is left of such a block is solved for A exactly") {
    // Learning with rounding in d dimensions, for d = 2 by meeting in the middle. Floods are larger for small
    // d, so that a coefficient has only four digits here.
    constexpr std::size_t tokens = P::degree / 4;
    const matrix a = random_matrix(2, 2, 1);
    const block_server server(a, tokens, lora::trusts_clients{});
    const lora::reply_budget budget = server.layout().budget();
    sides<P> s(10, server.layout().subring_log_n());
    const bared_block seen = take_zeros_off(server, s, P::degree / tokens);
    const auto bound = static_cast<std::int64_t>(budget.weight_norm) + 2;
    const double tolerance = 0.51 * std::exp2(-budget.reply_bits);
    for (std::size_t r = 0; r < 2; ++r) {
        const auto rest = [&](std::size_t k, std::int64_t w0, std::int64_t w1) {
            return centred(std::uint64_t{seen.products[r][k] -
                                         static_cast<std::uint64_t>(w0) * seen.c1[0][k] -
                                         static_cast<std::uint64_t>(w1) * seen.c1[1][k]});
        };
        std::vector<std::pair<double, std::int64_t>> table;
        for (std::int64_t w = -bound; w <= bound; ++w) {
            table.emplace_back(centred(std::uint64_t{static_cast<std::uint64_t>(w) * seen.c1[1][0]}), w);
        }
        std::ranges::sort(table);
        std::vector<std::vector<std::int64_t>> found;
        for (std::int64_t w = -bound; w <= bound; ++w) {
            const double target = rest(0, w, 0);
            for (auto at = std::ranges::lower_bound(table, std::pair{target - tolerance, -bound});
                 at != table.end() && at->first < target + tolerance; ++at) {
                bool fits = true;
                for (std::size_t k = 0; k < 32 && fits; ++k) {
                    fits = std::fabs(rest(k, w, at->second)) < tolerance;
                }
                if (fits) {
                    found.push_back({w, at->second});
                }
            }
        }
        REQUIRE(found.size() == 1);
        CHECK(found[0] == integer_row(server, a, r));
    }
}

TEST_CASE("two sessions with the same client nonce and b have different zeros: the server's nonce is in a") {
    const tile_server server(random_matrix(rank, d, 1));
    const auto& layout = server.layout();
    sides<P> s(11, layout.subring_log_n());
    const auto query = s.client.encrypt(server.plan(), random_state(d, 2));
    const auto c1_of = [&](const random::seed& server_nonce) {
        // The same randomness of zeros, so that nothing but `a` can differ.
        auto open = s.open;
        open.server_nonce = server_nonce;  // as if it had been made for this one
        lora::rerandomization_pool<P> pool(server_nonce, open, layout.subring_log_n(),
                                           numbered_generator(11));
        tile_server::reply_type reply;
        server.apply(query.request, pool, s.work, reply);
        return reply_fractions(reply.outputs[0], P::degree, layout.budget().reply_bits);
    };
    const auto first = c1_of(s.server_nonce);
    CHECK(first == c1_of(s.server_nonce));
    const auto other = difference(first, c1_of(numbered_seed(12345)));
    CHECK(std::fabs(concentration(other)) < null_concentration(P::degree));
    CHECK(!(a_of(s.open.client_nonce, s.server_nonce) == a_of(s.open.client_nonce, numbered_seed(12345))));
}
