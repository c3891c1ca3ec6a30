#pragma once

// What the attacks share: sessions whose every random number is fixed, what an observer reads off a reply,
// and statistics with known false alarm rates.

#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include <numbers>

#include "../../random_values.hpp"
#include "../../test.hpp"
#include "../../worst.hpp"
#include "../block_products.hpp"

namespace attacks {

using namespace tests;
using arith::uint128;
using arith::word;
using lora::matrix;

/// The modulus of private_n4096 over a ring that is too small to be secure: what the tests show does not
/// depend on the degree.
using small_private = ckks::parameters<10, ckks::limb_bits<45, 44>, 40, ckks::insecure_for_tests>;

inline random::seed numbered_seed(std::uint64_t number) {
    random::seed result;
    for (std::size_t i = 0; i < 8; ++i) {
        result.bytes[i] = static_cast<std::uint8_t>(number >> (8 * i));
    }
    return result;
}

inline random::generator numbered_generator(std::uint64_t number) {
    return random::generator(numbered_seed(number));
}

template <class Real>
std::span<const Real> view(const std::vector<Real>& values) {
    return values;
}

/// A client with its pool of zeros at one server. Runs with one number repeat each other bit by bit.
template <ckks::parameter_set P>
struct session {
    using rerandomization_key = ckks::rerandomization_key<P, lora::request_level<P>>;

    session(std::uint64_t session_number, int subring_log_n)
        : number(16 * session_number),
          server_nonce(numbered_seed(number)),
          key(numbered_seed(number + 1)),
          client(ckks::secret_key<P>(numbered_seed(number + 1)), numbered_generator(number + 2)),
          open(client.rerandomization_key(server_nonce)),
          pool(server_nonce, open, subring_log_n, numbered_generator(number + 3)) {
        work.generator = numbered_generator(number + 4);
    }

    std::uint64_t number;
    random::seed server_nonce;
    ckks::secret_key<P> key;  ///< the client's, to decrypt what it would not
    lora::client<P> client;
    rerandomization_key open;
    lora::rerandomization_pool<P> pool;
    lora::server_workspace<P> work;
};

/// A client's block and a server's part of it. Two of one number are copies, as of a machine that was
/// restored twice: the same masks, the same encryptions of zero, the same secrets of floods.
template <ckks::parameter_set P>
struct block_session : session<P> {
    using server_type = lora::server<P, lora::token_blocks>;
    using client_block = lora::client_block<P, lora::protects_adapter_rows<>>;

    block_session(const server_type& of, std::uint64_t session_number)
        : session<P>(session_number, of.plan().subring_log_n()),
          server(of),
          of_client(this->client.prepare(of.plan())) {
        work.generator = numbered_generator(this->number + 5);
        server.prepare(of_client.request(), this->pool, work, of_server, ahead);
        this->client.accept(of_client, ahead);
    }

    lora::token_query encrypt(const std::vector<float>& h, double overflow_margin = 1) {
        lora::token_query query;
        of_client.encrypt(h, query, overflow_margin);
        return query;
    }
    lora::token_reply answer(const lora::token_request& r) {
        lora::token_reply reply;
        server.answer(of_server, r, work, reply);
        return reply;
    }
    /// What the client reads, rounded as it does.
    std::vector<double> decrypt(const lora::token_query& query, const lora::token_reply& reply) {
        std::vector<double> answers(server.plan().rank());
        of_client.decrypt(reply, query, answers);
        return answers;
    }
    /// The same with every bit of noise, in units of the reply.
    std::vector<std::int32_t> exact(const lora::token_reply& reply) const {
        const auto& plan = server.plan();
        const int bits = plan.reply_bits(0);
        std::vector<std::uint32_t> c0(plan.rank());
        std::vector<std::uint32_t> c1(P::degree);
        tensafe::memory::unpack_bits(std::span<const std::uint8_t>(reply.c0), bits, std::span(c0));
        std::vector<std::int32_t> result;
        for (std::size_t r = 0; r < plan.rank(); ++r) {
            tensafe::memory::unpack_bits(std::span<const std::uint8_t>(ahead.c1[r]), bits, std::span(c1));
            const auto sum =
                c0[r] + static_cast<std::uint32_t>(
                            lora::toeplitz_row(this->key.coefficients())
                                .coefficient_of_product(std::span<const std::uint32_t>(c1),
                                                        reply.position * plan.entries_per_input()));
            result.push_back(static_cast<std::int32_t>(sum << (32 - bits)) >> (32 - bits));
        }
        return result;
    }

    const server_type& server;
    client_block of_client;
    lora::server_block<P> of_server;
    lora::block_workspace<P> work;
    lora::block_reply ahead;  ///< sent before the first token
};

// --- What everybody can compute ---------------------------------------------------------------------------

template <ckks::parameter_set P>
using basis_of = typename lora::traced_product<P>::basis;
template <ckks::parameter_set P>
using evaluation_poly = rns::poly<basis_of<P>, rns::evaluation_form>;

/// c1 of input i of a request: public.
template <ckks::parameter_set P>
evaluation_poly<P> uniform_half(const lora::request<P>& r, std::size_t i) {
    evaluation_poly<P> c1(memory::uninitialized);
    ckks::expand_uniform(r.seed, random::stream_domain::uplink, c1,
                         static_cast<std::uint32_t>(i * static_cast<std::size_t>(basis_of<P>::limbs)));
    return c1;
}

template <class Basis>
uint128 modulus() {
    uint128 product = 1;
    for (const word q : Basis::primes) {
        product *= q;
    }
    return product;
}

/// Coefficients as fractions of Q, in units of 2^-64, where additions and small multiples wrap around as they
/// do modulo Q: of short moduli only.
template <class Basis, class R>
std::vector<std::uint64_t> fractions(
    const rns::poly<Basis, rns::coefficient_form, memory::host_space, R>& p) {
    static_assert(Basis::limbs <= 2 && rns::modulus_bits<Basis> <= 96);
    const uint128 q = modulus<Basis>();
    std::vector<std::uint64_t> result;
    for (std::size_t k = 0; k < Basis::degree; ++k) {
        uint128 x = p.template limb<0>()[k];
        if constexpr (Basis::limbs == 2) {
            constexpr word q0 = Basis::template prime<0>;
            constexpr word q1 = Basis::template prime<1>;
            const word difference = (p.template limb<1>()[k] + q1 - static_cast<word>(x % q1)) % q1;
            x += uint128{q0} * arith::multiply_mod(difference, arith::inverse_mod(q0 % q1, q1), q1);
        }
        const uint128 high = (x << 32) / q;
        const uint128 low = ((x << 32) % q << 32) / q;
        result.push_back(static_cast<std::uint64_t>(high << 32 | low));
    }
    return result;
}

/// Numbers of a reply, likewise.
inline std::vector<std::uint64_t> sent_fractions(const std::vector<std::uint8_t>& bytes, std::size_t count,
                                                 int bits) {
    std::vector<word> values(count);
    tensafe::memory::unpack_bits(std::span<const std::uint8_t>(bytes), bits, std::span(values));
    for (word& x : values) {
        x <<= 64 - bits;
    }
    return values;
}
/// c1 of a protected reply's output.
template <class Output>
std::vector<std::uint64_t> reply_fractions(const Output& output, std::size_t degree, int bits) {
    return sent_fractions(output.c1, degree, bits);
}

/// The coefficients that a token of a block sends, first in a polynomial.
template <ckks::parameter_set P>
rns::poly<basis_of<P>, rns::coefficient_form> token_residues(const lora::token_request& r) {
    rns::poly<basis_of<P>, rns::coefficient_form> c0;
    std::span<const std::uint8_t> rest = r.c0;
    rns::for_each_limb<basis_of<P>>([&]<int I>() {
        constexpr int bits = std::bit_width(basis_of<P>::template prime<I>);
        tensafe::memory::unpack_bits(rest.first(tensafe::memory::packed_bytes(r.d, bits)), bits,
                                     c0.template limb<I>().first(r.d));
        rest = rest.subspan(tensafe::memory::packed_bytes(r.d, bits));
    });
    return c0;
}
template <ckks::parameter_set P>
std::vector<std::uint64_t> token_fractions(const lora::token_request& r) {
    std::vector<std::uint64_t> result = fractions(token_residues<P>(r));
    result.resize(r.d);
    return result;
}

inline std::vector<std::uint64_t> difference(std::vector<std::uint64_t> a,
                                             const std::vector<std::uint64_t>& b) {
    for (std::size_t k = 0; k < a.size(); ++k) {
        a[k] -= b[k];
    }
    return a;
}

/// A fraction in [-1/2, 1/2).
inline double centred(std::uint64_t fraction) {
    return static_cast<double>(static_cast<std::int64_t>(fraction)) * 0x1p-64;
}
inline std::vector<double> centred(const std::vector<std::uint64_t>& fractions) {
    std::vector<double> result;
    for (const std::uint64_t x : fractions) {
        result.push_back(centred(x));
    }
    return result;
}

inline std::int64_t centred(word residue, word q) {
    return residue > q / 2 ? -static_cast<std::int64_t>(q - residue) : static_cast<std::int64_t>(residue);
}

/// Signed integers as residues.
template <class Basis>
rns::poly<Basis, rns::coefficient_form> lifted(const std::vector<std::int64_t>& values) {
    rns::poly<Basis, rns::coefficient_form> result;
    rns::for_each_limb<Basis>([&]<int I>() {
        constexpr auto q = static_cast<std::int64_t>(Basis::template prime<I>);
        for (std::size_t k = 0; k < values.size(); ++k) {
            result.template limb<I>()[k] = static_cast<word>((values[k] % q + q) % q);
        }
    });
    return result;
}

// --- What a server never sends, and a server without one of its steps
// ------------------------------------------

/// Those of polynomials that need not be a request's.
template <class Server, ckks::parameter_set P>
std::vector<lora::traced_product<P>> products_of(const Server& server,
                                                 const lora::expanded_request<P>& expanded) {
    const auto& weights = lora::detail::server_internals::weights(server);
    const auto& plan = server.plan();
    std::vector<lora::traced_product<P>> products(plan.outputs());
    lora::product_workspace<P> work;
    for (std::size_t p = 0; p < weights.panels(); ++p) {
        weights.multiply(
            plan, p, std::span(&expanded, 1), work,
            std::span(products).subspan(p * rns::panel_outputs, weights.shape_of(plan, p).outputs), {});
    }
    return products;
}

/// The products of a request, before protection.
template <class Server, ckks::parameter_set P>
std::vector<lora::traced_product<P>> bare_products(const Server& server, const lora::request<P>& r) {
    const auto& weights = lora::detail::server_internals::weights(server);
    lora::expanded_request<P> expanded;
    weights.expand(server.plan(), r, expanded);
    return products_of(server, expanded);
}

/// One of them as it would travel.
template <ckks::parameter_set P>
std::vector<std::uint64_t> switched_fractions(const rns::poly<basis_of<P>, rns::coefficient_form>& c1,
                                              int bits) {
    std::vector<std::uint32_t> switched(P::degree);
    rns::switch_modulus(c1, bits, std::span(switched));
    std::vector<std::uint64_t> result;
    for (const std::uint32_t x : switched) {
        result.push_back(std::uint64_t{x} << (64 - bits));
    }
    return result;
}

/// What an entry of a row of A is multiplied with in a block's products: its ciphertext's c1 times X^-c.
template <ckks::parameter_set P>
rns::poly<basis_of<P>, rns::coefficient_form> uniform_of_entry(
    const lora::server<P, lora::token_blocks, lora::protects_adapter_rows<>>& server,
    const random::seed& seed, std::size_t entry) {
    const std::size_t columns = server.plan().entries_per_input();
    const std::size_t c = entry % columns;
    lora::request<P> r;
    r.seed = seed;
    const auto whole = rns::inverse(uniform_half<P>(r, entry / columns));
    rns::poly<basis_of<P>, rns::coefficient_form> result;
    rns::for_each_limb<basis_of<P>>([&]<int I>() {
        constexpr word q = basis_of<P>::template prime<I>;
        for (std::size_t k = 0; k < P::degree; ++k) {
            const word x = whole.template limb<I>()[(k + c) % P::degree];
            result.template limb<I>()[k] = k + c < P::degree ? x : (q - x) % q;
        }
    });
    return result;
}

/// Products as a server protects them, before they become bytes.
template <class Server, ckks::parameter_set P>
std::vector<lora::protected_product<P>> protected_products(const Server& server,
                                                           std::vector<lora::traced_product<P>> products,
                                                           lora::rerandomization_pool<P>& pool,
                                                           random::generator& generator) {
    const random::seed seed = generator.next_seed();
    std::vector<lora::protected_product<P>> result;
    for (std::size_t o = 0; o < products.size(); ++o) {
        const auto zero = pool.acquire();
        rns::add(products[o].c1, zero.c1);
        result.push_back(lora::rerandomize<P>(std::move(products[o]), zero, server.plan().budget().flood,
                                              seed, static_cast<std::uint32_t>(o)));
    }
    return result;
}

/// A product as `protect` leaves it, but without the encryption of zero and the floods: then `pack` rounds it
/// as it rounds a protected one.
template <ckks::parameter_set P>
lora::protected_product<P> without_zero(lora::traced_product<P> product, int subring_log_n) {
    using basis = basis_of<P>;
    lora::protected_product<P> result{std::move(product.c0), rns::inverse(std::move(product.c1))};
    rns::for_each_limb<basis>([&]<int I>() {
        ckks::block_sums_to_coefficients<P::log_n, basis::template prime<I>>(subring_log_n,
                                                                             result.c0[I].span());
    });
    return result;
}

/// The bytes of c0 and c1, for functions that take the output of any reply.
struct output_bytes {
    std::vector<std::uint8_t> c0;
    std::vector<std::uint8_t> c1;
};

/// A product as it would travel.
template <ckks::parameter_set P>
void pack_alone(const lora::protected_product<P>& product, std::size_t targets, int bits, output_bytes& out) {
    std::vector<std::uint32_t> switched(P::degree);
    lora::serialize(product, targets, bits, std::span(switched), out);
}

// --- Statistics
// ---------------------------------------------------------------------------------------------

/// The mean of cos(2 pi x): 1 where all fractions are close to zero; of n uniform ones it has mean 0 and
/// deviation 1/sqrt(2n). The most sensitive test of whether an observer who has a guess of A is right.
inline double concentration(const std::vector<std::uint64_t>& x) {
    double sum = 0;
    for (const std::uint64_t fraction : x) {
        sum += std::cos(2 * std::numbers::pi * centred(fraction));
    }
    return sum / static_cast<double>(x.size());
}

/// Pearson's; of unrelated samples it has a deviation of 1/sqrt(n).
template <class Sample>
double correlation(const Sample& a, const Sample& b) {
    const auto n = static_cast<double>(a.size());
    double mean_a = 0;
    double mean_b = 0;
    for (std::size_t k = 0; k < a.size(); ++k) {
        mean_a += static_cast<double>(a[k]) / n;
        mean_b += static_cast<double>(b[k]) / n;
    }
    double ab = 0;
    double aa = 0;
    double bb = 0;
    for (std::size_t k = 0; k < a.size(); ++k) {
        const double x = static_cast<double>(a[k]) - mean_a;
        const double y = static_cast<double>(b[k]) - mean_b;
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    return ab / std::sqrt(aa * bb);
}

/// Five deviations of these statistics under the hypothesis that nothing is to be seen: both are sums of many
/// bounded terms, nearly normal, and pass it with a chance of 6e-7.
inline double null_concentration(std::size_t n) {
    return 5 / std::sqrt(2 * static_cast<double>(n));
}
inline double null_correlation(std::size_t n) {
    return 5 / std::sqrt(static_cast<double>(n));
}

/// The chance of a larger chi-square than this, after Wilson and Hilferty; good to a few percent of itself
/// between 1e-6 and 1 for 50 and more degrees of freedom.
inline double chi_square_p(double chi_square, double freedom) {
    const double spread = 2 / (9 * freedom);
    const double normal = (std::cbrt(chi_square / freedom) - (1 - spread)) / std::sqrt(spread);
    return std::erfc(normal / std::numbers::sqrt2) / 2;
}

/// Fractions against the uniform distribution, in 64 bins: below 1e-6 they are not uniform.
inline double uniformity_p(const std::vector<std::uint64_t>& x) {
    std::array<double, 64> bins{};
    for (const std::uint64_t fraction : x) {
        bins[fraction >> 58] += 1;
    }
    const double expected = static_cast<double>(x.size()) / 64;
    double chi_square = 0;
    for (const double count : bins) {
        chi_square += (count - expected) * (count - expected) / expected;
    }
    return chi_square_p(chi_square, 63);
}

}  // namespace attacks
