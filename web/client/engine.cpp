// The client of split inference as WebAssembly: keys, encryption and decryption, for client.js, which has the
// network. Messages are those of docs/wire-format.md. One client an instance, one call at a time.
#include <tensafe/ckks/parameters.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/random/generator.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/layout.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/request.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../../examples/split_inference/params.hpp"
#include "exports.hpp"

// client.js has the page's randomness. A newer Emscripten would put a function that aborts in the place of
// getentropy.
extern "C" __attribute__((import_module("env"), import_name("getentropy"))) int entropy_of_page(
    void* out, std::size_t count);
extern "C" int getentropy(void* out, std::size_t count) {
    return entropy_of_page(out, count);
}

namespace {

namespace ckks = tensafe::ckks;
namespace lora = tensafe::lora;
namespace random_source = tensafe::random;
namespace wire = tensafe::wire;
using split::packing;
using split::params;
using split::protection;
using model_client = lora::model_client<params, packing, protection>;
using tensafe::parameter_error;
using tensafe::require;
using namespace exported;

constexpr double largest_float = std::numeric_limits<float>::max();

struct block {
    model_client::block_type positions;
    wire::envelope of;  ///< of its request
};

/// Of one group: what was sent and not answered.
struct group_state {
    std::deque<block> ready;
    std::optional<block> awaited;
    std::optional<wire::envelope> sent;
    bool is_token = false;
};

struct client_state {
    std::shared_ptr<lora::client<params>> keys = std::make_shared<lora::client<params>>();
    std::unique_ptr<model_client> model;
    std::vector<group_state> groups;
    std::vector<model_client::query_type> queries;
    std::vector<lora::token_query> tokens;
    model_client::reply_type reply;
    model_client::workspace work;
    lora::token_reply token_reply;
    std::vector<double> product;
    model_client::site_deltas deltas;
    std::vector<float> answer;
    std::uint32_t bad_states = 0;

    group_state& group(std::uint32_t number) {
        require<parameter_error>(model != nullptr, {"client: got no adapter yet, expected open first"});
        static_cast<void>(model->layout().at(number));
        return groups[number];
    }
};

std::unique_ptr<client_state> client;  ///< none before create and after close

client_state& opened() {
    require<parameter_error>(client != nullptr, {"client: it was closed"});
    return *client;
}

random_source::seed seed_of(std::span<const std::uint8_t> from) {
    random_source::seed seed;
    require<parameter_error>(from.size() == seed.bytes.size(), {"client: got a nonce of ", from.size(),
                                                                " bytes, expected ", seed.bytes.size()});
    std::copy(from.begin(), from.end(), seed.bytes.begin());
    return seed;
}

}  // namespace

/// A client with a fresh secret key.
TENSAFE_EXPORT(create) int create() {
    return guarded([] { client = std::make_unique<client_state>(); });
}

/// The number of the parameter set.
TENSAFE_EXPORT(set_id) std::uint64_t set_id() {
    return wire::set_id<params>;
}

/// Argument: a challenge's nonce. Shows the seed that is signed.
TENSAFE_EXPORT(signed_seed) int signed_seed() {
    return guarded([] {
        random_source::generator derive(seed_of(argument));
        const auto seed = derive.next_seed();
        result.assign(seed.bytes.begin(), seed.bytes.end());
        show(result);
    });
}

/// Argument: a challenge's nonce. Shows the message of the re-randomization key for it.
TENSAFE_EXPORT(rerandomization_key) int rerandomization_key() {
    return guarded([] {
        random_source::generator derive(seed_of(argument));
        static_cast<void>(derive.next_seed());
        result = wire::write_rerandomization_key(opened().keys->rerandomization_key(derive.next_seed()));
        show(result);
    });
}

/// Argument: the model layout of so many bytes, then the held adapter. Blocks are taken of at most so many
/// tokens.
TENSAFE_EXPORT(open) int open(std::size_t layout_bytes, std::size_t most_tokens) {
    return guarded([&] {
        require<parameter_error>(layout_bytes <= argument.size(), {"client: got no held adapter"});
        const auto both = std::span<const std::uint8_t>(argument);
        auto layout = wire::read_model_layout<params, packing, protection>(both.first(layout_bytes));
        if (layout.tokens_ahead > most_tokens) {
            layout.tokens_ahead = 0;
        }
        client_state& c = opened();
        c.model = std::make_unique<model_client>(c.keys, std::move(layout),
                                                 wire::read_held_adapter(both.subspan(layout_bytes)));
        const std::size_t groups = c.model->layout().groups.size();
        c.groups = std::vector<group_state>(groups);
        c.queries = std::vector<model_client::query_type>(groups);
        c.tokens = std::vector<lora::token_query>(groups);
    });
}

/// Shows for each group a line: its input, its d, then of each site name and d_out, between tabs. The last
/// line is the number of tokens of a block, 0 or 1 where there are none.
TENSAFE_EXPORT(layout) int layout() {
    return guarded([] {
        static_cast<void>(opened().group(0));
        std::string text;
        for (const auto& group : client->model->layout().groups) {
            text += group.input + '\t' + std::to_string(group.d);
            for (const auto& site : group.sites) {
                text += '\t' + site.name + '\t' + std::to_string(site.d_out);
            }
            text += '\n';
        }
        show(text + std::to_string(client->model->layout().tokens_ahead));
    });
}

/// Hidden states of this group that can be sent at a position of a block; -1: there is no such group.
TENSAFE_EXPORT(positions) int positions(std::uint32_t group) {
    std::size_t left = 0;
    const int status = guarded([&] {
        auto& ready = opened().group(group).ready;
        while (!ready.empty() && ready.front().positions.left() == 0) {
            ready.pop_front();
        }
        for (const block& each : ready) {
            left += each.positions.left();
        }
    });
    return status == 0 ? static_cast<int>(left) : -1;
}

/// Shows the request for a block.
TENSAFE_EXPORT(prepare) int prepare(std::uint32_t group, std::uint64_t number) {
    return guarded([&] {
        group_state& g = opened().group(group);
        g.awaited.emplace(block{client->model->prepare(group), {number, group}});
        wire::write_block_request<params, protection>(g.awaited->positions.request(), g.awaited->of, result);
        show(result);
    });
}

/// Argument: the reply to it.
TENSAFE_EXPORT(accept) int accept() {
    return guarded([] {
        const wire::envelope of = wire::read_header(argument).envelope();
        group_state& g = opened().group(of.group);
        require<tensafe::format_error>(g.awaited && g.awaited->of == of,
                                       {"client: got a block ", of.number, ", which nobody waits for"});
        lora::block_reply reply;
        wire::read_block_reply(argument, g.awaited->positions.plan(), reply);
        client->model->accept(g.awaited->positions, reply);
        g.ready.push_back(std::move(*g.awaited));
        g.awaited.reset();
    });
}

/// Argument: a hidden state of `count` floats. Shows its request, at a position of a block where there is
/// one. A state without a finite norm is an error, or goes as zeros and is counted.
TENSAFE_EXPORT(encrypt)
int encrypt(std::uint32_t group, std::size_t count, std::uint64_t number, double overflow_margin,
            int or_zeros) {
    const struct at_end {
        ~at_end() { wipe(argument); }
    } wiped;  // it was a hidden state
    return guarded([&] {
        group_state& g = opened().group(group);
        g.sent.reset();
        g.is_token = positions(group) > 0;
        const wire::envelope of{number, group};
        const auto h = floats(count);
        if (g.is_token) {
            lora::token_query& query = client->tokens[group];
            auto& positions = g.ready.front().positions;
            if (or_zeros == 0) {
                positions.encrypt(h, query, overflow_margin);
            } else if (!positions.encrypt_or_zeros(h, query, overflow_margin)) {
                ++client->bad_states;
            }
            query.request.block = g.ready.front().of.number;
            wire::write_token_request<params, protection>(query.request, of, result);
        } else {
            if (or_zeros == 0) {
                client->model->encrypt(group, h, client->queries[group], overflow_margin);
            } else if (!client->model->encrypt_or_zeros(group, h, client->queries[group], overflow_margin)) {
                ++client->bad_states;
            }
            wire::write_request<packing, protection>(client->queries[group].request, of, result);
        }
        g.sent = of;
        show(result);
    });
}

TENSAFE_EXPORT(bad_states) std::uint32_t bad_states() {
    return client ? client->bad_states : 0;
}

/// Argument: the reply to the group's last request. Shows the deltas of its sites as floats, one behind the
/// other.
TENSAFE_EXPORT(decrypt) int decrypt(std::uint32_t group) {
    return guarded([&] {
        group_state& g = opened().group(group);
        const wire::envelope of = wire::read_header(argument).envelope();
        require<tensafe::format_error>(g.sent && *g.sent == of,
                                       {"client: got a reply to request ", of.number, " of group ", of.group,
                                        ", which nobody waits for"});
        client_state& c = *client;
        if (g.is_token) {
            const auto& plan = g.ready.front().positions.plan();
            wire::read_token_reply(argument, plan, c.tokens[group].request.position, c.token_reply);
            c.product.resize(plan.rank());
            g.ready.front().positions.decrypt(c.token_reply, c.tokens[group], c.product);
        } else {
            wire::read_reply(argument, c.model->plan(group), c.reply);
            c.model->decrypt(group, c.reply, c.queries[group], c.work, c.product);
        }
        g.sent.reset();
        c.model->deltas(group, c.product, c.deltas);
        c.answer.clear();
        for (const auto& site : c.deltas) {
            for (const double x : site) {
                c.answer.push_back(static_cast<float>(std::clamp(x, -largest_float, largest_float)));
            }
        }
        show(std::as_bytes(std::span(c.answer)));
    });
}

/// The server does not have the group's first block any more.
TENSAFE_EXPORT(drop_block) int drop_block(std::uint32_t group) {
    return guarded([&] {
        auto& ready = opened().group(group).ready;
        if (!ready.empty()) {
            ready.pop_front();
        }
    });
}
/// Of all groups: the blocks that are awaited, or all, which end with their session.
TENSAFE_EXPORT(drop_blocks) int drop_blocks(int all) {
    return guarded([&] {
        for (group_state& g : opened().groups) {
            g.awaited.reset();
            if (all != 0) {
                g.ready.clear();
            }
        }
    });
}

/// Wipes the keys, hidden states and deltas.
TENSAFE_EXPORT(close) void close() {
    if (client) {
        wipe(client->product);
        wipe(client->answer);
        for (auto& site : client->deltas) {
            wipe(site);
        }
        client.reset();
    }
    wipe(argument);
    wipe(result);
    shown = {};
}
