#pragma once

// The program of the README with options: the parameter set is the one that the program is built for, and
// everything else is chosen when it runs. CMake names the set.

#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/tensafe.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "report.hpp"

namespace examples {

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;

#define TENSAFE_EXAMPLE_TEXT(name) #name
#define TENSAFE_EXAMPLE_NAME(name) TENSAFE_EXAMPLE_TEXT(name)
using params = ckks::TENSAFE_EXAMPLE_SET;
inline constexpr const char* set_name = TENSAFE_EXAMPLE_NAME(TENSAFE_EXAMPLE_SET);
#undef TENSAFE_EXAMPLE_NAME
#undef TENSAFE_EXAMPLE_TEXT

/// What goes with a set: the protection, and whether it has tiles and batches, or bare replies.
template <class P>
struct offer {
    using protection = lora::protects_adapter_rows<>;
    static constexpr bool tiles = false;
    static constexpr bool columns = false;
};
/// Room for a worst-case range and a wide flood.
template <>
struct offer<ckks::private_n4096> {
    using protection = lora::protects_adapter_rows<>;
    static constexpr bool tiles = true;
    static constexpr bool columns = true;
};
template <>
struct offer<ckks::quantum_n4096> : offer<ckks::private_n4096> {};
/// A shorter modulus, paid for with an average-case range: an answer beyond six times the usual size wraps
/// around, which the client notices.
template <>
struct offer<ckks::compact_n4096> {
    using protection = lora::protects_adapter_rows<lora::average_case<6>>;
    static constexpr bool tiles = true;
    static constexpr bool columns = false;
};
/// The shortest messages: half the precision, and a flood that hides little.
template <>
struct offer<ckks::minimal_n2048> {
    using protection = lora::protects_adapter_rows<lora::average_case<5>, lora::reduced_precision>;
    static constexpr bool tiles = true;
    static constexpr bool columns = false;
};

/// Sends tokens through the encrypted adapter and compares each result with plaintext LoRA.
template <class Packing, class Protection>
report run_with(const lora::adapter_site& site, const lora::matrix& hidden, const arguments& args) {
    constexpr bool batched = std::is_same_v<Packing, lora::column_batched>;
    // In mode client_held_b the server holds A and the client B; in mode blind the server holds both, as one
    // matrix. With rows of A at norm 1 no norm of A travels.
    const lora::adapter_site normalized = Protection::protects ? lora::normalize_rows(site) : site;
    const lora::server<params, Packing, Protection> server(args.blind() ? lora::merge(site) : normalized.a,
                                                           lora::trusts_clients{});  // here it is one's own
    const auto& plan = server.plan();
    if (batched && args.tokens > plan.largest_batch) {
        throw usage_error("a batch holds at most " + std::to_string(plan.largest_batch) +
                          " tokens; give a smaller --tokens");
    }
    lora::client<params> client;  // a fresh secret key

    // Once per session: the server's nonce, the client's re-randomization key. From then on the server can
    // make encryptions of zero, and hides each product under a fresh one.
    const auto nonce = tensafe::random::fresh_seed();
    auto pool = server.pool(nonce, client.rerandomization_key(nonce));

    // Query, workspaces and reply keep their memory from token to token.
    typename decltype(server)::plan_type::query_type query;
    typename decltype(server)::workspace work;
    typename decltype(server)::reply_type reply;
    lora::decryption_workspace<params> reading;

    report result(site, args);
    result.batch = batched ? args.tokens : 1;
    if constexpr (Protection::protects) {
        result.predicted =
            prediction_of(lora::cost_of(plan, result.batch), plan.d(), plan.layout().can_overflow);
    }
    std::vector<double> answers(result.batch * plan.rank());
    double overflow_margin = 1;

    // The steps of a token, or of a batch: h is a hidden state, or a matrix of them.
    const auto token = [&](const auto& h) {
        if constexpr (batched) {
            result.watch.time(phase::encrypt, [&] { client.encrypt(plan, h, query); });
        } else {
            result.watch.time(phase::encrypt, [&] { client.encrypt(plan, h, query, overflow_margin); });
        }
        lora::phase_clock clock;
        if constexpr (Protection::protects) {
            server.apply(query.request, pool, work, reply, clock);
        } else {
            server.apply(query.request, work, reply, clock);
        }
        clock.stop();
        result.watch.add(clock);
        result.watch.time(phase::decrypt, [&] { client.decrypt(plan, reply, query, reading, answers); });
    };

    progress_bar bar(args.tokens);
    for (std::size_t first = 0; first < args.tokens; first += result.batch) {
        lora::matrix states(result.batch, plan.d());
        for (std::size_t t = 0; t < result.batch; ++t) {
            std::ranges::copy(hidden.row((first + t) % hidden.rows), states.row(t).begin());
        }
        if (args.pooled) {
            pool.fill(plan.outputs());  // as an idle server does
        }
        result.watch.next_token();
        for (overflow_margin = 1;; overflow_margin *= 2) {
            try {
                if constexpr (batched) {
                    token(states);
                } else {
                    token(states.row(0));
                }
                break;
            } catch (const tensafe::range_exceeded_error&) {
                // Of average-case ranges only, and seldom: an answer wrapped around and the client noticed.
                // It asks again with more room, and the server sees that it did.
                ++result.retries;
            }
        }
        for (std::size_t t = 0; t < result.batch; ++t) {
            const auto answer = std::span<const double>(answers).subspan(t * plan.rank(), plan.rank());
            // B in the clear; from a blind server comes the delta itself.
            const std::vector<double> delta =
                args.blind() ? std::vector<double>(answer.begin(), answer.end())
                             : result.watch.time(phase::b, [&] { return lora::apply_b(normalized, answer); });
            const std::vector<double> plain = lora::plain_delta(site, states.row(t));
            double typical = bare_error * norm_of(plain);
            if constexpr (Protection::protects) {
                // Errors of answers are relative to their usual size, and independent of each other.
                typical = overflow_margin * plan.budget().relative_error * plan.layout().row_norm *
                          norm_of(states.row(t)) / std::sqrt(static_cast<double>(plan.d())) *
                          (args.blind() ? std::sqrt(static_cast<double>(site.d_out()))
                                        : site.scale * norm_of(std::span(normalized.b.values)));
            }
            result.compare(delta, plain, typical);
            bar.advance();
        }
    }
    result.bytes_up = query.request.bytes();
    result.bytes_down = reply.bytes();
    return result;
}

/// Tiles with the number of rows that was asked for, or with the one that sends the fewest bytes.
template <class Protection>
report run_tiles(const lora::adapter_site& site, const lora::matrix& hidden, const arguments& args) {
    const lora::site_shape shape = site.shape();
    const auto mode = args.blind() ? lora::mode::blind : lora::mode::client_held_b;
    try {
        const int rows = args.rows == "auto"
                             ? lora::best_tiling_of<params, Protection>(std::span(&shape, 1), mode)
                             : std::stoi(args.rows);
        return lora::with_tiling(rows, [&]<int Rows>(lora::coefficient_tiles<Rows>) {
            using packing = lora::coefficient_tiles<Rows>;
            static_cast<void>(lora::cost_of<params, packing, Protection>(shape, mode));  // whether it can
            report result = run_with<packing, Protection>(site, hidden, args);
            result.predicted.rows = Rows;
            return result;
        });
    } catch (const tensafe::parameter_error& e) {
        throw usage_error(args.params + " cannot serve this site with --rows " + args.rows + ": " + e.what());
    }
}

/// @throws usage_error for options that do not go together
inline report run(const lora::adapter_site& site, const lora::matrix& hidden, const arguments& args) {
    using offered = offer<params>;
    using protection = typename offered::protection;
    if constexpr (offered::tiles) {
        if (args.packing == "coefficient_tiles") {
            return run_tiles<protection>(site, hidden, args);
        }
    }
    if constexpr (offered::columns) {
        if (args.packing == "column_batched") {
            return run_with<lora::column_batched, protection>(site, hidden, args);
        }
    }
    if constexpr (!protection::range::can_overflow) {
        using slots = lora::replicated_slots<>;
        if (args.protection == "protected") {
            return run_with<slots, protection>(site, hidden, args);
        }
    }
    if constexpr (!offered::tiles) {
        // Whoever sees a reply can compute A from it.
        using rescaled = lora::replicated_slots<lora::paired_rows, lora::rescaled_replies>;
        using bare = lora::reveals_adapter_rows;
        return args.rescale ? run_with<rescaled, bare>(site, hidden, args)
                            : run_with<lora::replicated_slots<>, bare>(site, hidden, args);
    }
    throw usage_error("this program has no --packing " + args.packing + " with these options");
}

}  // namespace examples
