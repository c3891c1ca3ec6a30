#pragma once

#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/session/client_session.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

// Client, server and session of any parameter set, packing and range: what Python sees. set.cpp has the
// templates behind it. Messages are those of docs/wire-format.md. For threads and exceptions what the C++
// classes say.

namespace tensafe_python {

namespace lora = tensafe::lora;
using bytes = std::vector<std::uint8_t>;
using message = std::span<const std::uint8_t>;

/// The options with which an adapter is served.
struct server_options : lora::model_options {
    int rows = 0;                ///< of a tile: 4 or 32; 0: 32 in mode blind, else 4
    bool marks = false;          ///< whether each tenant holds a B of its own
    std::size_t mark_bytes = 0;  ///< with marks, for an A of each tenant's; 0: all have one A
};

/// Asks for the products of a model's rows with hidden states, wherever the server is. One thread at a time,
/// and not in the child of a fork.
class session {
  public:
    virtual ~session() = default;
    virtual const lora::model_layout& layout() const = 0;
    /// Of each site, in the order of the layout, as lora::model_client has them.
    virtual std::span<const double> gains() const = 0;
    virtual std::span<const lora::adapter_site> clear() const = 0;
    /// Has a call answered. Whatever ends it early, rows that were answered are in it.
    /// @param between  called after each reply; what it throws ends the call, and comes through
    virtual void ask(tensafe::session::call& asked, const std::function<void()>& between) = 0;
    virtual void deltas(std::size_t group, std::span<const double> product,
                        std::vector<std::vector<double>>& to) const = 0;
    /// The hidden states that the server still answers, of the input with the fewest; nothing without a
    /// limit.
    virtual std::optional<std::uint64_t> queries_left() const = 0;
    /// All bytes of the session's connections so far, up and down; nothing where there are none.
    virtual std::optional<std::pair<std::uint64_t, std::uint64_t>> traffic() const { return std::nullopt; }
    virtual std::optional<double> round_trip() const { return std::nullopt; }
};

/// The server's side of a session with one client. One thread at a time.
class server_session {
  public:
    virtual ~server_session() = default;
    /// Returns the reply to a request of any kind.
    virtual bytes answer(message request) = 0;
};

class client;

/// A packed adapter. Thread-safe. With marks it serves tenants alone: held_message, make_client and open
/// throw parameter_error unless `of` made it.
class server {
  public:
    virtual ~server() = default;
    virtual const lora::model_layout& layout() const = 0;
    virtual std::size_t memory() const = 0;
    /// The server of a tenant, whose seed is 32 bytes of keystore::mark_key::seed_of; it shares all memory.
    virtual std::shared_ptr<const server> of(const tensafe::random::seed& tenant) const = 0;
    /// The messages for the client: the layout, and its part of the adapter.
    virtual bytes layout_message() const = 0;
    virtual bytes held_message() const = 0;
    /// Makes a client in this process, without the messages.
    virtual std::unique_ptr<client> make_client() const = 0;
    /// @param key  the client's re-randomization key for this nonce
    virtual std::unique_ptr<server_session> open(const tensafe::random::seed& nonce, message key) const = 0;
};

/// A hidden state on its way: the request goes to the server, and the rest reads the reply.
class query {
  public:
    virtual ~query() = default;
    virtual bytes request() const = 0;
};

/// The secret key, for one model. One thread at a time.
class client {
  public:
    virtual ~client() = default;
    virtual const lora::model_layout& layout() const = 0;
    virtual std::span<const double> gains() const = 0;
    virtual bytes rerandomization_key(const tensafe::random::seed& nonce) = 0;
    virtual std::unique_ptr<query> encrypt(std::size_t group, std::span<const float> h,
                                           double overflow_margin) = 0;
    virtual std::vector<std::vector<double>> decrypt(const query& of, message reply) const = 0;
    /// Opens a session with a server of this process.
    virtual std::unique_ptr<session> connect(std::shared_ptr<const server> to) = 0;
    /// Opens a session with a server that is elsewhere: `carry` sends a message and returns what answers it.
    virtual std::unique_ptr<session> connect(std::function<bytes(message)> carry) = 0;
};

/// A named parameter set.
struct parameter_set {
    const char* name;
    std::uint64_t id;
    std::shared_ptr<const server> (*make_server)(const lora::adapter&, const server_options&);
    std::unique_ptr<client> (*make_client)(message layout, message held);
    lora::token_cost (*cost_of)(const lora::site_shape&, const server_options&);
};
extern const parameter_set private_n4096;
extern const parameter_set quantum_n4096;
extern const parameter_set compact_n4096;
extern const parameter_set minimal_n2048;

}  // namespace tensafe_python
