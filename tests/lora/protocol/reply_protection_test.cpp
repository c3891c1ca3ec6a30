#include <tensafe/lora/protocol/reply_protection.hpp>

#include "../attacks/attack.hpp"
#include "../tiles_fixture.hpp"

using namespace tests;
using namespace tensafe::lora;
using tensafe::arith::uint128;
using tensafe::arith::word;
using tiles_fixture::balanced;

namespace {

constexpr std::size_t rank = 32;
constexpr std::size_t d = 2048;

using P = ckks::private_n4096;
using tiles = server<P, coefficient_tiles<4>>;
using basis = traced_product<P>::basis;
using coefficients = std::array<std::vector<word>, static_cast<std::size_t>(basis::limbs)>;

word residue(double integer, word q) {
    const auto r = static_cast<word>(static_cast<uint128>(std::fabs(integer)) % q);
    return integer < 0 && r != 0 ? q - r : r;
}

/// One client, one server, and what is below the doubles that a client sees: residues modulo each prime.
class laboratory {
  public:
    laboratory()
        : with_(tiles::layout_type::subring_log_n()), a_(balanced(random_matrix(rank, d, 1))), server_(a_) {
        // The integers that stand for A, from their definition.
        const double scale = budget().weight_norm / server_.layout().row_norm;
        rns::for_each_limb<basis>([&]<int I>() {
            for (const float x : a_.values) {
                weights_[I].push_back(
                    residue(std::round(static_cast<double>(x) * scale), basis::template prime<I>));
            }
        });
    }

    reply_budget budget() const { return server_.layout().budget(); }
    const matrix& a() const { return a_; }
    const tiles& of_rows() const { return server_; }
    client<P>& key_holder() { return with_.client; }
    rerandomization_pool<P>& zeros() { return with_.pool; }

    /// The inner products of the integers for A and for h, exactly, modulo each prime.
    coefficients exact(const std::vector<float>& h, double scale) const {
        coefficients result;
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr word q = basis::template prime<I>;
            std::vector<word> message;
            for (const float x : h) {
                message.push_back(residue(std::round(static_cast<double>(x) * scale), q));
            }
            for (std::size_t r = 0; r < rank; ++r) {
                uint128 sum = 0;  // 2048 products of 45 bits each
                for (std::size_t t = 0; t < d; ++t) {
                    sum += static_cast<uint128>(weights_[I][r * d + t]) * message[t];
                }
                result[I].push_back(static_cast<word>(sum % q));
            }
        });
        return result;
    }

    /// Expected coefficients of an output, decrypted.
    coefficients open(const traced_product<P>& product) const {
        coefficients result;
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr word q = basis::template prime<I>;
            result[I].assign(product.c0[I].begin(), product.c0[I].end());
            rns::limb::add_block_sums(rns::variable_arithmetic<q>, std::span(result[I]),
                                      product.c1.template limb<I>(), with_.key.value().template limb<I>());
            ckks::block_sums_to_coefficients<P::log_n, q>(2, result[I]);
        });
        return result;
    }
    coefficients open(const protected_product<P>& product) const {
        coefficients result;
        const auto c1 = rns::forward(product.c1);
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr word q = basis::template prime<I>;
            result[I].assign(product.c0[I].size(), 0);
            rns::limb::add_block_sums(rns::variable_arithmetic<q>, std::span(result[I]),
                                      c1.template limb<I>(), with_.key.value().template limb<I>());
            ckks::block_sums_to_coefficients<P::log_n, q>(2, result[I]);
            for (std::size_t k = 0; k < result[I].size(); ++k) {
                result[I][k] = (result[I][k] + product.c0[I][k]) % q;
            }
        });
        return result;
    }

    /// x - y for coefficient k of x and coefficient at of y.
    static double difference(const coefficients& x, std::size_t k, const coefficients& y, std::size_t at) {
        std::array<word, static_cast<std::size_t>(basis::limbs)> residues{};
        rns::for_each_limb<basis>([&]<int I>() {
            constexpr word q = basis::template prime<I>;
            residues[I] = (x[I][k] + q - y[I][at]) % q;
        });
        return rns::to_double<basis>(residues);
    }

  private:
    sides<P> with_;
    matrix a_;
    tiles server_;
    coefficients weights_;
};

}  // namespace

TEST_CASE(
    "the noise of products, of zeros and of floods, and the error of answers, are what the budget says") {
    laboratory lab;
    const reply_budget budget = lab.budget();
    attacks::statistics of_products;
    attacks::statistics of_zeros;
    attacks::statistics of_replies;
    attacks::statistics of_answers;
    tiles::workspace work;
    tiles::reply_type reply;
    const tensafe::random::seed narrow_seed = tensafe::random::fresh_seed();
    std::uint32_t lane = 0;
    for (std::uint64_t token = 0; token < 200; ++token) {
        const std::vector<float> h = random_state(d, 1000 + token);  // not the numbers of A
        const auto q = lab.key_holder().encrypt(lab.of_rows().plan(), std::span<const float>(h));
        const coefficients exact = lab.exact(h, q.scale);
        const auto products = attacks::bare_products(lab.of_rows(), q.request);
        std::vector<coefficients> bare;
        for (std::size_t o = 0; o < rank / 4; ++o) {
            bare.push_back(lab.open(products[o]));
            // A flood of four bits: what is left is the noise of the zero.
            const auto zero = lab.zeros().acquire();
            auto product = products[o];
            tensafe::rns::add(product.c1, zero.c1);
            const auto almost_bare =
                lab.open(rerandomize<P>(std::move(product), zero, {1}, narrow_seed, lane++));
            for (std::size_t k = 0; k < 4; ++k) {
                of_products.add(laboratory::difference(bare[o], k, exact, 4 * o + k));
                of_zeros.add(laboratory::difference(almost_bare, k, bare[o], k));
            }
        }
        const auto flooded_products =
            attacks::protected_products(lab.of_rows(), products, lab.zeros(), work.generator);
        for (std::size_t o = 0; o < rank / 4; ++o) {
            const coefficients flooded = lab.open(flooded_products[o]);
            for (std::size_t k = 0; k < 4; ++k) {
                of_replies.add(laboratory::difference(flooded, k, exact, 4 * o + k));
            }
        }
        lab.of_rows().apply(q.request, lab.zeros(), work, reply);
        const std::vector<double> got = lab.key_holder().decrypt(lab.of_rows().plan(), reply, q);
        const std::vector<double> expected = product(lab.a(), h);
        const double typical = lab.of_rows().layout().row_norm * norm(h) / std::sqrt(static_cast<double>(d));
        for (std::size_t r = 0; r < rank; ++r) {
            of_answers.add((got[r] - expected[r]) / typical);
        }
    }
    REQUIRE(of_products.count() == 6400);
    INFO("product noise: ", of_products.root_mean_square() / budget.noise_deviation, " deviations rms, ",
         of_products.largest() / budget.noise_deviation, " at most");
    INFO("zero noise: ", of_zeros.root_mean_square() / budget.zero_deviation, " deviations rms, ",
         of_zeros.largest() / budget.zero_deviation, " at most");
    INFO("flooded: ", of_replies.root_mean_square() / budget.flood.deviation(), " deviations rms, ",
         of_replies.largest() / budget.flood.largest(), " of the largest flood");
    INFO("answers: ", of_answers.root_mean_square() / budget.relative_error, " of the predicted error, ",
         of_answers.largest() / budget.relative_error, " at most");

    // The root mean square of 6400 values spreads by 1/sqrt(12800), 0.9 %: 4 % is more than four times that.
    const auto close_to_one = [](double ratio, double tolerance) { return std::fabs(ratio - 1) < tolerance; };
    CHECK(close_to_one(of_products.root_mean_square() / budget.noise_deviation, 0.04));
    // Of a key's e and s as well, whose norms spread by 1 %.
    CHECK(close_to_one(of_zeros.root_mean_square() / budget.zero_deviation, 0.07));
    CHECK(close_to_one(of_replies.root_mean_square() / budget.flood.deviation(), 0.04));
    CHECK(close_to_one(of_answers.root_mean_square() / budget.relative_error, 0.15));

    // One value in 10^13 passes 7.5 deviations; the largest of 6400 is near 3.8, one bit below.
    CHECK(of_products.largest() < 7.5 * budget.noise_deviation);
    CHECK(of_products.largest() > 7.5 / 8 * budget.noise_deviation);
    // These always hold, whatever the dice say.
    CHECK(of_products.largest() <= budget.noise_worst);
    CHECK(of_zeros.largest() <= budget.zero_worst + 4);
    CHECK(of_replies.largest() <= budget.flood.largest() + budget.noise_worst + budget.zero_worst);
    // The largest of 6400 sums of four uniforms is past 2.5 of its 3.46 deviations.
    CHECK(of_replies.largest() > 2.5 * budget.flood.deviation());
}
