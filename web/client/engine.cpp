// The client of split inference as WebAssembly: session::client_session with its keys, for client.js, which
// has the network. Messages are those of docs/wire-format.md. One client an instance, one call at a time.
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/core/error.hpp>
#include <tensafe/core/real.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/session/client_session.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/layout.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../../service/params.hpp"
#include "exports.hpp"

// client.js has the page's randomness. A newer Emscripten would put a function that aborts in the place of
// getentropy.
extern "C" __attribute__((import_module("env"), import_name("getentropy"))) int entropy_of_page(
    void* out, std::size_t count);
extern "C" int getentropy(void* out, std::size_t count) {
    return entropy_of_page(out, count);
}

namespace {

namespace lora = tensafe::lora;
namespace random_source = tensafe::random;
namespace session = tensafe::session;
namespace wire = tensafe::wire;
using split::packing;
using split::params;
using split::protection;
using client_session = session::client_session<params, packing, protection>;
using model_client = lora::model_client<params, packing, protection>;
using tensafe::parameter_error;
using tensafe::require;
using namespace exported;

constexpr double largest_float = std::numeric_limits<float>::max();

struct client_state {
    std::shared_ptr<lora::client<params>> keys = std::make_shared<lora::client<params>>();
    std::optional<client_session> session;  ///< none before open
    bytes rows;                             ///< hidden states of the call
    std::optional<session::call> call;
    model_client::site_deltas deltas;
    std::vector<float> answer;
    double bad_states = 0;  ///< of the calls before
    std::array<double, 6> status{};

    void end_call() noexcept {
        if (call) {
            session->end(*call);
            bad_states += static_cast<double>(call->bad_rows());
            call.reset();
        }
        wipe(rows);
        wipe(answer);
        for (auto& site : deltas) {
            wipe(site);
        }
    }
};

std::unique_ptr<client_state> client;  ///< none before create and after close

client_state& created() {
    require<parameter_error>(client != nullptr, {"client: it was closed"});
    return *client;
}
client_session& opened_session() {
    require<parameter_error>(created().session.has_value(),
                             {"client: got no adapter yet, expected open first"});
    return *client->session;
}
session::call& begun() {
    require<parameter_error>(created().call.has_value(), {"client: got no call, expected begin first"});
    return *client->call;
}

random_source::seed seed_of(std::span<const std::uint8_t> from) {
    random_source::seed seed;
    require<parameter_error>(from.size() == seed.bytes.size(), {"client: got a nonce of ", from.size(),
                                                                " bytes, expected ", seed.bytes.size()});
    std::copy(from.begin(), from.end(), seed.bytes.begin());
    return seed;
}

}  // namespace

/// Makes a client with a fresh secret key.
TENSAFE_EXPORT(create) int create() {
    return guarded([] { client = std::make_unique<client_state>(); });
}

/// Returns the number of the parameter set.
TENSAFE_EXPORT(set_id) std::uint64_t set_id() {
    return wire::set_id<params>;
}

/// Shows the seed that is signed. Argument: a challenge's nonce.
TENSAFE_EXPORT(signed_seed) int signed_seed() {
    return guarded([] {
        random_source::generator derive(seed_of(argument));
        const auto seed = derive.next_seed();
        result.assign(seed.bytes.begin(), seed.bytes.end());
        show(result);
    });
}

/// Shows the message of the re-randomization key. Argument: a challenge's nonce.
TENSAFE_EXPORT(rerandomization_key) int rerandomization_key() {
    return guarded([] {
        random_source::generator derive(seed_of(argument));
        static_cast<void>(derive.next_seed());
        result = wire::write_rerandomization_key(created().keys->rerandomization_key(derive.next_seed()));
        show(result);
    });
}

/// Takes the model layout and the held adapter, which are the argument. Blocks of more than so many tokens are
/// not used. `opened` comes next. Shows for each group a line: its input, its d, then of each site name, d_out
/// and gain, between tabs. The last line is the number of tokens of a block, 0 or 1 where there are none, and
/// that of the server's blocks.
TENSAFE_EXPORT(open) int open(std::size_t layout_bytes, std::size_t most_tokens) {
    return guarded([&] {
        require<parameter_error>(layout_bytes <= argument.size(), {"client: got no held adapter"});
        const auto both = std::span<const std::uint8_t>(argument);
        auto layout = wire::read_model_layout<params, packing, protection>(both.first(layout_bytes));
        const std::size_t offered = layout.tokens_ahead;
        if (offered > most_tokens) {
            layout.tokens_ahead = 0;
        }
        client_state& c = created();
        c.end_call();
        c.session.emplace(std::make_shared<model_client>(c.keys, std::move(layout),
                                                         wire::read_held_adapter(both.subspan(layout_bytes))),
                          session::block_policy{.most_tokens = most_tokens});
        const auto& opened = c.session->model()->layout();
        auto gain = c.session->model()->gains().begin();
        std::string text;
        for (const auto& group : opened.groups) {
            text += group.input + '\t' + std::to_string(group.d);
            for (const auto& site : group.sites) {
                text += tensafe::text_of({"\t", site.name, "\t", site.d_out, "\t", *gain++});
            }
            text += '\n';
        }
        show(text + std::to_string(opened.tokens_ahead) + '\t' + std::to_string(offered));
    });
}

// --- The call: begin, then next, take and refused until it is over, then rethrow and deltas, then end.

/// Ends the call, over or not, and wipes its hidden states and products.
TENSAFE_EXPORT(end) void end() {
    if (client) {
        client->end_call();
    }
}
/// Begins a call and ends an earlier one. Argument: hidden states of a group, one behind the other. One without
/// a finite norm is an error of the call, or 0 goes for it and it is counted.
TENSAFE_EXPORT(begin)
int begin(std::uint32_t group, double overflow_margin, int zeros_for_nan) {
    end();
    const int status = guarded([&] {
        client_session& s = opened_session();
        client_state& c = *client;
        const std::size_t d = s.model()->layout().at(group).d;
        const std::size_t rows = numbers<float>().size() / d;
        require<tensafe::shape_error>(
            rows > 0 && rows * d == numbers<float>().size(),
            {"client: got ", numbers<float>().size(), " floats, expected hidden states of ", d});
        c.rows.swap(argument);
        const auto* const all = reinterpret_cast<const float*>(c.rows.data());
        c.call.emplace(
            group, rows, [all, d](std::size_t row) { return std::span(all + row * d, d); }, overflow_margin,
            zeros_for_nan != 0);
        s.begin(*c.call);
    });
    wipe(argument);  // they stay in rows alone
    if (status != 0) {
        end();
    }
    return status;
}

/// Shows the next message to send now, or nothing.
TENSAFE_EXPORT(next) int next() {
    return guarded([] {
        if (const auto* const message = opened_session().next()) {
            message->write(result);
            show(result);
        }
    });
}
/// Takes a reply, the argument.
TENSAFE_EXPORT(take) int take() {
    return guarded([] { opened_session().take(argument); });
}
/// Takes the server's refusal of the message of this number.
/// @param why             of session::refusal; -1: other
/// @param retry_after_ms  below 0: it was not said
/// @param which           what a call that fails of it throws, in client.js
TENSAFE_EXPORT(refused) int refused(std::uint64_t number, int why, double retry_after_ms, int which) {
    return guarded([&] {
        const std::chrono::milliseconds later(static_cast<std::int64_t>(retry_after_ms));
        constexpr auto other = static_cast<unsigned>(session::refusal::other);
        opened_session().refused(number,
                                 static_cast<session::refusal>(std::min(static_cast<unsigned>(why), other)),
                                 std::make_exception_ptr(server_error(which)),
                                 retry_after_ms < 0 ? std::nullopt : std::optional(later));
    });
}

/// Shows as doubles: whether the call is over, how many of its hidden states were answered, whether an answer
/// is to come on this connection, milliseconds to wait before go_on because of a limit of rates, hidden
/// states that the limit of queries has left of the group with the least or -1, and those for which 0
/// was sent in the calls before.
TENSAFE_EXPORT(status) int status() {
    return guarded([] {
        const client_session& s = opened_session();
        const auto& call = client->call;
        const auto left = s.queries_left();
        client->status = {call && !call->is_over() ? 0. : 1.,
                          call ? static_cast<double>(call->answered()) : 0.,
                          s.awaits_reply() ? 1. : 0.,
                          static_cast<double>(s.held_for().count()),
                          left ? static_cast<double>(*left) : -1.,
                          client->bad_states};
        show(std::as_bytes(std::span(client->status)));
    });
}
TENSAFE_EXPORT(go_on) int go_on() {
    return guarded([] { opened_session().go_on(); });
}
/// Fails with what the call failed with.
TENSAFE_EXPORT(rethrow) int rethrow() {
    return guarded([] { begun().rethrow(); });
}
/// Shows the deltas of a hidden state's sites as floats, one behind the other, or nothing if it was not
/// answered.
TENSAFE_EXPORT(deltas) int deltas(std::size_t row) {
    return guarded([&] {
        const session::call& call = begun();
        client_state& c = *client;
        if (!call.is_answered(row)) {
            return;
        }
        c.session->model()->deltas(call.group(), call.product(row), c.deltas);
        c.answer.clear();
        for (const auto& site : c.deltas) {
            for (const double x : site) {
                c.answer.push_back(
                    static_cast<float>(tensafe::flushed(std::clamp(x, -largest_float, largest_float))));
            }
        }
        show(std::as_bytes(std::span(c.answer)));
    });
}

// --- The connection.

TENSAFE_EXPORT(lost) void lost() {
    if (client && client->session) {
        client->session->lost();
    }
}
/// Goes on over another connection. Argument: what the limit of queries leaves, 8 bytes a number; nothing: no
/// limit.
TENSAFE_EXPORT(resumed) int resumed(std::uint64_t next_number) {
    return guarded([&] { opened_session().resumed(next_number, numbers<std::uint64_t>()); });
}
/// Begins a fresh session. Argument: what the limit of queries leaves, as for resumed.
TENSAFE_EXPORT(opened) int opened() {
    return guarded([] { opened_session().opened(numbers<std::uint64_t>()); });
}

/// Wipes the keys, hidden states and deltas.
TENSAFE_EXPORT(close) void close() {
    if (client) {
        client->end_call();
        client.reset();
    }
    wipe(argument);
    wipe(result);
    shown = {};
}
