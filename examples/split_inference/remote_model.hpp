#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/keystore/adapter_pin.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/lora/packing/layout.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/wire/message.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
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

/// Too many requests in too short a time; later ones are answered.
struct rate_limit_error : refused_error {
    using refused_error::refused_error;
};

/// The client's key has had all the answers that it gets of this adapter. Waiting does not help.
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
    std::size_t attempts = 10;  ///< before a client gives up: 21 to 43 s of waiting with these
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
    /// For a request with its reply, as that of the connections is for connecting and logging in. with_retry
    /// and reconnect begin nothing anew after twice this time.
    std::chrono::milliseconds step_limit{60'000};
    /// Blocks are prepared where the server has them of at most so many tokens; 1: none. A block is 16 bytes
    /// here for each token and entry of the hidden state, and there are two of each group at most.
    std::size_t tokens_ahead = 128;
    /// Hidden states of a group that are to come, if that is known: nothing is prepared for more.
    std::size_t expected_tokens = std::numeric_limits<std::size_t>::max();
    backoff_options backoff;
    /// How often one with_retry makes up for a lost connection, and waits for a rate limit.
    std::size_t most_losses = 5;
    std::size_t most_waits = 100;
    tensafe::lora::base_norms base_norms;  ///< of the base model's layers, if it is here
    /// What the server's pin of the adapter must say, and who must have signed it. With neither a pin is only
    /// remembered: later sessions must show it too.
    std::optional<tensafe::keystore::adapter_pin> pin;
    std::optional<tensafe::keystore::verifying_key> publisher;

    // For tests, and for a client that wants to know.
    std::function<void(std::chrono::milliseconds)> wait = [](auto time) {
        std::this_thread::sleep_for(time);
    };
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
/// keys; of the adapter only what the server hands out, which is no A. docs/split-inference.md
///
/// For one thread at a time, over all that share the keys.
class remote_model {
  public:
    using client_type = tensafe::lora::model_client<params, packing, protection>;
    using request_type = tensafe::lora::request<params>;
    using reply_type = client_type::reply_type;
    using plan_type = client_type::decode_plan;
    /// Makes a new connection each time.
    using connector = std::function<std::unique_ptr<client_connection>()>;

    struct counts {
        std::uint64_t replies = 0;   ///< answered hidden states
        std::uint64_t resumed = 0;   ///< connections that went on with their session
        std::uint64_t sessions = 0;  ///< with the first
        std::uint64_t rate_waits = 0;
        /// Of requests and replies, those of blocks included, without frames and handshakes.
        std::uint64_t message_bytes_up = 0;
        std::uint64_t message_bytes_down = 0;
        client_connection::traffic wire;  ///< all bytes of all connections
    };

    /// Connects once and opens a session.
    /// @param keys  with the secret key, which stays here
    /// @param held  what the client holds of the adapter (lora::client_part); not given: the server sends it.
    ///        Either must be, byte for byte as a message, what the server's pin names, if it shows one
    /// @throws connection_lost; refused_error if the server says no; signature_error for a pin that does not
    ///         fit what came with it, or is not as the options ask; format_error, shape_error or
    ///         parameter_error for messages that are none, for a `held` that does not go with the layout, and
    ///         for an adapter that makes numbers of its answers that no float can hold
    remote_model(connector connect, tensafe::keystore::signing_key identity,
                 std::shared_ptr<tensafe::lora::client<params>> keys, remote_options options,
                 std::optional<tensafe::lora::adapter> held = std::nullopt);
    remote_model(const remote_model&) = delete;
    remote_model& operator=(const remote_model&) = delete;
    ~remote_model() { close(); }

    /// Groups and sites, as the server gave them: checked.
    const tensafe::lora::model_layout& layout() const noexcept { return client_->layout(); }
    /// Encrypts and decrypts for this model. Stays the same over reconnections.
    const std::shared_ptr<client_type>& client() const noexcept { return client_; }
    std::uint64_t version() const noexcept { return version_; }
    /// What the server showed: checked. Nothing if it has none.
    const std::optional<tensafe::keystore::adapter_pin>& pin() const noexcept { return pin_; }
    /// By limits of this client alone, at the last handshake; nothing if there is none.
    std::optional<std::uint64_t> queries_left() const noexcept { return queries_left_; }
    counts counted() const noexcept;

    struct message_bytes {
        std::size_t up = 0;
        std::size_t down = 0;
    };
    /// What the cost model says of so many hidden states of a group, all expected: of messages, as `ask`
    /// sends them, blocks that are not used up whole.
    message_bytes forecast(std::size_t group, std::size_t tokens) const;

    /// A hidden state through a group: the product of its stacked rows with h. It is hidden at a position of
    /// a block, where there are blocks and one costs fewer bytes than what is expected alone. With a quarter
    /// to three quarters of a block left, not of all groups at one token, the next one is asked for while the
    /// caller goes on. Tries as with_retry:
    /// what was sent of a position goes again as its bytes, all else is encrypted anew.
    /// @param overflow_margin  for another try, at another position, after range_exceeded_error
    /// @throws as with_retry and carry; otherwise as model_client::encrypt and decrypt
    void ask(std::size_t group, std::span<const float> h, std::vector<double>& product,
             double overflow_margin = 1) {
        static_cast<void>(ask(group, h, product, overflow_margin, false));
    }
    /// As client::encrypt_or_zeros.
    bool ask_or_zeros(std::size_t group, std::span<const float> h, std::vector<double>& product,
                      double overflow_margin = 1) {
        return ask(group, h, product, overflow_margin, true);
    }

    /// Sends a request and waits for its reply: the transport of interop::encrypted_lora. Each request gets
    /// a number of its own, and the reply must have it.
    /// @throws connection_lost; what became of the request is then not known, and it must not be sent again:
    ///         encrypt anew. refused_error, query_limit_error, rate_limit_error: the session goes on.
    ///         closed_error after forget or close.
    ///         format_error or shape_error for a reply that is none or another one's: the connection is
    ///         closed then
    void carry(std::size_t group, const request_type& request, reply_type& reply);

    /// A new connection: the session goes on where the server still has it, or there is a fresh one, as there
    /// is after forget and close. Tries until the attempts or the time of the options are used up, with
    /// longer and longer waits.
    /// @throws connection_lost with the last reason; adapter_changed_error; otherwise as the constructor
    void reconnect() { reconnect(last_try()); }

    /// Calls f, which must encrypt whatever it sends, until it is through: after a lost connection again over
    /// a new one, after a rate limit when the server said. So every request is a fresh encryption.
    /// A lost connection is one of `most_losses`, whatever was answered before it: f may send several
    /// requests. After forget or close nothing is opened again: f gets closed_error.
    /// @throws what f throws otherwise, and as reconnect
    template <class F>
    auto with_retry(F&& f) -> decltype(f()) {
        const clock::time_point last = last_try();
        std::size_t losses = 0;
        std::size_t waits = 0;
        for (;;) {
            try {
                return f();
            } catch (const connection_lost& e) {
                if (++losses > options_.most_losses || clock::now() > last) {
                    throw;
                }
                options_.report(e.what());
            } catch (const rate_limit_error& e) {
                if (++waits > options_.most_waits || !slow_down(e, last)) {
                    throw;
                }
                continue;
            }
            reconnect(last);
        }
    }

    /// Asks the server to drop all that it knows of this client's key; the session is over then.
    /// @throws connection_lost, refused_error; closed_error after forget or close
    void forget();

    /// Ends the session. Without a connection the server finds out by itself.
    void close() noexcept;

  private:
    using clock = std::chrono::steady_clock;
    struct block {
        client_type::block_type positions;
        tensafe::wire::envelope of;         ///< of its request
        std::vector<std::uint8_t> request;  ///< as it is sent, until there is a reply
    };

    clock::time_point last_try() const { return clock::now() + 2 * options_.step_limit; }
    void reconnect(clock::time_point last);
    void open();
    bool resume_session(const tensafe::random::seed& nonce);
    void open_session(const tensafe::random::seed& nonce);
    void take_adapter(const welcome& from);
    void drop() noexcept;
    bool slow_down(const rate_limit_error& why, clock::time_point last);
    client_connection& connected();
    std::size_t largest_carried(const client_connection::frame& in) const noexcept;
    template <class Expected>
    Expected receive_one();
    std::vector<std::uint8_t> receive_message(carried_message::kind what);
    [[noreturn]] void refuse(const refusal& said) const;
    [[noreturn]] void refuse_other(const control_message& got, const control_message& expected) const;
    bool ask(std::size_t group, std::span<const float> h, std::vector<double>& product,
             double overflow_margin, bool or_zeros);
    bool has_blocks() const noexcept;
    bool saves_bytes(std::size_t group, std::size_t tokens) const;
    bool is_worth_a_block(std::size_t group, std::size_t positions_left) const;
    block* block_for(std::size_t group);
    void begin_block(std::size_t group);
    void prepare_next(std::size_t group);
    void finish_block();
    tensafe::wire::envelope next_envelope(std::size_t group);
    void send(const tensafe::wire::envelope& of, std::span<const std::uint8_t> message);
    template <class Take>
    void exchange(const tensafe::wire::envelope& of, std::span<const std::uint8_t> message, bool is_sent,
                  Take take);
    template <class Take>
    void receive_reply(const tensafe::wire::envelope& of, Take take);
    void forget_session() noexcept;

    connector connect_;
    tensafe::keystore::signing_key identity_;
    std::shared_ptr<tensafe::lora::client<params>> keys_;
    remote_options options_;
    std::optional<tensafe::lora::adapter> given_;  ///< by the caller, until there is a client
    bool asks_for_held_;

    std::unique_ptr<client_connection> connection_;
    std::optional<session_id> session_;
    std::uint64_t next_number_ = 1;
    std::uint64_t version_ = 0;
    std::optional<std::uint64_t> queries_left_;
    std::shared_ptr<client_type> client_;
    tensafe::keystore::sha256_digest held_digest_{};  ///< of B and scales, sent or given
    std::optional<tensafe::keystore::adapter_pin> pin_;
    std::map<std::size_t, std::deque<block>> blocks_;  ///< by group: the one in use and the next
    std::optional<std::size_t> awaited_;               ///< the group whose last block has no reply yet
    bool is_awaited_here_ = false;                     ///< its request was sent on this connection
    /// By group, hidden states that go alone, as the server had no room for a block.
    std::map<std::size_t, std::size_t> alone_;
    std::map<std::size_t, std::size_t> asked_;  ///< hidden states, by group
    // Kept from request to request.
    std::vector<std::uint8_t> message_;
    tensafe::lora::query<params> query_;
    reply_type reply_;
    client_type::workspace reading_;
    tensafe::lora::token_query token_;
    tensafe::lora::token_reply token_reply_;
    bool closed_ = false;  ///< by forget or close
    counts counts_;
};

}  // namespace split
