// Each message and what may follow it, in the order of a session: one file, since it is one state machine.
#include "session_protocol.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "params.hpp"

namespace split {

namespace {

namespace wire = tensafe::wire;

/// Names of adapters, of which JSON makes twice as much at most: far below the longest text.
constexpr std::size_t longest_list = 4 * 1024;

/// @throws refusal of these parts unless `holds`
void require(bool holds, error_code code, std::initializer_list<tensafe::text_part> parts,
             std::optional<std::uint64_t> retry_after_ms = {}) {
    if (!holds) {
        throw refusal{code, tensafe::text_of(parts), {}, retry_after_ms};
    }
}

/// @param wait  as rate_limiter::take says
void check_rate(std::chrono::milliseconds wait, const char* what) {
    require(wait.count() <= 0, error_code::rate_limit,
            {what, ": too many; come again in ", wait.count(), " ms"},
            static_cast<std::uint64_t>(wait.count()));
}

/// @param what  that has the number of the set
void check_set(std::uint64_t set, const char* what) {
    if (set != wire::set_id<params>) {
        throw refusal{
            error_code::parameter_mismatch,
            tensafe::text_of({what, ": got ", wire::set_name(set), ", expected ", wire::set_name<params>()})};
    }
}

/// Requests that a client has sent when it hears that one of them was refused: session::client_session has
/// 256, and halves that each time.
constexpr int most_under_way = 512;

error_code code_of(tensafe::session::refusal why) {
    using tensafe::session::refusal;
    return why == refusal::replayed        ? error_code::replayed
           : why == refusal::unknown_block ? error_code::unknown_block
           : why == refusal::block_limit   ? error_code::block_limit
                                           : error_code::internal;  // the store throws the others as they are
}

void check_message(const wire::header& header, wire::kind expected) {
    require(header.what == expected, error_code::malformed,
            {"message: got a ", wire::name(header.what), ", expected a ", wire::name(expected)});
    check_set(header.set, "message");
}

/// The store of a session of this server: logs what it refuses, in the service's words.
class counts_of_session final : public tensafe::serving::file_store {
  public:
    /// @param owner  all but the evaluator, which has the model too
    counts_of_session(service& of, std::shared_ptr<const served_model> model, query_counts::account account,
                      const session& owner)
        : file_store(of.counts(), std::move(account), *owner.limits),
          of_(of),
          model_(std::move(model)),
          limits_(owner.limits),
          has_own_share_(owner.tenant.share.has_value()),
          client_(owner.client),
          address_(owner.address) {}

    /// Tells nothing of A yet, and is not made where no token would be answered.
    void admit_block(std::size_t group) override {
        file_store::admit_block(group);
        require(of_.sessions().make_block_room(address_), error_code::block_limit,
                {"block request: the server has no room for more blocks of this address, or of all; ask for "
                 "tokens without one"});
        require(of_.take_block(of_.payer(client_, address_), model_->bytes_of_block.at(group)),
                error_code::block_limit,
                {"block request: too many blocks were prepared and not used; ask for tokens without one"});
    }

  private:
    [[noreturn]] void refuse(std::size_t group, const query_counts::outcome& why) override {
        if (why.what == query_counts::outcome::no_room) {
            of_.to_log().line(log_level::error, "usage_full", {{"client", prefix_of(client_)}}, client_);
            throw refusal{error_code::query_limit, "request: this server counts no more clients"};
        }
        const std::array<const char*, 3> who{
            "this client has", of_.addresses_are_tenants() ? "this address has" : "this client's tenant has",
            "all clients together have"};
        const auto of = static_cast<std::size_t>(why.of);
        const char* const option = has_own_share_ ? "share in --clients" : share_options[of];
        of_.to_log().line(log_level::warning, "limit_reached",
                          {{"client", prefix_of(client_)}, {"adapter", model_->name}, {"option", option}},
                          client_);
        const tensafe::serving::query_limits& bits = (*limits_)[group];
        const std::string had = why.of == scope::client  // numbers of others would tell what they do
                                    ? tensafe::text_of({why.bits / bits.request - 1, " of ",
                                                        bits.limits[of].value_or(0) / bits.request})
                                    : "all";
        throw refusal{error_code::query_limit,
                      tensafe::text_of({"request: ", who[of], " had ", had,
                                        " answers to hidden states of this input: only a larger ", option,
                                        " of the server gives more"})};
    }

    service& of_;
    const std::shared_ptr<const served_model> model_;
    const group_limits limits_;
    const bool has_own_share_;
    const std::string client_;
    const std::string address_;
};

}  // namespace

session_protocol::session_protocol(service& of, net::caller from,
                                   std::weak_ptr<net::connection_control> control, std::uint64_t number)
    : of_(of),
      from_(std::move(from)),
      control_(std::move(control)),
      number_(number),
      nonce_(tensafe::random::fresh_nonce()) {
    ++of_.counters_.connections;
}

session_protocol::~session_protocol() {
    --of_.counters_.connections;
    if (session_) {
        of_.sessions_.lose(*session_, number_, of_.options_.now());
    }
}

/// Whatever goes wrong in a step becomes an answer.
template <class Step>
void session_protocol::guarded(net::answer& to, Step step) noexcept {
    try {
        request_.reset();
        oldest_.reset();
        refusal why;
        try {
            step();
            refused_ = 0;
            excused_ = 0;
            return;
        } catch (const refusal& r) {
            why = r;
        } catch (const tensafe::session::refused_error& e) {
            why = {code_of(e.why()), e.what()};
        } catch (const tensafe::serving::unavailable_error& e) {
            why = {
                error_code::unavailable,
                tensafe::text_of({"request: ", e.what(), "; come again in ", e.retry_after().count(), " ms"}),
                {},
                static_cast<std::uint64_t>(e.retry_after().count())};
        } catch (const tensafe::unsupported_error& e) {
            why = {error_code::unsupported_version, e.what()};
        } catch (const tensafe::format_error& e) {
            why = {error_code::malformed, e.what()};
        } catch (const tensafe::shape_error& e) {
            why = {error_code::malformed, e.what()};
        } catch (const tensafe::parameter_error& e) {
            why = {error_code::parameter_mismatch, e.what()};
        } catch (const std::exception& e) {
            of_.options_.to.line(
                log_level::error, "internal_error",
                {{"connection", number_}, {"what", e.what()}, {"unique_id", from_.unique_id}}, whose());
            why = {error_code::internal, "the server could not do it; its log has the reason"};
        }
        why.number = request_;
        refuse(why, to);
    } catch (...) {
        stage_ = stage::over;
        to.clear();
        if (const auto connection = control_.lock()) {
            connection->end(net::close_internal, "internal error");
        }
    }
}

void session_protocol::refuse(const refusal& r, net::answer& to) {
    to.clear();
    if (stage_ == stage::over && session_ && !of_.sessions_.has(*session_)) {
        to.close(net::close_normal,
                 "the session is over");  // as it is told to the connection: nothing was refused
        return;
    }
    to.add_text(to_text(r));
    of_.counters_.refused(r.code);
    of_.options_.to.line(log_level::warning, "refused",
                         {{"connection", number_},
                          {"session", session_ ? prefix_of(session_->id) : std::string_view()},
                          {"code", to_string(r.code)},
                          {"address", from_.address},
                          {"unique_id", from_.unique_id}},
                         whose());
    // Whatever it is: who mixes them is not better. Only that the store is away is nobody's fault.
    refused_ += r.code != error_code::unavailable && counts_as_error() ? 1 : 0;
    if (stage_ == stage::over) {
        to.close(net::close_normal, "no session");
    } else if (r.code == error_code::draining) {
        stage_ = stage::over;
        to.close(net::close_going_away, "draining");
    } else if (refused_ >= of_.options_.allowed.refused_in_a_row) {
        stage_ = stage::over;
        to.close(net::close_policy, "too many errors in a row");
    } else if (stage_ != stage::open && r.code != error_code::resume_failed) {
        stage_ = stage::over;
        to.close(net::close_policy, to_string(r.code));
    }
}

/// Requests that were under way when one was refused, as the client's acknowledgements say, are refused for
/// the same reason, as those behind a block that there is no room for: they count with it.
bool session_protocol::counts_as_error() {
    if (refused_ > 0 && counted_refusal_ && oldest_ && *oldest_ <= *counted_refusal_ &&
        *counted_refusal_ < *request_ && excused_ < most_under_way) {
        ++excused_;
        return false;
    }
    counted_refusal_ = request_;
    return true;
}

void session_protocol::start(net::answer& to) {
    guarded(to, [&] {
        check_draining();
        exporter_ = std::shared_ptr(control_)->channel_binding();
        to.add_text(to_text(challenge{nonce_, wire::set_name<params>()}));
    });
}

void session_protocol::on_text(std::string_view text, net::answer& to) {
    guarded(to, [&] {
        control_message heard = parse_control(
            text, stage_ == stage::open ? of_.options_.allowed.largest_message : rerandomization_key_bytes());
        if (auto* const said = std::get_if<hello>(&heard); said != nullptr && stage_ == stage::new_client) {
            greet(std::move(*said));
        } else if (const auto* const old = std::get_if<resume>(&heard);
                   old != nullptr && stage_ == stage::new_client) {
            resume_session(*old, to);
        } else if (const auto* const carried = std::get_if<carried_message>(&heard);
                   carried != nullptr && carried->what == carried_message::kind::rerandomization_key &&
                   stage_ == stage::rerandomization_key && frames_ == frame_form::json) {
            take_rerandomization_key(carried->message, to);
        } else if (carried != nullptr && carried->what == carried_message::kind::request &&
                   stage_ == stage::open && frames_ == frame_form::json) {
            request_ = carried->number;
            const wire::header header = wire::read_header(carried->message);
            require(header.number == carried->number && header.group == carried->group, error_code::malformed,
                    {"request: the frame has number ", carried->number, " and group ", carried->group,
                     ", its message ", header.number, " and ", header.group});
            answer_request(carried->message, to);
        } else if (std::holds_alternative<forget>(heard) && stage_ == stage::open) {
            const std::string client = session_->client;
            end_session();
            static_cast<void>(of_.forget(client, 1));
            to.add_text(to_text(forgotten{}));
            to.close(net::close_normal, "forgotten");
        } else if (std::holds_alternative<bye>(heard) && stage_ == stage::open) {
            end_session();
            to.close(net::close_normal, "bye");
        } else {
            throw refusal{error_code::malformed, "got a control message that does not come here"};
        }
    });
}

void session_protocol::on_binary(std::span<const std::uint8_t> bytes, net::answer& to) {
    guarded(to, [&] {
        require(stage_ != stage::over, error_code::malformed, {"this connection has no session any more"});
        require(stage_ != stage::new_client, error_code::malformed,
                {"got a binary frame, expected hello or resume first"});
        const bool is_key = stage_ == stage::rerandomization_key;
        require(frames_ == frame_form::binary, error_code::malformed,
                {"got a binary frame, expected {\"type\":\"", is_key ? "rerandomization_key" : "request",
                 "\", ...}"});
        is_key ? take_rerandomization_key(bytes, to) : answer_request(bytes, to);
    });
}

void session_protocol::check_draining() const {
    require(!of_.draining(), error_code::draining, {"this server stops: try another one"});
}

void session_protocol::limit_handshakes() const {
    check_draining();
    check_rate(of_.take_handshake(from_.address), "handshakes of this address");
}

void session_protocol::greet(hello heard) {
    limit_handshakes();
    check_set(heard.set, "hello");
    const std::string client = tensafe::keystore::hex(heard.client);
    const bool fits = is_signed(heard);
    const bool is_listed = of_.tenant_of(client, from_.address).has_value();
    if (fits && !is_listed) {
        of_.options_.to.line(log_level::warning, "client_not_listed",
                             {{"connection", number_},
                              {"client", prefix_of(client)},
                              {"address", from_.address},
                              {"unique_id", from_.unique_id}},
                             from_.address);
    }
    // One answer: who has not the key does not learn whether it is listed.
    require(fits && is_listed, error_code::not_authorised,
            {"hello: got the client ", client,
             ", expected its signature of this connection (a proxy that ends TLS makes another) and its "
             "key in --clients, if any"});
    model_ = of_.adapters_.find(heard.adapter);
    if (!model_) {
        if (const auto wait = of_.loads_.want(heard.adapter)) {
            throw refusal{error_code::loading,
                          tensafe::text_of({"hello: the adapter ", tensafe::in_quotes(heard.adapter),
                                            " is being packed; come again in ", wait->count(), " ms"}),
                          {},
                          static_cast<std::uint64_t>(wait->count())};
        }
        model_ = of_.adapters_.find(heard.adapter);  // loaded meanwhile
    }
    require(model_ != nullptr || of_.listed() == nullptr || of_.missing().empty(), error_code::loading,
            {"hello: the list of adapters is not read, or one is not packed; come again in 1000 ms"}, 1'000);
    if (!model_) {
        std::string names;
        for (const auto& each : of_.adapters_.served()) {
            if (names.size() > longest_list) {
                names += ", ...";
                break;
            }
            names += (names.empty() ? "" : ", ") + tensafe::quote(each->name);
        }
        throw refusal{
            error_code::unknown_adapter,
            tensafe::text_of({"hello: got the adapter ", tensafe::in_quotes(heard.adapter),
                              ", expected one that is served: ", names.empty() ? "none is" : names})};
    }
    frames_ = heard.frames;
    hello_ = std::move(heard);
    stage_ = stage::rerandomization_key;
}

/// A hello or resume, by the client that it names, for this connection.
template <class Message>
bool session_protocol::is_signed(const Message& heard) const {
    try {
        return tensafe::keystore::verifying_key(heard.client, "\"client\"")
            .verifies(text_to_sign(exporter_, nonce_, heard), heard.signature);
    } catch (const tensafe::format_error&) {
        return false;  // "client" is no key
    }
}

void session_protocol::take_rerandomization_key(std::span<const std::uint8_t> message, net::answer& to) {
    require(message.size() <= rerandomization_key_bytes(), error_code::too_large,
            {"re-randomization key: got ", message.size(), " bytes, expected at most ",
             rerandomization_key_bytes()});
    check_message(wire::read_header(message), wire::kind::rerandomization_key);
    require(tensafe::keystore::sha256::of(std::as_bytes(message)) == hello_->key_sha256,
            error_code::not_authorised,
            {"re-randomization key: got another one than hello's \"key_sha256\""});
    check_draining();
    session made;
    made.client = tensafe::keystore::hex(hello_->client);
    made.address = limited_address(from_.address);
    auto tenant = of_.tenant_of(made.client, made.address);
    require(tenant.has_value(), error_code::not_authorised,
            {"hello: the client ", made.client, " was taken off --clients"});
    made.tenant = std::move(*tenant);
    made.limits = limits_of(model_, made.tenant.share);
    made.frames = frames_;
    account_ = of_.account_of(made, *model_);
    const std::string owner =
        made.tenant.name.empty() ? std::string(key_owner) + made.client : made.tenant.name;
    try {
        made.evaluator = make_evaluator(model_, owner, derived_nonces(nonce_).of_rerandomization_key, message,
                                        std::make_unique<counts_of_session>(of_, model_, account_, made));
    } catch (const tensafe::parameter_error& e) {
        throw refusal{error_code::not_authorised, e.what()};  // the set is right: it is another nonce's
    }
    const bool makes_own = of_.options_.marks && (hello_->held || !model_->pin_folder.empty());
    if (makes_own) {
        check_rate(of_.work_.take(made.client, of_.options_.now()), "milliseconds of work for this client");
    }
    session_ = of_.sessions_.open(std::move(made), number_, control_, of_.options_.now());
    require(session_ != nullptr, error_code::rate_limit,
            {"hello: this client has as many sessions as it may have, or the server"}, 1'000);
    const auto began = std::chrono::steady_clock::now();
    const auto pay = [&] {
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
        of_.work_.pay(session_->client, makes_own ? took.count() - 1 : 0, of_.options_.now());
    };
    shared_message held;
    std::string pin;
    try {
        held = hello_->held ? model_->held_for(owner, frames_) : nullptr;
        pin = model_->pin_for(owner);
    } catch (const std::exception& e) {
        pay();
        end_session();
        throw std::runtime_error(e.what());  // the server's fault: the client is told no more
    }
    pay();
    ++of_.counters_.sessions_opened;
    to.add_text(to_text(welcome{tensafe::keystore::from_hex<16>(session_->id), model_->name, model_->version,
                                queries_left(), std::move(pin)}));
    to.add(frames_ == frame_form::json).shared = model_->layout.in(frames_);
    if (held) {
        to.add(frames_ == frame_form::json).shared = std::move(held);
    }
    stage_ = stage::open;
    hello_.reset();
    of_.options_.to.line(log_level::info, "session_opened",
                         {{"connection", number_},
                          {"session", prefix_of(session_->id)},
                          {"client", prefix_of(session_->client)},
                          {"adapter", model_->name},
                          {"version", model_->version},
                          {"address", from_.address},
                          {"unique_id", from_.unique_id},
                          {"traceparent", from_.traceparent}});
}

void session_protocol::resume_session(const resume& heard, net::answer& to) {
    limit_handshakes();
    if (is_signed(heard)) {
        session_ =
            of_.sessions_.resume(tensafe::keystore::hex(heard.session), tensafe::keystore::hex(heard.client),
                                 number_, control_, of_.options_.now());
    }
    require(session_ != nullptr, error_code::resume_failed,
            {"resume: got no session of this client with its signature of this connection, expected one that "
             "waits: say hello"});
    // The model of the session lives as long as the session does.
    model_ = std::shared_ptr<const served_model>(session_->evaluator, &session_->evaluator->model());
    account_ = of_.account_of(*session_, *model_);
    frames_ = session_->frames;
    // What is computed for the old connection is kept before the client asks for it again.
    const std::lock_guard lock(session_->evaluator->answering);
    if (!of_.sessions_.use(*session_, number_, of_.options_.now())) {  // another connection was faster
        lost_session();
    }
    session_->evaluator->on_resumed();
    stage_ = stage::open;
    ++of_.counters_.sessions_resumed;
    to.add_text(
        to_text(resumed{heard.session, session_->evaluator->next_number(), model_->version, queries_left()}));
    of_.options_.to.line(log_level::info, "session_resumed",
                         {{"connection", number_},
                          {"session", prefix_of(session_->id)},
                          {"client", prefix_of(session_->client)},
                          {"address", from_.address},
                          {"unique_id", from_.unique_id},
                          {"traceparent", from_.traceparent}});
}

/// Of limits that are the client's alone: what is left of others would tell what other clients do.
std::vector<std::uint64_t> session_protocol::queries_left() const {
    std::vector<std::uint64_t> result;
    for (std::size_t group = 0; group < model_->groups.size(); ++group) {
        const tensafe::serving::query_limits& bits = (*session_->limits)[group];
        const std::uint64_t used = of_.counts_.used(account_, group)[0];
        std::optional<std::uint64_t> least;
        for (std::size_t i = 0; i < account_.size(); ++i) {
            if (const auto limit = bits.limits[i]; limit && account_[i] == account_[0]) {
                const std::uint64_t left = (*limit - std::min(used, *limit)) / bits.request;
                least = std::min(least.value_or(left), left);
            }
        }
        if (!least) {
            return {};  // then no group has one
        }
        result.push_back(*least);
    }
    if (result.size() > most_limits) {
        result = {std::ranges::min(result)};
    }
    return result;
}

void session_protocol::lost_session() {
    stage_ = stage::over;
    throw refusal{error_code::resume_failed, "this connection does not have the session any more"};
}

/// Another connection may have resumed the session, or the client may be forgotten.
void session_protocol::end_session() {
    if (!of_.sessions_.end(*session_, number_)) {
        lost_session();
    }
    session_.reset();
    stage_ = stage::over;
}

/// A client that was forgotten stays forgotten.
void session_protocol::record(const tensafe::serving::usage& used) const {
    of_.sessions_.while_open(*session_, [&] { of_.used_.record(model_->name, session_->client, used); });
}

void session_protocol::answer_request(std::span<const std::uint8_t> message, net::answer& to) {
    const std::size_t largest = of_.options_.allowed.largest_message;
    require(message.size() <= largest, error_code::too_large,
            {"request: got ", message.size(), " bytes, expected at most ", largest});
    const wire::header header = wire::read_header(message);
    request_ = header.number;
    oldest_ = header.number - std::min<std::uint64_t>(header.number, header.unanswered);
    try {
        check_message(header, wire::is_request(header.what) ? header.what : wire::kind::request);
        const std::lock_guard lock(session_->evaluator->answering);
        if (!of_.sessions_.use(*session_, number_, of_.options_.now())) {
            lost_session();
        }
        compute(header, message, to);
        limit_kept_replies();
    } catch (...) {
        record({.refused = 1, .bytes_up = message.size()});
        throw;
    }
}

/// In the frames of this session.
tensafe::serving::usage session_protocol::add_reply(const wire::header& header,
                                                    std::span<const std::uint8_t> message, net::answer& to) {
    session_evaluator& evaluator = *session_->evaluator;
    shared_message reply;
    const tensafe::serving::usage used = evaluator.on_message(message, header, reply);
    if (frames_ == frame_form::binary) {
        to.add(false).shared = std::move(reply);
    } else {
        to.add_text(carried_text(carried_message::kind::reply, *reply, header.number, header.group));
    }
    return used;
}

void session_protocol::compute(const wire::header& header, std::span<const std::uint8_t> message,
                               net::answer& to) {
    require(header.group < model_->groups.size(), error_code::malformed,
            {"request: got group ", header.group, ", expected one of the ", model_->groups.size(),
             " of this adapter"});
    session_evaluator& evaluator = *session_->evaluator;
    const time_point now = of_.options_.now();
    if (header.number < evaluator.next_number()) {
        // Its reply may have been lost. It takes no work, comes once for each handshake, and is paid for: it
        // is not refused for a rate of requests.
        const std::string address = limited_address(from_.address);
        check_rate(of_.repeated_.take(address, now), "bytes that are sent again to this address");
        of_.requests_.pay(session_->client, 1, now);
        const tensafe::serving::usage used = add_reply(header, message, to);
        of_.repeated_.pay(address, static_cast<double>(used.bytes_down), now);
        return record(used);
    }
    check_rate(of_.work_.take(session_->client, now), "milliseconds of work for this client");
    check_rate(of_.requests_.take(session_->client, now), "requests of this client");
    ++of_.busy_;
    const auto end = [&](service* of) { --of->busy_; };
    const std::unique_ptr<service, decltype(end)> at_end(&of_, end);
    const std::size_t pool_before = evaluator.pool_size();
    const auto began = std::chrono::steady_clock::now();
    const auto pay = [&](double at_least) {
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
        of_.work_.pay(session_->client, std::max(took.count(), at_least) - 1, of_.options_.now());
        return took;
    };
    tensafe::serving::usage used;
    try {
        used = add_reply(header, message, to);
    } catch (const tensafe::serving::unavailable_error&) {
        throw;
    } catch (...) {
        pay(1);  // an A with marks may have been packed for what turned out to be malformed
        throw;
    }
    of_.counters_.answered(std::chrono::duration_cast<std::chrono::nanoseconds>(pay(0)));
    if (used.tokens > 0 && !model_->bytes_of_block.empty()) {  // as much may be prepared
        const double bytes = static_cast<double>(model_->bytes_of_block[header.group]) /
                             static_cast<double>(of_.options_.allowed.tokens_ahead);
        of_.blocks_.pay(of_.payer(session_->client, session_->address), -bytes, now);
    }
    const std::size_t pool_now = evaluator.pool_size();
    const std::size_t taken = pool_before > pool_now ? pool_before - pool_now : 0;
    // A look at all sessions may have set the number to less meanwhile.
    std::size_t pooled = of_.pooled_;
    while (!of_.pooled_.compare_exchange_weak(pooled, pooled - std::min(pooled, taken))) {
    }
    record(used);
}

/// Where there is no room, a session keeps its last reply alone. Looks at all sessions only now and then.
void session_protocol::limit_kept_replies() {
    constexpr std::size_t step = std::size_t{16} << 10;
    session_evaluator& evaluator = *session_->evaluator;
    const std::size_t held = evaluator.held_bytes();
    if (held >= room_checked_at_ + step && !of_.sessions_.has_block_room(session_->address)) {
        evaluator.drop_replies();
    } else if (held >= room_checked_at_ && held < room_checked_at_ + step) {
        return;
    }
    room_checked_at_ = evaluator.held_bytes();
}

void session_protocol::on_drain(net::answer& to) {
    stage_ = stage::over;
    to.add_text(to_text(draining{}));
    to.close(net::close_going_away, "draining");
}

bool session_protocol::idle() {
    // What is made now is not made while a client waits; while anybody waits, it would be.
    if (stage_ != stage::open || of_.busy_ > 0 || of_.draining() ||
        of_.pooled_ >= of_.options_.allowed.pooled) {
        return false;
    }
    try {
        const bool made = session_->evaluator->fill_pool(of_.options_.allowed.pool_of_session);
        of_.pooled_ += made ? 1 : 0;
        return made;
    } catch (const std::exception&) {
        return false;  // it is made, or fails, when it is needed
    }
}

std::size_t session_protocol::largest_frame() const {
    const std::size_t message = stage_ == stage::rerandomization_key ? rerandomization_key_bytes()
                                : stage_ == stage::open
                                    ? std::min(of_.options_.allowed.largest_message, model_->largest_request)
                                    : 0;
    return std::max(frames_ == frame_form::json ? longest_carrying_text(message) : message,
                    longest_control_text);
}

}  // namespace split
