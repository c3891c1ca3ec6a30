// An observer without any key: c1 of a request is public and c1' of a bare reply is c1 times the plaintext,
// so that their ratio in evaluation form is A.

#include "attack.hpp"

namespace {

using namespace attacks;
using basis = basis_of<P>;
using tiles = lora::coefficient_tiles<4>;

/// The observer needs one limb.
constexpr word q = basis::prime<0>;
using first_limb = rns::prefix<basis, 1>;
using residues = std::vector<word>;

residues limb_of(const evaluation_poly<P>& p) {
    const auto limb = p.limb<0>();
    return {limb.begin(), limb.end()};
}

std::vector<std::int64_t> centred_coefficients(residues values) {
    tensafe::ntt::inverse(rns::shared_plan<P::log_n, q>(), std::span(values));
    std::vector<std::int64_t> result;
    for (const word x : values) {
        result.push_back(centred(x, q));
    }
    return result;
}

/// Solves M x = y modulo q, M square, row after row; Gauss. Rows must suffice: random ones do but for 1/q.
residues solve(residues m, residues y) {
    const std::size_t n = y.size();
    for (std::size_t c = 0; c < n; ++c) {
        std::size_t pivot = c;
        while (m[pivot * n + c] == 0) {
            ++pivot;
        }
        std::swap_ranges(m.begin() + static_cast<std::ptrdiff_t>(pivot * n),
                         m.begin() + static_cast<std::ptrdiff_t>((pivot + 1) * n),
                         m.begin() + static_cast<std::ptrdiff_t>(c * n));
        std::swap(y[pivot], y[c]);
        const word inverse = arith::inverse_mod(m[c * n + c], q);
        for (std::size_t r = 0; r < n; ++r) {
            if (r == c) {
                continue;
            }
            const word factor = q - arith::multiply_mod(m[r * n + c], inverse, q);
            for (std::size_t k = c; k < n; ++k) {
                m[r * n + k] = (m[r * n + k] + arith::multiply_mod(factor, m[c * n + k], q)) % q;
            }
            y[r] = (y[r] + arith::multiply_mod(factor, y[c], q)) % q;
        }
    }
    for (std::size_t r = 0; r < n; ++r) {
        y[r] = arith::multiply_mod(y[r], arith::inverse_mod(m[r * n + r], q), q);
    }
    return y;
}

/// Plaintexts W_i from sum of c1_i W_i in evaluation form, from as many tokens as there are inputs.
/// c1[t][i] of token t, products[t] its sum.
std::vector<std::vector<std::int64_t>> solve_inputs(const std::vector<std::vector<residues>>& c1,
                                                    const std::vector<residues>& products) {
    const std::size_t n = products.size();
    std::vector<residues> weights(n, residues(P::degree));
    for (std::size_t k = 0; k < P::degree; ++k) {
        residues m;
        residues y;
        for (std::size_t t = 0; t < n; ++t) {
            for (std::size_t i = 0; i < n; ++i) {
                m.push_back(c1[t][i][k]);
            }
            y.push_back(products[t][k]);
        }
        const residues x = solve(m, y);
        for (std::size_t i = 0; i < n; ++i) {
            weights[i][k] = x[i];
        }
    }
    std::vector<std::vector<std::int64_t>> result;
    for (residues& w : weights) {
        result.push_back(centred_coefficients(std::move(w)));
    }
    return result;
}

/// The integers that the layout makes of A for output 0 and input i.
template <class Layout>
std::vector<std::int64_t> plaintext_integers(const Layout& layout, const matrix& a, std::size_t i) {
    const auto plaintext = layout.encode_weights(a, layout.budget(), 0, i);
    std::vector<std::int64_t> result;
    for (const word x : plaintext.value.template limb<0>()) {
        result.push_back(centred(x, q));
    }
    return result;
}

/// c1 of a protected output as the observer has it: to the nearest residues modulo q, in evaluation form.
template <class Output>
residues reply_residues(const Output& output, int bits) {
    residues c1(P::degree);
    tensafe::memory::unpack_bits(std::span<const std::uint8_t>(output.c1), bits, std::span(c1));
    for (word& x : c1) {
        x = static_cast<word>(((uint128{x} * modulus<basis>() + (uint128{1} << (bits - 1))) >> bits) % q);
    }
    tensafe::ntt::forward(rns::shared_plan<P::log_n, q>(), std::span(c1));
    return c1;
}

/// Whether the recovered integers are garbage. `bound` is the largest magnitude of a true weight, below 2^17:
/// each of n uniform residues modulo q > 2^44 is as small with a chance below 2^-26, so that even two of 4096
/// are with one below 2^-29; and residues are uniform to chi-square, to one chance in 10^6.
void check_garbage(const std::vector<std::int64_t>& recovered, std::int64_t bound) {
    REQUIRE(bound < 1 << 17);
    const auto small = std::ranges::count_if(recovered, [&](std::int64_t x) { return std::abs(x) <= bound; });
    std::vector<std::uint64_t> as_fractions;
    for (const std::int64_t x : recovered) {
        as_fractions.push_back(static_cast<std::uint64_t>(
            std::llround(static_cast<double>(x) / static_cast<double>(q) * 0x1p62) * 4));
    }
    MESSAGE("of ", recovered.size(), " recovered integers ", small,
            " are as small as weights; uniformity p = ", uniformity_p(as_fractions));
    CHECK(small <= 1);
    CHECK(uniformity_p(as_fractions) > 1e-6);
}

std::int64_t largest(const std::vector<std::int64_t>& values) {
    std::int64_t result = 0;
    for (const std::int64_t x : values) {
        result = std::max(result, std::abs(x));
    }
    return result;
}

struct observed_tokens {
    std::vector<std::vector<residues>> c1;
    std::vector<residues> products;
};

/// As many tokens as inputs, seen from outside: what `c1_of` makes of the reply's first output.
template <class Server, class Apply, class C1>
observed_tokens observe(const Server& server, sides<P>& s, Apply apply, C1 c1_of) {
    observed_tokens seen;
    for (std::size_t t = 0; t < server.layout().inputs(); ++t) {
        const auto query = s.client.encrypt(server.plan(), random_state(server.layout().d, 10 + t));
        std::vector<residues> c1;
        for (std::size_t i = 0; i < server.layout().inputs(); ++i) {
            c1.push_back(limb_of(uniform_half<P>(query.request, i)));
        }
        seen.c1.push_back(c1);
        seen.products.push_back(c1_of(apply(query.request).outputs[0]));
    }
    return seen;
}

/// Bare replies show the integers, protected ones garbage; and so that this is not the rounding's doing
/// alone: without the encryption of zero the rounded c1' confirms a guess of A.
template <class Packing>
void check_packing(std::size_t rank, std::size_t d) {
    const matrix a = random_matrix(rank, d, 1);
    const lora::server<P, Packing, lora::protects_adapter_rows<>> server(a);
    const auto& layout = server.layout();
    const int bits = layout.budget().reply_bits;
    sides<P> s(2, layout.subring_log_n());
    std::vector<lora::traced_product<P>> bare;
    const auto protected_apply = [&](const lora::request<P>& r) {
        bare.push_back(bare_products(server, r)[0]);
        lora::reply<P, Packing, lora::protects_adapter_rows<>> result;
        server.apply(r, s.pool, s.work, result);
        return result;
    };
    std::vector<output_bytes> outputs;
    auto seen = observe(server, s, protected_apply, [&](const auto& output) {
        outputs.push_back({output.c0, output.c1});
        return reply_residues(output, bits);
    });
    const auto garbage = solve_inputs(seen.c1, seen.products);
    // The same observer, had the server sent the products as they are.
    for (std::size_t t = 0; t < bare.size(); ++t) {
        seen.products[t] = limb_of(bare[t].c1);
    }
    const auto shown = solve_inputs(seen.c1, seen.products);
    for (std::size_t i = 0; i < layout.inputs(); ++i) {
        const std::vector<std::int64_t> integers = plaintext_integers(layout, a, i);
        REQUIRE(largest(integers) > 1000);
        CHECK(shown[i] == integers);
        check_garbage(garbage[i], largest(integers));
    }
    for (std::size_t t = 0; t < bare.size(); ++t) {
        const auto guess = fractions(rns::inverse(bare[t].c1));
        output_bytes rounded;
        pack_alone(without_zero<P>(bare[t], layout.subring_log_n()), layout.targets(0), bits, rounded);
        CHECK(concentration(difference(reply_fractions(rounded, P::degree, bits), guess)) > 0.999);
        const double confirmed =
            concentration(difference(reply_fractions(outputs[t], P::degree, bits), guess));
        MESSAGE("confirmation of the true A by a protected reply: ", confirmed);
        CHECK(std::fabs(confirmed) < null_concentration(P::degree));
    }
}

}  // namespace

TEST_CASE("tiles of one input: the ratio of c1' and c1 is A, and of a protected reply it is garbage") {
    check_packing<tiles>(4, 200);
}

TEST_CASE("tiles of two inputs: two tokens show A, and two protected replies garbage") {
    check_packing<tiles>(4, 400);
}

TEST_CASE(
    "interleaved slots: the ratio of c1' and c1 is A's plaintext, and of a protected reply it is garbage") {
    check_packing<lora::replicated_slots<>>(8, 100);
}

TEST_CASE("a bare reply of tiles as it is sent shows A exactly, without a key") {
    const matrix a = random_matrix(4, 200, 3);
    const lora::server<P, tiles, lora::reveals_adapter_rows> server(a);
    sides<P> s(3, server.layout().subring_log_n());
    const auto seen = observe(
        server, s, [&](const lora::request<P>& r) { return server.apply(r); },
        [](const auto& output) { return limb_of(output.c1); });
    CHECK(solve_inputs(seen.c1, seen.products)[0] == plaintext_integers(server.layout(), a, 0));
}

TEST_CASE("a bare reply of replicated slots shows A to its encoding's precision, without a key") {
    constexpr std::size_t rank = 8;
    constexpr std::size_t d = 100;
    const matrix a = random_matrix(rank, d, 1);
    const lora::server<P, lora::replicated_slots<>, lora::reveals_adapter_rows> server(a);
    lora::client<P> client(ckks::secret_key<P>(numbered_seed(1)), numbered_generator(2));
    const auto request = client.encrypt(server.plan(), random_state(d, 2)).request;
    const auto reply = server.apply(request);
    evaluation_poly<P> c1(memory::uninitialized);
    ckks::expand_c1(request.inputs[0], c1);
    residues ratio = limb_of(reply.outputs[0].c1);
    for (std::size_t k = 0; k < P::degree; ++k) {
        ratio[k] = arith::multiply_mod(ratio[k], arith::inverse_mod(c1.limb<0>()[k], q), q);
    }
    ckks::plaintext<P, rns::coefficient_form> plaintext{{}, lora::replicated_slots<>::weight_scale<P>()};
    const auto coefficients = lifted<P::basis>(centred_coefficients(std::move(ratio)));
    rns::for_each_limb<P::basis>(
        [&]<int I>() { std::ranges::copy(coefficients.limb<I>(), plaintext.value.limb<I>().begin()); });
    const auto slots = ckks::decode_slots(plaintext);
    double worst = 0;
    const auto layout = server.layout().slots();
    for (std::size_t r = 0; r < layout.stride; ++r) {
        for (std::size_t t = 0; t < d; ++t) {
            const std::complex<double> slot = slots[r + layout.stride * t];
            worst = worse(worst, std::fabs(slot.real() - static_cast<double>(a.row(layout.row(0, r, 0))[t])));
            worst = worse(worst, std::fabs(slot.imag() - static_cast<double>(a.row(layout.row(0, r, 1))[t])));
        }
    }
    MESSAGE("largest error of a recovered weight: ", worst);
    CHECK(worst < 1e-9);
}

TEST_CASE("blocks: d entries of a c1 are d equations for a row of A, and of a protected one garbage") {
    constexpr std::size_t rank = 3;
    constexpr std::size_t d = 48;
    const matrix a = random_matrix(rank, d, 1);
    const lora::server<P, lora::token_blocks> server(a, 32);
    const auto& layout = server.layout();
    const lora::reply_budget budget = layout.budget();
    sides<P> s(4, layout.subring_log_n());
    const auto block = s.client.prepare(server.plan());
    const auto bare = bare_block<P>(server, block.request().seed);
    lora::server_block<P> prepared;
    lora::block_reply reply;
    lora::block_workspace<P> work;
    server.prepare(block.request(), s.pool, work, prepared, reply);

    std::vector<residues> c1;
    for (std::size_t j = 0; j < d; ++j) {
        const auto uniform = uniform_of_entry<P>(server, block.request().seed, j);
        const auto limb = uniform.template limb<0>();
        c1.emplace_back(limb.begin(), limb.end());
    }
    // Any d of the N entries will do: the garbage is from N/d systems, enough to see that it is garbage.
    const auto row_from = [&](const residues& product, std::size_t first) {
        residues m;
        residues y;
        for (std::size_t k = first; k < first + d; ++k) {
            for (std::size_t j = 0; j < d; ++j) {
                m.push_back(c1[j][k]);
            }
            y.push_back(product[k]);
        }
        std::vector<std::int64_t> row;
        for (const word x : solve(m, y)) {
            row.push_back(centred(x, q));
        }
        return row;
    };
    for (std::size_t r = 0; r < rank; ++r) {
        std::vector<std::int64_t> integers;
        for (std::size_t j = 0; j < d; ++j) {
            integers.push_back(layout.rows().integer_weight(a, budget, r, j));
        }
        REQUIRE(largest(integers) > 1000);
        const auto limb = bare[r].template limb<0>();
        const residues product(limb.begin(), limb.end());
        CHECK(row_from(product, 0) == integers);
        CHECK(row_from(product, 7 * d) == integers);
        const output_bytes sent{{}, reply.c1[r]};
        const residues hidden = reply_residues(sent, budget.reply_bits);
        std::vector<std::int64_t> garbage;
        for (std::size_t first = 0; first + d <= P::degree; first += d) {
            const auto row = row_from(hidden, first);
            garbage.insert(garbage.end(), row.begin(), row.end());
        }
        check_garbage(garbage, largest(integers));

        const auto guess = fractions(bare[r]);
        CHECK(concentration(difference(switched_fractions<P>(bare[r], budget.reply_bits), guess)) > 0.999);
        CHECK(std::fabs(concentration(difference(reply_fractions(sent, P::degree, budget.reply_bits),
                                                 guess))) < null_concentration(P::degree));
    }
}

TEST_CASE("zeros are for one use: with the same zero under two replies, their difference confirms A") {
    const matrix a = random_matrix(4, 200, 1);
    const lora::server<P, tiles> server(a);
    const auto& layout = server.layout();
    const int bits = layout.budget().reply_bits;
    const auto confirmation = [&](std::uint64_t first, std::uint64_t second) {
        std::vector<std::uint64_t> replies[2];
        std::vector<std::uint64_t> guesses[2];
        sides<P> s(5, layout.subring_log_n());
        for (std::size_t t = 0; t < 2; ++t) {
            // A pool that starts anew is what a restored snapshot of a filled one would be.
            lora::rerandomization_pool<P> pool(s.server_nonce, s.open, layout.subring_log_n(),
                                               numbered_generator(t == 0 ? first : second));
            const auto query = s.client.encrypt(server.plan(), random_state(200, t));
            guesses[t] = fractions(rns::inverse(bare_products(server, query.request)[0].c1));
            lora::server<P, tiles>::reply_type reply;
            server.apply(query.request, pool, s.work, reply);
            replies[t] = reply_fractions(reply.outputs[0], P::degree, bits);
        }
        return concentration(
            difference(difference(replies[0], replies[1]), difference(guesses[0], guesses[1])));
    };
    CHECK(confirmation(50, 50) > 0.999);
    CHECK(std::fabs(confirmation(50, 51)) < null_concentration(P::degree));
}
