#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/memory/buffer.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/session/block_policy.hpp>
#include <tensafe/session/protocol.hpp>
#include <tensafe/session/store.hpp>
#include <tensafe/wire/message.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

namespace tensafe::session {

/// Hidden states of one group on their way, and row by row the products that came back: wiped on release.
///
/// Belongs to whoever asks, can be begun once, and stays in place from client_session::begin to
/// client_session::end. Whatever ends it early, rows that were answered stay and can be read. A row that
/// cannot be encrypted fails the call when its turn comes, after earlier ones have gone up.
class call {
  public:
    /// Returns a row, valid until the next one is asked for. A row is asked for again if it has to be
    /// encrypted again, so all of them stay until the call is over.
    using rows_source = std::function<std::span<const float>(std::size_t row)>;

    /// Makes a call of `rows` hidden states of a group.
    /// @param zeros_for_nan  rows of no finite norm are no error: 0 goes instead, and bad_rows counts them
    /// @param overflow_margin  as in lora::client::encrypt
    call(std::size_t group, std::size_t rows, rows_source source, double overflow_margin = 1,
         bool zeros_for_nan = false)
        : group_(group),
          source_(std::move(source)),
          overflow_margin_(overflow_margin),
          zeros_for_nan_(zeros_for_nan),
          answered_(rows) {}
    call(const call&) = delete;
    call& operator=(const call&) = delete;

    std::size_t group() const noexcept { return group_; }
    std::size_t rows() const noexcept { return answered_.size(); }
    std::size_t answered() const noexcept { return count_; }
    std::size_t bad_rows() const noexcept { return bad_rows_; }
    bool is_answered(std::size_t row) const { return answered_.at(row) != 0; }
    /// The product of the group's stacked rows with this row's hidden state.
    /// @pre is_answered(row)
    std::span<const double> product(std::size_t row) const {
        return products_.span().subspan(row * rank_, rank_);
    }

    // For whoever answers calls and is no client_session.
    std::span<const float> row(std::size_t row) const { return source_(row); }
    void answer(std::size_t row, std::span<const double> product) {
        if (products_.empty()) {
            rank_ = product.size();
            products_ = memory::secret_buffer<double>(rows() * rank_);
        }
        std::copy(product.begin(), product.end(), products_.span().subspan(row * rank_, rank_).begin());
        count_ += std::exchange(answered_.at(row), std::uint8_t{1}) == 0 ? 1U : 0U;
    }

    /// Whether nothing of the call is under way and nothing more goes up.
    bool is_over() const noexcept {
        return under_way_ == 0 && (is_stopped_ || (next_ == rows() && again_.empty()));
    }
    /// Stops the call without a failure: no more rows go up, and what is under way is still answered.
    void stop() noexcept { is_stopped_ = true; }
    /// Stops the call, and makes `rethrow` throw `why` if it is the first failure.
    void fail(std::exception_ptr why) noexcept {
        is_stopped_ = true;
        if (!failure_) {
            failure_ = std::move(why);
        }
    }
    void rethrow() const {
        if (failure_) {
            std::rethrow_exception(failure_);
        }
    }

  private:
    template <class Protocol>
    friend class basic_client_session;

    struct attempt {
        std::size_t row;
        int refused;  ///< the number of refusals before
    };

    bool has_row() const noexcept { return !is_stopped_ && (next_ < rows() || !again_.empty()); }

    std::size_t group_;
    rows_source source_;
    double overflow_margin_;
    bool zeros_for_nan_;
    std::vector<std::uint8_t> answered_;
    std::size_t count_ = 0;
    std::size_t bad_rows_ = 0;
    std::size_t rank_ = 0;
    memory::secret_buffer<double> products_;
    std::size_t next_ = 0;  ///< the first row that never went up
    std::vector<attempt> again_;
    std::size_t under_way_ = 0;  ///< rows that have a message: sent, or to be sent again
    bool is_stopped_ = false;
    std::exception_ptr failure_;
};

/// The client's side of a session, as a state machine over messages: no socket, no thread and no clock of its
/// own. What it promises:
///
/// - A position of a block hides one hidden state, and a number is of one message. What was sent goes again
///   as the same ciphertext, over whatever connection, until it is answered or refused; what must be
///   encrypted again gets another position or other randomness.
/// - Messages go up before earlier replies are read: at most 32 at first and 256 later, whose replies take
///   reply_window bytes together and whose requests request_window, or one message of any size; a block's
///   request before the tokens that need it. What fits takes one round trip, and more keeps the line full.
/// - Blocks are asked for as block_policy says, and when one is nearly used up the next is under way: one
///   part of it after a call, so that the next answer does not wait for a whole block.
/// - A call that the limit of queries cannot pay is refused before anything is sent.
///
/// Whoever has the connection sends what `next` gives, gives each reply to `take` or each refusal to
/// `refused`, and says when the connection is lost and what came of it. Several calls may be under way.
///
/// Used by one thread at a time, and not while another one uses anything that has the same keys. In the child
/// of a fork begin, next, take and refused throw: encryptions and masks would come twice.
template <class Protocol>
class basic_client_session {
    using model_type = typename Protocol::client_model;
    using block_type = typename Protocol::client_block;

    struct block {
        block_type positions;
        std::uint64_t number = 0;    ///< number of the request for its first part, as it was sent last
        std::size_t asked = 0;       ///< outputs that were asked for
        std::size_t parts = 0;       ///< the number of requests for parts without an answer
        bool is_dead = false;        ///< the server does not have it, or never will
        std::size_t unanswered = 0;  ///< the number of tokens without a reply
    };
    using block_place = typename std::list<block>::iterator;

  public:
    /// A message that goes up: a hidden state alone, a block or a token in one. Stays in place until it is
    /// answered.
    class message {
      public:
        wire::kind what() const noexcept { return what_; }
        const wire::envelope& of() const noexcept { return of_; }
        const typename Protocol::request& alone() const noexcept { return query_.request; }
        const lora::block_request& block() const noexcept { return part_; }
        const lora::token_request& token() const noexcept { return token_.request; }
        /// Writes the message over `to`.
        void write(std::vector<std::uint8_t>& to) const {
            switch (what_) {
                case wire::kind::block_request:
                    return Protocol::write(block(), of_, to);
                case wire::kind::token_request:
                    return Protocol::write(token(), of_, to);
                default:
                    return Protocol::write(alone(), of_, to);
            }
        }

      private:
        friend class basic_client_session;

        wire::kind what_{};
        std::uint64_t made_ = 0;     ///< the number of messages made before
        wire::envelope of_;          ///< its number is 0 until it is sent
        bool is_sent_ = false;       ///< whether it was sent over this connection
        bool may_be_known_ = false;  ///< it was sent over an earlier connection: may be answered
        bool is_owed_ = false;       ///< the session went on behind its number
        call* from_ = nullptr;       ///< null for a block, or if nobody waits for it
        std::size_t row_ = 0;
        int refused_ = 0;
        std::size_t reply_bytes_ = 0;
        std::size_t request_bytes_ = 0;
        block_place block_{};
        lora::block_request part_;
        typename Protocol::query query_;
        lora::token_query token_;
        bool is_early_ = false;  ///< the answer is here, and waits for the answer to the block
        lora::token_reply early_;
    };

    explicit basic_client_session(std::shared_ptr<model_type> model, block_policy policy = {})
        : model_(std::move(model)), policy_(policy) {
        require<parameter_error>(model_ != nullptr, {"client_session: got no model"});
        const auto& groups = model_->layout().groups;
        groups_.resize(groups.size());
        has_blocks_ = policy_.uses(model_->layout().tokens_ahead);
        for (std::size_t g = 0; g < groups.size(); ++g) {
            groups_[g].cost = Protocol::cost(*model_, g);
            if (has_blocks_) {
                groups_[g].cost_of_block = Protocol::cost_of_block(*model_, g);
            }
        }
    }
    basic_client_session(const basic_client_session&) = delete;
    basic_client_session& operator=(const basic_client_session&) = delete;

    const std::shared_ptr<model_type>& model() const noexcept { return model_; }
    bool has_blocks() const noexcept { return has_blocks_; }

    // --- Calls.

    /// Begins a call: its rows go up with `next`.
    /// @throws refused_error with both numbers if the limit of queries has less left than the call has rows,
    ///         and then nothing is spent; parameter_error if there is no such group
    void begin(call& c) {
        check_process();
        static_cast<void>(model_->layout().at(c.group_));
        group& g = groups_[c.group_];
        if (g.left) {
            std::uint64_t unpaid = 0;  // rows of the group that were begun before, of ended calls as well
            for (const call* const each : calls_) {
                const bool goes_on = each->group_ == c.group_ && !each->is_stopped_;
                unpaid += goes_on ? each->rows() - each->next_ + each->again_.size() : 0;
            }
            for (const message& m : messages_) {
                const bool is_row = m.of_.group == c.group_ && m.what_ != wire::kind::block_request;
                unpaid += is_row && !m.is_early_ ? 1U : 0U;
            }
            const std::uint64_t free = *g.left - std::min(*g.left, unpaid);
            if (c.rows() > free) {
                throw refused_error(
                    text_of({"client_session: input ", in_quotes(model_->layout().groups[c.group_].input),
                             ": got a call of ", c.rows(), " hidden states, expected at most ", free,
                             ", which is what the server's limit of queries has left; nothing was sent"}),
                    refusal::query_limit);
            }
        }
        c.rank_ = model_->plan(c.group_).rank();
        c.products_ = memory::secret_buffer<double>(c.rows() * c.rank_);
        calls_.push_back(&c);
    }

    /// Ends a call that was begun, before it goes away. If it is not over, replies to what is under way are
    /// given up when they come.
    void end(call& c) noexcept {
        c.is_stopped_ = true;
        for (auto each = messages_.begin(); each != messages_.end();) {
            const auto at = each++;
            if (at->from_ == &c && !at->is_sent_) {
                settle(*at);
                remove(at);  // it would go up, and be paid for, for nobody
            } else if (at->from_ == &c) {
                at->from_ = nullptr;
                wipe(*at);
            }
        }
        c.under_way_ = 0;
        calls_.remove(&c);
        reading_ = {};  // the last answers
    }

    /// The hidden states of a group that the limit of queries has left for this client, if there is one.
    /// Those of calls under way count until they are answered.
    std::optional<std::uint64_t> queries_left(std::size_t of_group) const {
        return groups_.at(of_group).left;
    }
    /// The queries left of the group that has the fewest; nothing if there is no limit.
    std::optional<std::uint64_t> queries_left() const noexcept {
        std::optional<std::uint64_t> least;
        for (const group& g : groups_) {
            if (g.left) {
                least = std::min(least.value_or(*g.left), *g.left);
            }
        }
        return least;
    }

    /// The bytes up and down of `tokens` hidden states of a group, all expected, as the cost model has them:
    /// blocks that are not used up whole count what is used.
    std::pair<std::size_t, std::size_t> forecast(std::size_t of_group, std::size_t tokens) const {
        const auto& alone = groups_.at(of_group).cost;
        std::pair<std::size_t, std::size_t> sum;
        if (has_blocks_) {
            const auto& whole = groups_[of_group].cost_of_block;
            for (std::size_t used = 0;
                 block_policy::saves_bytes(alone, whole, used = std::min(tokens, whole.hidden_states));
                 tokens -= used) {
                sum.first += whole.bytes_up - (whole.hidden_states - used) * whole.online_up;
                sum.second += whole.bytes_down - (whole.hidden_states - used) * whole.online_down;
            }
        }
        return {sum.first + tokens * alone.bytes_up, sum.second + tokens * alone.bytes_down};
    }

    // --- The connection.

    /// The next message to send now; it counts as sent. Null: nothing now, as the windows are full, the call
    /// failed on a row that cannot be encrypted, or is_held(). A reply is to come only if awaits_reply().
    /// @throws closed_error if the numbers of this session are used up: only a fresh one goes on
    const message* next() {
        check_process();
        give_up_stopped();
        if (is_held()) {
            return nullptr;
        }
        std::size_t sent = 0;
        for (auto each = messages_.begin(); each != messages_.end(); ++each) {
            if (!each->is_sent_) {
                return sent < allowed_ ? send(each) : nullptr;
            }
            sent += each->is_early_ ? 0U : 1U;
        }
        for (call* const c : calls_) {
            if (c->has_row()) {
                if (const auto made = make(*c); made != messages_.end()) {
                    return send(made);
                }
                if (c->has_row()) {
                    return nullptr;  // the window is full
                }
            }
        }
        const bool is_stopped =
            std::any_of(calls_.begin(), calls_.end(), [](const call* c) { return c->is_stopped_; });
        return is_stopped ? nullptr : ask_ahead();
    }

    /// Whether a reply or refusal is to come on this connection.
    bool awaits_reply() const noexcept {
        return std::any_of(messages_.begin(), messages_.end(),
                           [](const message& m) { return m.is_sent_ && !m.is_early_; });
    }

    /// Takes a reply, as a message.
    /// @throws as the readers; format_error if nobody waits for it. The connection must be given up then:
    ///         what was under way goes again over another
    void take(std::span<const std::uint8_t> bytes) {
        check_process();
        const wire::header head = wire::read_header(bytes);
        const auto at = find(head.number);
        require<format_error>(at != messages_.end() && at->of_.group == head.group,
                              {"client_session: got a reply to request ", head.number, " of group ",
                               head.group, ", which nobody waits for"});
        take(*at, [&](auto&&... to) { Protocol::read(bytes, *model_, at->of_.group, to...); });
    }

    /// Takes a reply in place: `fill` writes it, of the kind that goes with the message.
    /// @param fill  called with a reply, a lora::block_reply or a lora::token_reply
    template <class Fill>
    void answer(const message& to, Fill fill) {
        const auto at = find(to.of_.number);
        require<parameter_error>(at != messages_.end(), {"client_session: got the reply to request ",
                                                         to.of_.number, ", which is not under way"});
        take(*at, [&](auto&&... to_fill) { fill(std::get<sizeof...(to_fill) - 1>(std::tie(to_fill...))); });
    }

    /// Takes the server's refusal of a message.
    /// @param number  of the message
    /// @param error   what the call throws if it cannot go on; not null
    /// @throws format_error if nobody waits for an answer to it
    void refused(std::uint64_t number, refusal why, std::exception_ptr error,
                 std::optional<std::chrono::milliseconds> retry_after = std::nullopt) {
        check_process();
        const auto at = find(number);
        require<format_error>(at != messages_.end(), {"client_session: got a refusal of request ", number,
                                                      ", which nobody waits for"});
        const bool is_block = at->what_ == wire::kind::block_request;
        if (why == refusal::replayed) {
            settle(*at);  // its reply is lost for good
        }
        if (at->from_ == nullptr && !is_block) {
            return remove(at);
        }
        if (why == refusal::rate_limit) {
            constexpr std::chrono::milliseconds least{1};
            constexpr std::chrono::milliseconds unsaid{100};
            allowed_ =
                is_held() ? allowed_ : std::max<std::size_t>(1, std::min(allowed_, messages_.size()) / 2);
            held_ = std::max(held_, std::max(retry_after.value_or(unsaid), least));
            if (at->may_be_known_) {
                at->is_sent_ = false;  // under its number the reply may be kept
                return;
            }
            return send_later(at);
        }
        if (is_block) {
            // Refused as replayed, the block's reply was lost, and there may be room for another: one row
            // goes alone before it is asked for, so that who refuses all blocks is not asked for ever.
            std::size_t& alone = groups_[at->of_.group].alone;
            const bool is_lost = why == refusal::replayed || at->part_.first != 0;
            alone = std::max(alone, is_lost ? 1 : model_->layout().tokens_ahead);
            give_up(at);
            return remove(at);
        }
        const bool is_unknown = why == refusal::unknown_block && at->what_ == wire::kind::token_request;
        if (is_unknown) {
            const bool is_too_early = std::any_of(messages_.begin(), messages_.end(), [&](const message& m) {
                return m.what_ == wire::kind::block_request && m.block_ == at->block_ &&
                       (!m.is_sent_ || m.of_.number > at->of_.number);
            });
            if (!at->block_->is_dead && (is_too_early || at->token_.request.block != at->block_->number)) {
                return send_later(at);  // once a part is there, or under the block's new number
            }
            give_up(at);
        }
        constexpr int most_refused = 8;
        if ((is_unknown || why == refusal::replayed) && at->refused_ + 1 < most_refused) {
            return encrypt_again(at, at->refused_ + 1);
        }
        at->from_->fail(std::move(error));
        remove(at);
    }

    /// Whether a rate limit holds messages until go_on, no sooner than the server said.
    bool is_held() const noexcept { return held_.count() > 0; }
    std::chrono::milliseconds held_for() const noexcept { return held_; }
    void go_on() noexcept { held_ = {}; }

    /// Notes that the connection is lost: what has no answer goes again over the next one, but for messages
    /// of calls that were ended.
    void lost() noexcept {
        for (auto each = messages_.begin(); each != messages_.end();) {
            const auto at = each++;
            at->is_sent_ = at->is_early_;
            at->may_be_known_ = at->of_.number != 0;
            settle(*at);
            if (at->from_ == nullptr && at->what_ != wire::kind::block_request) {
                remove(at);  // nobody waits for it
            }
        }
        held_ = {};
    }
    /// Goes on over a new connection: what has no answer goes again as it is.
    /// @param next_number  of the server: it has seen all numbers below. Its word alone never makes a number
    ///                     come again
    /// @param left         of the limit of queries, by group or one number for all; empty: there is none
    void resumed(std::uint64_t next_number, std::span<const std::uint64_t> left) {
        lost();
        next_number_ = std::max(next_number_, next_number);
        limit(left);
        for (message& each : messages_) {  // paid for, unless its reply is lost, but not answered yet
            auto& of = groups_[each.of_.group].left;
            each.is_owed_ = each.of_.number != 0 && each.of_.number < next_number && !each.is_early_ &&
                            each.what_ != wire::kind::block_request;
            if (of && each.is_owed_) {
                ++*of;
            }
        }
    }
    /// Begins a fresh session: the server knows no block of the earlier one, and numbers begin again.
    void opened(std::span<const std::uint64_t> left) {
        lost();
        while (!messages_.empty()) {
            const auto at = messages_.begin();
            if (at->from_ != nullptr) {
                encrypt_again(at, at->refused_);
            } else {
                remove(at);
            }
        }
        for (group& g : groups_) {
            g.blocks.clear();
        }
        next_number_ = 1;
        limit(left);
    }
    bool is_used_up() const noexcept { return next_number_ == std::numeric_limits<std::uint64_t>::max(); }

  private:
    using place = typename std::list<message>::iterator;
    /// The messages that go up before a reply is read: the first time, and at most. A server may close a
    /// connection after some errors in a row, 64 for example.
    static constexpr std::size_t first_messages = 32;
    static constexpr std::size_t most_messages = 256;

    struct group {
        lora::token_cost cost;
        lora::token_cost cost_of_block;
        std::list<block> blocks;  ///< oldest first
        std::size_t asked = 0;    ///< hidden states that went up, or are to
        std::size_t alone = 0;    ///< hidden states that go alone, as the server had no room for a block
        std::optional<std::uint64_t> left;
    };

    void check_process() const {
        require<unsupported_error>(::getpid() == owner_, {"client_session: this session was made in process ",
                                                          owner_, ", and this is its child ", ::getpid(),
                                                          "; make another one after the fork"});
    }

    void limit(std::span<const std::uint64_t> left) {
        require<format_error>(left.size() <= 1 || left.size() == groups_.size(),
                              {"client_session: got what is left of ", left.size(),
                               " groups, expected one number for all or each of ", groups_.size()});
        for (std::size_t g = 0; g < groups_.size(); ++g) {
            groups_[g].left = left.empty() ? std::nullopt : std::optional(left[left.size() == 1 ? 0 : g]);
        }
    }

    place find(std::uint64_t number) {
        return std::find_if(messages_.begin(), messages_.end(), [&](const message& m) {
            return m.is_sent_ && !m.is_early_ && m.of_.number == number;
        });
    }

    // A message's memory is used again.
    place add(wire::kind what, std::size_t of_group, const lora::token_cost& cost) {
        if (spare_.empty()) {
            spare_.emplace_back();
        }
        messages_.splice(messages_.end(), spare_, spare_.begin());
        const place at = std::prev(messages_.end());
        at->what_ = what;
        at->made_ = made_++;
        at->of_ = {0, static_cast<std::uint32_t>(of_group), 0};
        at->is_sent_ = false;
        at->may_be_known_ = false;
        at->is_owed_ = false;
        at->is_early_ = false;
        at->from_ = nullptr;
        at->refused_ = 0;
        const bool is_token = what == wire::kind::token_request;
        at->reply_bytes_ = is_token ? cost.online_down : cost.bytes_down;
        at->request_bytes_ = is_token ? cost.online_up : cost.bytes_up;
        replies_ += at->reply_bytes_;
        requests_ += at->request_bytes_;
        return at;
    }
    void remove(place at) {
        replies_ -= at->reply_bytes_;
        requests_ -= at->request_bytes_;
        if (at->what_ == wire::kind::block_request) {
            --at->block_->parts;
            prune(groups_[at->of_.group]);
        } else if (at->what_ == wire::kind::token_request) {
            --at->block_->unanswered;
            prune(groups_[at->of_.group]);
        }
        if (at->from_ != nullptr) {
            --at->from_->under_way_;
        }
        at->from_ = nullptr;
        wipe(*at);
        spare_.splice(spare_.begin(), messages_, at);
    }
    /// Wipes the scales of a message, which follow from the norm of the state.
    static void wipe(message& m) noexcept {
        memory::wipe(m.token_.scale);
        if constexpr (requires { m.query_.scale; }) {
            memory::wipe(m.query_.scale);
        }
    }
    static void prune(group& g) {
        std::erase_if(g.blocks, [](const block& b) {
            return b.unanswered == 0 && b.parts == 0 && (b.is_dead || b.positions.left() == 0);
        });
    }

    const message* send(place at) {
        if (at->of_.number == 0) {
            require<closed_error>(!is_used_up(), {"client_session: the numbers of this session are used up"});
            at->of_.number = next_number_++;
            if (at->what_ == wire::kind::block_request) {
                at->block_->number = at->part_.first == 0 ? at->of_.number : at->block_->number;
            } else if (at->what_ == wire::kind::token_request) {
                at->token_.request.block = at->block_->number;
            }
        }
        // Those that have a number stand before those that have none, in order.
        const std::uint64_t unanswered = at->of_.number - messages_.front().of_.number;
        at->of_.unanswered = static_cast<std::uint16_t>(
            std::min<std::uint64_t>(unanswered, std::numeric_limits<std::uint16_t>::max()));
        at->is_sent_ = true;
        return &*at;
    }
    /// Takes the number from a message, which goes behind all that have one; of the others, in the order in
    /// which they were made: a block before its tokens.
    void send_later(place at) {
        at->of_.number = 0;
        at->is_sent_ = false;
        at->may_be_known_ = false;
        if (at->what_ == wire::kind::block_request && at->part_.first == 0) {
            at->block_->number = 0;
        }
        const place before = std::find_if(messages_.begin(), messages_.end(), [&](const message& m) {
            return m.of_.number == 0 && m.made_ > at->made_;
        });
        messages_.splice(before, messages_, at);
    }

    /// Removes rows of calls that were stopped, and that a refusal sent back: nothing was paid for them.
    void give_up_stopped() {
        for (auto each = messages_.end(); each != messages_.begin() && std::prev(each)->of_.number == 0;) {
            const auto at = std::prev(each);
            if (at->from_ != nullptr && at->from_->is_stopped_) {
                remove(at);
            } else {
                each = at;
            }
        }
    }

    bool has_room(const lora::token_cost& cost, bool in_block) const noexcept {
        const std::size_t reply = in_block ? cost.online_down : cost.bytes_down;
        const std::size_t request = in_block ? cost.online_up : cost.bytes_up;
        return messages_.empty() ||
               (messages_.size() < allowed_ && replies_ + reply <= reply_window &&
                requests_ + request <= request_window &&
                next_number_ - messages_.front().of_.number <= std::numeric_limits<std::uint16_t>::max());
    }

    /// Makes a message for the next row of a call, or for the block that it needs. Returns none if there is
    /// no room, or the row cannot be encrypted, of which the call knows.
    place make(call& c) {
        group& g = groups_[c.group_];
        const bool again = !c.again_.empty();
        const call::attempt row = again ? c.again_.back() : call::attempt{c.next_, 0};
        constexpr int most_in_blocks = 2;  // then it goes alone
        block_place in = g.blocks.end();
        if (has_blocks_ && row.refused < most_in_blocks) {
            in = std::find_if(g.blocks.begin(), g.blocks.end(),
                              [](const block& b) { return !b.is_dead && b.positions.left() > 0; });
            const std::size_t asked = in != g.blocks.end() ? in->asked : 0;
            const bool is_wanted = in != g.blocks.end() ||
                                   (g.alone == 0 && policy_.is_worth(g.cost, g.cost_of_block, g.asked, 0));
            const std::size_t rest = g.cost_of_block.outputs - asked;
            if (is_wanted && rest > 0) {
                return has_room(cost_of_part(g, rest), false) ? ask_for(c.group_, in, rest) : messages_.end();
            }
        }
        const bool is_in_block = in != g.blocks.end();
        if (!has_room(is_in_block ? g.cost_of_block : g.cost, is_in_block)) {
            return messages_.end();
        }
        const place at = is_in_block ? add(wire::kind::token_request, c.group_, g.cost_of_block)
                                     : add(wire::kind::request, c.group_, g.cost);
        if (is_in_block) {
            at->block_ = in;
            ++in->unanswered;
        }
        at->from_ = &c;
        at->row_ = row.row;
        at->refused_ = row.refused;
        ++c.under_way_;
        try {
            const std::span<const float> h = c.source_(row.row);
            bool is_good = true;
            if (is_in_block && c.zeros_for_nan_) {
                is_good = in->positions.encrypt_or_zeros(h, at->token_, c.overflow_margin_);
            } else if (is_in_block) {
                in->positions.encrypt(h, at->token_, c.overflow_margin_);
            } else if (c.zeros_for_nan_) {
                is_good = model_->encrypt_or_zeros(c.group_, h, at->query_, c.overflow_margin_);
            } else {
                model_->encrypt(c.group_, h, at->query_, c.overflow_margin_);
            }
            c.bad_rows_ += static_cast<std::size_t>(!is_good) & static_cast<std::size_t>(!again);
        } catch (...) {
            remove(at);
            c.fail(std::current_exception());
            return messages_.end();
        }
        if (again) {
            c.again_.pop_back();
        } else {
            ++c.next_;
            ++g.asked;
        }
        g.alone -= is_in_block ? 0 : std::min<std::size_t>(g.alone, 1);
        looks_ahead_ = true;
        return at;
    }

    /// The cost of a part of the next block's outputs.
    static lora::token_cost cost_of_part(const group& g, std::size_t outputs) noexcept {
        const lora::token_cost& block = g.cost_of_block;
        const std::size_t whole = block.bytes_down - block.hidden_states * block.online_down;
        lora::token_cost part;
        part.bytes_down = outputs == block.outputs
                              ? whole
                              : static_cast<std::size_t>(std::uint64_t{whole} * outputs / block.outputs) +
                                    lora::message_overhead_bytes;
        return part;
    }
    /// Makes a message for the next outputs of a block.
    /// @param of  the end: a new block
    place ask_for(std::size_t of_group, block_place of, std::size_t outputs) {
        group& g = groups_[of_group];
        if (of == g.blocks.end()) {
            std::list<block> made;
            made.push_back({model_->prepare(of_group)});
            of = made.begin();
            g.blocks.splice(g.blocks.end(), made);
        }
        const place at = add(wire::kind::block_request, of_group, cost_of_part(g, outputs));
        at->block_ = of;
        at->part_ = of->positions.request();
        at->part_.first = of->asked;
        at->part_.outputs = outputs == g.cost_of_block.outputs ? 0 : outputs;
        of->asked += outputs;
        ++of->parts;
        return at;
    }
    /// Prepares the next block of a group when one is nearly used up, while whoever asks does something else:
    /// after a call at most one part of one block.
    const message* ask_ahead() {
        if (!std::exchange(looks_ahead_, false) || is_used_up()) {
            return nullptr;
        }
        std::size_t most_urgent = groups_.size();
        std::size_t least_left = std::numeric_limits<std::size_t>::max();
        for (std::size_t i = 0; has_blocks_ && i < groups_.size(); ++i) {
            const group& g = groups_[i];
            if (g.alone > 0 || g.blocks.empty() || g.blocks.back().is_dead) {
                continue;
            }
            const block& last = g.blocks.back();
            const block& first = g.blocks.front();
            const std::size_t tokens = g.cost_of_block.hidden_states;
            const bool is_begun = last.asked < g.cost_of_block.outputs;
            const std::size_t in_use = first.positions.left();
            const bool is_due =
                is_begun ||
                (g.blocks.size() == 1 && in_use <= block_policy::ask_ahead_at(i, groups_.size(), tokens) &&
                 policy_.is_worth(g.cost, g.cost_of_block, g.asked, in_use));
            const std::size_t left = first.is_dead || (is_begun && &first == &last) ? 0 : in_use;
            if (is_due && left < least_left) {
                most_urgent = i;
                least_left = left;
            }
        }
        if (most_urgent == groups_.size()) {
            return nullptr;
        }
        group& g = groups_[most_urgent];
        const std::size_t outputs = g.cost_of_block.outputs;
        const bool is_begun = g.blocks.back().asked < outputs;
        const std::size_t next =
            block_policy::outputs_of_part(is_begun ? outputs - g.blocks.back().asked : outputs, least_left);
        if (!has_room(cost_of_part(g, next), false)) {
            return nullptr;
        }
        try {
            return send(ask_for(most_urgent, is_begun ? std::prev(g.blocks.end()) : g.blocks.end(), next));
        } catch (const std::exception&) {
            return nullptr;  // it is made, or fails, when it is needed
        }
    }

    void encrypt_again(place at, int refused) {
        at->from_->again_.push_back({at->row_, refused});
        remove(at);
    }
    /// Gives up the block of this message, which the server has not: tokens that wait to be sent, or for this
    /// message to be opened, are encrypted again, and behind a part that is lost those that wait do not go;
    /// what is under way is refused one by one, or has kept replies.
    void give_up(place of) {
        const block_place b = of->block_;
        const bool opens = of->what_ == wire::kind::block_request;
        b->is_dead = true;
        for (auto each = messages_.begin(); each != messages_.end();) {
            const auto at = each++;
            if (at != of && at->what_ == wire::kind::token_request && at->block_ == b &&
                ((!at->is_sent_ && !at->may_be_known_) || (at->is_early_ && opens))) {
                at->from_ != nullptr ? encrypt_again(at, at->refused_ + 1) : remove(at);
            } else if (opens && at != of && at->what_ == wire::kind::block_request && at->block_ == b &&
                       !at->is_sent_ && !at->may_be_known_) {
                remove(at);
            }
        }
    }

    /// @param read  writes the reply of the message's kind
    template <class Read>
    void take(message& m, Read read) {
        const place at = find(m.of_.number);
        allowed_ += allowed_ < most_messages ? 1U : 0U;
        if (m.what_ == wire::kind::block_request) {
            try {
                read(std::as_const(m.part_), block_reply_);
                const std::size_t wanted =
                    m.part_.outputs == 0 ? groups_[m.of_.group].cost_of_block.outputs : m.part_.outputs;
                require<format_error>(
                    block_reply_.first == m.part_.first && block_reply_.c1.size() == wanted,
                    {"client_session: got ", block_reply_.c1.size(), " outputs of a block from ",
                     block_reply_.first, " on, expected ", wanted, " from ", m.part_.first, " on"});
                model_->accept(m.block_->positions, block_reply_);
            } catch (const refused_error&) {  // by a server of this process: `refused` is to hear of it
                throw;
            } catch (...) {
                give_up(at);
                remove(at);
                throw;
            }
            const bool is_whole = m.block_->positions.is_accepted();
            if (m.block_->is_dead && !is_whole && m.block_->parts == 1) {
                give_up(at);  // another part is lost
            }
            for (auto each = messages_.begin(); is_whole && each != messages_.end();) {
                const auto token = each++;
                if (token->is_early_ && token->block_ == m.block_) {
                    token->from_ != nullptr ? open(token, token->early_) : remove(token);
                }
            }
            return remove(at);
        }
        if (m.from_ == nullptr) {
            pay(m);
            return remove(at);
        }
        if (m.what_ != wire::kind::token_request) {
            return answered(at, [&](std::span<double> product) {
                read(reply_);
                model_->decrypt(m.of_.group, reply_, m.query_, reading_, product);
            });
        }
        const std::size_t position = m.token_.request.position;
        if (m.block_->positions.is_accepted()) {
            read(position, token_reply_);
            return open(at, token_reply_);
        }
        if (m.block_->parts == 0) {  // what would open the answer was malformed
            pay(m);
            return encrypt_again(at, m.refused_ + 1);
        }
        read(position, m.early_);
        pay(m);
        m.is_early_ = true;
    }
    void open(place at, const lora::token_reply& reply) {
        answered(at, [&](std::span<double> product) {
            at->block_->positions.decrypt(reply, at->token_, product);
        });
    }
    /// @param decrypt  writes a row's product
    template <class Decrypt>
    void answered(place at, Decrypt decrypt) {
        call& c = *at->from_;
        try {
            decrypt(c.products_.span().subspan(at->row_ * c.rank_, c.rank_));
            c.answered_[at->row_] = 1;
            ++c.count_;
        } catch (const range_exceeded_error& e) {  // it was answered, and no number came of it
            c.fail(std::make_exception_ptr(
                range_exceeded_error(text_of({"row ", at->row_, " of ", c.rows(), ": ", e.what()}))));
        }
        if (!at->is_early_) {
            pay(*at);
        }
        remove(at);
    }
    /// Notes that the server has counted a message, and that what came of that does not matter any more.
    void settle(message& of) noexcept {
        if (std::exchange(of.is_owed_, false)) {
            pay(of);
        }
    }
    void pay(const message& of) noexcept {
        if (auto& left = groups_[of.of_.group].left) {
            *left -= std::min<std::uint64_t>(*left, 1);
        }
    }

    std::shared_ptr<model_type> model_;
    block_policy policy_;
    bool has_blocks_ = false;
    bool looks_ahead_ = false;  ///< hidden states went up since the next part was thought of
    pid_t owner_ = ::getpid();
    std::vector<group> groups_;
    std::list<call*> calls_;       ///< calls in the order in which they began
    std::list<message> messages_;  ///< without an answer: by number, then those that have none yet
    std::list<message> spare_;
    std::size_t replies_ = 0;  ///< bytes of replies to messages_
    std::size_t requests_ = 0;
    std::size_t allowed_ = first_messages;  ///< messages at once: halved by a rate limit
    std::chrono::milliseconds held_{0};
    std::uint64_t next_number_ = 1;
    std::uint64_t made_ = 0;  ///< messages made so far
    // Kept from reply to reply.
    typename Protocol::reply reply_;
    lora::block_reply block_reply_;
    lora::token_reply token_reply_;
    typename Protocol::reading reading_;
};

/// The client_session of a model of these types.
template <ckks::parameter_set P, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>>
using client_session = basic_client_session<lora_protocol<P, Packing, Protection>>;

}  // namespace tensafe::session
