#pragma once

#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/server.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

// A client that does not follow the protocol reads an A of few bits: an answer has room for several entries.

namespace studies {

/// A = step * q, with whole numbers q of [-largest, largest]: 7 for weights of 4 bits, 127 for 8.
struct few_bit_matrix {
    int largest;
    std::vector<double> steps;  ///< by entry
    std::vector<int> q;
    tensafe::lora::matrix a;

    /// @param piece  entries of a row that share a step, up to a tenth above or below 0.01; 0: all have 0.01
    few_bit_matrix(std::size_t rows, std::size_t d, int largest_q, std::uint64_t seed, std::size_t piece = 0)
        : largest(largest_q), steps(rows * d, 0.01), q(rows * d), a(rows, d) {
        std::mt19937_64 dice(seed);
        for (std::size_t k = 0; k < q.size(); ++k) {
            if (piece > 0) {
                steps[k] =
                    k % piece == 0 ? 0.009 + 0.002 * 0x1p-64 * static_cast<double>(dice()) : steps[k - 1];
            }
            q[k] = static_cast<int>(dice() % static_cast<unsigned>(levels())) - largest;
            a.values[k] = static_cast<float>(steps[k] * q[k]);
        }
    }
    int levels() const noexcept { return 2 * largest + 1; }
    /// Of the digits: with room for what the server's rounding moves.
    int base() const noexcept { return levels() + (levels() + 15) / 16; }
};

struct few_bit_reading {
    std::size_t requests = 0;
    std::size_t exact = 0;  ///< entries of A that were read as they are
};

/// Reads `count` entries of each row of A with one request: the state has the powers of base() in their
/// places, so that the entries are the digits of the answer. The state is encrypted at the scale that makes
/// use of the whole modulus, which no honest client takes; the plan of other replies does it. Whoever does
/// this knows steps and row norm, or finds them with a few requests more.
/// @param most  requests, at most
template <tensafe::ckks::parameter_set P, class Packing, class Protection>
few_bit_reading read_few_bits(const tensafe::lora::server<P, Packing, Protection>& server,
                              tensafe::lora::client<P>& client, tensafe::lora::rerandomization_pool<P>& zeros,
                              const few_bit_matrix& wanted, int count, std::size_t most = SIZE_MAX) {
    namespace lora = tensafe::lora;
    const auto& plan = server.plan();
    const lora::packing_plan<P, Packing,
                             lora::protects_adapter_rows<lora::average_case<3>, lora::answer_bits<8>>>
        loud(plan.layout().rank, plan.d(), plan.layout().row_norm);
    const double integers = plan.budget().weight_norm / plan.layout().row_norm;
    const auto as_served = [&](double step, int q) { return std::round(step * q * integers) / integers; };
    const double largest_step = *std::max_element(wanted.steps.begin(), wanted.steps.end());
    few_bit_reading result;
    lora::decryption_workspace<P> work;
    std::vector<double> answers(plan.rank());
    for (std::size_t first = 0; first < plan.d() && result.requests < most;
         first += static_cast<std::size_t>(count)) {
        const std::size_t places = std::min(static_cast<std::size_t>(count), plan.d() - first);
        std::vector<double> state(plan.d());
        double largest = 0;
        double squares = 0;
        for (std::size_t i = 0; i < places; ++i) {
            const double power = std::pow(wanted.base(), static_cast<double>(i));
            state[first + i] = power;
            largest += power * (largest_step * wanted.largest * integers + 0.5);
            squares += power * power;
        }
        const double filled = loud.layout().message_scale(loud.budget(), std::sqrt(squares)) * largest;
        const auto query = client.encrypt(loud, state, std::max(1.0, filled / plan.budget().range));
        client.decrypt_exposing_key(plan, server.apply(query.request, zeros), query, work, answers);
        ++result.requests;
        for (std::size_t row = 0; row < answers.size(); ++row) {
            for (std::size_t i = places; i-- > 0;) {
                const std::size_t entry = row * plan.d() + first + i;
                const double step = wanted.steps[entry];
                // The server rounds its entries, but the digit is the nearest as it rounded them.
                const auto rest = [&](int q) {
                    return std::fabs(answers[row] - as_served(step, q) * state[first + i]);
                };
                const double guess = std::round(answers[row] / (step * state[first + i]));
                int q = static_cast<int>(std::clamp(guess, -1.0 * wanted.largest, 1.0 * wanted.largest));
                for (const int other : {std::max(q - 1, -wanted.largest), std::min(q + 1, wanted.largest)}) {
                    q = rest(other) < rest(q) ? other : q;
                }
                result.exact += q == wanted.q[entry] ? 1U : 0U;
                answers[row] -= as_served(step, q) * state[first + i];
            }
        }
    }
    return result;
}

}  // namespace studies
