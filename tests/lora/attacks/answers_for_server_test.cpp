// A server that follows the protocol and reads the published answers. It made the floods and the c1 that its
// replies were rounded from, so it knows what rounding took from c1: each answer, rounded or not, is a linear
// equation in the key over the reals, with an error of about the size of what it tells.

#include "attack.hpp"

namespace {

using namespace attacks;

constexpr std::size_t rank = 32;
constexpr std::size_t d = 200;
constexpr std::size_t states = 130;

/// Least squares: equations are added up, then solved with a little ridge, by Cholesky.
class least_squares {
  public:
    void add(const std::vector<double>& row, double right) {
        for (std::size_t i = 0; i < n; ++i) {
            right_[i] += row[i] * right;
            double* const sums = &squares_[i * n];
            for (std::size_t j = 0; j <= i; ++j) {
                sums[j] += row[i] * row[j];
            }
        }
    }

    std::vector<double> solution(double ridge) {
        for (std::size_t i = 0; i < n; ++i) {
            squares_[i * n + i] += ridge;
            for (std::size_t j = 0; j <= i; ++j) {
                const double rest =
                    squares_[i * n + j] -
                    std::inner_product(&squares_[i * n], &squares_[i * n + j], &squares_[j * n], 0.0);
                squares_[i * n + j] = i == j ? std::sqrt(rest) : rest / squares_[j * n + j];
            }
            right_[i] -= std::inner_product(&squares_[i * n], &squares_[i * n + i], right_.begin(), 0.0);
            right_[i] /= squares_[i * n + i];
        }
        for (std::size_t i = n; i-- > 0;) {
            for (std::size_t k = i + 1; k < n; ++k) {
                right_[i] -= squares_[k * n + i] * right_[k];
            }
            right_[i] /= squares_[i * n + i];
        }
        return right_;
    }

  private:
    static constexpr std::size_t n = P::degree;
    std::vector<double> squares_ = std::vector<double>(n * n);
    std::vector<double> right_ = std::vector<double>(n);
};

/// What the server knows of one answer: the row of the key's coefficients, and all that is not the key's.
struct equation {
    std::vector<double> row;
    double rest;
};

/// An honest reply, its rounded answers as they are published, and the server's equations for them.
struct published {
    std::vector<double> answers;  ///< in units of the reply
    std::vector<equation> equations;
};

published answer(sides<P>& s, const tile_server& server, const std::vector<float>& h) {
    const auto& plan = server.plan();
    const auto& budget = plan.budget();
    const int bits = plan.reply_bits(0);
    const double unit = std::exp2(bits) / budget.modulus;
    const auto query = s.client.encrypt(plan, h);

    tile_server::reply_type reply;
    reply.rank = rank;
    reply.d = d;
    published result;
    auto products = bare_products(server, query.request);
    const random::seed seed = s.work.generator.next_seed();
    for (std::size_t o = 0; o < products.size(); ++o) {
        const auto zero = s.pool.acquire();
        rns::add(products[o].c1, zero.c1);
        const auto hidden = lora::rerandomize<P>(std::move(products[o]), zero, budget.flood, seed,
                                                 static_cast<std::uint32_t>(o));
        std::vector<uint128> floods(plan.subring_degree());
        budget.flood.sample({seed, random::stream_domain::flood, static_cast<std::uint32_t>(o)}, 0, floods);
        std::vector<std::uint32_t> switched(P::degree);
        lora::serialize(hidden, plan.targets(o), bits, std::span(switched), reply.outputs.emplace_back());
        // What rounding to the reply's bits took from each coefficient of c1.
        std::vector<double> taken;
        for (const std::uint64_t fraction : fractions(hidden.c1)) {
            const double part = static_cast<double>(fraction << bits) * 0x1p-64;
            taken.push_back(part < 0.5 ? -part : 1 - part);
        }
        for (std::size_t r = 0; r < 4; ++r) {
            const std::size_t target = r * (P::degree / 4);
            equation e{std::vector<double>(P::degree),
                       (static_cast<double>(floods[r]) - static_cast<double>(budget.flood.centre())) * unit};
            for (std::size_t j = 0; j < P::degree; ++j) {
                e.row[j] = j <= target ? taken[target - j] : -taken[P::degree + target - j];
            }
            result.equations.push_back(std::move(e));
        }
    }
    const double weight = budget.weight_norm / plan.layout().row_norm;
    for (const double y : s.client.decrypt(plan, reply, query)) {
        result.answers.push_back(y * query.scale * weight * unit);
    }
    return result;
}

}  // namespace

TEST_CASE("a server that sees answers to states that come twice gets the key, rounded or not") {
    const tile_server server(random_matrix(rank, d, 95));
    sides<P> s(95, server.plan().subring_log_n());
    least_squares all;
    for (std::size_t t = 0; t < states; ++t) {
        // A prompt that is asked again. The answers' difference has neither h nor A in it.
        const std::vector<float> h = random_state(d, 9'500 + t);
        const published first = answer(s, server, h);
        const published second = answer(s, server, h);
        for (std::size_t r = 0; r < rank; ++r) {
            std::vector<double> row = first.equations[r].row;
            for (std::size_t j = 0; j < row.size(); ++j) {
                row[j] -= second.equations[r].row[j];
            }
            all.add(row, first.answers[r] - second.answers[r] -
                             (first.equations[r].rest - second.equations[r].rest));
        }
    }
    const std::vector<double> found = all.solution(20);
    std::vector<std::uint32_t> one(P::degree);
    one[0] = 1;
    std::size_t right = 0;
    for (std::size_t k = 0; k < P::degree; ++k) {
        const std::int32_t of_key = s.key.coefficients()[k];
        right += std::lround(found[k]) == of_key ? 1U : 0U;
    }
    CHECK(right > P::degree * 3 / 4);  // a guess has a third
}
