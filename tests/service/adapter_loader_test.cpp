// Adapters are loaded beside the service: in which order, how many at once, and what a client hears
// meanwhile.
#include "../../service/adapter_loader.hpp"

#include <latch>

#include "peer.hpp"

using namespace tests;
using split::adapter_loader;
using outcome = split::adapter_loader::outcome;

namespace {

/// A loader of small adapters whose sources wait until they may go on.
struct loading {
    explicit loading(std::size_t threads) : loader(std::in_place, store, split::log(), threads) {}
    ~loading() { may_go_on(); }

    split::adapter_load load(const std::string& name, bool at_start = false) {
        return {name,
                [this, name] {
                    std::unique_lock lock(mutex);
                    begun.push_back(name);
                    changed.notify_all();
                    changed.wait(lock, [&] { return goes_on; });
                    return name == "bad" ? throw tensafe::format_error("it is bad") : small_adapter();
                },
                at_start};
    }
    void wait_for(std::size_t count) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return begun.size() >= count; });
    }
    void may_go_on() {
        const std::lock_guard lock(mutex);
        goes_on = true;
        changed.notify_all();
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> begun;
    bool goes_on = false;
    split::model_store store{split::limits()};
    std::optional<adapter_loader> loader;
};

}  // namespace

TEST_CASE("adapters that clients ask for are loaded first, then those that came first") {
    loading of(1);
    for (const char* const name : {"first", "second", "third", "fourth"}) {
        CHECK(of.loader->begin(of.load(name)) == outcome::done);
        of.wait_for(1);
    }
    CHECK(of.loader->want("first") == std::chrono::milliseconds(250));
    CHECK(of.loader->want("third") == std::chrono::milliseconds(1'000));
    CHECK_FALSE(of.loader->want("fifth"));
    of.may_go_on();
    of.loader->wait();
    CHECK(of.begun == std::vector<std::string>{"first", "third", "second", "fourth"});
    CHECK_FALSE(of.loader->want("third"));
    CHECK(of.store.served().size() == 4);
    CHECK(of.store.find("second")->version == 2);  // whenever it was packed
    CHECK(of.store.find("third")->version == 3);
}

TEST_CASE("one A under several names counts under the first of the start, whoever is asked for") {
    loading of(2);
    for (const char* const name : {"a", "b", "c"}) {
        CHECK(of.loader->begin(of.load(name, true)) == outcome::done);
    }
    CHECK(of.loader->want("c"));
    CHECK(of.loader->at_start().done == 0);
    CHECK(of.loader->at_start().all == 3);
    of.may_go_on();
    of.loader->wait();
    CHECK(of.begun.size() == 6);
    CHECK(std::vector(of.begun.begin(), of.begun.begin() + 3) == std::vector<std::string>{"a", "b", "c"});
    CHECK(of.loader->at_start().done == 3);
    for (const char* const name : {"a", "b", "c"}) {
        CHECK(of.store.find(name)->counted_as == "a");
    }
}

TEST_CASE("as many adapters as there are threads are loaded at once") {
    loading of(3);
    for (const char* const name : {"first", "second", "third", "fourth"}) {
        CHECK(of.loader->begin(of.load(name)) == outcome::done);
    }
    of.wait_for(3);
    CHECK(of.loader->begin(of.load("fourth")) == outcome::waiting);
    CHECK(of.loader->begin(of.load("fifth"), 1) == outcome::full);
    CHECK(of.loader->begin(of.load("second"), 1) == outcome::begun);
    CHECK(of.loader->remove("second") == outcome::begun);
    CHECK(of.loader->remove("fourth") == outcome::done);
    CHECK(of.loader->begin(of.load("fifth"), 1) == outcome::done);
    of.may_go_on();
    of.loader->wait();
    CHECK(of.loader->remove("fourth") == outcome::unknown);
    CHECK(of.loader->remove("fifth") == outcome::done);
    CHECK(of.store.served().size() == 3);
}

TEST_CASE("a version that is held takes no thread, and is served when it is said to be") {
    loading of(1);
    of.may_go_on();
    const auto hold = [&](const std::string& name, std::uint64_t version) {
        split::adapter_load held = of.load(name);
        held.version = version;
        held.is_held = true;
        return of.loader->begin(std::move(held));
    };
    CHECK(hold("first", 3) == outcome::done);
    CHECK(hold("second", 4) == outcome::done);
    of.loader->wait();
    CHECK(of.store.served().empty());
    REQUIRE(of.loader->loads().size() == 2);
    CHECK(to_string(of.loader->loads()[0].at) == std::string("packed"));
    CHECK(of.loader->want("first"));
    CHECK(hold("first", 3) == outcome::begun);  // is not packed again
    CHECK_FALSE(of.loader->serve("first", 4));
    CHECK(of.loader->serve("first", 3));
    CHECK_FALSE(of.loader->serve("first", 3));
    CHECK(of.store.find("first")->version == 3);
    CHECK(hold("second", 5) == outcome::done);  // in the place of the other
    of.loader->wait();
    CHECK_FALSE(of.loader->serve("second", 4));
    CHECK(of.loader->remove("second") == outcome::done);
    CHECK_FALSE(of.loader->serve("second", 5));
    CHECK(of.loader->loads().empty());
    CHECK(of.store.served().size() == 1);
}

TEST_CASE("an adapter that cannot be loaded says why, until it is begun again or removed") {
    loading of(2);
    of.may_go_on();
    CHECK(of.loader->begin(of.load("bad", true)) == outcome::done);
    CHECK(of.loader->begin(of.load("good", true)) == outcome::done);
    of.loader->wait();
    const auto start = of.loader->at_start();
    CHECK(start.done == 1);
    CHECK(start.failure == "it is bad");
    CHECK_FALSE(of.loader->want("bad"));
    REQUIRE(of.loader->loads().size() == 1);
    CHECK(to_string(of.loader->loads()[0].at) == std::string("failed"));
    CHECK(of.loader->begin(of.load("bad")) == outcome::done);
    of.loader->wait();
    CHECK(of.loader->remove("bad") == outcome::done);
    CHECK(of.loader->loads().empty());
}

TEST_CASE("ending while adapters are packed waits for none of them") {
    loading of(2);
    of.may_go_on();
    for (int i = 0; i < 1000; ++i) {
        CHECK(of.loader->begin(of.load(std::to_string(i))) == outcome::done);
    }
    of.loader.reset();
    CHECK(of.store.served().size() < 1000);
}

TEST_CASE("a client that asks for an adapter that is being packed hears when to come again") {
    server s;
    std::latch may_go_on(1);
    CHECK(s.of->loads().begin({"late", [&] {
                                   may_go_on.wait();
                                   return small_adapter();
                               }}) == outcome::done);
    peer early(s);
    early.adapter = "late";
    const auto said = early.refusal_of(to_text(early.hello_for(bytes(), "late")));
    CHECK(said.code == split::error_code::loading);
    CHECK(said.retry_after_ms.value_or(0) > 0);
    CHECK(early.answer.closing());
    may_go_on.count_down();
    s.of->loads().wait();
    peer later(s);
    later.adapter = "late";
    later.open();
    CHECK(later.welcome.adapter == "late");
}
