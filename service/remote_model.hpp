#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/keystore/adapter_pin.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/session/client_session.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "control_message.hpp"
#include "net/websocket_client.hpp"
#include "params.hpp"

namespace split {

/// The server said no. The session goes on, if there was one.
class refused_error : public tensafe::error {
  public:
    refused_error(const std::string& message, error_code code,
                  std::optional<std::chrono::milliseconds> retry_after = std::nullopt)
        : tensafe::error(message), code_(code), retry_after_(retry_after) {}

    error_code code() const noexcept { return code_; }
    /// When to ask again, if the server said so.
    std::optional<std::chrono::milliseconds> retry_after() const noexcept { return retry_after_; }

  private:
    error_code code_;
    std::optional<std::chrono::milliseconds> retry_after_;
};

/// Too many requests in too short a time, or the server cannot count them now; later ones are answered.
struct rate_limit_error : refused_error {
    using refused_error::refused_error;
};

/// The client's key has had all the answers that it gets of this adapter, or fewer are left than a call has
/// hidden states. Waiting does not help.
struct query_limit_error : refused_error {
    using refused_error::refused_error;
};

/// After a reconnection the server has another adapter under this name. What was computed with the earlier
/// one does not go with it: begin again, with a new remote_model.
struct adapter_changed_error : tensafe::error {
    using tensafe::error::error;
};

/// The session was ended by this program, with forget or close. reconnect begins another.
using tensafe::closed_error;

struct backoff_options {
    std::chrono::milliseconds first{100};
    std::chrono::milliseconds largest{10'000};
};

/// How long to wait before an attempt, the first of which is 0: twice as long each time up to the largest, of
/// which a random half is left out, so that the clients of a server that was away do not all come back at
/// once.
/// @param draw  uniform in [0, 1)
inline std::chrono::milliseconds backoff(const backoff_options& options, std::size_t attempt, double draw) {
    const double step = std::ldexp(static_cast<double>(options.first.count()), static_cast<int>(attempt));
    const double half = std::min(step, static_cast<double>(options.largest.count())) / 2;
    return std::chrono::milliseconds(static_cast<std::chrono::milliseconds::rep>(half + half * draw));
}

struct remote_options {
    std::string adapter;  ///< by its name on the server
    frame_form frames = frame_form::binary;
    /// For all together that connecting, or a call from one answered hidden state to the next, may take and
    /// wait: for a server that starts again, for a limit of rates, for silence. Nothing counts attempts.
    std::chrono::milliseconds total_limit{180'000};
    /// Of it for connecting and logging in once, and for a request to be sent and the next reply to come:
    /// then another connection is tried.
    std::chrono::milliseconds step_limit{60'000};
    /// Blocks are prepared where the server has them of at most so many tokens; 1: none. A block is 16 bytes
    /// here for each token and entry of the hidden state, and there are two of each group at most.
    std::size_t tokens_ahead = 128;
    /// Hidden states of a group that are to come, if that is known: nothing is prepared for more.
    std::size_t expected_tokens = std::numeric_limits<std::size_t>::max();
    backoff_options backoff;
    tensafe::lora::base_norms base_norms;  ///< of the base model's layers, if it is here
    /// What the server's pin of the adapter must say, in this revision or a later one; who must have signed
    /// it; and its smallest revision, of which 0 asks for no pin. With none of them a pin is only remembered:
    /// later sessions must show it too.
    std::optional<tensafe::keystore::adapter_pin> pin;
    std::optional<tensafe::keystore::verifying_key> publisher;
    std::uint64_t oldest_revision = 0;

    /// Called after each reply. What it throws stops the call: no more goes up, what is under way is read
    /// while it keeps coming, for step_limit at most, and then it is thrown again.
    std::function<void()> between = [] {};
    /// As of wait_options, wherever the client waits. What it throws ends the operation; rows that were
    /// answered are in the call.
    std::function<void()> poll = [] {};

    // For tests, and for a client that wants to know.
    std::function<void(std::chrono::milliseconds)> wait;  ///< in place of waiting
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
    /// Uniform in [0, 1).
    std::function<double()> draw = [] {
        std::random_device device;
        return std::uniform_real_distribution<>(0, 1)(device);
    };
    /// Takes what happened to the connection, for people.
    std::function<void(const std::string&)> report = [](const std::string&) {};
};

/// The identity of a client: the key in this file, which only its owner may read, made if there is none yet.
/// An empty path: a fresh one that is never stored. Of several first starts at once all get the same key.
/// @throws io_error, naming the file, if it cannot be looked for; as keystore::signing_key::read and write
tensafe::keystore::signing_key client_identity(const std::filesystem::path& file);

/// An adapter on a server that is elsewhere: one session over connections that may break. Has the client's
/// keys; of the adapter only what the server hands out, which is no A. docs/service.md
///
/// For one thread at a time, over all that share the keys.
class remote_model {
  public:
    using session_type = tensafe::session::client_session<params, packing, protection>;
    using client_type = tensafe::lora::model_client<params, packing, protection>;
    /// Makes a new connection each time, as connect_websocket does.
    using connector = std::function<std::unique_ptr<client_connection>(const wait_options&)>;

    struct counts {
        std::uint64_t replies = 0;   ///< answered hidden states
        std::uint64_t resumed = 0;   ///< connections that went on with their session
        std::uint64_t sessions = 0;  ///< with the first
        std::uint64_t rate_waits = 0;
        /// Of requests and replies, those of blocks included, without frames and handshakes.
        std::uint64_t message_bytes_up = 0;
        std::uint64_t message_bytes_down = 0;
        client_connection::traffic wire;         ///< all bytes of all connections
        std::chrono::nanoseconds round_trip{0};  ///< of the newest connection, if it measured one
    };

    /// Connects, as reconnect, and opens a session.
    /// @param keys  with the secret key, which stays here
    /// @param held  what the client holds of the adapter (lora::client_part); not given: the server sends it.
    ///        Either must be, byte for byte as a message, what the server's pin names, if it shows one
    /// @throws connection_lost, at once for is_wrong_server; refused_error if the server says no, but for
    ///         loading, draining and rate_limit, which are waited for; signature_error for a pin that does
    ///         not fit what came with it, or is not as the options ask; format_error, shape_error or
    ///         parameter_error for messages that are none, for a `held` that does not go with the layout, and
    ///         for an adapter that makes numbers of its answers that no float can hold
    remote_model(connector connect, tensafe::keystore::signing_key identity,
                 std::shared_ptr<tensafe::lora::client<params>> keys, remote_options options,
                 std::optional<tensafe::lora::adapter> held = std::nullopt);
    remote_model(const remote_model&) = delete;
    remote_model& operator=(const remote_model&) = delete;
    ~remote_model() { close(); }

    /// Groups and sites, as the server gave them: checked.
    const tensafe::lora::model_layout& layout() const noexcept { return client()->layout(); }
    /// Encrypts and decrypts for this model. Stays the same over reconnections.
    const std::shared_ptr<client_type>& client() const noexcept { return session_->model(); }
    std::uint64_t version() const noexcept { return version_; }
    /// What the server showed: checked. Nothing if it has none.
    const std::optional<tensafe::keystore::adapter_pin>& pin() const noexcept { return pin_; }
    /// Hidden states of a group that limits of this client alone have left, and of all groups the least;
    /// nothing if there is no limit.
    std::optional<std::uint64_t> queries_left(std::size_t group) const {
        return session_->queries_left(group);
    }
    std::optional<std::uint64_t> queries_left() const noexcept { return session_->queries_left(); }
    counts counted() const noexcept;

    struct message_bytes {
        std::size_t up = 0;
        std::size_t down = 0;
    };
    /// What the cost model says of so many hidden states of a group, all expected: of messages, as `ask`
    /// sends them, blocks that are not used up whole.
    message_bytes forecast(std::size_t group, std::size_t tokens) const {
        const auto [up, down] = session_->forecast(group, tokens);
        return {up, down};
    }

    /// Has all hidden states of a call answered, in one round trip where the windows of the session hold
    /// them. Replaces lost connections, over which the server repeats what was answered, and after a rate
    /// limit waits as long as the server says. Whatever is thrown, rows that were answered are in the call.
    /// @throws what the call failed with: refused_error and its kinds, range_exceeded_error, and what
    ///         encrypting throws; then the session goes on. query_limit_error with both numbers, before
    ///         anything is sent, for a call of more rows than the limit has left. format_error or shape_error
    ///         for a reply that is none or another one's: the connection is closed then. closed_error after
    ///         forget or close. Otherwise as reconnect
    void ask(tensafe::session::call& of);
    /// For one hidden state.
    /// @param product  of the group's stacked rows with h
    void ask(std::size_t group, std::span<const float> h, std::vector<double>& product);

    /// A new connection: the session goes on where the server still has it, or there is a fresh one, as there
    /// is after forget and close. Tries until options.total_limit is used up, with longer and longer waits.
    /// @throws connection_lost with the last reason; adapter_changed_error; otherwise as the constructor
    void reconnect();

    /// Asks the server to drop all that it knows of this client's key; the session is over then.
    /// @throws connection_lost, refused_error; closed_error after forget or close
    void forget();

    /// Ends the session. Without a connection the server finds out by itself. In the child of a fork only the
    /// child's copy ends, and the server hears nothing.
    void close() noexcept;

  private:
    using clock = std::chrono::steady_clock;
    /// What is left of options.total_limit, and how often was waited in it.
    struct tries {
        clock::time_point end;
        std::size_t waits = 0;
    };

    tries fresh_tries() const { return {options_.now() + options_.total_limit}; }
    /// The longest that a step may take.
    std::chrono::milliseconds step_in(const tries& left) const;
    bool wait(tries& left, std::chrono::milliseconds least);
    void check_process() const;
    void connect(tries& left, std::optional<connection_lost> lost = {});
    void open(const tries& left);
    bool resume_session(const tensafe::random::seed& nonce);
    void open_session(const tensafe::random::seed& nonce);
    void take_adapter(const welcome& from);
    void drop() noexcept;
    client_connection& connected();
    std::size_t largest_carried(const client_connection::frame& in) const noexcept;
    template <class Expected>
    Expected receive_one();
    std::vector<std::uint8_t> receive_message(carried_message::kind what);
    [[noreturn]] void refuse(const refusal& said) const;
    [[noreturn]] void refuse_other(const control_message& got, const control_message& expected) const;
    void answer_all(tensafe::session::call& of);
    void exchange(tensafe::session::call& of, tries& left, bool is_stopped);
    const session_type::message* next(tensafe::session::call& of);
    void send(const session_type::message& m);
    void receive_reply();
    void take(std::span<const std::uint8_t> reply);
    void wait_for_rate(tries& left);

    connector connect_;
    tensafe::keystore::signing_key identity_;
    std::shared_ptr<tensafe::lora::client<params>> keys_;
    remote_options options_;
    std::optional<tensafe::lora::adapter> given_;  ///< by the caller, until there is a session
    bool asks_for_held_;

    const pid_t owner_ = ::getpid();
    std::unique_ptr<client_connection> connection_;
    bool goes_away_ = false;  ///< as the server said on this connection
    std::optional<session_id> id_;
    std::uint64_t version_ = 0;
    std::unique_ptr<session_type> session_;           ///< from the first handshake on
    tensafe::keystore::sha256_digest held_digest_{};  ///< of B and scales, sent or given
    std::optional<tensafe::keystore::adapter_pin> pin_;
    std::exception_ptr limited_;         ///< by the rate, the last time
    std::vector<std::uint8_t> message_;  ///< kept from request to request
    bool closed_ = false;                ///< by forget or close
    counts counts_;
};

}  // namespace split
