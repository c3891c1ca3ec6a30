// What sessions of the service take and count where memory or the disk is short.
#include "../serving/stored_counts.hpp"
#include "peer.hpp"

using namespace tests;

namespace {

lora::adapter one_site() {
    lora::adapter result;
    result.sites = {random_site(8, 16, 64, 1)};
    result.sites[0].name = "model.layers.0.self_attn.q_proj";
    return result;
}

/// A server on the folder of the counts.
struct counting_server : server {
    explicit counting_server(const stored_counts& at, const split::limits& allowed = {},
                             const std::shared_ptr<tensafe::serving::shared_counts>& shared = nullptr)
        : server(
              allowed,
              [&](auto& options) {
                  options.state = at.folder.path();
                  options.shared = shared;
                  options.now = std::chrono::steady_clock::now;
              },
              one_site) {}
};

/// A session of JSON frames, on one connection after the other.
struct json_session : peer {
    explicit json_session(server& s) : peer(s) {
        open(split::frame_form::json, cipher.rerandomization_key(nonce));
        cipher.open(told_as<split::carried_message>(1).message, one_site());
    }
    void resume() {
        connect();
        static_cast<void>(peer::resume(welcome.session));
    }
    static std::string text(const bytes& message, std::uint64_t number) {
        return split::carried_text(split::carried_message::kind::request, message, number);
    }
    /// Whether a message of this number was answered.
    bool ask(const bytes& message, std::uint64_t number) {
        say(text(message, number));
        return answer.frames().size() == 1 && std::holds_alternative<split::carried_message>(told(0));
    }
    encryption cipher;
};

}  // namespace

TEST_CASE_FIXTURE(stored_counts,
                  "whatever memory lacks, an answer that can be asked for again is counted, once") {
    counting_server to(*this, {.shares = {}});
    const std::uint64_t bits = to.bits_of_request();
    json_session s(to);
    std::uint64_t number = 1;
    bytes message;
    std::size_t of_block = 0;
    const auto answer_bytes = [&] { return s.told_as<split::carried_message>(0).message.size(); };
    const auto prepare = [&] {
        REQUIRE(s.ask(s.cipher.ask_for_block(number), number));
        ++number;
        s.cipher.accept_block(s.told_as<split::carried_message>(0).message);
        of_block = of_block > 0 ? of_block : to.held_bytes() - answer_bytes();
    };
    const auto write_token = [&] {
        message = s.cipher.ask_in_block(number, std::vector<float>(64, 1.0F)).message;
    };
    std::uint64_t counted = 0;
    std::size_t failures = 0;
    for (bool failed = true; failed; ++failures) {
        prepare();  // whose reply is longer
        write_token();
        const std::string text = json_session::text(message, number);
        s.answer.clear();
        allocations_left = failures;
        s.side->on_text(text, s.answer);
        failed = allocations_left > failures;
        allocations_left = ~std::size_t{0};
        s.resume();
        if (!s.ask(message, number)) {  // again, or for the first time
            ++number;
            write_token();
            REQUIRE(s.ask(message, number));
        }
        counted += bits;
        CHECK(s.used()[0] == counted);
        CHECK(to.held_bytes() == of_block + answer_bytes());
        ++number;
    }
    CHECK(failures > 5);
}

TEST_CASE_FIXTURE(stored_counts, "what a full disk cannot count is not answered, kept or counted") {
    counting_server to(*this);
    json_session s(to);
    const auto message = s.cipher.ask(1, 0, std::vector<float>(64, 1.0F)).message;
    bool was_answered = true;
    with_file_limit(std::filesystem::file_size(usage()), [&] { was_answered = s.ask(message, 1); });
    CHECK_FALSE(was_answered);
    CHECK(s.told_as<split::refusal>(0).code == split::error_code::internal);
    CHECK(s.used()[0] == 0);
    CHECK(to.held_bytes() == 0);
    s.resume();
    CHECK(s.ask(message, 1));  // its number was not used up
    CHECK(s.used()[0] == to.bits_of_request());
}

TEST_CASE_FIXTURE(stored_counts,
                  "what the store of several servers cannot count is unavailable, and its session goes on") {
    const auto store = std::make_shared<store_of_one>();
    counting_server to(*this, {}, store);
    json_session s(to);
    for (std::uint64_t number = 1; number < 200; ++number) {  // nobody's error
        const auto message = s.cipher.ask(number, 0, std::vector<float>(64, 1.0F)).message;
        REQUIRE_FALSE(s.ask(message, number));
        const auto said = s.told_as<split::refusal>(0);
        REQUIRE(said.code == split::error_code::unavailable);
        CHECK(said.retry_after_ms == 1'000);
        CHECK(said.message == "request: the store of counts cannot be asked now; come again in 1000 ms");
    }
    const auto used = [&] {  // of an adapter that has one name on all servers
        const query_counts& counts = to.of->counts();
        const auto kjv = to.of->adapters().find("kjv");
        return counts.used(counts.account_of(s.name(), {}, kjv->counted_as), 0)[0];
    };
    CHECK(used() == 0);
    CHECK(contains(to.of->metrics_text(), "\ntensafe_store_up 0\n"));
    store->is_away = false;
    CHECK(contains(to.of->metrics_text(), "\ntensafe_store_up 1\n"));
    CHECK(s.ask(s.cipher.ask(200, 0, std::vector<float>(64, 1.0F)).message, 200));
    CHECK(used() == to.bits_of_request());
}

TEST_CASE_FIXTURE(stored_counts, "to look at how many zeros are stored makes no place for them") {
    counting_server to(*this);
    const json_session s(to);
    const std::size_t before = allocations;
    CHECK(to.of->sessions().pool_size() == 0);
    CHECK(allocations <= before + 1);  // pointers to sessions
}

TEST_CASE_FIXTURE(stored_counts,
                  "a session keeps the memory of no more used zeros than a thread works with") {
    counting_server to(*this);
    json_session s(to);
    const auto allocated_by_filling = [&] {
        const std::size_t before = allocations;
        while (s.side->idle()) {
        }
        REQUIRE(to.of->sessions().pool_size() == 16);
        return allocations - before;
    };
    const std::size_t first = allocated_by_filling();
    REQUIRE(s.ask(s.cipher.ask_for_block(1), 1));
    CHECK(to.of->sessions().pool_size() == 0);
    constexpr std::size_t buffers = 5;  // of a zero
    CHECK(allocated_by_filling() + 10 * buffers > first);
}
