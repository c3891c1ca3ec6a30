// The statements about floods need them independent of each other. Whoever has the key and the integers of A
// reads an answer's error, the flood and the rounding of the reply: it must not repeat, neither from output
// to output nor from reply to reply.

#include "attack.hpp"

namespace {

using namespace attacks;

constexpr std::size_t rank = 32;
constexpr std::size_t d = 100;
constexpr std::size_t replies = 300;

/// Errors of all answers, in units of the reply: [reply][row].
std::vector<std::vector<double>> errors() {
    matrix a = random_matrix(rank, d, 61);
    const tile_server server(a);
    const auto& plan = server.plan();
    const lora::reply_budget& budget = plan.budget();
    // The integers that stand for A, as the layout makes them.
    const double weight = budget.weight_norm / plan.layout().row_norm;
    sides<P> s(61, plan.subring_log_n());
    lora::decryption_workspace<P> work;
    std::vector<std::vector<double>> result;
    tile_server::reply_type reply;
    for (std::size_t t = 0; t < replies; ++t) {
        const std::vector<float> h = random_state(d, 6100 + t);
        const auto query = s.client.encrypt(plan, h);
        server.apply(query.request, s.pool, s.work, reply);
        std::vector<double> answers(rank);
        s.client.decrypt_exposing_key(plan, reply, query, work, answers);
        const double unit = query.scale * weight / budget.modulus * std::exp2(plan.reply_bits(0));
        auto& of_reply = result.emplace_back();
        for (std::size_t r = 0; r < rank; ++r) {
            double exact = 0;
            for (std::size_t k = 0; k < d; ++k) {
                exact += std::round(static_cast<double>(a.row(r)[k]) * weight) / weight *
                         static_cast<double>(h[k]);
            }
            of_reply.push_back((answers[r] - exact) * unit);
        }
    }
    return result;
}

}  // namespace

TEST_CASE("errors of answers do not repeat from output to output, or from reply to reply") {
    const auto all = errors();
    std::vector<double> one;
    std::vector<double> other;
    // A flood has this part of an error's variance, so floods that were equal would show this correlation.
    const lora::reply_budget budget = tile_server(random_matrix(rank, d, 61)).plan().budget();
    const double flood = budget.flood.deviation() * budget.flood.deviation();
    const double part = flood / (flood + budget.rounding_deviation * budget.rounding_deviation);
    REQUIRE(part > 0.15);
    for (const auto& of_reply : all) {
        for (std::size_t r = 0; r + 4 < rank; ++r) {
            one.push_back(of_reply[r]);
            other.push_back(of_reply[r + 4]);  // the same place of the next output
        }
    }
    const double of_outputs = correlation(one, other);
    one.clear();
    other.clear();
    for (std::size_t t = 0; t + 1 < all.size(); ++t) {
        one.insert(one.end(), all[t].begin(), all[t].end());
        other.insert(other.end(), all[t + 1].begin(), all[t + 1].end());
    }
    const double of_replies = correlation(one, other);
    one.clear();
    other.clear();
    for (const auto& of_reply : all) {
        for (std::size_t r = 0; r < rank; r += 2) {
            one.push_back(of_reply[r]);
            other.push_back(of_reply[r + 1]);  // the next place of the same output
        }
    }
    const double of_places = correlation(one, other);
    MESSAGE("outputs ", of_outputs, ", replies ", of_replies, ", places ", of_places,
            "; equal floods: ", part);
    // At least 4800 pairs: five deviations are 0.072.
    CHECK(std::fabs(of_outputs) < 0.072);
    CHECK(std::fabs(of_replies) < 0.072);
    CHECK(std::fabs(of_places) < 0.072);
}
