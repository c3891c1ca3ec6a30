#pragma once

#include <tensafe/random/seed.hpp>
#include <tensafe/wire/message.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "control_message.hpp"
#include "net/connection.hpp"
#include "service.hpp"

namespace split {

/// The server's side of the protocol on one connection: a state machine without a socket, which opens or
/// resumes a session and answers its requests; what is kept of it is in session_table.hpp. Every error that a
/// peer can cause is an answer to it; nothing is thrown but what no peer can cause (memory).
class session_protocol final : public net::websocket_handler {
  public:
    session_protocol(service& of, net::caller from, std::weak_ptr<net::connection_control> control,
                     std::uint64_t number);
    /// The session, if it is not over, waits for its client.
    ~session_protocol() override;
    session_protocol(const session_protocol&) = delete;
    session_protocol& operator=(const session_protocol&) = delete;

    void start(net::answer& to) override;
    void on_text(std::string_view text, net::answer& to) override;
    void on_binary(std::span<const std::uint8_t> bytes, net::answer& to) override;
    void on_drain(net::answer& to) override;
    bool idle() override;
    std::string whose() const override {
        const std::string address = limited_address(from_.address);
        return session_ ? of_.payer(session_->client, address) : address;
    }
    bool established() const override { return session_ != nullptr; }
    std::size_t largest_frame() const override;

  private:
    enum class stage { new_client, rerandomization_key, open, over };

    template <class Step>
    void guarded(net::answer& to, Step step) noexcept;
    void greet(hello heard);
    void take_rerandomization_key(std::span<const std::uint8_t> message, net::answer& to);
    template <class Message>
    bool is_signed(const Message& heard) const;
    void resume_session(const resume& heard, net::answer& to);
    void answer_request(std::span<const std::uint8_t> message, net::answer& to);
    void compute(const tensafe::wire::header& header, std::span<const std::uint8_t> message, net::answer& to);
    tensafe::serving::usage add_reply(const tensafe::wire::header& header,
                                      std::span<const std::uint8_t> message, net::answer& to);
    void limit_kept_replies();
    bool counts_as_error();
    [[noreturn]] void lost_session();
    void end_session();
    void record(const tensafe::serving::usage& used) const;
    void check_draining() const;
    void limit_handshakes() const;
    void refuse(const refusal& r, net::answer& to);
    std::vector<std::uint64_t> queries_left() const;

    service& of_;
    const net::caller from_;
    const std::weak_ptr<net::connection_control> control_;
    const std::uint64_t number_;
    tensafe::random::seed nonce_;
    exporter_value exporter_{};
    stage stage_ = stage::new_client;
    frame_form frames_ = frame_form::binary;  ///< as hello said
    std::optional<hello> hello_;
    std::shared_ptr<const served_model> model_;
    std::shared_ptr<const session> session_;
    query_counts::account account_;                 ///< of the session's client and adapter
    std::optional<std::uint64_t> request_;          ///< the number of what is being answered
    std::optional<std::uint64_t> oldest_;           ///< that its client knew no answer to
    std::size_t room_checked_at_ = 0;               ///< bytes of blocks and kept replies
    int refused_ = 0;                               ///< in a row, that count
    int excused_ = 0;                               ///< in the same row, that do not
    std::optional<std::uint64_t> counted_refusal_;  ///< the request that the last of them was of
};

}  // namespace split
