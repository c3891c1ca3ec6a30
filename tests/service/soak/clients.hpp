#pragma once

#include <tensafe/ckks/precision.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/protocol/cost.hpp>
#include <tensafe/wire/message.hpp>

#include <nlohmann/json.hpp>

#include <variant>

#include "../../../service/control_message.hpp"
#include "../../../service/net/websocket_client.hpp"
#include "../../../service/remote_model.hpp"
#include "../client_half.hpp"
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
inline std::string text_of(const tests::bytes& message) {
    return {message.begin(), message.end()};
}

/// A client as users have it, whose answers are compared with plaintext LoRA. For one thread.
class good_client {
  public:
    /// @param identity  file; empty: a fresh one
    /// @param expected  what the server has under this name; null: what it began with, or of names but kjv
    ///        and qwen that of both whose layout it is
    good_client(fixture& of, const std::string& name, frame_form frames = frame_form::binary,
                milliseconds total = 6 * patience, const std::filesystem::path& identity = {},
                const tensafe::lora::adapter* expected = nullptr)
        : of_(of),
          remote_(connector(of), client_identity(identity), std::make_shared<tensafe::lora::client<params>>(),
                  options(name, frames, total)),
          adapter_(expected != nullptr                                   ? *expected
                   : name == "qwen" || (name != "kjv" && is_of(of.qwen)) ? of.qwen
                                                                         : of.kjv) {}

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
    bool is_of(const tensafe::lora::adapter& adapter) const {
        return remote_.layout().groups.front().d == adapter.sites.front().d_in();
    }
    static remote_model::connector connector(fixture& of) {
        const server_address to{of.tls, "localhost", std::to_string(of.where().port)};
        const websocket_options options{.trusted_certificates = of.trusted()};
        return [to, options](const wait_options& how) { return connect_websocket(to, options, how); };
    }
    static remote_options options(const std::string& name, frame_form frames, milliseconds total) {
        remote_options result;
        result.adapter = name;
        result.frames = frames;
        result.total_limit = total;
        result.step_limit = patience;
        return result;
    }

    fixture& of_;
    remote_model remote_;
    const tensafe::lora::adapter& adapter_;
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
class raw_session : public tests::login {
  public:
    using asked = tests::encryption::request;
    using asked_at = tests::encryption::token;

    /// @param greets  else it stands where the server waits for its hello
    explicit raw_session(fixture& of, bool greets = true) : of_(of) {
        connect();
        if (!greets) {
            return;
        }
        const tests::bytes message = cipher_.rerandomization_key(nonce);
        hello mine = hello_for(message);
        mine.held = false;
        wire_->send(whole_frame(op_text, to_text(mine)));
        send(message);
        session_ = receive_control<welcome>("a welcome").session;
        cipher_.open(bytes_of(wire_->receive_frame(op_binary)), of_.kjv);
    }

    raw_connection& wire() noexcept { return *wire_; }
    std::uint64_t next_number = 1;

    void send(std::string_view message) { wire_->send(whole_frame(op_binary, message)); }
    void send(const tests::bytes& message) { send(text_of(message)); }

    /// A fresh request with the next number, not sent yet.
    asked make(std::size_t group = 0) {
        return cipher_.ask(next_number, group, random_state(cipher_.client().layout().groups[group].d));
    }
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
        try {
            require_right(to.group, to.h, cipher_.product(to, bytes_of(bytes)));
        } catch (const failure&) {
            return false;
        }
        return true;
    }

    /// At the next position of a block, a new one where none is left, with the next number; not sent yet.
    asked_at make_token() {
        if (cipher_.left() == 0) {
            send(cipher_.ask_for_block(next_number++));
            cipher_.accept_block(bytes_of(wire_->receive_frame(op_binary)));
        }
        return cipher_.ask_in_block(next_number, random_state(cipher_.client().layout().groups[0].d));
    }

    /// One good token.
    void ask(std::size_t group = 0) {
        const asked next = make(group);
        require(wire_->send(whole_frame(op_binary, text_of(next.message))), "request", "a closed connection",
                "an open one");
        require_answer(next, next_number++);
    }
    /// One good token at a position of a block.
    void ask_at_position() {
        const asked_at token = make_token();
        send(token.message);
        require_right(0, token.h, cipher_.product(token, bytes_of(wire_->receive_frame(op_binary))));
        ++next_number;
        ++of_.answers;
    }
    /// Sends a frame, which the server refuses with this code.
    void require_refusal(std::string_view code, std::string_view what, unsigned operation,
                         std::string_view data) {
        wire_->send(whole_frame(operation, data));
        const std::string text = wire_->receive_text();
        const auto object = nlohmann::json::parse(text, nullptr, false);
        require(object.is_object() && object.value("type", "") == "error" && object.value("code", "") == code,
                "the answer to " + std::string(what), text.substr(0, 300), "an error " + std::string(code));
    }
    void require_end(unsigned code, std::string_view after) {
        require_equal("close code after " + std::string(after), wire_->receive_end(), code);
    }

    /// A new connection that goes on with the session. @throws failure if the server does not let it
    void resume() {
        connect();
        wire_->send(whole_frame(op_text, to_text(resume_of(session_))));
        next_number = receive_control<resumed>("a resumed session").next_number;
    }
    /// Ends the session, so that the server keeps nothing of it.
    void leave() {
        wire_->send(whole_frame(op_text, to_text(bye{})));
        require_end(1000, "bye");
    }

  private:
    void connect() {
        wire_.emplace(of_.where());
        wire_->upgrade();
        exporter = wire_->tls_exporter();
        nonce = receive_control<challenge>("a challenge").nonce;
    }
    template <class Message>
    Message receive_control(const char* expected) {
        const std::string text = wire_->receive_text();
        const control_message got = parse_control(text, 0);
        require(std::holds_alternative<Message>(got), "the server's message", text, expected);
        return std::get<Message>(got);
    }
    void require_right(std::size_t group, std::span<const float> h, std::span<const double> product) const {
        require_deltas(of_.kjv, cipher_.client().layout().groups[group], h,
                       cipher_.client().deltas(group, product));
    }

    fixture& of_;
    std::optional<raw_connection> wire_;
    session_id session_{};
    tests::encryption cipher_;
};

}  // namespace split::soak
