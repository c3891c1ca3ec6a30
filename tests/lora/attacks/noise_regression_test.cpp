// The key owner knows the error e of its own ciphertexts, and the noise of a product's coefficient is linear
// in it: e*A. Regressed on e over many replies it shows A, in all directions, whatever the hidden states
// were. The flood has to cover it.

#include <tensafe/random/samplers.hpp>

#include "attack.hpp"

namespace {

using namespace attacks;

/// One short prime, as in minimal_n2048: the flood has a few bits only.
using small_minimal = ckks::parameters<10, ckks::limb_bits<38>, 20, ckks::insecure_for_tests>;

/// c0 + c1*s - W*x at the target coefficients of one product, exactly: what is left is noise.
/// @param c0  coefficients if `c0_is_coefficients`, block sums otherwise;  @param plain  block sums of W*x
template <ckks::parameter_set P, class C0, class C1>
std::vector<double> noise_of(const ckks::secret_key<P>& key, const C0& c0, bool c0_is_coefficients,
                             const C1& c1, const C0& plain, int subring_log_n) {
    using basis = basis_of<P>;
    const std::size_t n = std::size_t{1} << subring_log_n;
    std::array<std::vector<word>, static_cast<std::size_t>(basis::limbs)> limbs;
    rns::for_each_limb<basis>([&]<int I>() {
        constexpr word q = basis::template prime<I>;
        const auto m = rns::modulus_of<q>(q);
        std::vector<word> sums(n);
        rns::limb::add_block_sums(rns::variable_arithmetic<q>, std::span(sums), c1.template limb<I>(),
                                  key.value().template limb<I>());
        rns::limb::subtract(m, std::span(sums), std::span(sums), plain[I].span());
        if (!c0_is_coefficients) {
            rns::limb::add(m, std::span(sums), std::span(sums), c0[I].span());
        }
        ckks::block_sums_to_coefficients<P::log_n, q>(subring_log_n, std::span(sums));
        if (c0_is_coefficients) {
            rns::limb::add(m, std::span(sums), std::span(sums), c0[I].span());
        }
        limbs[I] = std::move(sums);
    });
    std::vector<double> result;
    std::array<word, static_cast<std::size_t>(basis::limbs)> residues{};
    for (std::size_t k = 0; k < n; ++k) {
        rns::for_each_limb<basis>([&]<int I>() { residues[I] = limbs[I][k]; });
        result.push_back(rns::to_double<basis>(residues));
    }
    return result;
}

struct regression {
    std::vector<double> bare;     ///< estimate of each weight, from the noise before protection
    std::vector<double> hidden;   ///< the same from protected products
    std::vector<double> weights;  ///< the truth, as integers
    double bare_deviation = 0;    ///< of the noise itself
    double hidden_deviation = 0;
    lora::reply_budget budget{};

    /// Of the estimates with the truth.
    double correlation_before() const { return correlation(bare, weights); }
    double correlation_after() const { return correlation(hidden, weights); }
};

/// One coefficient of e after the other: the mean of noise * e_k over the mean of e_k^2.
template <ckks::parameter_set P, int Rows>
regression regress(std::size_t rank, std::size_t d, std::size_t replies) {
    using packing = lora::coefficient_tiles<Rows>;
    const matrix a = random_matrix(rank, d, 1);
    const lora::server<P, packing> server(a);
    const auto& layout = server.layout();
    REQUIRE(layout.inputs() == 1);
    sides<P> s(6, layout.subring_log_n());
    // The client's own randomness: what it drew before, and then one seed for c1 and one for e for each
    // token.
    random::generator mirror = numbered_generator(s.number + 2);
    static_cast<void>(mirror.next_seed());  // the re-randomization key's nonce
    static_cast<void>(mirror.next_seed());  // and its error

    regression result{
        std::vector<double>(rank * d), std::vector<double>(rank * d), {}, 0, 0, layout.budget()};
    std::vector<std::int8_t> e(P::degree);
    constexpr std::size_t block = P::degree / Rows;
    for (std::size_t t = 0; t < replies; ++t) {
        const std::vector<float> h = random_state(d, 1000 + t);
        const auto query = s.client.encrypt(server.plan(), h);
        REQUIRE(mirror.next_seed() == query.request.seed);
        random::sample_error(mirror.next_seed(), random::stream_domain::error, 0, e);

        const auto bare = bare_products(server, query.request);
        const auto protected_ones = protected_products(server, bare, s.pool, s.work.generator);
        // W*x: the product of a ciphertext without c1 and without noise.
        lora::message_workspace<P> message;
        layout.encode_message(view(h), 0, query.scale, ~std::uint64_t{0}, message);
        lora::expanded_request<P> plain;
        plain.c1.resize(1);
        plain.c0.emplace_back(rns::forward(std::move(message.message)).take().declassify());
        const auto plain_products = products_of(server, plain);

        for (std::size_t o = 0; o < layout.outputs(); ++o) {
            const auto& x = plain_products[o].c0;
            const auto before = noise_of<P>(s.key, bare[o].c0, false, bare[o].c1, x, layout.subring_log_n());
            const auto& hidden = protected_ones[o];
            const auto after =
                noise_of<P>(s.key, hidden.c0, true, rns::forward(hidden.c1), x, layout.subring_log_n());
            for (std::size_t k = 0; k < layout.targets(o); ++k) {
                // A row of the plaintext meets another block of e in every target coefficient, with the sign
                // of a block that wraps around.
                for (std::size_t r = 0; r < layout.targets(o); ++r) {
                    const std::size_t first = k >= r ? (k - r) * block : P::degree - (r - k) * block;
                    const double sign = k >= r ? 1 : -1;
                    const std::size_t row = o * static_cast<std::size_t>(Rows) + r;
                    for (std::size_t j = 0; j < d; ++j) {
                        result.bare[row * d + j] += sign * before[k] * e[first + j];
                        result.hidden[row * d + j] += sign * after[k] * e[first + j];
                    }
                }
                result.bare_deviation += before[k] * before[k];
                result.hidden_deviation += after[k] * after[k];
            }
        }
    }
    // Of all the e that one weight meets.
    const double squares = static_cast<double>(replies * Rows) * random::error_variance;
    for (std::size_t k = 0; k < rank * d; ++k) {
        result.bare[k] /= squares;
        result.hidden[k] /= squares;
        result.weights.push_back(
            std::round(static_cast<double>(a.values[k]) * result.budget.weight_norm / layout.row_norm));
    }
    const double draws = static_cast<double>(replies * rank);
    result.bare_deviation = std::sqrt(result.bare_deviation / draws);
    result.hidden_deviation = std::sqrt(result.hidden_deviation / draws);
    return result;
}

double square_of_norm(const std::vector<double>& values) {
    const double length = norm(values);
    return length * length;
}

/// What the correlation of such an estimate with A must be, if a coefficient has noise of this deviation:
/// each estimate errs by that over the root of the sum of e_k^2 of the coefficients it is made from.
double predicted_correlation(const regression& r, double deviation, std::size_t coefficients) {
    const double error = deviation / std::sqrt(static_cast<double>(coefficients) * random::error_variance);
    const double signal = square_of_norm(r.weights) / static_cast<double>(r.weights.size());
    return 1 / std::sqrt(1 + error * error / signal);
}

}  // namespace

TEST_CASE("the noise of bare products, regressed on e, is A; after the flood nothing of it is left") {
    using P = small_private;
    constexpr std::size_t rank = 4;
    constexpr std::size_t d = 64;
    constexpr std::size_t replies = 2000;
    const regression r = regress<P, 4>(rank, d, replies);
    const lora::reply_budget& budget = r.budget;
    const double bare = r.correlation_before();
    const double hidden = r.correlation_after();
    MESSAGE("correlation with A: ", bare, " before the flood, ", hidden, " after it; predicted ",
            predicted_correlation(r, r.bare_deviation, 4 * replies), " and ",
            predicted_correlation(r, budget.flood.deviation(), 4 * replies), "; leak over flood 2^",
            std::log2(budget.leak_deviation() / budget.flood.deviation()));
    CHECK(bare > 0.9);
    CHECK(std::fabs(bare - predicted_correlation(r, r.bare_deviation, 4 * replies)) < 0.02);
    CHECK(std::fabs(hidden) < null_correlation(rank * d));
    // The numbers that the guarantee is made of: e*A is no larger than the budget says (rows are no longer
    // than the longest), the flood is as large as it says, and is 2^30 times as large at least.
    CHECK(r.bare_deviation < 1.05 * budget.noise_deviation);
    CHECK(r.bare_deviation > 0.7 * budget.noise_deviation);
    CHECK(r.hidden_deviation > 0.95 * budget.flood.deviation());
    CHECK(r.hidden_deviation < 1.05 * budget.flood.deviation());
    CHECK(budget.leak_deviation() < 0x1p-30 * budget.flood.deviation());
}

TEST_CASE(
    "a modulus with room for a flood of a few bits only slows the regression down, as the budget says") {
    using P = small_minimal;
    constexpr std::size_t rank = 16;
    constexpr std::size_t d = 16;
    constexpr std::size_t replies = 2000;
    const regression r = regress<P, 4>(rank, d, replies);
    const lora::reply_budget& budget = r.budget;
    const double bare = r.correlation_before();
    const double hidden = r.correlation_after();
    const double predicted =
        predicted_correlation(r, std::hypot(budget.flood.deviation(), budget.leak_deviation()), 4 * replies);
    MESSAGE("correlation with A: ", bare, " before the flood, ", hidden, " after it, predicted ", predicted,
            "; flood over leak ", budget.flood.deviation() / budget.leak_deviation());
    CHECK(bare > 0.9);
    // Of 256 pairs: sample correlations have a deviation of at most 1/16, so these are five.
    CHECK(std::fabs(hidden - predicted) < null_correlation(rank * d));
    // It is to be seen, and the bound of the guarantee says that it may be: nothing is claimed.
    CHECK(hidden > null_correlation(rank * d));
    CHECK(budget.statistical_distance(rank, replies) > 0.1);
}
