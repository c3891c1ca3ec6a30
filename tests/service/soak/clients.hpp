#pragma once

#include <tensafe/ckks/precision.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/layout.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/request.hpp>
#include <tensafe/wire/set_id.hpp>

#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "../../../service/control_message.hpp"
#include "../../../service/net/websocket_client.hpp"
#include "../../../service/remote_model.hpp"
#include "fixture.hpp"
#include "raw_connection.hpp"

namespace split::soak {

/// The deltas of a group's sites are those of the adapter. @throws failure
inline void require_deltas(const tensafe::lora::adapter& adapter,
                           const tensafe::lora::model_layout::group& group, std::span<const float> h,
                           const std::vector<std::vector<double>>& deltas) {
    constexpr double tolerance = 2e-3;
    for (std::size_t s = 0; s < group.sites.size(); ++s) {
        const auto plain = tensafe::lora::plain_delta(adapter.site(group.sites[s].name), h);
        const double error = tensafe::ckks::measure_precision(plain, deltas.at(s)).relative_error;
        require(error < tolerance, "relative error of " + group.sites[s].name, error, tolerance);
    }
}

inline std::span<const std::uint8_t> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// A client as users have it, whose answers are compared with plaintext LoRA. For one thread.
class good_client {
  public:
    /// @param identity  file; empty: a fresh one
    /// @param expected  what the server has under this name; null: what it began with
    good_client(fixture& of, const std::string& name, frame_form frames = frame_form::binary,
                std::size_t attempts = 10, const std::filesystem::path& identity = {},
                const tensafe::lora::adapter* expected = nullptr)
        : of_(of),
          adapter_(expected != nullptr ? *expected
                   : name == "qwen"    ? of.qwen
                                       : of.kjv),
          remote_(connector(of), client_identity(identity), std::make_shared<tensafe::lora::client<params>>(),
                  options(name, frames, attempts)) {}

    /// One token of each group in turn. @throws failure for a wrong answer
    void ask() {
        const std::size_t group = next_group_++ % remote_.layout().groups.size();
        const auto& shape = remote_.layout().groups[group];
        const std::vector<float> h = random_state(shape.d);
        const auto began = steady::now();
        remote_.ask(group, h, product_);
        last_ms = std::chrono::duration<double, std::milli>(steady::now() - began).count();
        require_deltas(adapter_, shape, h, remote_.client()->deltas(group, product_));
        const auto cost = tensafe::lora::cost_of(remote_.client()->plan(group));
        bits += static_cast<std::size_t>(
            std::ceil(static_cast<double>(cost.targets) * cost.budget.channel_bits()));
        ++answers;
        ++of_.answers;
    }

    remote_model& remote() noexcept { return remote_; }

    double last_ms = 0;  ///< from the last hidden state to its product
    std::size_t answers = 0;
    std::size_t bits = 0;  ///< that the answers count in query limits

  private:
    static remote_model::connector connector(fixture& of) {
        const server_address to{of.tls, "localhost", std::to_string(of.where().port)};
        const websocket_options how{.trusted_certificates = of.trusted(), .step_limit = patience};
        return [to, how] { return connect_websocket(to, how); };
    }
    static remote_options options(const std::string& name, frame_form frames, std::size_t attempts) {
        remote_options result;
        result.adapter = name;
        result.frames = frames;
        result.step_limit = patience;
        result.backoff.attempts = attempts;
        return result;
    }

    fixture& of_;
    const tensafe::lora::adapter& adapter_;
    remote_model remote_;
    std::vector<double> product_;
    std::size_t next_group_ = 0;
};

/// Does `step` beside a client in session that asks every few milliseconds.
/// @return milliseconds from each of its requests to the reply @throws failure, and what a client throws
template <class Step>
std::vector<double> with_bystander(fixture& w, Step step) {
    std::atomic<bool> is_over{false};
    good_client client(w, "kjv");  // connected before the step counts descriptors
    client.ask();
    auto asking = std::async(std::launch::async, [&] {
        std::vector<double> ms;
        do {
            {
                const std::lock_guard lock(w.counting);
                client.ask();
            }
            ms.push_back(client.last_ms);
            std::this_thread::sleep_for(milliseconds(3));
        } while (!is_over);
        return ms;
    });
    {
        const std::shared_ptr<void> end(nullptr, [&](void*) { is_over = true; });
        step();
    }
    return asking.get();
}

/// A client that keeps to the protocol by hand, so that it can break it anywhere. Its session is of kjv.
class raw_session {
  public:
    struct asked {
        std::vector<float> h;
        tensafe::lora::query<params> query;
        std::string message;
        std::size_t group = 0;
    };

    /// @param greets  else it stands where the server waits for its hello
    explicit raw_session(fixture& of, bool greets = true, connection_options how = {}) : of_(of), how_(how) {
        connect();
        if (!greets) {
            return;
        }
        const auto [greeting, key] = handshake();
        wire_->send(greeting + key);
        session_ = receive_control<welcome>("a welcome").session;
        const std::string layout = wire_->receive_frame(op_binary);
        client_ = std::make_unique<remote_model::client_type>(
            keys_, tensafe::wire::read_model_layout<params, packing, protection>(bytes_of(layout)),
            tensafe::lora::client_part(of_.kjv));
    }

    raw_connection& wire() noexcept { return *wire_; }
    std::uint64_t next_number = 1;

    /// A fresh request as bytes of a message, not sent yet.
    asked make(std::uint64_t number, std::size_t group = 0) {
        asked result;
        result.group = group;
        result.h = random_state(client_->layout().groups[group].d);
        client_->encrypt(group, result.h, result.query);
        std::vector<std::uint8_t> message;
        tensafe::wire::write_request<packing, protection>(
            result.query.request, tensafe::wire::envelope{number, static_cast<std::uint32_t>(group)},
            message);
        result.message.assign(message.begin(), message.end());
        return result;
    }
    asked make() { return make(next_number); }
    /// The next frame is the reply to this, and right. @throws failure
    void require_answer(const asked& to, std::uint64_t number) {
        require(right(to, number, wire_->receive_frame(op_binary)), "reply", "another answer",
                "the delta of plaintext LoRA");
        ++of_.answers;
    }
    /// Whether these bytes are a reply with this number that decrypts to the delta of plaintext LoRA.
    bool right(const asked& to, std::uint64_t number, std::string_view bytes) {
        if (tensafe::wire::read_header(bytes_of(bytes)).number != number) {
            return false;
        }
        remote_model::client_type::reply_type reply;
        tensafe::wire::read_reply(bytes_of(bytes), client_->plan(to.group), reply);
        try {
            require_deltas(of_.kjv, client_->layout().groups[to.group], to.h,
                           client_->deltas(to.group, client_->decrypt(to.group, reply, to.query)));
        } catch (const failure&) {
            return false;
        }
        return true;
    }
    /// A token at a position of a block.
    struct asked_at {
        std::vector<float> h;
        tensafe::lora::token_query query;
        std::string message;
    };

    /// The message that asks for a block of group 0 with the next number.
    std::string make_block() {
        block_.emplace(client_->prepare(0));
        number_of_block_ = next_number;
        std::vector<std::uint8_t> message;
        tensafe::wire::write_block_request<params, protection>(block_->request(), {next_number, 0}, message);
        return {message.begin(), message.end()};
    }
    void prepare() {
        wire_->send(whole_frame(op_binary, make_block()));
        const std::string reply = wire_->receive_frame(op_binary);
        tensafe::lora::block_reply part;
        tensafe::wire::read_block_reply(bytes_of(reply), block_->plan(), part);
        client_->accept(*block_, part);
        ++next_number;
    }
    /// At the next position of a block, a new one where none is left, with the next number; not sent yet.
    asked_at make_token() {
        if (!block_ || block_->left() == 0) {
            prepare();
        }
        asked_at result{random_state(block_->plan().d()), {}, {}};
        block_->encrypt(result.h, result.query);
        result.query.request.block = number_of_block_;
        std::vector<std::uint8_t> message;
        tensafe::wire::write_token_request<params, protection>(result.query.request, {next_number, 0},
                                                               message);
        result.message.assign(message.begin(), message.end());
        return result;
    }
    /// Sends it. @return the right answer, as bytes @throws failure for another
    std::string require_token(const asked_at& token) {
        wire_->send(whole_frame(op_binary, token.message));
        const std::string bytes = wire_->receive_frame(op_binary);
        tensafe::lora::token_reply reply;
        tensafe::wire::read_token_reply(bytes_of(bytes), block_->plan(), token.query.request.position, reply);
        std::vector<double> product(block_->plan().rank());
        block_->decrypt(reply, token.query, product);
        require_deltas(of_.kjv, client_->layout().groups[0], token.h, client_->deltas(0, product));
        return bytes;
    }

    /// One good token.
    void ask(std::size_t group = 0) {
        const asked next = make(next_number, group);
        require(wire_->send(whole_frame(op_binary, next.message)), "request", "a closed connection",
                "an open one");
        require_answer(next, next_number++);
    }
    /// One good token at a position of a block.
    void ask_at_position() {
        static_cast<void>(require_token(make_token()));
        ++next_number;
        ++of_.answers;
    }
    /// Positions left in the block.
    std::size_t left() const { return block_ ? block_->left() : 0; }
    /// Sends a frame, which the server refuses with this code. @return what it says
    std::string require_refusal(std::string_view code, std::string_view what, unsigned operation,
                                std::string_view data) {
        wire_->send(whole_frame(operation, data));
        return require_refusal(code, what);
    }
    /// The next frame is an error with this code; its text.
    std::string require_refusal(std::string_view code, std::string_view after) {
        const std::string text = wire_->receive_text();
        const auto object = nlohmann::json::parse(text, nullptr, false);
        require(object.is_object() && object.value("type", "") == "error" && object.value("code", "") == code,
                "the answer to " + std::string(after), text.substr(0, 300), "an error " + std::string(code));
        return object.value("message", "");
    }
    void require_end(unsigned code, std::string_view after) {
        require_equal("close code after " + std::string(after), wire_->receive_end(), code);
    }

    /// The public key, as hexadecimal digits.
    std::string identity() const { return identity_.verifying().hex(); }

    /// A new connection that goes on with the session. @throws failure if the server does not let it
    void resume() {
        connect();
        wire_->send(whole_frame(op_text, to_text(resume_here())));
        next_number = receive_control<resumed>("a resumed session").next_number;
    }

    /// Ends the session, so that the server keeps nothing of it.
    void leave() {
        wire_->send(whole_frame(op_text, to_text(bye{})));
        require_end(1000, "bye");
    }

    void connect() {
        wire_.emplace(of_.where(), how_);
        wire_->upgrade();
        nonce_ = receive_control<challenge>("a challenge").nonce;
    }

    /// For the connection that there is.
    split::resume resume_here() const {
        split::resume mine{session_, identity_.verifying().bytes(), {}};
        mine.signature = identity_.sign(text_to_sign(wire_->tls_exporter(), nonce_, mine));
        return mine;
    }

    /// The frames of hello and re-randomization key.
    std::pair<std::string, std::string> handshake(std::uint64_t set = tensafe::wire::set_id<params>,
                                                  const std::string& adapter = "kjv", bool held = false) {
        const std::vector<std::uint8_t> key = tensafe::wire::write_rerandomization_key<params>(
            keys_->rerandomization_key(derived_nonces(nonce_).of_rerandomization_key));
        hello mine;
        mine.adapter = adapter;
        mine.client = identity_.verifying().bytes();
        mine.set = set;
        mine.key_sha256 = tensafe::keystore::sha256::of(std::as_bytes(std::span(key)));
        mine.signature = identity_.sign(text_to_sign(wire_->tls_exporter(), nonce_, mine));
        mine.held = held;
        return {whole_frame(op_text, to_text(mine)),
                whole_frame(op_binary, std::string(key.begin(), key.end()))};
    }

  private:
    template <class Message>
    Message receive_control(const char* expected) {
        const std::string text = wire_->receive_text();
        const control_message got = parse_control(text, 0);
        require(std::holds_alternative<Message>(got), "the server's message", text, expected);
        return std::get<Message>(got);
    }

    fixture& of_;
    connection_options how_;
    std::optional<raw_connection> wire_;
    tensafe::random::seed nonce_;
    tensafe::keystore::signing_key identity_ = client_identity({});
    std::shared_ptr<tensafe::lora::client<params>> keys_ = std::make_shared<tensafe::lora::client<params>>();
    session_id session_{};
    std::unique_ptr<remote_model::client_type> client_;
    std::optional<remote_model::client_type::block_type> block_;
    std::uint64_t number_of_block_ = 0;
};

}  // namespace split::soak
