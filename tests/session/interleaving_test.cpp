// Both halves of a session over a line that loses, repeats, delays and reorders messages and breaks at any
// step, while servers are replaced, blocks refused and counts fail. The judge is rehearsal::ledger and what
// is seen on the line.

#include <sys/wait.h>
#include <unistd.h>

#include "rehearsal.hpp"

using namespace tests;
using namespace rehearsal;

namespace {

/// What may happen, in thousandths of a step.
struct faults {
    int cut = 0;      ///< the connection breaks; what is on it is lost
    int lose = 0;     ///< one message is lost and the connection goes on
    int repeat = 0;   ///< one message comes twice
    int reorder = 0;  ///< two messages change places
    int replace = 0;  ///< another server takes over, or the session expires
    int forget = 0;   ///< the server gives up blocks and replies for want of memory
    int fail = 0;     ///< of counts: the disk is full
    int no_room = 0;  ///< of blocks: refused
    int rate = 0;     ///< of messages: too many
    int leave = 0;    ///< nobody waits for a call any more
    int stop = 0;     ///< no more rows of a call go up
    int fork = 0;     ///< the client's process has a child, which tries to go on; a hundredth as often
};

struct caller {
    std::vector<float> rows;
    std::unique_ptr<session::call> of;
    bool is_begun = false;
};

/// One session from the first message to the last.
class run {
  public:
    run(std::uint64_t seed, const faults& may) : random_(seed), may_(may) {
        book = &book_;
        model_->layout().tokens_ahead = 2 + random_() % 7;
        session::block_policy policy;
        if (random_() % 4 == 0) {
            policy.expected_tokens = random_() % 12;
        }
        client_ = std::make_unique<client_session>(model_, policy);
        store_.fails = [this] { return happens(may_.fail); };
        store_.has_no_room = [this] { return happens(may_.no_room); };
        state next = 1;
        for (std::size_t c = 1 + random_() % 3; c-- > 0;) {
            auto& made = callers_.emplace_back();
            for (std::size_t r = random_() % 9; r-- > 0;) {
                made.rows.push_back(static_cast<float>(next++));
            }
            made.of = std::make_unique<session::call>(
                random_() % 2, made.rows.size(),
                [&made](std::size_t row) { return std::span<const float>(made.rows).subspan(row, 1); });
        }
        connect();
    }

    void play() {
        for (int step = 0; step < 150; ++step) {
            something();
        }
        may_ = {};  // from here on messages get through
        for (int step = 0; !all_over(); ++step) {
            must(step < 5000, "no progress");
            something();
        }
        check();
    }

    std::uint64_t steps() const noexcept { return steps_; }
    std::uint64_t forks() const noexcept { return forks_; }

  private:
    bool happens(int thousandths) { return static_cast<int>(random_() % 1000) < thousandths; }

    bool all_over() const {
        return std::all_of(callers_.begin(), callers_.end(),
                           [](const caller& c) { return c.is_begun && c.of->is_over(); });
    }

    /// One thing that can happen, at random.
    void something() {
        ++steps_;
        if (!is_connected_) {
            connect();
            return;
        }
        meet_faults();
        if (!is_connected_) {
            return;
        }
        switch (random_() % 4) {
            case 0:
                for (auto& c : callers_) {
                    if (!c.is_begun) {
                        client_->begin(*c.of);
                        c.is_begun = true;
                        return;
                    }
                }
                [[fallthrough]];
            case 1:
                if (client_->is_held() && !client_->awaits_reply()) {
                    client_->go_on();
                }
                if (const auto* const m = client_->next()) {
                    m->write(message_);
                    see(message_);
                    up_.push_back(message_);
                    return;
                }
                [[fallthrough]];
            case 2:
                if (!up_.empty()) {
                    serve();
                    return;
                }
                [[fallthrough]];
            default:
                if (!down_.empty()) {
                    receive();
                    return;
                }
        }
        if (up_.empty() && down_.empty() && client_->awaits_reply()) {
            cut();  // nobody waits for ever
            return;
        }
    }

    void meet_faults() {
        if (happens(may_.cut)) {
            cut();
        }
        auto& queue = random_() % 2 == 0 ? up_ : down_;
        if (!queue.empty()) {
            const std::size_t at = random_() % queue.size();
            if (happens(may_.lose)) {
                queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(at));
                is_unfair_ = true;
            } else if (happens(may_.repeat)) {
                queue.insert(queue.begin() + static_cast<std::ptrdiff_t>(at), entry(queue[at]));
                is_unfair_ = true;
            } else if (happens(may_.reorder) && at > 0) {
                std::swap(queue[at], queue[at - 1]);
                is_unfair_ = true;
            }
        }
        if (happens(may_.fork) && random_() % 100 == 0) {
            fork();
        }
        if (happens(may_.replace)) {
            server_.reset();
            is_unfair_ = true;
            cut();
        }
        if (happens(may_.forget) && server_) {
            random_() % 2 == 0 ? server_->drop_blocks() : server_->drop_replies();
            is_unfair_ = true;
        }
        if (caller& c = callers_[random_() % callers_.size()]; c.is_begun && !c.of->is_over()) {
            if (happens(may_.leave)) {
                client_->end(*c.of);
                is_unfair_ = true;
            } else if (happens(may_.stop)) {
                c.of->stop();
            }
        }
    }

    /// Nothing may leave the child: it has the keys and the next positions of its parent, which goes on.
    void fork() {
        const ::pid_t child = ::fork();
        must(child >= 0, "no process");
        if (child == 0) {
            session::call own(0, 1, [h = 1e6F](std::size_t) { return std::span<const float>(&h, 1); });
            int went_on = 0;
            const auto try_to = [&](auto what) {
                try {
                    went_on += what();
                } catch (const unsupported_error&) {  // says so
                } catch (...) {
                    ::_exit(100);
                }
            };
            try_to([&] { return client_->next() != nullptr; });
            try_to([&] { return client_->begin(own), true; });
            for (const entry& each : down_) {
                try_to([&] { return !each.refusal && (client_->take(each.message), true); });
            }
            try_to([&] { return client_->next() != nullptr; });
            ::_exit(went_on);
        }
        int status = 0;
        must(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
             "a child of the client went on");
        ++forks_;
    }

    struct entry {
        bytes message;
        std::optional<session::refusal> refusal{};
        std::uint64_t number = 0;
        entry(bytes m) : message(std::move(m)) {}
        entry(session::refusal why, std::uint64_t of) : refusal(why), number(of) {}
    };

    /// On the line: a number has one content, but for what it acknowledges.
    void see(const bytes& sent) {
        bytes content(sent);
        std::fill_n(content.begin() + 6, 2, std::uint8_t{0});   // unanswered
        std::fill_n(content.begin() + 44, 4, std::uint8_t{0});  // and the header's checksum
        const auto [at, is_first] =
            sent_.try_emplace({session_number_, wire::read_header(sent).number}, content);
        must(is_first || at->second == content, "a number has two contents");
    }

    void serve() {
        entry now = std::move(up_.front());
        up_.pop_front();
        const wire::header head = wire::read_header(now.message);
        if (happens(may_.rate)) {
            return down_.push_back(entry(session::refusal::rate_limit, head.number));
        }
        try {
            server_session::shared_message shared;
            static_cast<void>(server_->on_message(now.message, head, work_, shared));
            bytes reply = *shared;
            const auto [at, is_first] = answered_.try_emplace({session_number_, head.number}, reply);
            must(is_first || at->second == reply, "a number was answered with two replies");
            must(wire::read_header(reply).number == head.number, "a reply has another number");
            down_.push_back(entry(std::move(reply)));
        } catch (const session::refused_error& e) {
            down_.push_back(entry(e.why(), head.number));
        } catch (const io_error&) {  // of the store: as a service would say "internal"
            down_.push_back(entry(session::refusal::other, head.number));
        }
        must(book_.counted == book_.answers, "what is counted is not what was answered");
        most_held_ = std::max(most_held_, server_->held_bytes());
    }

    void receive() {
        const entry now = std::move(down_.front());
        down_.pop_front();
        try {
            if (now.refusal) {
                client_->refused(now.number, *now.refusal,
                                 std::make_exception_ptr(session::refused_error("refused", *now.refusal)),
                                 std::chrono::milliseconds(1));
            } else {
                client_->take(now.message);
            }
        } catch (const error& e) {  // a line that reorders or repeats: give the connection up
            must(is_unfair_, e.what());
            cut();
        }
    }

    void cut() {
        up_.clear();
        down_.clear();
        is_connected_ = false;
        client_->lost();
    }

    void connect() {
        is_connected_ = true;
        if (server_) {
            server_->on_resumed();
            client_->resumed(server_->next_number(), left());
        } else {
            server_ = std::make_unique<server_session>(model_, random::seed{}, 0, &store_);
            ++session_number_;
            client_->opened(left());
        }
    }
    /// Of the limit of queries, by group.
    std::array<std::uint64_t, 2> left() const {
        constexpr std::uint64_t limit = 1000;
        return {limit - store_.of_groups[0], limit - store_.of_groups[1]};
    }

    void check() const {
        for (std::size_t g = 0; g < 2; ++g) {
            must(is_unfair_ || client_->queries_left(g) == left()[g], "what is left is not what was counted");
        }
        for (const caller& c : callers_) {
            for (std::size_t r = 0; r < c.rows.size(); ++r) {
                const auto h = static_cast<state>(c.rows[r]);
                const auto times = book_.computed.find(h);
                const int computed = times == book_.computed.end() ? 0 : times->second;
                if (c.of->is_answered(r)) {
                    must(c.of->product(r)[0] == static_cast<double>(answer_to(h)), "an answer is wrong");
                    must(computed > 0, "an answer came from nowhere");
                }
                // Where no session is lost and the line is one that keeps its order, whatever else happens:
                must(is_unfair_ || computed == (c.of->is_answered(r) ? 1 : 0), "what was paid for is lost");
            }
            bool failed = false;
            try {
                c.of->rethrow();
            } catch (const session::refused_error&) {
                failed = true;
            }
            must(failed || c.of->answered() == c.rows.size() || is_stopped(c), "a row was left out");
        }
    }
    static bool is_stopped(const caller& c) { return c.of->is_over() && c.of->answered() < c.rows.size(); }

    random_numbers random_;
    faults may_;
    ledger book_;
    std::shared_ptr<client_model> model_ = std::make_shared<client_model>();
    counts store_;
    std::deque<caller> callers_;
    std::unique_ptr<client_session> client_;
    std::unique_ptr<server_session> server_;
    protocol::workspace work_;
    std::deque<entry> up_;
    std::deque<entry> down_;
    bool is_connected_ = false;
    bool is_unfair_ = false;  ///< something happened after which an answer may have to be paid for again
    std::uint64_t session_number_ = 0;
    std::uint64_t steps_ = 0;
    std::uint64_t forks_ = 0;
    std::size_t most_held_ = 0;
    bytes message_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, bytes> sent_;
    std::map<std::pair<std::uint64_t, std::uint64_t>, bytes> answered_;
};

std::uint64_t runs() {
    const char* const wanted = std::getenv("TENSAFE_INTERLEAVINGS");
#if defined(TENSAFE_TEST_SANITIZED)
    constexpr std::uint64_t usual = 500;
#else
    constexpr std::uint64_t usual = 5'000;
#endif
    return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : usual;
}

void play_all(const faults& may, std::uint64_t first) {
    std::uint64_t steps = 0;
    std::uint64_t forks = 0;
    for (std::uint64_t seed = first; seed < first + runs(); ++seed) {
        try {
            run one(seed, may);
            one.play();
            steps += one.steps();
            forks += one.forks();
        } catch (const std::exception& e) {
            FAIL_CHECK("seed " << seed << ": " << std::string(e.what()));
            return;
        }
    }
    CHECK(steps > 10 * runs());
    CHECK((forks > 0) == (may.fork > 0));
}

}  // namespace

TEST_CASE("over a line that keeps its order nothing is lost or paid for twice, whatever breaks") {
    play_all({}, 1);
    play_all({.cut = 30}, 1'000'000);
    play_all({.cut = 100, .fail = 20, .no_room = 200, .rate = 100, .stop = 3, .fork = 5}, 2'000'000);
}

TEST_CASE("where servers are replaced and forget, every row is still answered, and no position twice") {
    play_all({.cut = 20, .replace = 10, .forget = 10, .no_room = 100, .leave = 5}, 3'000'000);
    play_all({.cut = 50,
              .replace = 30,
              .forget = 30,
              .fail = 10,
              .no_room = 300,
              .rate = 200,
              .leave = 10,
              .fork = 5},
             4'000'000);
}

TEST_CASE("over a line that loses, repeats and reorders no rule is broken and an end is reached") {
    play_all({.cut = 10, .lose = 20, .repeat = 20, .reorder = 30}, 5'000'000);
    play_all({.cut = 30,
              .lose = 30,
              .repeat = 40,
              .reorder = 40,
              .replace = 10,
              .forget = 10,
              .fail = 10,
              .no_room = 100,
              .rate = 100,
              .leave = 5,
              .stop = 5},
             6'000'000);
}
