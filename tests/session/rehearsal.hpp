#pragma once

// A model without ciphertexts for the state machines of session/: a hidden state is a number, a message is
// its number in the clear, and everything that a server computes is written down. What is observed on the
// line and in the server is judged here, by rules that know nothing of the machines.

#include <tensafe/session/client_session.hpp>
#include <tensafe/session/server_session.hpp>

#include "../test.hpp"

namespace rehearsal {

using namespace tensafe;
using bytes = std::vector<std::uint8_t>;
using state = std::uint64_t;

/// A failure names what happened before it, without a cost while nothing fails.
inline void must(bool holds, const char* what) {
    if (!holds) {
        throw std::logic_error(what);
    }
}

/// What the server computed, and the rules that hold for it.
struct ledger {
    std::map<std::pair<std::uint64_t, std::size_t>, state> hidden;  ///< by block and position
    std::map<std::pair<std::uint64_t, std::size_t>, int> answered;  ///< by the server's block and position
    std::map<state, int> computed;                                  ///< answers, by hidden state
    long counted = 0;                                               ///< by the store
    long answers = 0;
    std::uint64_t next_block = 1;

    void hide(std::uint64_t block, std::size_t position, state h) {
        const auto [at, is_first] = hidden.try_emplace({block, position}, h);
        must(is_first || at->second == h, "a position hides two states");
    }
    void compute(state h) {
        ++answers;
        ++computed[h];
        must(answers <= counted, "an answer was not counted");
    }
};
inline thread_local ledger* book = nullptr;

constexpr state answer_to(state h) {
    return 3 * h + 1;
}

inline void put(bytes& to, std::uint64_t value) {
    for (int i = 0; i < 8; ++i) {
        to.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
    }
}
inline std::uint64_t get(std::span<const std::uint8_t> from, std::size_t place) {
    require<format_error>(from.size() >= 8 * place + 8, {"rehearsal: a message is too short"});
    std::uint64_t value = 0;
    for (int i = 7; i >= 0; --i) {
        value = value << 8 | from[8 * place + static_cast<std::size_t>(i)];
    }
    return value;
}

struct layout {
    struct group {
        std::string input;
    };
    std::vector<group> groups{{"first"}, {"second"}};
    std::size_t tokens_ahead = 3;
    const group& at(std::size_t g) const {
        require<parameter_error>(g < groups.size(), {"rehearsal: no group ", g});
        return groups[g];
    }
};

struct numbers {
    std::vector<state> of;
};
struct query {
    numbers request;
};

/// Three parts of eight outputs, or fewer.
constexpr std::size_t outputs = 24;

/// The seed of the block with this number.
inline random::seed seed_of(std::uint64_t block) {
    return tests::numbered_seed(block);
}

class client_block {
  public:
    client_block(std::uint64_t id, std::size_t tokens) {
        request_.d = id, request_.tokens = tokens, request_.seed = seed_of(id);
    }
    const lora::block_request& request() const noexcept { return request_; }
    std::size_t left() const noexcept { return request_.tokens - next_; }
    void encrypt(std::span<const float> h, lora::token_query& to, double /*overflow_margin*/) {
        require<encoding_error>(h[0] >= 0, {"rehearsal: a negative state"});
        to.request.position = next_++;
        to.request.c0.clear();
        put(to.request.c0, request_.d);
        put(to.request.c0, static_cast<state>(h[0]));
        book->hide(request_.d, to.request.position, static_cast<state>(h[0]));
    }
    bool encrypt_or_zeros(std::span<const float> h, lora::token_query& to, double overflow_margin) {
        encrypt(h, to, overflow_margin);
        return true;
    }
    bool is_accepted() const noexcept { return accepted_.size() == outputs; }
    void accept(const lora::block_reply& r) {
        require<format_error>(r.d == request_.d, {"rehearsal: the reply of another block"});
        for (std::size_t k = 0; k < r.c1.size(); ++k) {
            accepted_.insert(r.first + k);
        }
    }
    void decrypt(const lora::token_reply& r, const lora::token_query& q, std::span<double> to) const {
        must(is_accepted(), "an answer was opened without the server's part of its block");
        require<format_error>(r.position == q.request.position, {"rehearsal: another position"});
        to[0] = static_cast<double>(get(r.c0, 0));
    }

  private:
    lora::block_request request_;
    std::size_t next_ = 0;
    std::set<std::size_t> accepted_;  ///< outputs
};

struct plan {
    static std::size_t rank() { return 1; }
};

class client_model {
  public:
    const rehearsal::layout& layout() const noexcept { return layout_; }
    rehearsal::layout& layout() noexcept { return layout_; }
    static rehearsal::plan plan(std::size_t) { return {}; }
    void encrypt(std::size_t, std::span<const float> h, query& to, double) const {
        require<encoding_error>(h[0] >= 0, {"rehearsal: a negative state"});
        to.request.of.assign(1, static_cast<state>(h[0]));
    }
    bool encrypt_or_zeros(std::size_t g, std::span<const float> h, query& to, double margin) const {
        encrypt(g, h, to, margin);
        return true;
    }
    client_block prepare(std::size_t) const { return {book->next_block++, layout_.tokens_ahead}; }
    static void accept(client_block& b, const lora::block_reply& r) { b.accept(r); }
    static void decrypt(std::size_t, const numbers& r, const query&, int&, std::span<double> to) {
        to[0] = static_cast<double>(r.of.at(0));
    }

  private:
    rehearsal::layout layout_;
};

class server_block {
  public:
    server_block() = default;
    server_block(std::uint64_t of_client, std::size_t tokens)
        : id(of_client), number(book->next_block++), used(tokens) {}
    bool is_open(std::size_t p) const noexcept { return p < used.size() && !used[p]; }
    std::size_t left() const { return static_cast<std::size_t>(std::count(used.begin(), used.end(), false)); }
    random::seed seed() const { return seed_of(id); }
    std::size_t prepared() const noexcept { return prepared_; }
    std::uint64_t id = 0;       ///< the client's
    std::size_t prepared_ = 0;  ///< outputs
    std::uint64_t number = 0;   ///< the server's own
    std::vector<bool> used;
};

struct zeros {
    zeros(const random::seed&, int, std::size_t) {}
    std::size_t made = 0;
};

struct protocol {
    using client_model = rehearsal::client_model;
    using server_model = rehearsal::client_model;
    using zeros = rehearsal::zeros;
    using key = int;
    using request = numbers;
    using reply = numbers;
    using query = rehearsal::query;
    using client_block = rehearsal::client_block;
    using server_block = rehearsal::server_block;
    using reading = int;
    struct workspace {
        numbers request;
        numbers reply;
        lora::block_reply block_reply;
        lora::token_request token_request;
        lora::token_reply token_reply;
    };

    static lora::token_cost cost(const client_model&, std::size_t) {
        lora::token_cost c;
        c.bytes_up = 100'000;
        c.bytes_down = 90'000;
        return c;
    }
    static lora::token_cost cost_of_block(const client_model& m, std::size_t) {
        lora::token_cost c;
        c.hidden_states = m.layout().tokens_ahead;
        c.outputs = rehearsal::outputs;
        c.online_up = 8'000;
        c.online_down = 200;
        c.bytes_up = 100 + c.hidden_states * c.online_up;
        c.bytes_down = 120'000 + c.hidden_states * c.online_down;
        return c;
    }
    static std::size_t outputs(const server_model&, std::size_t) { return rehearsal::outputs; }
    static std::size_t bytes_of_block(const server_model&, std::size_t) { return 1000; }

    static void write_as(wire::kind what, const wire::envelope& of,
                         std::initializer_list<std::uint64_t> of_body, bytes& to) {
        bytes body;
        std::ranges::for_each(of_body, [&](std::uint64_t value) { put(body, value); });
        wire::write_message({what, 1, 1, of.number, of.group, body.size(), of.unanswered}, to,
                            [&](wire::byte_writer& w) { w.bytes(body); });
    }
    static bytes body_of(wire::kind what, std::span<const std::uint8_t> from) {
        const wire::header head = wire::read_header(from);
        require<format_error>(
            head.what == what && from.size() == wire::header_bytes + head.body_bytes + wire::checksum_bytes,
            {"rehearsal: another kind or length"});
        const auto body = from.subspan(wire::header_bytes, head.body_bytes);
        return {body.begin(), body.end()};
    }
    static void write(const lora::block_request& r, const wire::envelope& of, bytes& to) {
        write_as(wire::kind::block_request, of, {r.d, r.tokens, r.outputs, r.first}, to);
    }
    static void write(const lora::token_request& r, const wire::envelope& of, bytes& to) {
        write_as(wire::kind::token_request, of, {get(r.c0, 0), get(r.c0, 1), r.position, r.block}, to);
    }
    static void write(const lora::block_reply& r, const wire::envelope& of, bytes& to) {
        write_as(wire::kind::block_reply, of, {r.d, r.first, r.c1.size()}, to);
    }
    static void write(const lora::token_reply& r, const wire::envelope& of, bytes& to) {
        write_as(wire::kind::token_reply, of, {get(r.c0, 0), r.position}, to);
    }
    /// A request and a reply of a state alone are of one type here: the request's number is not negative.
    static void write(const numbers& r, const wire::envelope& of, bytes& to) {
        write_as(r.of.size() == 1 ? wire::kind::request : wire::kind::reply, of, {r.of.at(0)}, to);
    }
    static void read(std::span<const std::uint8_t> from, const client_model&, std::size_t, numbers& to) {
        const bool is_request = wire::read_header(from).what == wire::kind::request;
        const bytes body = body_of(is_request ? wire::kind::request : wire::kind::reply, from);
        to.of.assign(1, get(body, 0));
    }
    static void read(std::span<const std::uint8_t> from, const client_model&, std::size_t,
                     const lora::block_request& of, lora::block_reply& to) {
        const bytes body = body_of(wire::kind::block_reply, from);
        to.d = get(body, 0);
        to.first = get(body, 1);
        to.c1.resize(get(body, 2));
        require<format_error>(
            to.first == of.first && to.c1.size() == (of.outputs == 0 ? rehearsal::outputs : of.outputs),
            {"rehearsal: the reply of another part"});
    }
    static void read(std::span<const std::uint8_t> from, const client_model&, std::size_t,
                     std::size_t position, lora::token_reply& to) {
        const bytes body = body_of(wire::kind::token_reply, from);
        to.c0.assign(body.begin(), body.begin() + 8);
        to.position = get(body, 1);
        require<format_error>(to.position == position, {"rehearsal: another position"});
    }
    static void read(std::span<const std::uint8_t> from, const client_model&, std::size_t,
                     lora::token_request& to) {
        const bytes body = body_of(wire::kind::token_request, from);
        to.c0.assign(body.begin(), body.begin() + 16);
        to.position = get(body, 2);
        to.block = get(body, 3);
    }
    static lora::block_request read_block_request(std::span<const std::uint8_t> from, const client_model&,
                                                  std::size_t) {
        const bytes body = body_of(wire::kind::block_request, from);
        lora::block_request r;
        r.d = get(body, 0);
        r.tokens = get(body, 1);
        r.outputs = get(body, 2);
        r.first = get(body, 3);
        r.seed = seed_of(r.d);
        return r;
    }

    static void apply(zeros&, const server_model&, std::size_t, const numbers& from, workspace&,
                      numbers& to) {
        book->compute(from.of.at(0));
        to.of.assign(2, answer_to(from.of[0]));  // two: it is a reply
    }
    static void prepare(zeros&, const server_model&, std::size_t, const lora::block_request& from, workspace&,
                        server_block& block, lora::block_reply& to) {
        if (from.first == 0) {
            block = server_block(from.d, from.tokens);
        }
        must(block.id == from.d && block.prepared_ == from.first, "a part is not the next one of its block");
        to.d = from.d;
        to.first = from.first;
        to.c1.resize(from.outputs == 0 ? rehearsal::outputs : from.outputs);
        block.prepared_ += to.c1.size();
    }
    static void answer(const server_model&, std::size_t, server_block& block, const lora::token_request& from,
                       workspace&, lora::token_reply& to) {
        must(get(from.c0, 0) == block.id, "a token went to another block than its own");
        must(block.prepared_ == rehearsal::outputs, "a token was answered before all parts were there");
        must(++book->answered[{block.number, from.position}] == 1, "a position was answered twice");
        const state h = get(from.c0, 1);
        book->hide(block.id, from.position, h);
        book->compute(h);
        block.used[from.position] = true;
        to.position = from.position;
        to.c0.clear();
        put(to.c0, answer_to(h));
    }
    static bool make_zero(zeros& of, const server_model&, std::size_t alone) {
        of.made += of.made < alone;
        return of.made < alone;
    }
};

using client_session = session::basic_client_session<protocol>;
using server_session = session::basic_server_session<protocol>;

/// Counts, or fails, or refuses.
class counts final : public session::store {
  public:
    std::function<bool()> fails = [] { return false; };
    std::function<bool()> has_no_room = [] { return false; };
    long limit = 1'000'000;  ///< answers
    std::array<std::uint64_t, 2> of_groups{};
    void add(std::size_t group) override {
        require<io_error>(!fails(), {"rehearsal: the disk is full"});
        if (book->counted - before >= limit) {
            throw session::refused_error("rehearsal: no queries are left", session::refusal::query_limit);
        }
        ++book->counted;
        ++of_groups.at(group);
    }
    void take_back(std::size_t group) noexcept override {
        --book->counted;
        --of_groups.at(group);
    }
    void admit_block(std::size_t) override {
        if (has_no_room()) {
            throw session::refused_error("rehearsal: no room for a block", session::refusal::block_limit);
        }
    }
    long before = 0;
};

}  // namespace rehearsal
