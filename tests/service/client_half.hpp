#pragma once

// A client's half of the protocol by hand: who it is, what it signs, and its ciphertexts. The tests' peer.hpp
// and service_soak stand on it.

#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_client.hpp>
#include <tensafe/lora/protocol/client.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/layout.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/request.hpp>
#include <tensafe/wire/set_id.hpp>

#include <memory>
#include <optional>
#include <vector>

#include "../../service/control_message.hpp"
#include "../../service/params.hpp"

namespace tests {

using bytes = std::vector<std::uint8_t>;
using signing_key = tensafe::keystore::signing_key;
inline constexpr std::uint64_t own_set = tensafe::wire::set_id<split::params>;

inline std::shared_ptr<const signing_key> fresh_key() {
    return std::make_shared<const signing_key>(signing_key::generate());
}

/// Who a client is on one connection, and what it signs there.
struct login {
    std::shared_ptr<const signing_key> key = fresh_key();
    tensafe::random::seed nonce;       ///< of the server's challenge
    split::exporter_value exporter{};  ///< of the connection's TLS

    std::string name() const { return key->verifying().hex(); }
    void sign(auto& m) const { m.signature = key->sign(split::text_to_sign(exporter, nonce, m)); }
    split::hello hello_for(std::span<const std::uint8_t> rerandomization_key,
                           const std::string& adapter = "kjv", std::uint64_t set = own_set) const {
        const auto hash = tensafe::keystore::sha256::of(std::as_bytes(rerandomization_key));
        split::hello m{adapter, key->verifying().bytes(), set, hash, {}};
        sign(m);
        return m;
    }
    split::resume resume_of(const split::session_id& session) const {
        split::resume m{session, key->verifying().bytes(), {}};
        sign(m);
        return m;
    }
};

/// The ciphertexts of one session: what a good client sends, and what it reads in the answers.
class encryption {
  public:
    using model_client = tensafe::lora::model_client<split::params, split::packing, split::protection>;
    struct request {
        std::vector<float> h;
        tensafe::lora::query<split::params> query;
        bytes message;
        std::size_t group = 0;
    };
    /// At a position of the block.
    struct token {
        std::vector<float> h;
        tensafe::lora::token_query query;
        bytes message;
    };

    bytes rerandomization_key(const tensafe::random::seed& nonce) const {
        return tensafe::wire::write_rerandomization_key<split::params>(
            keys_->rerandomization_key(split::derived_nonces(nonce).of_rerandomization_key));
    }
    void open(std::span<const std::uint8_t> layout, const tensafe::lora::adapter& of) {
        client_.emplace(
            keys_, tensafe::wire::read_model_layout<split::params, split::packing, split::protection>(layout),
            tensafe::lora::client_part(of, {}));
    }
    const model_client& client() const { return *client_; }

    request ask(std::uint64_t number, std::size_t group, std::vector<float> h) {
        request made{std::move(h), {}, {}, group};
        client_->encrypt(group, made.h, made.query);
        tensafe::wire::write_request<split::packing, split::protection>(
            made.query.request, {number, static_cast<std::uint32_t>(group)}, made.message);
        return made;
    }
    /// What asks for a block of group 0, in the place of the last one.
    bytes ask_for_block(std::uint64_t number) {
        block_.emplace(client_->prepare(0));
        block_number_ = number;
        bytes message;
        tensafe::wire::write_block_request<split::params, split::protection>(block_->request(), {number, 0},
                                                                             message);
        return message;
    }
    void accept_block(std::span<const std::uint8_t> reply) {
        tensafe::lora::block_reply part;
        tensafe::wire::read_block_reply(reply, block_->plan(), part);
        client_->accept(*block_, part);
    }
    /// Positions of the block that are left.
    std::size_t left() const { return block_ ? block_->left() : 0; }
    token ask_in_block(std::uint64_t number, std::vector<float> h) {
        token made{std::move(h), {}, {}};
        block_->encrypt(made.h, made.query);
        made.query.request.block = block_number_;
        tensafe::wire::write_token_request<split::params, split::protection>(made.query.request, {number, 0},
                                                                             made.message);
        return made;
    }
    /// A times the hidden state. @throws tensafe::format_error
    std::vector<double> product(const request& of, std::span<const std::uint8_t> message) {
        model_client::reply_type reply;
        tensafe::wire::read_reply(message, client_->plan(of.group), reply);
        return client_->decrypt(of.group, reply, of.query);
    }
    std::vector<double> product(const token& of, std::span<const std::uint8_t> message) {
        tensafe::lora::token_reply reply;
        tensafe::wire::read_token_reply(message, block_->plan(), of.query.request.position, reply);
        std::vector<double> result(block_->plan().rank());
        block_->decrypt(reply, of.query, result);
        return result;
    }

  private:
    std::shared_ptr<tensafe::lora::client<split::params>> keys_ =
        std::make_shared<tensafe::lora::client<split::params>>();
    std::optional<model_client> client_;
    std::optional<model_client::block_type> block_;
    std::uint64_t block_number_ = 0;
};

}  // namespace tests
