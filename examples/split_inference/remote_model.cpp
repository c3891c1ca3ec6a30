// The client of a session from connecting to leaving, in the order of its messages: one file, like the
// server's session_protocol.cpp, beside which it is read.
#include "remote_model.hpp"

#include <tensafe/core/text.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/layout.hpp>
#include <tensafe/wire/reply.hpp>
#include <tensafe/wire/request.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <system_error>
#include <utility>
#include <variant>

namespace split {

namespace {

namespace keystore = tensafe::keystore;
namespace lora = tensafe::lora;
namespace wire = tensafe::wire;
using tensafe::format_error;
using tensafe::in_quotes;
using tensafe::require;
using tensafe::signature_error;

std::optional<std::uint64_t> least_of(const std::vector<std::uint64_t>& left) {
    return left.empty() ? std::nullopt : std::optional(std::ranges::min(left));
}

/// What is received against the server's pin, and that against the options.
/// @param layout, held  SHA-256 of the messages
/// @param whose_held  for people
void check_pin(const std::optional<keystore::adapter_pin>& shown, const keystore::sha256_digest& layout,
               const keystore::sha256_digest& held, const char* whose_held, const remote_options& wanted) {
    const std::string who = tensafe::text_of({"remote_model: adapter ", in_quotes(wanted.adapter), ": "});
    if (!shown) {
        require<signature_error>(!wanted.pin && !wanted.publisher,
                                 {who, "got no pin, expected the server to show one (--pin-key)"});
        return;
    }
    const keystore::adapter_pin pinned = wanted.pin.value_or(*shown);
    require<signature_error>(
        !wanted.pin || pinned.name == wanted.adapter,
        {who, "got --pin of ", in_quotes(pinned.name), ", expected a pin of this adapter"});
    const bool fits = shown->fits();
    require<signature_error>(fits && shown->name == wanted.adapter,
                             {who, "got a pin of ", in_quotes(shown->name), " whose signature ",
                              fits ? "fits" : "does not fit", ", expected a signed one of this adapter"});
    const auto check = [&](const char* what, const keystore::sha256_digest& got,
                           const keystore::sha256_digest& expected) {
        require<signature_error>(got == expected, {who, what, ": got ", keystore::hex(got), ", expected ",
                                                   keystore::hex(expected), " as pinned"});
    };
    check("layout that was sent", layout, shown->layout);
    check(whose_held, held, shown->held);
    check("publisher of the pin", shown->key.bytes(), pinned.key.bytes());
    check("publisher of the pin", shown->key.bytes(), wanted.publisher.value_or(shown->key).bytes());
    check("layout of the pin", shown->layout, pinned.layout);
    check("B of the pin", shown->held, pinned.held);
    check("commitment to A", shown->commitment, pinned.commitment);
}

}  // namespace

keystore::signing_key client_identity(const std::filesystem::path& file) {
    if (file.empty()) {
        return keystore::signing_key::generate();
    }
    std::error_code failed;
    if (!std::filesystem::exists(file, failed) && !failed) {
        try {
            auto made = keystore::signing_key::generate();
            made.write(file);
            return made;
        } catch (const tensafe::io_error&) {
            if (!std::filesystem::exists(file, failed)) {
                throw;
            }  // another start was first
        }
    }
    require<tensafe::io_error>(
        !failed, {in_quotes(file.native()), ": cannot look for the key of this client: ", failed.message()});
    return keystore::signing_key::read(file);
}

remote_model::remote_model(connector connect, tensafe::keystore::signing_key identity,
                           std::shared_ptr<lora::client<params>> keys, remote_options options,
                           std::optional<lora::adapter> held)
    : connect_(std::move(connect)),
      identity_(std::move(identity)),
      keys_(std::move(keys)),
      options_(std::move(options)),
      given_(std::move(held)),
      asks_for_held_(!given_) {
    require<tensafe::parameter_error>(
        connect_ && keys_,
        {"remote_model: got no connector or no keys, expected a function that connects and a lora::client"});
    open();
}

remote_model::counts remote_model::counted() const noexcept {
    counts result = counts_;
    if (connection_) {
        result.wire.up += connection_->bytes().up;
        result.wire.down += connection_->bytes().down;
    }
    return result;
}

void remote_model::drop() noexcept {
    counts_ = counted();
    connection_.reset();
    is_awaited_here_ = false;
}

/// Whether there was time to wait as long as the server says.
bool remote_model::slow_down(const rate_limit_error& why, clock::time_point last) {
    constexpr std::chrono::milliseconds least{1};
    constexpr std::chrono::milliseconds unsaid{100};
    const std::chrono::milliseconds time = std::max(why.retry_after().value_or(unsaid), least);
    if (clock::now() + time > last) {
        return false;
    }
    ++counts_.rate_waits;
    options_.wait(time);
    return true;
}

client_connection& remote_model::connected() {
    require<closed_error>(
        !closed_, {"remote_model: got a request after forget or close, expected reconnect before it"});
    require<connection_lost>(connection_ != nullptr, {"remote_model: there is no connection"});
    return *connection_;
}

/// Bytes of a message in JSON: the connection limits what a frame may have.
std::size_t remote_model::largest_carried(const client_connection::frame& in) const noexcept {
    return options_.frames == frame_form::json ? in.bytes.size() : 0;
}

void remote_model::refuse(const refusal& said) const {
    const std::string text =
        tensafe::text_of({"the server refuses (", to_string(said.code), "): ", in_quotes(said.message)});
    std::optional<std::chrono::milliseconds> later;
    if (said.retry_after_ms) {
        constexpr std::uint64_t a_day = 86'400'000;
        later = std::chrono::milliseconds(std::min(*said.retry_after_ms, a_day));
    }
    switch (said.code) {
        case error_code::rate_limit:
            throw rate_limit_error(text, said.code, later);
        case error_code::query_limit:
            throw query_limit_error(text, said.code, later);
        case error_code::draining:
            throw connection_lost(text);
        default:
            throw refused_error(text, said.code, later);
    }
}

void remote_model::refuse_other(const control_message& got, const control_message& expected) const {
    if (const auto* const said = std::get_if<refusal>(&got)) {
        refuse(*said);
    }
    if (std::holds_alternative<draining>(got)) {
        throw connection_lost("remote_model: the server is going away");
    }
    throw format_error({"remote_model: got ", type_of(got), ", expected ", type_of(expected)});
}

template <class Expected>
Expected remote_model::receive_one() {
    const client_connection::frame frame = connected().receive();
    require<format_error>(frame.is_text, {"remote_model: got a binary frame of ", frame.bytes.size(),
                                          " bytes, expected a control message"});
    control_message got = parse_control(frame.text(), largest_carried(frame));
    if (auto* const found = std::get_if<Expected>(&got)) {
        return std::move(*found);
    }
    refuse_other(got, Expected());
}

std::vector<std::uint8_t> remote_model::receive_message(carried_message::kind what) {
    if (options_.frames == frame_form::json) {
        auto carried = receive_one<carried_message>();
        if (carried.what != what) {
            refuse_other(carried, carried_message{what});
        }
        return std::move(carried.message);
    }
    const client_connection::frame frame = connected().receive();
    if (frame.is_text) {
        refuse_other(parse_control(frame.text(), 0), carried_message{what});
    }
    return {frame.bytes.begin(), frame.bytes.end()};
}

void remote_model::open() {
    drop();
    try {
        connection_ = connect_();
        const auto greeting = receive_one<challenge>();
        if (session_ && resume_session(greeting.nonce)) {
            ++counts_.resumed;
        } else {
            open_session(greeting.nonce);
            ++counts_.sessions;
        }
    } catch (...) {
        drop();
        throw;
    }
}

/// Whether the server still has the session.
bool remote_model::resume_session(const tensafe::random::seed& nonce) {
    resume mine{*session_, identity_.verifying().bytes(), {}};
    mine.signature = identity_.sign(text_to_sign(connected().tls_exporter(), nonce, mine));
    connected().send_text(to_text(mine));
    resumed now;
    try {
        now = receive_one<resumed>();
    } catch (const refused_error& e) {
        if (e.code() != error_code::resume_failed) {
            throw;
        }
        forget_session();
        return false;
    }
    require<format_error>(now.session == mine.session,
                          {"remote_model: the server resumed another session than the one of this client"});
    require<adapter_changed_error>(
        now.version == version_,
        {"remote_model: adapter ", in_quotes(options_.adapter), ": got version ", now.version, ", expected ",
         version_, " as before the connection was lost"});
    // Its word alone never makes a number come again.
    next_number_ = std::max(next_number_, now.next_number);
    queries_left_ = least_of(now.queries_left);
    return true;
}

void remote_model::open_session(const tensafe::random::seed& nonce) {
    const std::vector<std::uint8_t> key = wire::write_rerandomization_key<params>(
        keys_->rerandomization_key(derived_nonces(nonce).of_rerandomization_key));
    hello mine;
    mine.adapter = options_.adapter;
    mine.client = identity_.verifying().bytes();
    mine.set = wire::set_id<params>;
    mine.key_sha256 = keystore::sha256::of(std::as_bytes(std::span(key)));
    mine.signature = identity_.sign(text_to_sign(connected().tls_exporter(), nonce, mine));
    mine.frames = options_.frames;
    mine.held = asks_for_held_;
    connected().send_text(to_text(mine));
    if (options_.frames == frame_form::json) {
        connected().send_text(carried_text(carried_message::kind::rerandomization_key, key));
    } else {
        connected().send_binary(key);
    }
    const auto agreed = receive_one<welcome>();
    require<format_error>(agreed.adapter == options_.adapter,
                          {"remote_model: got a session for the adapter ", in_quotes(agreed.adapter),
                           ", expected ", in_quotes(options_.adapter)});
    take_adapter(agreed);
    forget_session();
    session_ = agreed.session;
    queries_left_ = least_of(agreed.queries_left);
    next_number_ = 1;
}

/// What follows a welcome: at first it is taken, later it must be the same.
void remote_model::take_adapter(const welcome& from) {
    const std::vector<std::uint8_t> layout_message = receive_message(carried_message::kind::model_layout);
    auto layout = wire::read_model_layout<params, packing, protection>(layout_message);
    std::vector<std::uint8_t> held_message;
    if (asks_for_held_) {
        held_message = receive_message(carried_message::kind::held_adapter);
    } else if (given_) {
        held_message = wire::write_held_adapter(*given_, layout);
    }
    const keystore::sha256_digest digest = held_message.empty()
                                               ? held_digest_  // that was given stays
                                               : keystore::sha256::of(std::as_bytes(std::span(held_message)));
    std::optional<keystore::adapter_pin> shown;
    if (!from.pin.empty()) {
        shown = keystore::adapter_pin::parse(from.pin, "the server's pin");
    }
    if (client_) {
        // A server that was started again counts its versions anew. Without held values and a pin nothing but
        // the version tells two adapters of one layout apart.
        const bool is_another = pin_ ? shown != pin_ : !asks_for_held_ && from.version != version_;
        require<adapter_changed_error>(
            !is_another && layout == client_->layout() && digest == held_digest_,
            {"remote_model: adapter ", in_quotes(options_.adapter), ": got version ", from.version,
             ", whose layout, values or pin are others, expected those of version ", version_,
             " as before the connection was lost"});
    }
    const std::size_t tokens_ahead = std::exchange(layout.tokens_ahead, 0);  // which a pin leaves out
    const auto pinned = wire::write_model_layout<params, packing, protection>(layout);
    layout.tokens_ahead = tokens_ahead;
    check_pin(shown, keystore::sha256::of(std::as_bytes(std::span(pinned))), digest,
              asks_for_held_ ? "B that was sent" : "B that was given", options_);
    pin_ = std::move(shown);
    version_ = from.version;
    if (client_) {
        return;
    }
    lora::adapter held = given_ ? std::move(*given_) : wire::read_held_adapter(held_message);
    given_.reset();
    client_ = std::make_shared<client_type>(keys_, std::move(layout), std::move(held), options_.base_norms);
    held_digest_ = digest;
    if (tokens_ahead > options_.tokens_ahead && options_.tokens_ahead > 1) {
        options_.report(
            tensafe::text_of({"the server has blocks of ", tokens_ahead, " tokens, --tokens-ahead is ",
                              options_.tokens_ahead, ": each hidden state goes alone"}));
    }
}

bool remote_model::has_blocks() const noexcept {
    return layout().tokens_ahead > 1 && layout().tokens_ahead <= options_.tokens_ahead;
}

/// Blocks end with their session: a fresh one knows none of them.
void remote_model::forget_session() noexcept {
    session_.reset();
    blocks_.clear();
    awaited_.reset();
}

/// Its number is used up, whatever comes of it.
wire::envelope remote_model::next_envelope(std::size_t group) {
    static_cast<void>(connected());
    if (next_number_ == std::numeric_limits<std::uint64_t>::max()) {
        forget_session();
        drop();
        throw connection_lost("remote_model: the numbers of this session are used up");
    }
    return {next_number_++, static_cast<std::uint32_t>(group)};
}

void remote_model::send(const wire::envelope& of, std::span<const std::uint8_t> message) {
    if (options_.frames == frame_form::json) {
        connected().send_text(carried_text(carried_message::kind::request, message, of.number, of.group));
    } else {
        connected().send_binary(message);
    }
    counts_.message_bytes_up += message.size();
}

/// @param is_sent  on this connection, before
template <class Take>
void remote_model::exchange(const wire::envelope& of, std::span<const std::uint8_t> message, bool is_sent,
                            Take take) {
    connected().begin("a request with its reply", options_.step_limit);
    try {
        if (!is_sent) {
            send(of, message);
        }
        receive_reply(of, take);
    } catch (const refused_error&) {
        throw;
    } catch (...) {
        drop();  // a late reply must find nobody
        throw;
    }
}

void remote_model::carry(std::size_t group, const request_type& request, reply_type& reply) {
    static_cast<void>(layout().at(group));  // that there is one
    finish_block();
    const wire::envelope of = next_envelope(group);
    wire::write_request<packing, protection>(request, of, message_);
    exchange(of, message_, false, [&](std::span<const std::uint8_t> message) {
        wire::read_reply(message, client_->plan(group), reply);
    });
    ++counts_.replies;
}

bool remote_model::ask(std::size_t group, std::span<const float> h, std::vector<double>& product,
                       double overflow_margin, bool or_zeros) {
    static_cast<void>(layout().at(group));
    bool is_good = true;
    const auto ask_alone = [&] {
        std::size_t& alone = alone_[group];
        alone -= std::min<std::size_t>(alone, 1);
        if (or_zeros) {
            is_good = client_->encrypt_or_zeros(group, h, query_, overflow_margin);
        } else {
            client_->encrypt(group, h, query_, overflow_margin);
        }
        carry(group, query_.request, reply_);
        client_->decrypt(group, reply_, query_, reading_, product);
    };
    std::optional<wire::envelope> sent;
    std::uint64_t session = 0;  // in which it was
    with_retry([&] {
        static_cast<void>(connected());  // before a position is used up
        if (!sent || session != counts_.sessions) {
            block* const at = block_for(group);
            if (at == nullptr) {
                return ask_alone();
            }
            if (or_zeros) {
                is_good = at->positions.encrypt_or_zeros(h, token_, overflow_margin);
            } else {
                at->positions.encrypt(h, token_, overflow_margin);
            }
            sent = next_envelope(group);
            session = counts_.sessions;
            token_.request.block = at->of.number;
            wire::write_token_request<params, protection>(token_.request, *sent, message_);
        }
        auto& positions = blocks_.at(group).front().positions;
        try {
            exchange(*sent, message_, false, [&](std::span<const std::uint8_t> message) {
                wire::read_token_reply(message, positions.plan(), token_.request.position, token_reply_);
            });
        } catch (const refused_error& e) {
            if (e.code() != error_code::unknown_block && e.code() != error_code::replayed) {
                throw;
            }
            options_.report(e.what());  // the server gave the block up, or the reply's bytes
            blocks_.at(group).pop_front();
            sent.reset();
            return ask_alone();
        }
        ++counts_.replies;
        product.resize(positions.plan().rank());
        positions.decrypt(token_reply_, token_, product);
    });
    ++asked_[group];
    prepare_next(group);
    return is_good;
}

/// Whether a block costs fewer bytes than what is expected to come, behind the positions that are left,
/// alone.
bool remote_model::is_worth_a_block(std::size_t group, std::size_t positions_left) const {
    const auto asked = asked_.find(group);
    const std::size_t known = positions_left + (asked == asked_.end() ? 0 : asked->second);
    const std::size_t to_come = options_.expected_tokens - std::min(options_.expected_tokens, known);
    return saves_bytes(group, std::min(to_come, layout().tokens_ahead));
}

/// Whether so many hidden states, no more than a block has, cost fewer bytes in one.
bool remote_model::saves_bytes(std::size_t group, std::size_t tokens) const {
    const lora::token_cost of_block = lora::cost_of(client_->plan_of_blocks(group));
    const std::size_t unused = layout().tokens_ahead - tokens;
    return of_block.bytes() - unused * (of_block.online_up + of_block.online_down) <
           tokens * lora::cost_of(client_->plan(group)).bytes();
}

remote_model::message_bytes remote_model::forecast(std::size_t group, std::size_t tokens) const {
    message_bytes result;
    while (has_blocks() && saves_bytes(group, std::min(tokens, layout().tokens_ahead))) {
        const lora::token_cost cost = lora::cost_of(client_->plan_of_blocks(group));
        const std::size_t used = std::min(tokens, layout().tokens_ahead);
        result.up += cost.bytes_up - (layout().tokens_ahead - used) * cost.online_up;
        result.down += cost.bytes_down - (layout().tokens_ahead - used) * cost.online_down;
        tokens -= used;
    }
    const lora::token_cost cost = lora::cost_of(client_->plan(group));
    return {result.up + tokens * cost.bytes_up, result.down + tokens * cost.bytes_down};
}

/// With a position that is left; null: the hidden state goes alone.
remote_model::block* remote_model::block_for(std::size_t group) {
    if (!has_blocks()) {
        return nullptr;
    }
    finish_block();
    auto& all = blocks_[group];
    while (!all.empty() && all.front().positions.left() == 0) {
        all.pop_front();
    }
    if (all.empty() && alone_[group] == 0 && is_worth_a_block(group, 0)) {
        begin_block(group);
        finish_block();
    }
    return all.empty() ? nullptr : &all.front();
}

/// Only makes the request: it goes with finish_block, or ahead of it.
void remote_model::begin_block(std::size_t group) {
    const wire::envelope of = next_envelope(group);
    block made{client_->prepare(group), of, {}};
    wire::write_block_request<params, protection>(made.positions.request(), of, made.request);
    blocks_[group].push_back(std::move(made));
    awaited_ = group;
}

/// Sends the request for the next block where one is nearly used up. Its reply is read before the next
/// request: the server prepares it while the caller's model computes.
void remote_model::prepare_next(std::size_t group) {
    const auto found = blocks_.find(group);
    if (found == blocks_.end() || found->second.size() != 1 || alone_[group] > 0) {
        return;
    }
    const std::size_t left = found->second.front().positions.left();
    const std::size_t tokens = layout().tokens_ahead;
    // Not all groups at one token.
    const std::size_t enough = tokens / 4 + group * (tokens / 2) / layout().groups.size();
    if (left > enough || !is_worth_a_block(group, left)) {
        return;
    }
    try {
        begin_block(group);
        connected().begin("a block request", options_.step_limit);
        send(found->second.back().of, found->second.back().request);
        is_awaited_here_ = true;
    } catch (const std::exception& e) {  // the answer is here; the request goes again with the next one
        options_.report(e.what());
        if (awaited_) {
            drop();
        }
    }
}

/// Takes the reply to a block request, which goes again as it is where that was lost. A block that is refused
/// is given up: hidden states go alone for a while.
void remote_model::finish_block() {
    if (!awaited_) {
        return;
    }
    auto& all = blocks_.at(*awaited_);
    block& made = all.back();
    const bool is_sent = std::exchange(is_awaited_here_, false);
    try {
        exchange(made.of, made.request, is_sent, [&](std::span<const std::uint8_t> message) {
            lora::block_reply reply;
            wire::read_block_reply(message, made.positions.plan(), reply);
            client_->accept(made.positions, reply);
        });
        made.request = {};
    } catch (const connection_lost&) {
        throw;
    } catch (const rate_limit_error&) {
        throw;
    } catch (const refused_error& e) {
        options_.report(e.what());
        // A reply that was lost for good says nothing of room.
        alone_[*awaited_] = e.code() == error_code::replayed ? 0 : layout().tokens_ahead;
        all.pop_back();
    } catch (...) {
        all.pop_back();
        awaited_.reset();
        throw;
    }
    awaited_.reset();
}

template <class Take>
void remote_model::receive_reply(const wire::envelope& of, Take take_reply) {
    const auto check = [&](const wire::envelope& got) {
        require<format_error>(got == of,
                              {"remote_model: got a reply to request ", got.number, " of group ", got.group,
                               ", expected one to request ", of.number, " of group ", of.group});
    };
    const auto take = [&](std::span<const std::uint8_t> message) {
        check(wire::read_header(message).envelope());
        take_reply(message);
        counts_.message_bytes_down += message.size();
    };
    for (bool goes_away = false;; goes_away = true) {
        const client_connection::frame frame = connected().receive();
        if (!frame.is_text) {
            require<format_error>(options_.frames == frame_form::binary,
                                  {"remote_model: request ", of.number, " of group ", of.group,
                                   ": got a binary frame, expected JSON as agreed"});
            return take(frame.bytes);
        }
        const control_message got = parse_control(frame.text(), largest_carried(frame));
        if (const auto* const carried = std::get_if<carried_message>(&got);
            carried != nullptr && carried->what == carried_message::kind::reply) {
            check({carried->number, carried->group});
            return take(carried->message);
        }
        if (const auto* const said = std::get_if<refusal>(&got)) {
            const std::uint64_t number = said->number.value_or(of.number);
            require<format_error>(number == of.number,
                                  {"remote_model: got an error for request ", number,
                                   ", expected the reply to request ", of.number, " of group ", of.group});
            refuse(*said);
        }
        // The reply still comes before the server goes, which it says once.
        require<format_error>(std::holds_alternative<draining>(got) && !goes_away,
                              {"remote_model: got ", type_of(got), ", expected a reply to request ",
                               of.number, " of group ", of.group});
        options_.report("the server is going away");
    }
}

void remote_model::reconnect(clock::time_point last) {
    drop();
    closed_ = false;
    std::string reason = "no time is left";
    std::chrono::milliseconds asked{0};  // by the server
    std::size_t attempts = 0;
    for (; attempts < options_.backoff.attempts; ++attempts) {
        const auto pause = std::max(backoff(options_.backoff, attempts, options_.draw()), asked);
        if (clock::now() + pause > last) {
            break;
        }
        asked = {};
        options_.report(tensafe::text_of({"connecting again in ", pause.count(), " ms"}));
        options_.wait(pause);
        try {
            open();
            options_.report(counts_.sessions > 1 && next_number_ == 1 ? "connected, with a fresh session"
                                                                      : "connected, the session goes on");
            return;
        } catch (const connection_lost& e) {
            reason = e.what();
        } catch (const rate_limit_error& e) {
            reason = e.what();
            asked = e.retry_after().value_or(asked);
        }
        options_.report(reason);
    }
    throw connection_lost({"remote_model: gave up after ", attempts, " attempts: ", reason});
}

void remote_model::forget() {
    static_cast<void>(connected());
    if (is_awaited_here_) {
        finish_block();
    }
    connected().begin("forgetting", options_.step_limit);
    connected().send_text(to_text(split::forget{}));
    static_cast<void>(receive_one<forgotten>());
    forget_session();
    closed_ = true;
    connection_->close();
    drop();
}

void remote_model::close() noexcept {
    closed_ = true;
    forget_session();
    if (!connection_) {
        return;
    }
    try {
        connection_->begin("leaving", options_.step_limit);
        connection_->send_text(to_text(bye{}));
    } catch (...) {  // then the server finds out by itself
    }
    connection_->close();
    drop();
}

}  // namespace split
