#include "prediction.hpp"

#include <cmath>
#include <cstdio>

namespace examples {

namespace {

std::string power_of_two(double x) {
    if (x == 1) {
        return "1";
    }
    char text[32];
    std::snprintf(text, sizeof text, "2^%.1f", std::log2(x));
    return text;
}

}  // namespace

prediction prediction_of(const tensafe::lora::token_cost& cost, std::size_t d, bool average_case) {
    prediction result;
    result.d = d;
    result.cost = cost;
    const std::size_t targets = cost.targets / cost.hidden_states;
    result.distance = cost.budget.statistical_distance(targets);
    result.distance_of_one = cost.budget.statistical_distance(targets, 1);
    result.flood_ratio = cost.budget.flood.deviation() / cost.budget.leak_deviation();
    result.average_case = average_case;
    return result;
}

knowledge what_each_side_learns(const arguments& args, const prediction& predicted) {
    knowledge result;
    result.server = predicted.average_case
                        ? "sizes and times, and which tokens were sent again because an answer passed the "
                          "average-case range; nothing else of h (RLWE, 128 bits)"
                        : "sizes and times; nothing of h (RLWE, 128 bits)";
    if (args.protection == "reveals_adapter_rows") {
        result.client = "A itself: replies show its rows, and not to the client alone";
        return result;
    }

    result.client = args.blind() ? "the delta, scale*B*A*h; " : "A*h, one answer a row; ";
    const std::string rest = args.blind() ? "nothing else of A and B" : "nothing else of A";
    if (predicted.distance <= 0x1p-10) {
        result.client += rest + " (RLWE, and a statistical distance of " + power_of_two(predicted.distance) +
                         " after 2^20 tokens)";
    } else {
        result.client += "beside it noise that depends on the adapter, under a flood " +
                         std::to_string(std::lround(predicted.flood_ratio)) +
                         " times as large: no guarantee for many replies";
        if (predicted.distance_of_one < 0.5) {
            result.client +=
                ", and for one a statistical distance of " + power_of_two(predicted.distance_of_one);
        }
    }
    if (predicted.trusts_client) {
        result.client +=
            "; a client that cheats can learn more from so many answers under one encryption of zero "
            "(docs/security.md)";
    }
    // Not a matter of encryption: answers are linear in h.
    result.client += ". In any case " + std::to_string(predicted.d) + " independent h and their answers " +
                     (args.blind() ? "determine B*A" : "determine A");
    return result;
}

}  // namespace examples
