// The client of a session from connecting to leaving, in the order of its messages: one file, like the
// server's session_protocol.cpp, beside which it is read.
#include "remote_model.hpp"

#include <tensafe/core/text.hpp>
#include <tensafe/wire/held_adapter.hpp>
#include <tensafe/wire/keys.hpp>
#include <tensafe/wire/layout.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/set_id.hpp>

#include <span>
#include <system_error>
#include <utility>
#include <variant>

namespace split {

namespace {

namespace keystore = tensafe::keystore;
namespace lora = tensafe::lora;
namespace session = tensafe::session;
namespace wire = tensafe::wire;
using namespace std::chrono_literals;
using tensafe::format_error;
using tensafe::in_quotes;
using tensafe::require;
using tensafe::signature_error;

/// What is received against the server's pin, and that against the options.
/// @param layout, held  SHA-256 of the messages
/// @param whose_held  for people
void check_pin(const std::optional<keystore::adapter_pin>& shown, const keystore::sha256_digest& layout,
               const keystore::sha256_digest& held, const char* whose_held, const remote_options& wanted) {
    const std::string who = tensafe::text_of({"remote_model: adapter ", in_quotes(wanted.adapter), ": "});
    if (!shown) {
        require<signature_error>(!wanted.pin && !wanted.publisher && wanted.oldest_revision == 0,
                                 {who, "got no pin, expected the server to show one (its --pin)"});
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
    const std::uint64_t oldest =
        std::max(wanted.pin ? pinned.revision : wanted.oldest_revision, wanted.oldest_revision);
    require<signature_error>(shown->revision >= oldest, {who, "revision of the pin: got ", shown->revision,
                                                         ", expected at least ", oldest});
    check("layout of the pin", shown->layout, pinned.layout);
    check("B of the pin", shown->held, pinned.held);
    check("commitment to A", shown->commitment, pinned.commitment);
    check("marks of the pin", shown->marks, pinned.marks);
}

session::refusal reason_of(error_code code) {
    switch (code) {
        case error_code::replayed:
            return session::refusal::replayed;
        case error_code::unknown_block:
            return session::refusal::unknown_block;
        case error_code::block_limit:
            return session::refusal::block_limit;
        case error_code::query_limit:
            return session::refusal::query_limit;
        case error_code::rate_limit:
        case error_code::unavailable:
            return session::refusal::rate_limit;
        default:
            return session::refusal::other;
    }
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
    tries left = fresh_tries();
    this->connect(left);
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
    goes_away_ = false;
    if (session_) {
        session_->lost();
    }
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
    const bool is_nobody = said.code == error_code::not_authorised;
    const std::string text = tensafe::text_of(
        {"the server refuses (", to_string(said.code), "): ", in_quotes(said.message),
         is_nobody ? if_tls_ends_on_the_way : "",
         is_nobody ? ". If it has --clients, its operator adds this line to that file (without --identity "
                     "the next run has another key):\n"
                   : "",
         is_nobody ? identity_.verifying().hex() : ""});
    std::optional<std::chrono::milliseconds> later;
    if (said.retry_after_ms) {
        constexpr std::uint64_t a_day = 86'400'000;
        later = std::chrono::milliseconds(std::min(*said.retry_after_ms, a_day));
    }
    switch (said.code) {
        case error_code::rate_limit:
        case error_code::unavailable:
            throw rate_limit_error(text, said.code, later);
        case error_code::query_limit:
            throw query_limit_error(text, said.code, later);
        case error_code::draining:
        case error_code::loading:
            throw connection_lost(text, later);
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

void remote_model::check_process() const {
    require<tensafe::unsupported_error>(
        ::getpid() == owner_, {"remote_model: this session was made in process ", owner_,
                               ", and this is its child ", ::getpid(), "; make another one after the fork"});
}

void remote_model::open(const tries& left) {
    drop();
    try {
        connection_ = connect_({step_in(left), options_.poll});
        counts_.round_trip = connection_->round_trip();
        const auto greeting = receive_one<challenge>();
        if (id_ && resume_session(greeting.nonce)) {
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
    resume mine{*id_, identity_.verifying().bytes(), {}};
    mine.signature = identity_.sign(text_to_sign(connected().tls_exporter(), nonce, mine));
    connected().send_text(to_text(mine));
    resumed now;
    try {
        now = receive_one<resumed>();
    } catch (const refused_error& e) {
        if (e.code() != error_code::resume_failed) {
            throw;
        }
        id_.reset();
        return false;
    }
    require<format_error>(now.session == mine.session,
                          {"remote_model: the server resumed another session than the one of this client"});
    require<adapter_changed_error>(
        now.version == version_,
        {"remote_model: adapter ", in_quotes(options_.adapter), ": got version ", now.version, ", expected ",
         version_, " as before the connection was lost"});
    session_->resumed(now.next_number, now.queries_left);
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
    session_->opened(agreed.queries_left);
    id_ = agreed.session;
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
    if (session_) {
        // A server that was started again counts its versions anew. Without held values and a pin nothing but
        // the version tells two adapters of one layout apart.
        const bool is_another = pin_ ? shown != pin_ : !asks_for_held_ && from.version != version_;
        require<adapter_changed_error>(
            !is_another && layout == this->layout() && digest == held_digest_,
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
    if (session_) {
        return;
    }
    lora::adapter held = given_ ? std::move(*given_) : wire::read_held_adapter(held_message);
    given_.reset();
    session_ = std::make_unique<session_type>(
        std::make_shared<client_type>(keys_, std::move(layout), std::move(held), options_.base_norms),
        session::block_policy{options_.expected_tokens, options_.tokens_ahead});
    held_digest_ = digest;
    if (tokens_ahead > options_.tokens_ahead && options_.tokens_ahead > 1) {
        options_.report(
            tensafe::text_of({"the server has blocks of ", tokens_ahead, " tokens, --tokens-ahead is ",
                              options_.tokens_ahead, ": each hidden state goes alone"}));
    }
}

void remote_model::ask(session::call& of) {
    require<closed_error>(
        !closed_, {"remote_model: got a request after forget or close, expected reconnect before it"});
    if (!connection_) {
        reconnect();  // which says what the limit of queries has left
    }
    try {
        session_->begin(of);
    } catch (const session::refused_error& e) {
        throw query_limit_error(e.what(), error_code::query_limit, e.retry_after());
    }
    const auto end = [this](session::call* c) { session_->end(*c); };
    const std::unique_ptr<session::call, decltype(end)> at_end(&of, end);
    try {
        answer_all(of);
    } catch (...) {
        of.rethrow();  // what was first
        throw;
    }
    of.rethrow();
}

void remote_model::answer_all(session::call& of) {
    tries left = fresh_tries();
    for (bool is_stopped = false; !of.is_over();) {
        const std::size_t answered = of.answered();
        try {
            exchange(of, left, is_stopped);
        } catch (const connection_lost& e) {
            if (is_stopped) {
                throw;
            }
            options_.report(e.what());
            connect(left, e);
            continue;
        }
        counts_.replies += of.answered() - answered;
        if (is_stopped) {
            continue;
        }
        if (of.answered() > answered) {
            left = fresh_tries();
        }
        try {
            options_.between();
        } catch (...) {
            of.fail(std::current_exception());
            is_stopped = true;
            left = {options_.now() + options_.step_limit};
        }
    }
}

void remote_model::ask(std::size_t group, std::span<const float> h, std::vector<double>& product) {
    session::call one(group, 1, [h](std::size_t) { return h; });
    ask(one);
    product.assign(one.product(0).begin(), one.product(0).end());
}

/// Sends what may go up, and reads one reply.
/// @param is_stopped  by the caller: what does not come soon is given up
void remote_model::exchange(session::call& of, tries& left, bool is_stopped) {
    const auto begin = [&] {
        const auto soon = 100ms + std::chrono::ceil<std::chrono::milliseconds>(
                                      std::min<std::chrono::nanoseconds>(counts_.round_trip, 1s));
        connected().begin("a request with its reply",
                          is_stopped ? std::min(soon, step_in(left)) : step_in(left));
    };
    begin();
    try {
        while (const auto* const m = next(of)) {
            begin();
            send(*m);
        }
        if (session_->awaits_reply()) {
            begin();
            return receive_reply();
        }
    } catch (...) {
        drop();  // a late reply must find nobody
        throw;
    }
    if (session_->is_held() && !of.is_over()) {
        return wait_for_rate(left);
    }
    require<tensafe::error>(of.is_over(),
                            {"remote_model: nothing more of this call can be sent or answered"});
}

/// As of the session. What fails on the way up fails the call: replies that are under way still come.
const remote_model::session_type::message* remote_model::next(session::call& of) {
    try {
        return session_->next();
    } catch (const closed_error& e) {
        if (!session_->awaits_reply()) {
            id_.reset();
            throw connection_lost(e.what());
        }
    } catch (...) {
        of.fail(std::current_exception());
    }
    return nullptr;
}

void remote_model::send(const session_type::message& m) {
    m.write(message_);
    if (options_.frames == frame_form::json) {
        connected().send_text(
            carried_text(carried_message::kind::request, message_, m.of().number, m.of().group));
    } else {
        connected().send_binary(message_);
    }
    counts_.message_bytes_up += message_.size();
}

void remote_model::wait_for_rate(tries& left) {
    const std::chrono::milliseconds time = session_->held_for();
    session_->go_on();
    if (!wait(left, time)) {
        std::rethrow_exception(limited_);
    }
    ++counts_.rate_waits;
}

std::chrono::milliseconds remote_model::step_in(const tries& left) const {
    const auto time = std::chrono::ceil<std::chrono::milliseconds>(left.end - options_.now());
    return std::clamp(time, 1ms, std::max(options_.step_limit, 1ms));
}

/// Waits as long as the server said, and longer and longer.
/// @return false, at once, if there is no time for it
bool remote_model::wait(tries& left, std::chrono::milliseconds least) {
    auto time = std::max(backoff(options_.backoff, left.waits++, options_.draw()), least);
    if (options_.now() + time > left.end) {
        return false;
    }
    if (!connection_) {
        options_.report(tensafe::text_of({"connecting again in ", time.count(), " ms"}));
    }
    if (options_.wait) {
        options_.wait(time);
        return true;
    }
    for (constexpr auto piece = 50ms; time > 0ms; time -= piece) {
        options_.poll();
        std::this_thread::sleep_for(std::min(time, piece));
    }
    return true;
}

void remote_model::take(std::span<const std::uint8_t> reply) {
    session_->take(reply);
    counts_.message_bytes_down += reply.size();
}

/// Or what comes in place of one.
void remote_model::receive_reply() {
    const client_connection::frame frame = connected().receive();
    if (!frame.is_text) {
        require<format_error>(options_.frames == frame_form::binary,
                              {"remote_model: got a binary frame, expected JSON as agreed"});
        return take(frame.bytes);
    }
    const control_message got = parse_control(frame.text(), largest_carried(frame));
    if (const auto* const carried = std::get_if<carried_message>(&got);
        carried != nullptr && carried->what == carried_message::kind::reply) {
        const wire::header head = wire::read_header(carried->message);
        require<format_error>(
            carried->number == head.number && carried->group == head.group,
            {"remote_model: got a reply to request ", carried->number, " of group ", carried->group,
             ", expected that to request ", head.number, " of group ", head.group, ", as its message says"});
        return take(carried->message);
    }
    if (const auto* const said = std::get_if<refusal>(&got)) {
        try {
            refuse(*said);
        } catch (const refused_error& e) {
            if (!said->number) {
                throw;  // nobody knows what it answers
            }
            const session::refusal why = reason_of(e.code());
            if (why == session::refusal::rate_limit) {
                limited_ = std::current_exception();
            } else if (why == session::refusal::block_limit || why == session::refusal::other) {
                options_.report(e.what());
            }
            return session_->refused(*said->number, why, std::current_exception(), e.retry_after());
        }
    }
    // Replies still come before the server goes, which it says once.
    require<format_error>(std::holds_alternative<draining>(got) && !std::exchange(goes_away_, true),
                          {"remote_model: got ", type_of(got), ", expected a reply"});
    options_.report("the server is going away");
}

void remote_model::reconnect() {
    tries left = fresh_tries();
    connect(left, connection_lost("it was given up here"));
}

/// @param lost  why there is no connection any more; nothing: there was none, and the first try is at once
void remote_model::connect(tries& left, std::optional<connection_lost> lost) {
    check_process();
    drop();
    closed_ = false;
    const std::uint64_t sessions = counts_.sessions;
    for (;;) {
        if (lost && !wait(left, lost->retry_after.value_or(0ms))) {
            throw connection_lost({"remote_model: no connection within ",
                                   std::chrono::duration<double>(options_.total_limit).count(),
                                   " s (--total-seconds): ", lost->what()});
        }
        try {
            open(left);
            if (lost) {
                options_.report(counts_.sessions > sessions ? "connected, with a fresh session"
                                                            : "connected, the session goes on");
            }
            return;
        } catch (const connection_lost& e) {
            if (e.is_wrong_server && !session_) {
                throw;
            }
            lost = e;
        } catch (const rate_limit_error& e) {
            lost = connection_lost(e.what(), e.retry_after());
        }
        options_.report(lost->what());
    }
}

void remote_model::forget() {
    check_process();
    connected().begin("forgetting", step_in(fresh_tries()));
    try {
        while (session_->awaits_reply()) {
            receive_reply();
        }
        connected().send_text(to_text(split::forget{}));
        static_cast<void>(receive_one<forgotten>());
    } catch (...) {
        drop();  // a late answer must find nobody
        throw;
    }
    id_.reset();
    closed_ = true;
    connection_->close();
    drop();
}

void remote_model::close() noexcept {
    closed_ = true;
    id_.reset();
    if (::getpid() != owner_) {
        connection_.reset();  // in silence: the session and the keys of its TLS are the parent's
    }
    if (!connection_) {
        return;
    }
    try {
        connection_->begin("leaving", 1s);
        connection_->send_text(to_text(bye{}));
    } catch (...) {  // then the server finds out by itself
    }
    connection_->close();
    drop();
}

}  // namespace split
