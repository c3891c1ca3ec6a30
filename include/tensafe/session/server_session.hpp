#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/lora/packing/messages.hpp>
#include <tensafe/random/seed.hpp>
#include <tensafe/session/block_policy.hpp>
#include <tensafe/session/protocol.hpp>
#include <tensafe/session/store.hpp>
#include <tensafe/wire/message.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensafe::session {

/// The server's side of a session: its memory of one client of a model, and the rules by which it
/// answers. What it promises:
///
/// - A number is answered once, and numbers only rise; so is a position of a block. What goes out again is
///   the same bytes.
/// - Replies are kept until a later request acknowledges them, of reply_window bytes or one, and repeated
///   after the connection was lost: each once for a connection.
/// - At most most_blocks blocks of a group are not used up. The first token of a later block gives up the
///   earlier ones. Where there is no room another block takes the place of one of which parts are missing,
///   once for each hidden state that was answered.
/// - Nothing is answered that the store has not counted, and nothing is counted that was not answered.
///
/// All this is of `on_message`. The `answer`s, for a client of the same process, look after blocks only:
/// they know no numbers, keep no reply and ask no store.
///
/// No socket and no thread of its own. Thread-safe: hidden states alone are computed side by side, each with
/// a workspace of its own, blocks and their tokens one at a time. It cannot hold a secret key. Copies of the
/// process or the machine are for sessions without zeros and blocks only (ckks::rerandomization_pool).
template <class Protocol>
class basic_server_session {
  public:
    using model_type = typename Protocol::server_model;
    using workspace = typename Protocol::workspace;
    using message = std::vector<std::uint8_t>;
    using shared_message = std::shared_ptr<const message>;

    /// Makes the server's side of a fresh session.
    /// @param nonce, key  as for server::pool
    /// @param counts      null: nothing is counted. Must live as long
    /// @param most_spare  as for lora::server_zeros
    /// @throws as lora::server_zeros
    basic_server_session(std::shared_ptr<const model_type> model, const random::seed& nonce,
                         typename Protocol::key key, store* counts = nullptr,
                         std::size_t most_spare = std::numeric_limits<std::size_t>::max())
        : model_(std::move(model)), counts_(counts), zeros_(nonce, std::move(key), most_spare) {}
    basic_server_session(const basic_server_session&) = delete;
    basic_server_session& operator=(const basic_server_session&) = delete;

    const std::shared_ptr<const model_type>& model() const noexcept { return model_; }
    typename Protocol::zeros& zeros() noexcept { return zeros_; }
    const typename Protocol::zeros& zeros() const noexcept { return zeros_; }

    // --- By messages.

    /// Answers a message, or repeats its reply.
    /// @param head  its header
    /// @param work  of the calling thread
    /// @param to    the reply
    /// @return whether it was answered now; false: the reply was sent before
    /// @throws refused_error: replayed, unknown_block or block_limit; what the store throws; format_error,
    ///         shape_error or parameter_error for what is malformed, another parameter set's or no request.
    ///         Nothing is counted then. The number may be used up, but not if the readers or the store refuse
    bool on_message(std::span<const std::uint8_t> from, const wire::header& head, workspace& work,
                    shared_message& to) {
        const std::size_t group = head.group;
        static_cast<void>(model_->layout().at(group));
        require<format_error>(wire::is_request(head.what),
                              {"server_session: got a ", wire::name(head.what), ", expected a request"});
        std::shared_ptr<message> reply;
        {
            const std::lock_guard lock(mutex_);
            acknowledge(head, reply);
            if (head.number < next_number_) {
                repeat(head, to);
                return false;
            }
            // The largest number would leave none for later.
            require_number(head.number != std::numeric_limits<std::uint64_t>::max(), head.number);
        }
        const bool is_block = head.what == wire::kind::block_request;
        lora::block_request block;
        if (is_block) {
            block = Protocol::read_block_request(from, *model_, group);
            const std::lock_guard lock(mutex_);
            require_block(group, block);  // before the store makes room for any
        } else if (head.what == wire::kind::token_request) {
            Protocol::read(from, *model_, group, work.token_request);
        } else {
            Protocol::read(from, *model_, group, work.request);
        }
        counted count(block.first == 0 ? counts_ : nullptr, group, is_block);
        {
            const std::lock_guard lock(mutex_);
            require_number(head.number >= next_number_, head.number);  // another connection was faster
            next_number_ = head.number + 1;
        }
        reply = reply ? std::move(reply) : std::make_shared<message>();
        const auto answer_and_write = [&](const auto& request, auto& answered) {
            answer(head.envelope(), request, work, answered);
            Protocol::write(answered, head.envelope(), *reply);
        };
        if (is_block) {
            answer_and_write(block, work.block_reply);
        } else if (head.what == wire::kind::request) {
            answer_and_write(work.request, work.reply);
        } else {
            answer_and_write(work.token_request, work.token_reply);
        }
        if (reply->capacity() > 2 * reply->size()) {
            reply->shrink_to_fit();  // what is kept is counted by its size
        }
        const std::lock_guard lock(mutex_);
        keep(head.number, reply);
        to = reply;
        count.is_answered();
        return true;
    }

    /// The smallest number that a new message may have, for a client that comes back.
    std::uint64_t next_number() const {
        const std::lock_guard lock(mutex_);
        return next_number_;
    }
    /// Notes that the session goes on over a new connection: replies that are kept may be asked for again.
    void on_resumed() {
        const std::lock_guard lock(mutex_);
        for (kept_reply& each : kept_) {
            each.may_repeat = true;
        }
    }
    /// The bytes of memory of blocks and kept replies.
    std::size_t held_bytes() const noexcept { return held_bytes_; }
    /// Gives up kept replies but the last one, for want of memory.
    void drop_replies() {
        const std::lock_guard lock(mutex_);
        while (kept_.size() > 1) {
            drop_first();
        }
    }
    /// Gives up blocks and all kept replies, for want of memory.
    void drop_blocks() {
        const std::lock_guard lock(mutex_);
        blocks_.clear();
        kept_.clear();
        kept_bytes_ = 0;
        held_bytes_ = 0;
    }

    // --- In process: the client's messages as they are.

    void answer(const wire::envelope& of, const typename Protocol::request& from, workspace& work,
                typename Protocol::reply& to) {
        Protocol::apply(zeros_, *model_, of.group, from, work, to);
        may_replace_ = true;
    }
    /// Prepares a block, or the next part of one.
    /// @throws refused_error: block_limit or unknown_block; otherwise as server::prepare
    void answer(const wire::envelope& of, const lora::block_request& from, workspace& work,
                lora::block_reply& to) {
        const std::lock_guard lock(mutex_);
        if (auto* const begun = require_block(of.group, from)) {
            return Protocol::prepare(zeros_, *model_, of.group, from, work, *begun, to);
        }
        typename Protocol::server_block made;
        Protocol::prepare(zeros_, *model_, of.group, from, work, made, to);
        if (count_blocks(of.group) >= most_blocks) {
            blocks_.erase(find_partial(of.group));
            held_bytes_ -= Protocol::bytes_of_block(*model_, of.group);
            may_replace_ = false;
        }
        blocks_.emplace(std::pair(std::size_t{of.group}, of.number), std::move(made));
        held_bytes_ += Protocol::bytes_of_block(*model_, of.group);
    }
    /// Answers a token of a block.  @throws refused_error: unknown_block or replayed; or as server::answer
    void answer(const wire::envelope& of, const lora::token_request& from, workspace& work,
                lora::token_reply& to) {
        const std::lock_guard lock(mutex_);
        const auto at = blocks_.find({of.group, from.block});
        if (at == blocks_.end() || at->second.prepared() < Protocol::outputs(*model_, of.group)) {
            throw refused_error(text_of({"token request: got block ", from.block, " of group ", of.group,
                                         ", expected one that this session prepared whole, not used up and "
                                         "not before the last one used: prepare another block"}),
                                refusal::unknown_block);
        }
        if (!at->second.is_open(from.position)) {
            throw refused_error(
                text_of({"token request: position ", from.position, " of block ", from.block, " of group ",
                         of.group, " was answered; encrypt anew at the next one"}),
                refusal::replayed);
        }
        Protocol::answer(*model_, of.group, at->second, from, work, to);
        may_replace_ = true;
        // Whoever goes on to a later block has given up what is left of earlier ones.
        const auto end = at->second.left() == 0 ? std::next(at) : at;
        for (auto each = blocks_.lower_bound({of.group, 0}); each != end; each = blocks_.erase(each)) {
            held_bytes_ -= Protocol::bytes_of_block(*model_, of.group);
        }
    }

  private:
    /// A count that is taken back unless it was for an answer.
    class counted {
      public:
        counted(store* in, std::size_t group, bool is_block) : in_(is_block ? nullptr : in), group_(group) {
            if (in != nullptr) {
                is_block ? in->admit_block(group) : in->add(group);
            }
        }
        counted(const counted&) = delete;
        counted& operator=(const counted&) = delete;
        ~counted() {
            if (in_ != nullptr) {
                in_->take_back(group_);
            }
        }
        void is_answered() noexcept { in_ = nullptr; }

      private:
        store* in_;
        std::size_t group_;
    };

    /// The block that a request goes on with; null: a new one, for which there is room.
    typename Protocol::server_block* require_block(std::size_t group, const lora::block_request& r) {
        if (r.first != 0) {
            const auto end = blocks_.lower_bound({group + 1, 0});
            const auto at = std::find_if(blocks_.lower_bound({group, 0}), end, [&](const auto& each) {
                return each.second.seed() == r.seed && each.second.prepared() == r.first;
            });
            if (at == end) {
                throw refused_error(
                    text_of({"block request: got outputs from ", r.first, " on of a block of group ", group,
                             ", expected a block of this session of which those before are prepared"}),
                    refusal::unknown_block);
            }
            return &at->second;
        }
        const std::size_t count = count_blocks(group);
        if (count >= most_blocks && !(may_replace_ && find_partial(group) != blocks_.end())) {
            throw refused_error(
                text_of({"block request: this session has ", count, " blocks of group ", group,
                         " that are not used up, expected at most ", most_blocks - 1, ": use one up before"}),
                refusal::block_limit);
        }
        return nullptr;
    }
    std::size_t count_blocks(std::size_t group) const {
        return static_cast<std::size_t>(
            std::distance(blocks_.lower_bound({group, 0}), blocks_.lower_bound({group + 1, 0})));
    }
    /// A block of which parts are missing, or the end of blocks_.
    auto find_partial(std::size_t group) {
        const auto end = blocks_.lower_bound({group + 1, 0});
        const auto at = std::find_if(blocks_.lower_bound({group, 0}), end, [&](const auto& each) {
            return each.second.prepared() < Protocol::outputs(*model_, group);
        });
        return at == end ? blocks_.end() : at;
    }
    static void require_number(bool holds, std::uint64_t number) {
        if (!holds) {
            throw refused_error(
                text_of({"request: number ", number,
                         " is not above those of the session before; encrypt anew with the next one"}),
                refusal::replayed);
        }
    }

    struct kept_reply {
        std::uint64_t number;
        std::shared_ptr<message> bytes;
        /// Whether it may go again over this connection, at no work but many times the request's bytes.
        bool may_repeat = false;
    };

    /// Drops the replies that a request acknowledges.
    /// @param spare  gets the memory of a reply that nobody needs any more
    void acknowledge(const wire::header& head, std::shared_ptr<message>& spare) {
        const std::uint64_t first = head.number - std::min<std::uint64_t>(head.number, head.unanswered);
        while (!kept_.empty() && kept_.front().number < first) {
            if (kept_.front().bytes.use_count() == 1) {
                std::atomic_thread_fence(std::memory_order_acquire);  // whoever sent it has done so
                spare = kept_.front().bytes;
            }
            drop_first();
        }
    }
    void drop_first() {
        kept_bytes_ -= kept_.front().bytes->size();
        held_bytes_ -= kept_.front().bytes->size();
        kept_.pop_front();
    }
    void repeat(const wire::header& head, shared_message& to) {
        const auto at = std::find_if(kept_.begin(), kept_.end(),
                                     [&](const kept_reply& k) { return k.number == head.number; });
        require_number(at != kept_.end() && std::exchange(at->may_repeat, false), head.number);
        to = at->bytes;
    }
    void keep(std::uint64_t number, const std::shared_ptr<message>& reply) {
        // Numbers rise, but for two connections at once.
        const auto before = std::find_if(kept_.rbegin(), kept_.rend(),
                                         [&](const kept_reply& k) { return k.number < number; });
        kept_.insert(before.base(), {number, reply});
        kept_bytes_ += reply->size();
        held_bytes_ += reply->size();
        while (kept_.size() > 1 && kept_bytes_ > reply_window) {
            drop_first();
        }
    }

    std::shared_ptr<const model_type> model_;
    store* counts_;
    typename Protocol::zeros zeros_;  // locks itself
    std::atomic<std::size_t> held_bytes_{0};
    std::atomic<bool> may_replace_{true};  ///< a hidden state was answered since a block was replaced

    mutable std::mutex mutex_;  // of all below; two connections may have the session for a moment
    /// The blocks by group and number of the block's request.
    std::map<std::pair<std::size_t, std::uint64_t>, typename Protocol::server_block> blocks_;
    std::list<kept_reply> kept_;  ///< kept replies, by number
    std::size_t kept_bytes_ = 0;
    std::uint64_t next_number_ = 1;
};

/// The server_session of a model of these types.
template <ckks::parameter_set P, class Packing = lora::coefficient_tiles<4>,
          class Protection = lora::protects_adapter_rows<>>
using server_session = basic_server_session<lora_protocol<P, Packing, Protection>>;

/// Has the next message of a client answered by a session of the same process: no message is written.
/// @return  false: there was none
/// @throws what the answer failed with, but for refusals, which go to the client
template <class Client, class Server>
bool answer_next(Client& client, Server& server, typename Server::workspace& work) {
    const auto* const m = client.next();
    if (m == nullptr) {
        return false;
    }
    try {
        client.answer(*m, [&]<class Reply>(Reply& reply) {
            if constexpr (std::is_same_v<Reply, lora::block_reply>) {
                server.answer(m->of(), m->block(), work, reply);
            } else if constexpr (std::is_same_v<Reply, lora::token_reply>) {
                server.answer(m->of(), m->token(), work, reply);
            } else {
                server.answer(m->of(), m->alone(), work, reply);
            }
        });
    } catch (const refused_error& e) {
        client.refused(m->of().number, e.why(), std::current_exception(), e.retry_after());
    }
    return true;
}

namespace detail {

/// Ends calls with its scope; what failed is not under way then.
template <class Client, class Call>
struct ended_calls {
    Client& client;
    std::span<Call* const> calls;
    ~ended_calls() {
        for (Call* const each : calls) {
            client.end(*each);
        }
        client.lost();
    }
};

}  // namespace detail

/// Has a call answered by a session of the same process.
/// @param between  called after each answer
/// @throws as client_session::begin, then what the call failed with; rows that were answered are in it
template <class Client, class Server, class Call, class Between>
void answer_in_process(Client& client, Server& server, typename Server::workspace& work, Call& asked,
                       Between between) {
    client.begin(asked);
    Call* const calls[] = {&asked};
    const detail::ended_calls<Client, Call> ended{client, calls};
    while (answer_next(client, server, work)) {
        between();
    }
    asked.rethrow();
    require<error>(asked.is_over(), {"answer_in_process: the server asks to wait, which nobody does here"});
}

}  // namespace tensafe::session
