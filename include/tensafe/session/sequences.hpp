#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/session/client_session.hpp>
#include <tensafe/session/server_session.hpp>

#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace tensafe::session {

/// The next request of a sequence: a hidden state sent through a group of sites, or nothing more.
struct step {
    std::size_t group = 0;
    std::span<const float> hidden{};  ///< memory of the sequence's own
    bool done = false;

    /// Asks for the answers to a hidden state.
    /// @param hidden  stays in place, unchanged, until the sequence is called again or is over
    static step ask(std::size_t group, std::span<const float> hidden) noexcept { return {group, hidden}; }
    static step end() noexcept { return {0, {}, true}; }
};

/// One autoregressive stream as code: called with the answers to its last request (none the first time), it
/// computes the model's forward up to the next encrypted site and returns what it asks for there. The answers
/// are the caller's memory, there until it returns. Called by one thread at a time, though not always the
/// same one; its calls are in order.
using token_sequence = std::function<step(std::span<const double> answers)>;

/// Something that answers calls for sequences: session::in_process, serving::engine_answers, or your own,
/// over a connection for example. Used by one thread at a time. `answer` takes calls of one row each and
/// calls next_is_over when the first of them is over, then when the second is, and so on; it leaves a call
/// alone from then on. What is wrong with one call makes it fail; what `answer` throws makes all those fail
/// that are not over. `work_ahead` does a small piece of what later calls would wait for, and returns whether
/// it did any.
template <class A>
concept answers_calls = requires(A& a, std::span<call* const> calls, std::function<void()> next_is_over) {
    a.answer(calls, next_is_over);
    { a.work_ahead() } -> std::convertible_to<bool>;
};

/// Answers calls for sequences with both halves of a session in one process: in blocks, where the client uses
/// them. Ahead of calls they prepare the next block and encryptions of zero.
template <class Protocol>
class in_process {
  public:
    /// Joins both halves of a session.
    /// @param client, server  outlive it, and nobody else uses them meanwhile
    /// @param zeros_ahead     of a model without blocks: hidden states of each group that encryptions of zero
    ///                        are made for ahead
    /// @param work            says where the server computes
    in_process(basic_client_session<Protocol>& client, basic_server_session<Protocol>& server,
               std::size_t zeros_ahead = 1, typename Protocol::workspace work = {})
        : client_(client), server_(server), zeros_ahead_(zeros_ahead), work_(std::move(work)) {}

    template <class Over>
    void answer(std::span<call* const> calls, Over&& next_is_over) {
        ended_calls rest{client_, calls};
        for (call* const each : calls) {
            try {
                client_.begin(*each);
            } catch (...) {
                each->fail(std::current_exception());
            }
        }
        for (; !rest.calls.empty(); next_is_over()) {
            call& first = *rest.calls.front();
            while (!first.is_over() && answer_next(client_, server_, work_)) {
            }
            client_.end(first);
            rest.calls = rest.calls.subspan(1);
        }
    }
    bool work_ahead() {
        const ended_calls none{client_, {}};
        return answer_next(client_, server_, work_) ||
               Protocol::make_zero(server_.zeros(), *server_.model(), zeros_ahead_);
    }

  private:
    using ended_calls = detail::ended_calls<basic_client_session<Protocol>, call>;

    basic_client_session<Protocol>& client_;
    basic_server_session<Protocol>& server_;
    std::size_t zeros_ahead_;
    typename Protocol::workspace work_;
};

enum class sequence_status { running, finished, failed, cancelled };

template <answers_calls Answers>
class sequences;

namespace detail {

/// The runner whose thread this is: a sequence must not wait for those that run it.
inline thread_local const void* sequences_of_this_thread = nullptr;

/// A sequence on its way, shared by those that run it and the handles.
struct sequence_state {
    // Of the thread that has taken it from a queue.
    token_sequence next;
    std::span<const float> hidden;
    std::optional<call> asked;

    const void* runs_in = nullptr;
    std::atomic<bool> cancelled{false};
    std::promise<void> over;
    sequence_status status = sequence_status::running;  ///< written before `over` is set
};

}  // namespace detail

/// A submitted sequence, to wait for or to cancel. Dropping it does neither. Copies are handles of the same
/// sequence. Thread-safe but for assignment; may outlive what runs the sequence. One that was moved from is
/// for assignment and destruction only.
class sequence_handle {
  public:
    /// The state of the sequence. Once it is over, its code and what it captured are gone.
    sequence_status status() const {
        return over_.wait_for(std::chrono::seconds(0)) == std::future_status::ready
                   ? state_->status
                   : sequence_status::running;
    }
    bool done() const { return status() != sequence_status::running; }

    /// Returns when the sequence has finished.
    /// @throws what the sequence or its call threw; cancelled_error if it was cancelled; error if called by a
    ///         sequence of the same runner before that: it might wait for itself
    void wait() const {
        check_thread();
        over_.get();
    }
    /// Returns when the sequence has finished, or after this time.
    /// @return  false if the sequence is still running
    template <class Rep, class Period>
    bool wait_for(std::chrono::duration<Rep, Period> longest) const {
        check_thread();
        if (over_.wait_for(longest) != std::future_status::ready) {
            return false;
        }
        over_.get();
        return true;
    }

    /// Ends the sequence at its next step: a forward or call that is under way goes on to its end. A sequence
    /// that ends by itself before counts as finished or failed.
    void cancel() const noexcept { state_->cancelled.store(true); }

  private:
    template <answers_calls Answers>
    friend class sequences;

    explicit sequence_handle(std::shared_ptr<detail::sequence_state> state)
        : state_(std::move(state)), over_(state_->over.get_future()) {}

    void check_thread() const {
        require<error>(state_->runs_in != detail::sequences_of_this_thread || done(),
                       {"sequence_handle::wait: called by a sequence of the same runner, which might wait "
                        "for itself; wait from another thread"});
    }

    std::shared_ptr<detail::sequence_state> state_;
    std::shared_future<void> over_;
};

/// Runs many sequences at once: while the model's forward of some runs on threads of its own (that of a GPU
/// just blocks one), one more thread has the hidden states of others answered: it takes all that wait, first
/// in first out, and gives each sequence its answers as they come. When none waits it works ahead.
///
/// One sequence alone gains nothing but the work ahead. Its next forward needs the answers to its last
/// request, so forward and request never overlap.
///
/// Calls of one sequence never overlap, its steps are in order, and both queues are first in, first out, so
/// that none starves. What a sequence throws, or what is wrong with its request, ends that sequence only and
/// comes out of its handle.
///
/// Secrets: hidden states are read where the sequence has them; answers lie in a call's memory, which is
/// wiped when the sequence asks again or is over.
///
/// Thread-safe. A sequence may call try_submit, submit (which then throws instead of waiting), cancel, stop,
/// and drop handles. It must not wait for a handle or close what runs it: that throws. Two runners whose
/// sequences wait for each other are not noticed.
///
/// Destruction: all calls from other threads must have returned, and neither the code of a sequence nor what
/// it captured may hold the last reference to what runs it: a thread would have to wait for its own end, and
/// the program ends in std::terminate.
template <answers_calls Answers>
class sequences {
  public:
    static constexpr std::size_t most_forward_threads = 1024;
    static constexpr std::size_t most_in_flight = std::size_t{1} << 20;

    /// Starts the threads: forward_threads, and one for the answers.
    /// @param answers         outlives this, and is used by its thread alone
    /// @param most_sequences  in flight; further submissions wait
    /// @throws parameter_error for a number out of range; std::system_error if no thread can be started
    explicit sequences(Answers& answers, std::size_t forward_threads = 1, std::size_t most_sequences = 64)
        : answers_(answers), most_sequences_(most_sequences) {
        check("forward_threads", forward_threads, most_forward_threads);
        check("most_sequences", most_sequences, most_in_flight);
        calls_.reserve(most_sequences);
        try {
            threads_.reserve(forward_threads + 1);
            threads_.emplace_back([this] { run_session(); });
            for (std::size_t i = 0; i < forward_threads; ++i) {
                threads_.emplace_back([this] { run_forwards(); });
            }
        } catch (...) {
            leave();
            throw;
        }
    }
    sequences(const sequences&) = delete;
    sequences& operator=(const sequences&) = delete;

    /// Cancels everything and waits until no code of a sequence or for answers runs any more.
    ~sequences() { leave(); }

    /// Starts a sequence, as soon as fewer than most_sequences are in flight: this slows down who feeds it.
    /// Those who wait get room in no particular order.
    /// @throws closed_error if it is closed or stopped, also while waiting; parameter_error for an empty
    ///         function; error, instead of waiting, when called by a sequence that runs here
    sequence_handle submit(token_sequence sequence) { return *submit(sequence, true); }
    /// Starts a sequence without waiting; nothing if there is no room, and then `sequence` is as it was.
    /// @throws as submit
    std::optional<sequence_handle> try_submit(token_sequence&& sequence) { return submit(sequence, false); }

    /// Takes no more submissions, and returns when all sequences are over. Handles tell how each ended.
    /// @throws error when called by a sequence that runs here
    void close() {
        require<error>(
            !here(),
            {"sequences::close: called by a sequence that runs here, which would wait for itself; use stop"});
        std::unique_lock lock(mutex_);
        closed_ = true;
        room_.notify_all();
        idle_.wait(lock, [&] { return in_flight_ == 0; });
    }
    /// Takes no more submissions and cancels all sequences, each at its next step; returns at once.
    void stop() noexcept {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        stopping_ = true;
        room_.notify_all();
    }

  private:
    /// The sequences in one state. One is in one list at a time or held by one thread: moving it on allocates
    /// nothing, and nobody inside waits for room, so that nothing can be stuck in a circle.
    using queue = std::list<std::shared_ptr<detail::sequence_state>>;

    static void check(const char* what, std::size_t got, std::size_t most) {
        require<parameter_error>(got != 0 && got <= most,
                                 {"sequences: ", what, ": got ", got, ", expected 1 to ", most});
    }
    bool here() const noexcept { return detail::sequences_of_this_thread == this; }
    bool is_cancelled(const queue& one) const noexcept { return stopping_ || one.front()->cancelled.load(); }

    static queue pop(queue& from) noexcept {
        queue first;
        first.splice(first.end(), from, from.begin());
        return first;
    }
    static void push(queue& to, queue& one, std::condition_variable& ready) noexcept {
        to.splice(to.end(), one);
        ready.notify_one();
    }

    std::optional<sequence_handle> submit(token_sequence& sequence, bool may_wait) {
        require<parameter_error>(sequence != nullptr,
                                 {"sequences::submit: got an empty sequence, expected one to call"});
        // What can fail comes first: whoever is told of room takes it.
        queue made{std::make_shared<detail::sequence_state>()};
        made.front()->runs_in = this;
        sequence_handle handle(made.front());
        std::unique_lock lock(mutex_);
        const auto full = [&] { return in_flight_ == most_sequences_; };
        if (may_wait && !closed_ && full()) {
            require<error>(!here(), {"sequences::submit: no room, and a sequence that runs here must not "
                                     "wait for any; use try_submit"});
            room_.wait(lock, [&] { return closed_ || !full(); });
        }
        require<closed_error>(!closed_, {"sequences::submit: it is closed"});
        if (full()) {
            return std::nullopt;
        }
        made.front()->next = std::move(sequence);
        ++in_flight_;
        push(forwards_, made, forward_ready_);
        return handle;
    }

    void run_forwards() {
        detail::sequences_of_this_thread = this;
        std::unique_lock lock(mutex_);
        while (true) {
            forward_ready_.wait(lock, [&] { return !forwards_.empty() || ending_; });
            if (forwards_.empty()) {
                return;
            }
            queue one = pop(forwards_);
            if (is_cancelled(one)) {
                finish(lock, one, sequence_status::cancelled);
                continue;
            }
            lock.unlock();
            std::exception_ptr failure;
            bool is_done = false;
            try {
                is_done = !forward(*one.front());
            } catch (...) {
                failure = std::current_exception();
            }
            lock.lock();
            if (failure != nullptr || is_done) {
                finish(lock, one, is_done ? sequence_status::finished : sequence_status::failed,
                       std::move(failure));
            } else if (is_cancelled(one)) {
                finish(lock, one, sequence_status::cancelled);
            } else {
                push(requests_, one, session_ready_);
            }
        }
    }
    /// Runs the code of a sequence up to its next request.  @return  whether it asks for something
    static bool forward(detail::sequence_state& s) {
        const step asked = s.next(s.asked ? s.asked->product(0) : std::span<const double>{});
        s.hidden = asked.hidden;
        s.asked.reset();
        if (!asked.done) {
            s.asked.emplace(asked.group, 1, [&s](std::size_t) { return s.hidden; });
        }
        return !asked.done;
    }

    void run_session() {
        detail::sequences_of_this_thread = this;
        std::unique_lock lock(mutex_);
        while (true) {
            for (bool more = true; more && requests_.empty() && !ending_;) {
                lock.unlock();
                try {
                    more = answers_.work_ahead();
                } catch (...) {
                    more = false;  // what is wrong will be wrong for the next call, too, which hears of it
                }
                lock.lock();
            }
            session_ready_.wait(lock, [&] { return !requests_.empty() || ending_; });
            if (requests_.empty()) {
                return;
            }
            answer_what_waits(lock);
        }
    }

    void answer_what_waits(std::unique_lock<std::mutex>& lock) {
        queue taken;
        while (!requests_.empty()) {
            queue one = pop(requests_);
            if (is_cancelled(one)) {
                finish(lock, one, sequence_status::cancelled);  // which opens the lock meanwhile
            } else {
                taken.splice(taken.end(), one);
            }
        }
        if (stopping_) {  // since the first was taken: all of them end in the next round
            requests_.splice(requests_.begin(), taken);
        }
        if (taken.empty()) {
            return;
        }
        calls_.clear();
        for (const auto& s : taken) {
            calls_.push_back(&*s->asked);
        }
        lock.unlock();
        std::exception_ptr failure;
        try {
            answers_.answer(std::span<call* const>(calls_), [&] { hand_back(pop(taken)); });
        } catch (...) {
            failure = std::current_exception();
        }
        while (!taken.empty()) {
            taken.front()->asked->fail(failure);
            hand_back(pop(taken));
        }
        failure = nullptr;  // foreign code, as in finish
        lock.lock();
    }
    /// Hands back a call that is over: its sequence goes on, or ends with what is wrong with the call.
    void hand_back(queue one) {
        std::exception_ptr failure;
        try {
            one.front()->asked->rethrow();
            require<error>(one.front()->asked->is_answered(0),
                           {"sequences: a call was left without an answer"});
        } catch (...) {
            failure = std::current_exception();
        }
        std::unique_lock lock(mutex_);
        if (failure != nullptr) {
            finish(lock, one, sequence_status::failed, std::move(failure));
        } else if (is_cancelled(one)) {
            finish(lock, one, sequence_status::cancelled);
        } else {
            push(forwards_, one, forward_ready_);
        }
    }

    /// Ends a sequence. The lock is open while foreign code goes away: that of the sequence, with what it
    /// captured, and, if nobody kept the handle, the exception. It may call this.
    void finish(std::unique_lock<std::mutex>& lock, queue& one, sequence_status status,
                std::exception_ptr failure = nullptr) {
        detail::sequence_state& s = *one.front();
        lock.unlock();
        s.next = nullptr;
        s.asked.reset();
        lock.lock();
        --in_flight_;
        room_.notify_one();
        if (in_flight_ == 0) {
            idle_.notify_all();
        }
        s.status = status;
        if (status == sequence_status::finished) {
            s.over.set_value();
        } else {
            s.over.set_exception(status == sequence_status::failed
                                     ? std::move(failure)
                                     : std::make_exception_ptr(cancelled_error(
                                           "sequence_handle::wait: the sequence was cancelled")));
        }
        lock.unlock();
        failure = nullptr;
        one.clear();
        lock.lock();
    }

    void leave() noexcept {
        stop();
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
            forward_ready_.notify_all();
            session_ready_.notify_all();
        }
        for (std::thread& thread : threads_) {
            thread.join();
        }
    }

    Answers& answers_;
    const std::size_t most_sequences_;
    std::mutex mutex_;
    std::condition_variable forward_ready_;
    std::condition_variable session_ready_;
    std::condition_variable room_;
    std::condition_variable idle_;
    queue forwards_;            ///< sequences with answers, or at their start
    queue requests_;            ///< waiting for answers
    std::vector<call*> calls_;  ///< being answered
    std::size_t in_flight_ = 0;
    bool closed_ = false;
    bool stopping_ = false;
    bool ending_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace tensafe::session
