// Both halves of the service, the client against the service itself, with nothing between them but the
// frames, and with somebody between them. Long for a stream, a prompt and their blocks are lost and refused
// at many places.
#include <tensafe/ckks/precision.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/keystore/mark_key.hpp>
#include <tensafe/keystore/opened_pin.hpp>
#include <tensafe/lora/adapter/plain.hpp>
#include <tensafe/lora/tracing/marks.hpp>

#include "../../service/remote_model.hpp"
#include "echo_server.hpp"
#include "peer.hpp"

using namespace tests;

namespace {

using split::frame_form;

/// What was sent of all connections that have it, and where they break.
struct line {
    std::vector<bytes> heard;
    std::size_t cut_before = 0;  ///< this message is heard by nobody
    std::size_t cut_after = 0;   ///< what it is answered with is lost
    std::size_t refused = 0;     ///< this message gets `code`, and the service does not hear it
    split::error_code code = split::error_code::replayed;

    std::size_t count(wire::kind what) const {
        return static_cast<std::size_t>(
            std::ranges::count_if(heard, [&](const auto& m) { return wire::read_header(m).what == what; }));
    }
    /// Messages, of which one with the number of an earlier one is that again, but for what it acknowledges.
    std::size_t different() const {
        std::map<std::uint64_t, bytes> by_number;
        for (const bytes& each : heard) {
            const bytes body(each.begin() + wire::header_bytes, each.end());
            CHECK(by_number.try_emplace(wire::read_header(each).number, body).first->second == body);
        }
        return by_number.size();
    }
};

/// Frames go straight to a service, and its answers wait to be received.
class direct_connection final : public memory_connection {
  public:
    direct_connection(split::service& to, line& log) : log_(log), other_(to.connect({"test"}, control_)) {
        hear([&](auto& answer) { other_->start(answer); });
    }
    /// The connection is lost, and the service has nothing of it any more.
    void end() {
        cut();
        other_.reset();
    }
    void send_text(std::string_view text) override {
        traffic_.up += text.size();
        hear([&](auto& answer) { other_->on_text(text, answer); });
    }
    void send_binary(std::span<const std::uint8_t> message) override {
        check_open();
        traffic_.up += message.size();
        log_.heard.emplace_back(message.begin(), message.end());
        if (log_.heard.size() == log_.cut_before) {
            cut();
        }
        if (log_.heard.size() == log_.refused) {
            return say_text(to_text(split::refusal{log_.code, "no", wire::read_header(message).number, {}}));
        }
        hear([&](auto& answer) { other_->on_binary(message, answer); });
        if (log_.heard.size() == log_.cut_after) {
            cut();
        }
    }

  private:
    struct control final : net::connection_control {
        explicit control(direct_connection& c) : of(c) {}
        void end(std::uint16_t, const std::string&) override { of.cut(); }
        split::exporter_value channel_binding() override { return {}; }
        direct_connection& of;
    };
    void hear(auto call) {
        check_open();
        net::answer answer;
        call(answer);
        for (const auto& said : answer.frames()) {
            say(said.is_text, {said.data().begin(), said.data().end()});
        }
    }

    line& log_;
    std::shared_ptr<control> control_ = std::make_shared<control>(*this);
    std::unique_ptr<net::websocket_handler> other_;
};

/// A man in the middle: says to the server what the client says, and back.
class relay final : public net::websocket_handler {
  public:
    explicit relay(std::unique_ptr<split::client_connection> to) : to_(std::move(to)) {}
    void start(net::answer& to) override { pass_back(1, to); }
    void on_text(std::string_view text, net::answer&) override { to_->send_text(text); }
    /// A re-randomization key, which is answered by a welcome, a layout and B, and then requests.
    void on_binary(std::span<const std::uint8_t> message, net::answer& to) override {
        to_->send_binary(message);
        pass_back(std::exchange(is_first_, false) ? 3 : 1, to);
    }
    void on_drain(net::answer&) override {}
    bool established() const override { return true; }
    std::size_t largest_frame() const override { return std::size_t{1} << 20; }
    std::string whose() const override { return {}; }

  private:
    void pass_back(std::size_t frames, net::answer& to) {
        for (bool is_error = false; frames > 0 && !is_error; --frames) {
            const auto got = to_->receive();
            to.add(got.is_text).bytes.assign(got.bytes.begin(), got.bytes.end());
            is_error = got.text().starts_with("{\"type\":\"error\"");
        }
    }
    std::unique_ptr<split::client_connection> to_;
    bool is_first_ = true;
};

/// Two sites with an input of their own each.
lora::adapter random_adapter(unsigned seed) {
    lora::adapter result;
    result.sites = {random_site(16, 4, 64, seed), random_site(16, 4, 64, seed + 2)};
    result.sites[0].name = "layer.0.q_proj";
    result.sites[1].name = "layer.0.down_proj";
    return result;
}

struct both_sides {
    temporary_directory folder;
    lora::adapter adapter = random_adapter(1);
    std::optional<server> of;
    direct_connection* last = nullptr;
    line log;
    split::limits allowed{.shares = {}, .tokens_ahead = 32};

    explicit both_sides(split::of_each_scope<double> shares = {}) {
        allowed.shares = shares;
        start();
    }
    /// The adapter as a tenant has it where there are marks in both matrices.
    lora::adapter marked(const keystore::mark_key& key, std::string_view tenant) const {
        const lora::marks own(key.seed_of("kjv", tenant));
        auto result = own.added_to(lora::marked_matrix::b, own.added_to(lora::marked_matrix::a, adapter));
        for (std::size_t s = 0; s < adapter.sites.size(); ++s) {
            for (std::size_t r = 0; r < adapter.sites[s].rank(); ++r) {  // rows keep their norms
                const auto row = result.sites[s].a.row(r);
                const double ratio = norm(adapter.sites[s].a.row(r)) / norm(row);
                for (float& x : row) {
                    x = static_cast<float>(x * ratio);
                }
            }
        }
        return result;
    }

    void start(split::pin_files pins = {}, const std::function<void(split::service_options&)>& change = {}) {
        of.reset();  // which locks its folder
        of.emplace(
            allowed,
            [&](auto& options) {
                options.state = folder.path();
                options.pins = std::move(pins);
                options.now = std::chrono::steady_clock::now;
                if (change) {
                    change(options);
                }
            },
            [this] { return adapter; });
    }
    void load(const lora::adapter& another) {
        pack_and_serve(of->of->adapters(), "kjv", [&] { return another; });
    }

    /// A client with a session.
    split::remote_model client(frame_form frames = frame_form::binary,
                               signing_key identity = split::client_identity({}),
                               split::remote_options options = {}) {
        options.adapter = "kjv";
        options.frames = frames;
        options.wait = [](std::chrono::milliseconds) {};
        const auto connect = [this](const split::wait_options&) -> std::unique_ptr<split::client_connection> {
            auto made = std::make_unique<direct_connection>(*of->of, log);
            last = made.get();
            return made;
        };
        return split::remote_model(connect, std::move(identity),
                                   std::make_shared<lora::client<split::params>>(), options);
    }
    split::remote_model client(const split::remote_options& options) {
        return client(frame_form::binary, split::client_identity({}), options);
    }
    /// So many hidden states, one after the other: each gets its own delta.
    void ask(split::remote_model& remote, unsigned tokens, std::size_t group = 0) const;
};

std::vector<double> plain_of(const split::remote_model& remote, const lora::adapter& adapter,
                             std::size_t group, const std::vector<float>& h) {
    return lora::plain_delta(adapter.site(remote.layout().groups[group].sites[0].name), h);
}
/// A hidden state whose delta is no shorter than a third of the usual: noise is as long for a short one, so
/// that its relative error says nothing.
std::vector<float> state_of(const split::remote_model& remote, const lora::adapter& adapter,
                            std::size_t group, unsigned seed) {
    for (;; seed += 10'000) {
        auto h = random_state(remote.layout().groups[group].d, seed);
        if (norm(plain_of(remote, adapter, group, h)) > 0.1) {
            return h;
        }
    }
}

/// Of the delta of a group's site against plaintext LoRA.
double relative_error(split::remote_model& remote, const lora::adapter& adapter, std::size_t group,
                      std::span<const double> product, const std::vector<float>& h) {
    const auto deltas = remote.client()->deltas(group, product);
    return ckks::measure_precision(plain_of(remote, adapter, group, h), deltas.at(0)).relative_error;
}
double error_of(split::remote_model& remote, const lora::adapter& adapter, std::size_t group, unsigned seed) {
    const auto h = state_of(remote, adapter, group, seed);
    std::vector<double> product;
    remote.ask(group, h, product);
    return relative_error(remote, adapter, group, product, h);
}
void both_sides::ask(split::remote_model& remote, unsigned tokens, std::size_t group) const {
    for (unsigned token = 0; token < tokens; ++token) {
        REQUIRE(error_of(remote, adapter, group, token) < 2e-3);
    }
}

/// Asks for many hidden states at once: each gets its own delta.
void check_call(split::remote_model& remote, const lora::adapter& adapter, std::size_t group,
                std::size_t rows) {
    std::vector<std::vector<float>> states;
    for (unsigned seed = 0; seed < rows; ++seed) {
        states.push_back(state_of(remote, adapter, group, seed));
    }
    session::call call(group, rows, [&](std::size_t row) { return std::span<const float>(states[row]); });
    remote.ask(call);
    for (std::size_t row = 0; row < rows; ++row) {
        REQUIRE(call.is_answered(row));
        REQUIRE(relative_error(remote, adapter, group, call.product(row), states[row]) < 2e-3);
    }
}

}  // namespace

TEST_CASE_FIXTURE(both_sides,
                  "a client of the service gets the deltas of plaintext LoRA, in binary and in JSON frames") {
    for (const auto frames : {frame_form::binary, frame_form::json}) {
        auto remote = client(frames);
        for (std::size_t group = 0; group < 2; ++group) {
            CHECK(error_of(remote, adapter, group, 3) < 2e-3);
        }
        CHECK(error_of(remote, random_adapter(2), 0, 3) > 0.1);  // the measure can tell
    }
}

TEST_CASE_FIXTURE(both_sides, "a tenant's client gets the deltas of plaintext LoRA with the tenant's B") {
    const auto marks = std::make_shared<const keystore::mark_key>(std::array<std::byte, 32>{});
    auto identity = signing_key::generate();
    const auto of_acme = [&marks, key = identity.verifying().hex()](auto& options) {
        options.clients = split::client_list{{key, {"acme"}}};
        options.marks = marks;
    };
    start({}, of_acme);
    const auto marked_for = [&](const char* tenant) {
        return lora::marks(marks->seed_of("kjv", tenant)).added_to(lora::marked_matrix::b, adapter);
    };
    auto remote = client(frame_form::binary, std::move(identity));
    for (std::size_t group = 0; group < 2; ++group) {
        CHECK(error_of(remote, marked_for("acme"), group, 3) < 2e-3);
        CHECK(error_of(remote, marked_for("emca"), group, 3) > 0.01);  // the measure can tell
        CHECK(error_of(remote, adapter, group, 3) > 0.005);
        CHECK(error_of(remote, adapter, group, 3) < 0.1);
    }
    last->end();
    start({}, of_acme);  // the same B comes again, and the client goes on
    CHECK(error_of(remote, marked_for("acme"), 0, 4) < 2e-3);
    CHECK(remote.counted().sessions == 2);
}

TEST_CASE_FIXTURE(both_sides,
                  "a tenant's client gets the deltas of the tenant's A, however little of it is kept") {
    const auto marks = std::make_shared<const keystore::mark_key>(std::array<std::byte, 32>{});
    const auto served_to = [&](const char* tenant) { return marked(*marks, tenant); };
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{1} << 30}) {
        CAPTURE(bytes);
        allowed.mark_bytes = bytes;
        auto identity = signing_key::generate();
        start({}, [&marks, key = identity.verifying().hex()](auto& options) {
            options.clients = split::client_list{{key, {"acme"}}};
            options.marks = marks;
        });
        auto remote = client(frame_form::binary, std::move(identity));
        const auto own = served_to("acme");
        for (std::size_t group = 0; group < 2; ++group) {
            CHECK(error_of(remote, own, group, 3) < 2e-3);
            CHECK(error_of(remote, served_to("emca"), group, 3) > 0.01);
        }
        check_call(remote, own, 0, 20);
        CHECK((of->of->adapters().marked().first > 0) == (bytes > 1));
        CHECK(of->of->metrics_text().find("tensafe_split_marked_packed_total 0\n") == std::string::npos);
        last->end();
    }
    allowed.mark_bytes = 1;
    start();  // without a key there are none
    auto remote = client(frame_form::binary);
    CHECK(error_of(remote, adapter, 0, 3) < 2e-3);
}

TEST_CASE_FIXTURE(both_sides,
                  "a service shows the pin of its adapter, and loads no other A of the same layout and B") {
    CHECK(!client().pin());
    const auto owner = fresh_key();
    const auto file = folder.path() / "kjv.pin";
    const auto other_file = folder.path() / "other.pin";
    const auto pin_of = [&](const lora::adapter& pinned_one, std::uint64_t revision) {
        return keystore::opened_pin::make(
            *owner, "kjv",
            keystore::pinned_parts_of<split::params, split::packing, split::protection>(pinned_one),
            revision);
    };
    const auto made = pin_of(adapter, 1);
    made.write(file);
    split::remote_options pinned;
    pinned.pin = made.pin;
    for (const std::size_t other : {1u, 16u, 32u}) {  // it says nothing of blocks
        allowed.tokens_ahead = other;
        start({{"kjv", file}});
        auto remote = client(pinned);
        CHECK(error_of(remote, adapter, 0, 16) < 2e-3);
        CHECK(remote.pin() == made.pin);
    }
    auto another = adapter;
    for (float& x : another.sites[0].a.values) {  // rows keep their norms
        x = -x;
    }
    check_refusal<tensafe::signature_error>("kjv.pin\": commits to another A", [&] { load(another); });
    auto remote = client(pinned);  // the old one serves on
    CHECK(error_of(remote, adapter, 0, 16) < 2e-3);

    pin_of(another, 2).write(other_file);
    for (const char* const ending : {"", ".opening"}) {
        std::filesystem::rename(other_file.string() + ending, file.string() + ending);
    }
    load(another);
    check_refusal<tensafe::signature_error>("commitment to A: got ", [&] { client(pinned); });
    pinned.pin.reset();
    pinned.publisher = owner->verifying();
    pinned.oldest_revision = 2;
    const auto later = client(pinned).pin();
    CHECK(later->layout == made.pin.layout);
    CHECK(later->held == made.pin.held);
    std::filesystem::remove(file);
    check_refusal<tensafe::io_error>("kjv.pin\": cannot ", [&] { load(another); });
}

TEST_CASE_FIXTURE(both_sides,
                  "a service with marks shows each tenant the pin of its own A and B, or nothing") {
    const auto publisher = fresh_key();
    const auto marks = std::make_shared<const keystore::mark_key>(std::array<std::byte, 32>{});
    allowed.mark_bytes = std::size_t{1} << 30;
    std::string tenant = "acme";
    const auto pin_as = [&](const std::string& name, const std::string& owner) {
        const auto file = folder.path() / (name + ".pin");
        std::filesystem::remove(file);
        std::filesystem::remove(file.string() + ".opening");
        const auto made = keystore::opened_pin::make(
            *publisher, "kjv",
            keystore::pinned_parts_of<split::params, split::packing, split::protection>(adapter, {}, *marks,
                                                                                        "kjv", owner));
        made.write(file);
        return made.pin;
    };
    const auto own_key = folder.path() / "identity";
    const std::string key = split::client_identity(own_key).verifying().hex();
    const auto start_for = [&] {
        start({{"kjv", folder.path()}}, [&](auto& options) {
            options.clients = split::client_list{{key, {tenant}}};
            options.marks = marks;
        });
    };
    split::remote_options wanted;
    wanted.publisher = publisher->verifying();
    start_for();
    const auto refused = [&] {
        check_refusal<split::refused_error>("its log has the reason", [&] {
            client(frame_form::binary, split::client_identity(own_key), wanted);
        });
    };
    refused();  // there is none
    pin_as("acme", "emca");
    refused();
    std::ofstream(folder.path() / "acme.pin") << "{}";
    refused();
    wanted.pin = pin_as("acme", "acme");
    for (int i = 0; i < 2; ++i) {
        auto remote = client(frame_form::binary, split::client_identity(own_key), wanted);
        CHECK(remote.pin() == wanted.pin);
        CHECK(error_of(remote, marked(*marks, "acme"), 0, 3) < 2e-3);
        std::filesystem::remove(folder.path() / "acme.pin");  // what fits is kept
    }
    start_for();
    refused();
    tenant.clear();
    wanted.pin = pin_as(key, "key " + key);
    start_for();
    std::filesystem::remove(folder.path() / (key + ".pin"));  // what was there at the load is kept
    CHECK(client(frame_form::binary, split::client_identity(own_key), wanted).pin() == wanted.pin);
    pin_as("acme", "acme");
    auto another = adapter;
    another.sites[0].scale = 3;
    check_refusal<tensafe::signature_error>("acme.pin\": is of another layout", [&] { load(another); });
}

TEST_CASE_FIXTURE(both_sides,
                  "a stream over blocks gets right deltas, and the next block is asked for in time") {
    for (const auto frames : {frame_form::binary, frame_form::json}) {
        auto remote = client(frames);
        log.heard.clear();
        for (unsigned token = 0; token < 3 * 32; ++token) {
            for (std::size_t group = 0; group < 2; ++group) {
                REQUIRE(error_of(remote, adapter, group, 100 + token) < 2e-3);
            }
            if (frames == frame_form::binary) {  // not of both groups at one token
                const std::size_t ahead = token % 32 < 31 - 16 ? 0 : token % 32 < 31 - 8 ? 1 : 2;
                CHECK(log.count(wire::kind::block_request) == 2 * (token / 32 + 1) + ahead);
            }
        }
        CHECK(remote.counted().replies == 2 * 3 * 32);
        if (frames == frame_form::binary) {
            CHECK(log.count(wire::kind::token_request) == 2 * 3 * 32);
            CHECK(log.count(wire::kind::request) == 0);
        }
    }
}

TEST_CASE_FIXTURE(both_sides,
                  "whatever message of a stream or a prompt is lost, or its reply, it goes again as it was") {
    for (const bool is_prompt : {true, false}) {
        for (const bool before : {true, false}) {
            // The key is the first message; then a block, 24 tokens, a block request, more tokens.
            for (const std::size_t lost : {2u, 3u, 20u, 27u, 28u, 36u, 43u}) {
                CAPTURE(is_prompt);
                CAPTURE(before);
                CAPTURE(lost);
                start();
                log = {};
                (before ? log.cut_before : log.cut_after) = lost;
                auto remote = client();
                constexpr unsigned rows = 40;
                is_prompt ? check_call(remote, adapter, 0, rows) : ask(remote, rows);
                CHECK(remote.counted().sessions == 1);
                CHECK(remote.counted().resumed == 1);
                CHECK(remote.counted().replies == rows);
                CHECK(log.heard.size() > log.different());
                CHECK(log.different() == 1 + 2 + rows);
                CHECK(of->total().tokens == rows);  // each position is counted once
            }
        }
    }
}

TEST_CASE_FIXTURE(both_sides,
                  "a prompt of 500 hidden states is answered in one call, whatever is cut on the way") {
    auto remote = client();
    log.cut_after = 150;
    check_call(remote, adapter, 1, 500);
    CHECK(remote.counted().resumed == 1);
    CHECK(of->total().tokens == 500);
    last->end();
    start();
    check_call(remote, adapter, 1, 50);
    CHECK(remote.counted().sessions == 2);
    CHECK(of->total().tokens == 50);
}

TEST_CASE_FIXTURE(both_sides,
                  "after a restart in the middle of a block there is another, and a swap changes nothing") {
    auto remote = client();
    ask(remote, 10);
    load(random_adapter(9));
    ask(remote, 30);
    CHECK(remote.counted().sessions == 1);
    CHECK(log.count(wire::kind::block_request) == 2);
    last->end();
    start();
    ask(remote, 10);
    CHECK(remote.counted().sessions == 2);
    CHECK(log.count(wire::kind::block_request) == 3);
    CHECK(log.count(wire::kind::token_request) == 50);
    CHECK(log.count(wire::kind::request) == 0);
}

TEST_CASE_FIXTURE(
    both_sides,
    "a token of 32 x 2048 costs 35,500 bytes in a stream, and goes alone where blocks cost more") {
    adapter.sites = {random_site(8, 32, 2048, 1)};
    adapter.sites[0].name = "layer.0.q_proj";
    start();
    // What a block costs that is asked for ahead: another request and reply, and which outputs are wanted.
    constexpr std::size_t in_two_parts = 2 * lora::message_overhead_bytes + 32 + 2 * 4;
    const auto bytes_of = [&](split::remote_model& remote, unsigned tokens) {
        ask(remote, tokens);
        return remote.counted().message_bytes_up + remote.counted().message_bytes_down;
    };
    {
        auto remote = client();
        const auto before = bytes_of(remote, 32);
        constexpr unsigned tokens = 3 * 32;
        constexpr std::size_t frames = 8 + 4;  // of WebSocket, up and down
        const std::size_t bytes = (bytes_of(remote, tokens) - before) / tokens + frames;
        CHECK(bytes <= 35'500);
        const auto forecast = remote.forecast(0, tokens);
        CHECK(bytes == (forecast.up + forecast.down + 3 * in_two_parts) / tokens + frames);
    }
    struct wish {
        std::size_t tokens_ahead;  ///< 0: as the client likes
        std::size_t expected;      ///< 0: nobody knows
        unsigned asked;
        std::array<std::size_t, 3> sent;  ///< requests for blocks, positions, and states alone
        const char* report = "";
        bool has_room = true;
    };
    for (const wish& each :
         {wish{
              31, 0, 3, {0, 0, 3}, "blocks of 32 tokens, --tokens-ahead is 31: each hidden state goes alone"},
          wish{1, 0, 3, {0, 0, 3}}, wish{0, 2, 2, {0, 0, 2}}, wish{0, 3, 3, {1, 3, 0}},
          wish{0, 34, 34, {1, 32, 2}}, wish{0, 35, 35, {3, 35, 0}},
          wish{0, 0, 40, {2, 2, 40}, nullptr, false}}) {  // asked for again after 32, with a token each time
        if (!each.has_room) {
            allowed.block_bytes = 0;
            start();
        }
        log.heard.clear();
        split::remote_options options;
        options.tokens_ahead = each.tokens_ahead > 0 ? each.tokens_ahead : options.tokens_ahead;
        options.expected_tokens = each.expected > 0 ? each.expected : options.expected_tokens;
        std::string reports;
        options.report = [&](const std::string& text) { reports += text; };
        auto remote = client(options);
        const auto bytes = bytes_of(remote, each.asked);
        const auto forecast = remote.forecast(0, each.asked);
        const std::size_t of_parts = each.sent[0] == 3 ? in_two_parts : 0;
        CHECK((bytes == forecast.up + forecast.down + of_parts) == each.has_room);
        CHECK(each.sent == std::array{log.count(wire::kind::block_request),
                                      log.count(wire::kind::token_request), log.count(wire::kind::request)});
        if (each.report != nullptr) {
            CHECK((each.report[0] != '\0' ? contains(reports, each.report) : reports.empty()));
        }
    }
}

TEST_CASE_FIXTURE(both_sides,
                  "a block that is given up leaves the next one, and a group without room the other's") {
    {
        auto remote = client();
        log.refused = 1 + 1 + 24 + 1 + 3;  // the key, a block, tokens until the next block, one of the rest
        log.code = split::error_code::unknown_block;
        ask(remote, 24 + 3 + 32);
        CHECK(log.count(wire::kind::token_request) == 24 + 3 + 32 + 1);
        CHECK(log.count(wire::kind::request) == 0);
        CHECK(log.count(wire::kind::block_request) == 3);
    }
    log = {};
    log.refused = 2;
    log.code = split::error_code::block_limit;
    auto remote = client();
    ask(remote, 3, 0);
    ask(remote, 3, 1);
    CHECK(log.count(wire::kind::request) == 3);
    CHECK(log.count(wire::kind::token_request) == 1 + 3);  // one was on its way
}

TEST_CASE_FIXTURE(both_sides,
                  "a client whose blocks made room for another while it was away goes on in its session") {
    allowed.block_bytes = 16;  // one block
    start();
    auto remote = client();
    ask(remote, 3);
    last->end();
    auto other = client();
    ask(other, 3);
    CHECK(log.count(wire::kind::token_request) == 6);
    ask(remote, 3);
    CHECK(remote.counted().sessions == 1);
    // Of the block that is gone, and of one that is refused.
    CHECK(log.count(wire::kind::token_request) == 8);
    CHECK(log.count(wire::kind::request) == 3);
}

TEST_CASE_FIXTURE(both_sides,
                  "a client whose session ended without requests, or with its version, goes on in another") {
    for (const bool is_idle : {true, false}) {
        (is_idle ? allowed.session_idle : allowed.retired_life) = std::chrono::milliseconds(0);
        (is_idle ? allowed.retired_life : allowed.session_idle) = std::chrono::hours(1);
        start();
        auto remote = client();
        ask(remote, 3);
        if (!is_idle) {
            load(adapter);
        }
        of->of->expire_sessions();
        CHECK(of->of->sessions().size() == 0);
        ask(remote, 3);
        CHECK(remote.counted().sessions == 2);
        if (!is_idle) {
            load(random_adapter(2));
            of->of->expire_sessions();
            CHECK_THROWS_AS(error_of(remote, adapter, 0, 1), split::adapter_changed_error);
        }
    }
}

TEST_CASE_FIXTURE(both_sides,
                  "an answer is not lost where the next block cannot be asked for, nor is one after forget") {
    auto remote = client();
    log.cut_before = 1 + 1 + 24 + 1;  // the request for the next block
    ask(remote, 24);
    CHECK(log.count(wire::kind::token_request) == 24 + 1);
    CHECK(log.count(wire::kind::block_request) == 2 + 1);
    CHECK(of->total().tokens == 24);

    last->cut();  // the reply to it is lost
    remote.reconnect();
    remote.forget();
    CHECK(log.count(wire::kind::block_request) == 2 + 1);
}

TEST_CASE_FIXTURE(both_sides, "a character of the tiny language model costs 170,000 bytes over TLS") {
    adapter = io::load_peft(TENSAFE_EXAMPLE_DATA "/tiny_lm/adapter");
    start();
    const auto remote = client();
    constexpr std::size_t frames = 8 + 4 + 2 * 22;  // of WebSocket, in a record of TLS 1.3 each
    std::size_t bytes = 0;
    for (std::size_t group = 0; group < remote.layout().groups.size(); ++group) {
        const auto forecast = remote.forecast(group, 32);
        bytes += (forecast.up + forecast.down) / 32 + frames;
    }
    CHECK(bytes <= 170'000);
    CHECK(bytes > 160'000);
}

TEST_CASE_FIXTURE(
    both_sides, "who stands between client and server cannot log in as the client, unless there is no TLS") {
    const certificate of_ends[2];
    const auto trusted = folder.path() / "trusted.pem";
    std::vector<std::unique_ptr<net::http_server>> servers;
    for (const bool tls : {false, true}) {
        const auto start = [&](const certificate& end, auto connect) -> net::http_server& {
            if (tls) {
                std::ofstream(trusted, std::ios::app) << text_of(end.files.certificate);
            }
            servers.push_back(
                std::make_unique<net::http_server>(tls ? end.options() : net::http_server_options{},
                                                   net::http_server_handlers{{}, std::move(connect)}));
            servers.back()->run();
            return *servers.back();
        };
        const auto connector = [&](const net::http_server& to) {
            const auto url = (tls ? "wss://127.0.0.1:" : "ws://127.0.0.1:") + std::to_string(to.port());
            return [to = split::server_address::of(url), trust = split::websocket_options{trusted}](
                       const split::wait_options& how) { return split::connect_websocket(to, trust, how); };
        };
        const auto& real = start(of_ends[0], [&](const net::caller& from, auto control) {
            return of->of->connect(from, std::move(control));
        });
        const auto& middle = start(of_ends[1], [to = connector(real)](const net::caller&, auto) {
            return std::make_unique<relay>(to({}));
        });
        const auto remote_to = [&](const net::http_server& to) {
            split::remote_options options;
            options.adapter = "kjv";
            return split::remote_model(connector(to), split::client_identity({}),
                                       std::make_shared<lora::client<split::params>>(), options);
        };
        if (tls) {
            for (const char* const part : {"(not_authorised)", "must let this server's through unopened"}) {
                check_refusal<split::refused_error>(part, [&] { remote_to(middle); });
            }
        } else {
            auto relayed = remote_to(middle);
            ask(relayed, 1);
        }
        auto remote = remote_to(real);
        ask(remote, 1);
    }
}
