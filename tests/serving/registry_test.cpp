#include <tensafe/core/error.hpp>
#include <tensafe/serving/meter.hpp>
#include <tensafe/serving/registry.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "registry_fixture.hpp"

using namespace registry_fixture;
using serving::availability;
using tensafe::encoding_error;
using tensafe::io_error;
using tensafe::parameter_error;
using tensafe::shape_error;

namespace {

serving::registry_entry entry_of(const registry& adapters, const std::string& name) {
    for (const auto& entry : adapters.status().entries) {
        if (entry.name == name) {
            return entry;
        }
    }
    FAIL("no entry " << name);
    return {};
}

/// What becomes true soon on another thread; a test that waits for it in vain ends in the runner's time
/// limit.
template <class Condition>
void wait_until(Condition holds) {
    while (!holds()) {
        std::this_thread::yield();
    }
}

/// Uses one adapter strictly after all uses before.
void use(const registry& adapters, const std::string& name) {
    const auto before = std::chrono::steady_clock::now();
    wait_until([&] { return std::chrono::steady_clock::now() > before + std::chrono::nanoseconds(2); });
    adapters.find(name);
}

std::string message_of(const std::function<void()>& refused) {
    try {
        refused();
    } catch (const tensafe::error& e) {
        return e.what();
    }
    return "";
}

/// The handle's number, if its parts belong together.
float number_of(const handle& found) {
    REQUIRE(found);
    CHECK(found.matrices().sites.front().a.values.front() == found.model().number);
    return found.model().number;
}

TEST_CASE("registry: a loaded adapter is found, with everything of its version") {
    workshop shop;
    registry adapters(shop.packer());
    CHECK(adapters.names().empty());
    const auto version = adapters.load("legal", from(7, 3));
    const handle found = adapters.find("legal");
    REQUIRE(found);
    CHECK(found.state() == availability::ready);
    CHECK(found.version() == version);
    CHECK(found.name() == "legal");
    CHECK(number_of(found) == 7);
    CHECK(found.matrices().sites.size() == 3);
    CHECK(found.share().get() == &found.model());
    const auto entry = entry_of(adapters, "legal");
    CHECK(entry.bytes == 300);
    CHECK(entry.handles == 1);
    CHECK(adapters.status().bytes_packed == 300);
    CHECK(adapters.status().bytes_packing == 0);
}

TEST_CASE("registry: names are sorted, and each finds its own adapter") {
    workshop shop;
    registry adapters(shop.packer());
    for (const float number : {5.F, 1.F, 4.F, 2.F, 3.F}) {
        adapters.load("adapter " + std::to_string(static_cast<int>(number)), from(number));
    }
    CHECK(adapters.names() ==
          std::vector<std::string>{"adapter 1", "adapter 2", "adapter 3", "adapter 4", "adapter 5"});
    for (const float number : {1.F, 2.F, 3.F, 4.F, 5.F}) {
        CHECK(number_of(adapters.find("adapter " + std::to_string(static_cast<int>(number)))) == number);
    }
    CHECK_FALSE(adapters.find("adapter"));
    CHECK_FALSE(adapters.find("adapter 11"));
    CHECK_FALSE(adapters.find(""));
}

TEST_CASE("registry: versions rise with every publication, whatever the name") {
    workshop shop;
    registry adapters(shop.packer());
    const auto first = adapters.load("b", from(1));
    const auto second = adapters.load("a", from(2));
    const auto third = adapters.load("b", from(3));
    CHECK(first == 1);
    CHECK(second == 2);
    CHECK(third == 3);
    adapters.unload("a");
    CHECK(adapters.load("a", from(4)) == 4);
    CHECK(adapters.find("b").version() == third);
}

TEST_CASE("registry: a replaced or unloaded version stays whole for who holds it") {
    workshop shop;
    registry adapters(shop.packer());
    adapters.load("legal", from(1));
    const handle old = adapters.find("legal");
    adapters.load("legal", from(2));
    CHECK(number_of(old) == 1);
    const handle replaced = adapters.find("legal");
    CHECK(number_of(replaced) == 2);
    adapters.unload("legal");
    CHECK(adapters.find("legal").state() == availability::unknown);
    CHECK(number_of(replaced) == 2);
    CHECK(number_of(old) == 1);
    CHECK(adapters.names().empty());
}

TEST_CASE("registry: bytes of forms that only handles own are reported apart, until these are dropped") {
    workshop shop;
    registry adapters(shop.packer());
    adapters.load("legal", from(1, 5));
    handle old = adapters.find("legal");
    std::shared_ptr<const packed_number> shared = old.share();
    CHECK(entry_of(adapters, "legal").handles == 2);
    adapters.load("legal", from(2, 2));
    CHECK(adapters.status().bytes_leaving == 500);
    CHECK(adapters.status().bytes_packed == 200);
    CHECK(entry_of(adapters, "legal").handles == 0);
    old = {};
    CHECK(adapters.status().bytes_leaving == 500);
    shared.reset();
    wait_until([&] { return adapters.status().bytes_leaving == 0; });
}

TEST_CASE("registry: an unknown name is an empty handle, or an error that lists the names") {
    workshop shop;
    registry adapters(shop.packer());
    CHECK(message_of([&] { adapters.wait_for("x"); }).find("none is loaded") != std::string::npos);
    adapters.load("legal", from(1));
    adapters.load("medical", from(2));
    const handle none = adapters.find("lega");
    CHECK_FALSE(none);
    CHECK(none.state() == availability::unknown);
    CHECK(none.version() == 0);
    CHECK_THROWS_AS(none.model(), parameter_error);
    CHECK_THROWS_AS(none.matrices(), parameter_error);
    CHECK_THROWS_AS(none.name(), parameter_error);
    CHECK_THROWS_AS(none.share(), parameter_error);
    const std::array<std::function<void()>, 3> refused{[&] { adapters.wait_for("lega"); },
                                                       [&] { adapters.prepare("lega"); },
                                                       [&] { adapters.unload("lega"); }};
    for (const auto& call : refused) {
        CHECK_THROWS_AS(call(), parameter_error);
        CHECK(message_of(call) == "registry: no adapter \"lega\", wanted one of: \"legal\" \"medical\"");
    }
    CHECK(adapters.names().size() == 2);
}

TEST_CASE("registry: a message about a hostile name is short and printable") {
    workshop shop;
    registry adapters(shop.packer());
    for (int i = 0; i < 50; ++i) {
        adapters.load("adapter " + std::to_string(i), from(1));
    }
    const std::string text = message_of([&] { adapters.wait_for("\x1b[31m\n" + std::string(100000, 'x')); });
    CHECK(text.size() < 1000);
    CHECK(text.find('\n') == std::string::npos);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find("30 more") != std::string::npos);
}

TEST_CASE("registry: names are those that a meter counts under their own name") {
    workshop shop;
    registry adapters(shop.packer());
    CHECK(registry::longest_name == serving::meter_limits{}.longest_name);
    for (const std::string& bad :
         {std::string(), std::string(129, 'x'), std::string("a\nb"), std::string("a\0b", 3),
          std::string("\x7f"), std::string("a\xc2\x9b"), std::string("\xff")}) {
        CHECK_THROWS_AS(adapters.load(bad, from(1)), parameter_error);
    }
    CHECK(message_of([&] { adapters.load("a\xc2\x9b", from(1)); }) ==
          "registry::load: got the name \"a??\" of 3 bytes, wanted 1 to 128 bytes of UTF-8 without control "
          "characters");
    CHECK(shop.packings == 0);
    for (const std::string& good : {std::string(128, 'x'), std::string("r\xc3\xa9sum\xc3\xa9 v2")}) {
        adapters.load(good, from(1));
        CHECK(adapters.find(good));
    }
}

TEST_CASE("registry: a load that fails leaves the old version serving and everything as it was") {
    workshop shop;
    registry adapters({.memory_budget = 300}, shop.packer());
    const auto version = adapters.load("legal", from(1));
    const auto broken = [](auto&& break_it) {
        return [=] {
            lora::adapter a = numbered(2, 2);
            break_it(a);
            return a;
        };
    };
    CHECK_THROWS_AS(adapters.load("legal", {}), parameter_error);
    CHECK_THROWS_AS(adapters.load("legal", []() -> lora::adapter { throw io_error("no such file"); }),
                    io_error);
    CHECK_THROWS_AS(adapters.load("legal", broken([](auto& a) { a.sites.clear(); })), parameter_error);
    CHECK_THROWS_AS(adapters.load("legal", broken([](auto& a) { a.sites[1].b.columns = 2; })), shape_error);
    CHECK_THROWS_AS(adapters.load("legal", broken([](auto& a) { a.sites[0].a.values[1] = NAN; })),
                    encoding_error);
    CHECK_THROWS_AS(adapters.load("legal", from(2, 4)), parameter_error);  // more than the budget
    CHECK(shop.packings == 1);

    shop.before = [](float) { throw std::bad_alloc(); };
    CHECK_THROWS_AS(adapters.load("legal", from(2)), std::bad_alloc);
    shop.before = [](float) {};
    CHECK_THROWS_AS(adapters.load("legal", from(2),
                                  [](std::size_t, std::size_t) { throw std::runtime_error("cancelled"); }),
                    std::runtime_error);
    CHECK_THROWS_AS(adapters.load("new", from(2),
                                  [](std::size_t, std::size_t) { throw std::runtime_error("cancelled"); }),
                    std::runtime_error);

    CHECK(number_of(adapters.find("legal")) == 1);
    CHECK(adapters.find("legal").version() == version);
    CHECK(adapters.names() == std::vector<std::string>{"legal"});
    CHECK(adapters.status().bytes_packing == 0);
    CHECK(adapters.status().bytes_packed == 100);
    CHECK(adapters.load("legal", from(3)) == version + 1);
}

TEST_CASE("registry: a packer that lacks a function, makes nothing or more than the budget is refused") {
    workshop shop;
    const auto whole = shop.packer();
    CHECK_THROWS_AS(registry({whole.pack, {}}), parameter_error);
    CHECK_THROWS_AS(registry({{}, whole.bytes_for}), parameter_error);
    registry nothing({[](const auto&, const auto&) { return nullptr; }, whole.bytes_for});
    CHECK(message_of([&] { nothing.load("legal", from(1)); }).find("made nothing") != std::string::npos);
    CHECK(nothing.names().empty());
    shop.bytes_a_site = 1000;  // forecast: 100
    registry wrong({.memory_budget = 500}, shop.packer());
    CHECK_THROWS_AS(wrong.load("legal", from(1)), parameter_error);
    CHECK(wrong.status().bytes_packing == 0);
}

TEST_CASE("registry: an adapter larger than the whole budget is refused before packing, with both numbers") {
    workshop shop;
    registry adapters({.memory_budget = 399}, shop.packer());
    adapters.load("small", from(1, 3));
    const std::string text = message_of([&] { adapters.load("large", from(2, 4)); });
    CHECK(text.find("400") != std::string::npos);
    CHECK(text.find("399") != std::string::npos);
    CHECK(shop.packings == 1);
    CHECK(adapters.find("small"));
}

TEST_CASE("registry: the least recently used packed forms are evicted, and no more of them than needed") {
    workshop shop;
    registry adapters({.memory_budget = 300}, shop.packer());
    for (const char* name : {"a", "b", "c"}) {
        adapters.load(name, from(1));
    }
    use(adapters, "a");
    adapters.load("d", from(2));
    CHECK(entry_of(adapters, "a").state == availability::ready);
    CHECK(entry_of(adapters, "b").state == availability::evicted);
    CHECK(entry_of(adapters, "c").state == availability::ready);
    CHECK(adapters.status().bytes_packed == 300);
    use(adapters, "c");
    adapters.load("e", from(3, 2));
    CHECK(entry_of(adapters, "a").state == availability::evicted);
    CHECK(entry_of(adapters, "c").state == availability::ready);
    CHECK(entry_of(adapters, "d").state == availability::evicted);
    CHECK(entry_of(adapters, "a").bytes == 100);  // what it would take
    CHECK(adapters.names().size() == 5);
    CHECK(shop.packings == 5);
}

TEST_CASE("registry: a budget that is exactly full evicts nothing") {
    workshop shop;
    registry adapters({.memory_budget = 300}, shop.packer());
    adapters.load("a", from(1));
    adapters.load("b", from(2, 2));
    CHECK(entry_of(adapters, "a").state == availability::ready);
    CHECK(entry_of(adapters, "b").state == availability::ready);
}

TEST_CASE("registry: a form larger than its forecast evicts others after all") {
    workshop shop;
    shop.bytes_a_site = 160;  // forecast: 100, which fits beside the first
    registry adapters({.memory_budget = 300}, shop.packer());
    adapters.load("a", from(1));
    adapters.load("b", from(2));
    CHECK(adapters.status().bytes_packed == 160);
    CHECK(entry_of(adapters, "a").state == availability::evicted);
    CHECK(entry_of(adapters, "b").state == availability::ready);
}

TEST_CASE(
    "registry: an evicted form is prepared in the background once it is asked for, as the same version") {
    workshop shop;
    registry adapters({.memory_budget = 100}, shop.packer());
    const auto version = adapters.load("a", from(1));
    adapters.load("b", from(2));
    CHECK(adapters.find("a").state() == availability::being_prepared);
    wait_until([&] { return adapters.find("a").state() == availability::ready; });
    const handle again = adapters.find("a");
    CHECK(number_of(again) == 1);
    CHECK(again.version() == version);
    CHECK(entry_of(adapters, "b").state == availability::evicted);
    CHECK(shop.packings == 3);
}

TEST_CASE("registry: an adapter may be evicted and prepared again many times") {
    workshop shop;
    registry adapters({.memory_budget = 100}, shop.packer());
    adapters.load("a", from(1));
    adapters.load("b", from(2));
    for (int i = 0; i < 200; ++i) {
        const std::string name = i % 2 == 0 ? "a" : "b";
        if (i % 3 == 0) {
            wait_until([&] { return adapters.find(name).state() == availability::ready; });
        }
        CHECK(number_of(adapters.wait_for(name)) == (i % 2 == 0 ? 1 : 2));
        CHECK(adapters.status().bytes_packed == 100);
    }
}

TEST_CASE("registry: readers go on while a replacement is being packed, and see the old version") {
    workshop shop;
    registry adapters({.memory_budget = 100}, shop.packer());
    adapters.load("a", from(1));
    gate closed;
    shop.before = [&](float) { closed.pass(); };
    std::thread administrator([&] { adapters.load("a", from(2)); });
    closed.wait_until_somebody_is_there();
    CHECK(number_of(adapters.find("a")) == 1);  // although both do not fit the budget
    CHECK(number_of(adapters.wait_for("a")) == 1);
    CHECK(adapters.status().bytes_packing == 100);
    CHECK(adapters.status().bytes_packed == 100);
    CHECK(adapters.names().size() == 1);
    closed.open();
    administrator.join();
    CHECK(number_of(adapters.find("a")) == 2);
    CHECK(adapters.status().bytes_packing == 0);
}

TEST_CASE("registry: find does not wait for a preparation that it asked for") {
    workshop shop;
    registry adapters({.memory_budget = 200}, shop.packer());
    adapters.load("a", from(1));
    adapters.load("b", from(2));
    adapters.load("c", from(3));
    gate closed;
    shop.before = [&](float) { closed.pass(); };
    CHECK(adapters.find("a").state() == availability::being_prepared);
    closed.wait_until_somebody_is_there();
    CHECK(adapters.find("a").state() == availability::being_prepared);
    CHECK(entry_of(adapters, "a").state == availability::being_prepared);
    CHECK(number_of(adapters.find("c")) == 3);
    closed.open();
    CHECK(number_of(adapters.wait_for("a")) == 1);
    CHECK(shop.packings == 4);
}

TEST_CASE("registry: those who wait for one adapter share one packing") {
    workshop shop;
    registry adapters({.memory_budget = 100}, shop.packer());
    adapters.load("a", from(1));
    adapters.load("b", from(2));
    gate closed;
    shop.before = [&](float) { closed.pass(); };
    std::vector<std::thread> waiting;
    std::vector<float> got(6);
    for (std::size_t t = 0; t < got.size(); ++t) {
        waiting.emplace_back([&, t] {
            if (t % 2 == 0) {
                got[t] = adapters.wait_for("a").share()->number;
            } else {
                adapters.prepare("a");
                got[t] = 1;
            }
        });
    }
    closed.wait_until_somebody_is_there();
    closed.open();
    for (auto& thread : waiting) {
        thread.join();
    }
    CHECK(got == std::vector<float>(6, 1));
    CHECK(shop.packings == 3);
}

TEST_CASE("registry: with room for one, threads that wait for different adapters all get theirs") {
    workshop shop;
    registry adapters({.memory_budget = 100}, shop.packer());
    const std::vector<std::string> names{"a", "b", "c", "d"};
    for (std::size_t i = 0; i < names.size(); ++i) {
        adapters.load(names[i], from(static_cast<float>(i)));
    }
    std::vector<std::thread> waiting;
    std::vector<int> wrong(names.size());
    for (std::size_t t = 0; t < names.size(); ++t) {
        waiting.emplace_back([&, t] {
            for (int i = 0; i < 50; ++i) {
                wrong[t] += adapters.wait_for(names[t]).share()->number != static_cast<float>(t);
            }
        });
    }
    for (auto& thread : waiting) {
        thread.join();
    }
    CHECK(wrong == std::vector<int>(names.size(), 0));
    CHECK(adapters.status().bytes_packed <= 100);
}

TEST_CASE("registry: who waits gets the form even if it is evicted at once for the next one") {
    workshop shop;
    registry adapters({.memory_budget = 100}, shop.packer());
    for (const auto& [name, number] : {std::pair("a", 1.F), std::pair("b", 2.F), std::pair("c", 3.F)}) {
        adapters.load(name, from(number));
    }
    shop.before = [](float) { throw io_error("not now"); };
    CHECK_THROWS_AS(adapters.wait_for("a"), io_error);
    gate first;
    gate second;
    shop.before = [&](float number) { (number == 1 ? first : second).pass(); };
    handle got;
    // After a failure it is the waiting itself that asks: who reaches the first gate has somebody waiting.
    std::thread waiting([&] { got = adapters.wait_for("a"); });
    first.wait_until_somebody_is_there();
    CHECK(adapters.find("a").state() == availability::being_prepared);  // not what failed before
    CHECK(adapters.find("b").state() == availability::being_prepared);
    first.open();
    second.wait_until_somebody_is_there();  // "a" was evicted for this
    CHECK(entry_of(adapters, "a").state == availability::evicted);
    waiting.join();
    CHECK(number_of(got) == 1);
    second.open();
    CHECK(number_of(adapters.wait_for("b")) == 2);
}

TEST_CASE("registry: a preparation that fails says why, once asked, and may be tried again") {
    workshop shop;
    registry adapters({.memory_budget = 100}, shop.packer());
    const auto version = adapters.load("a", from(1));
    adapters.load("b", from(2));
    shop.before = [](float) { throw io_error("the cache is gone"); };
    adapters.find("a");
    wait_until([&] { return adapters.find("a").state() == availability::cannot_be_prepared; });
    CHECK(shop.packings == 3);
    CHECK(adapters.find("a").state() == availability::cannot_be_prepared);
    CHECK(entry_of(adapters, "a").state == availability::cannot_be_prepared);
    CHECK(entry_of(adapters, "a").failure == "the cache is gone");
    CHECK(adapters.status().bytes_packing == 0);
    CHECK_THROWS_AS(adapters.wait_for("a"), io_error);  // tries again
    CHECK(shop.packings == 4);
    shop.before = [](float) { throw 5; };
    CHECK_THROWS_AS(adapters.wait_for("a"), int);
    CHECK_FALSE(entry_of(adapters, "a").failure.empty());
    shop.before = [](float) {};
    const handle found = adapters.wait_for("a");
    CHECK(number_of(found) == 1);
    CHECK(found.version() == version);
    CHECK(entry_of(adapters, "a").failure.empty());
}

TEST_CASE("registry: what failed is not prepared again because a reader asked just then") {
    // find looks whether it failed and then asks: what comes between is put there by hand.
    workshop shop;
    tensafe::serving::detail::registry_store<packed_number> store(100);
    const tensafe::serving::detail::registry_packing<packed_number> packing(shop.packer(), 100);
    std::vector<std::shared_ptr<tensafe::serving::detail::use_record>> uses;
    {
        const auto lock = store.lock_writers();
        for (const char* name : {"a", "b", "c"}) {
            auto made = packing.pack(name, std::make_shared<lora::adapter>(numbered(1)), {});
            made->number = uses.size() + 1;
            uses.push_back(std::make_shared<tensafe::serving::detail::use_record>());
            store.put(std::move(made), uses.back());
        }
    }
    std::vector<std::string> prepared;  // by one thread
    tensafe::serving::detail::registry_preparations<packed_number> preparations(
        store, packing, [&](const std::string& name, std::size_t, std::size_t) { prepared.push_back(name); });
    uses[0]->failed = true;
    preparations.ask(*uses[0]);  // it would come first
    preparations.wait_for("b");
    CHECK(prepared == std::vector<std::string>{"b"});
    preparations.wait_for("a");  // this does try again
    CHECK(prepared == std::vector<std::string>{"b", "a"});
}

TEST_CASE("registry: a load gets room before what readers ask for later") {
    workshop shop;
    registry adapters({.memory_budget = 100}, shop.packer());
    adapters.load("a", from(1));
    adapters.load("b", from(2));
    std::mutex guard;
    std::vector<float> packed;
    gate closed;
    shop.before = [&](float number) {
        {
            const std::lock_guard lock(guard);
            packed.push_back(number);
        }
        if (number == 1) {
            closed.pass();
        }
    };
    adapters.find("a");
    closed.wait_until_somebody_is_there();
    adapters.find("b");  // the background thread would go on with it at once
    CHECK(adapters.status().packings_waiting == 0);
    std::thread administrator([&] { adapters.load("c", from(3)); });
    wait_until([&] { return adapters.status().packings_waiting == 1; });
    closed.open();
    administrator.join();
    CHECK(number_of(adapters.wait_for("b")) == 2);
    CHECK(packed == std::vector<float>{1, 3, 2});
    CHECK(adapters.status().packings_waiting == 0);
}

TEST_CASE("registry: all who wait go on at once when there is room for all") {
    workshop shop;
    registry adapters({.memory_budget = 300}, shop.packer());
    gate large;
    gate small;
    shop.before = [&](float number) {
        if (number == 1) {
            large.pass();
            throw io_error("lost");
        }
        small.pass();
    };
    std::vector<std::thread> administrators;
    administrators.emplace_back([&] { CHECK_THROWS_AS(adapters.load("a", from(1, 3)), io_error); });
    large.wait_until_somebody_is_there();
    administrators.emplace_back([&] { adapters.load("b", from(2)); });
    administrators.emplace_back([&] { adapters.load("c", from(3)); });
    wait_until([&] { return adapters.status().packings_waiting == 2; });
    large.open();
    small.wait_until_somebody_is_there(2);
    small.open();
    for (auto& thread : administrators) {
        thread.join();
    }
    CHECK(adapters.names() == std::vector<std::string>{"b", "c"});
}

TEST_CASE("registry: prepare packs on the calling thread and reports progress") {
    workshop shop;
    std::atomic<int> background = 0;
    registry adapters({.memory_budget = 400,
                       .on_preparing = [&](const std::string&, std::size_t, std::size_t) { ++background; }},
                      shop.packer());
    const auto version = adapters.load("a", from(1, 3));
    adapters.load("b", from(2, 4));
    std::thread::id packed_on;
    shop.before = [&](float) { packed_on = std::this_thread::get_id(); };
    std::vector<std::pair<std::size_t, std::size_t>> seen;
    CHECK(adapters.prepare(
              "a", [&](std::size_t done, std::size_t total) { seen.emplace_back(done, total); }) == version);
    CHECK(seen == std::vector<std::pair<std::size_t, std::size_t>>{{1, 3}, {2, 3}, {3, 3}});
    CHECK(packed_on == std::this_thread::get_id());
    CHECK(adapters.find("a").version() == version);
    adapters.prepare("a", [&](std::size_t, std::size_t) { FAIL("it is packed"); });
    CHECK(shop.packings == 3);
    CHECK(background == 0);
}

TEST_CASE("registry: background preparation reports progress by name") {
    workshop shop;
    std::mutex guard;
    std::vector<std::pair<std::string, std::size_t>> seen;
    registry adapters({.memory_budget = 400,
                       .on_preparing =
                           [&](const std::string& name, std::size_t done, std::size_t total) {
                               const std::lock_guard lock(guard);
                               CHECK(total == 2);
                               seen.emplace_back(name, done);
                           }},
                      shop.packer());
    adapters.load("a", from(1, 2));
    adapters.load("b", from(2, 4));
    adapters.wait_for("a");
    const std::lock_guard lock(guard);
    CHECK(seen == std::vector<std::pair<std::string, std::size_t>>{{"a", 1}, {"a", 2}});
}

TEST_CASE("registry: one caller's cancelled preparation is not the failure of those who wait") {
    workshop shop;
    registry adapters({.memory_budget = 100}, shop.packer());
    adapters.load("a", from(1));
    adapters.load("b", from(2));
    gate closed;
    shop.before = [&](float) { closed.pass(); };
    bool cancelled = false;
    std::thread impatient([&] {
        try {
            adapters.prepare("a", [](std::size_t, std::size_t) { throw std::runtime_error("cancelled"); });
        } catch (const std::runtime_error&) {
            cancelled = true;
        }
    });
    closed.wait_until_somebody_is_there();
    CHECK(adapters.find("a").state() == availability::being_prepared);
    std::thread opener([&] { closed.open(); });
    CHECK(number_of(adapters.wait_for("a")) == 1);
    impatient.join();
    opener.join();
    CHECK(cancelled);
}

TEST_CASE("registry: what a reader asked for while a cancelled preparation ran is prepared all the same") {
    workshop shop;
    registry adapters({.memory_budget = 100}, shop.packer());
    adapters.load("a", from(1));
    adapters.load("b", from(2));
    CHECK_THROWS_AS(adapters.prepare("a",
                                     [&](std::size_t, std::size_t) {
                                         CHECK(adapters.find("a").state() == availability::being_prepared);
                                         throw std::runtime_error("cancelled");
                                     }),
                    std::runtime_error);
    wait_until([&] { return entry_of(adapters, "a").state == availability::ready; });
    CHECK(shop.packings == 4);
}

TEST_CASE("registry: who waits for a version that is replaced gets the new one, unloaded an error") {
    workshop shop;
    registry adapters({.memory_budget = 300}, shop.packer());
    adapters.load("a", from(1));
    adapters.load("b", from(2));
    adapters.load("busy", from(3));
    adapters.load("large", from(4, 3));
    gate closed;
    shop.before = [&](float number) {
        if (number == 3) {
            closed.pass();
        }
    };
    adapters.find("busy");
    closed.wait_until_somebody_is_there();  // the background thread is occupied
    handle got;
    bool refused = false;
    std::thread first([&] { got = adapters.wait_for("a"); });
    std::thread second([&] {
        try {
            adapters.wait_for("b");
        } catch (const parameter_error&) {
            refused = true;
        }
    });
    wait_until([&] {
        return entry_of(adapters, "a").state == availability::being_prepared &&
               entry_of(adapters, "b").state == availability::being_prepared;
    });
    const auto version = adapters.load("a", from(5));
    adapters.unload("b");
    first.join();
    second.join();
    CHECK(number_of(got) == 5);
    CHECK(got.version() == version);
    CHECK(refused);
    closed.open();
    CHECK(number_of(adapters.wait_for("busy")) == 3);
}

TEST_CASE("registry: a version that is replaced while it is prepared again does not come back") {
    workshop shop;
    std::mutex guard;
    std::vector<std::thread::id> destroyed_on;
    shop.on_destruction = [&] {
        const std::lock_guard lock(guard);
        destroyed_on.push_back(std::this_thread::get_id());
    };
    registry adapters({.memory_budget = 200}, shop.packer());
    adapters.load("a", from(1));
    adapters.load("b", from(2, 2));
    gate closed;
    shop.before = [&](float number) {
        if (number == 1) {
            closed.pass();
        }
    };
    std::uint64_t prepared = 0;
    std::thread slow([&] { prepared = adapters.prepare("a"); });
    const std::thread::id slow_thread = slow.get_id();
    closed.wait_until_somebody_is_there();
    const auto version = adapters.load("a", from(3));
    closed.open();
    slow.join();
    wait_until([&] {
        const std::lock_guard lock(guard);
        return !destroyed_on.empty();
    });
    // Nor does the thread that packed it free it: it has the lock that everybody else would wait for.
    CHECK(std::count(destroyed_on.begin(), destroyed_on.end(), slow_thread) == 0);
    CHECK(number_of(adapters.find("a")) == 3);
    CHECK(prepared == version);
    CHECK(adapters.status().bytes_packing == 0);
}

TEST_CASE("registry: of two loads of one name the one that finishes last stays") {
    workshop shop;
    registry adapters(shop.packer());
    gate closed;
    shop.before = [&](float number) {
        if (number == 1) {
            closed.pass();
        }
    };
    std::uint64_t slow_version = 0;
    std::thread slow([&] { slow_version = adapters.load("a", from(1)); });
    closed.wait_until_somebody_is_there();
    const auto quick_version = adapters.load("a", from(2));
    CHECK(number_of(adapters.find("a")) == 2);
    closed.open();
    slow.join();
    CHECK(slow_version > quick_version);
    CHECK(number_of(adapters.find("a")) == 1);
    CHECK(adapters.find("a").version() == slow_version);
}

TEST_CASE("registry: loads at once of more than the budget wait for each other and stay within it") {
    workshop shop;
    registry adapters({.memory_budget = 250}, shop.packer());
    std::atomic<std::size_t> most = 0;
    shop.before = [&](float) {
        const auto now = adapters.status();
        const std::size_t taken = now.bytes_packed + now.bytes_packing;
        for (std::size_t seen = most; seen < taken && !most.compare_exchange_weak(seen, taken);) {
        }
    };
    std::vector<std::thread> administrators;
    for (int t = 0; t < 4; ++t) {
        administrators.emplace_back([&, t] {
            for (int i = 0; i < 40; ++i) {
                adapters.load("adapter " + std::to_string(t) + "." + std::to_string(i % 3 + i), from(1, 2));
            }
        });
    }
    for (auto& thread : administrators) {
        thread.join();
    }
    CHECK(most <= 250);
    CHECK(adapters.names().size() > 100);
    CHECK(adapters.status().bytes_packed == 200);
    CHECK(adapters.status().bytes_packing == 0);
}

TEST_CASE("registry: room that a packing in progress holds is not given to another") {
    workshop shop;
    registry adapters({.memory_budget = 300}, shop.packer());
    adapters.load("a", from(1));
    adapters.load("b", from(2));
    gate closed;
    shop.before = [&](float number) {
        if (number == 3) {
            closed.pass();
        }
    };
    std::thread administrator([&] { adapters.load("c", from(3)); });
    closed.wait_until_somebody_is_there();
    CHECK(adapters.status().bytes_packed == 200);
    adapters.load("d", from(4));
    CHECK(adapters.status().bytes_packed == 200);
    CHECK(adapters.status().bytes_packing == 100);
    closed.open();
    administrator.join();
    CHECK(adapters.status().bytes_packed == 300);
}

TEST_CASE("registry: a form that was to be replaced and was not counts again") {
    workshop shop;
    registry adapters({.memory_budget = 200}, shop.packer());
    adapters.load("a", from(1, 2));
    gate closed;
    shop.before = [&](float number) {
        if (number == 2) {
            closed.pass();
            throw io_error("lost");
        }
    };
    bool failed = false;
    std::thread administrator([&] {
        try {
            adapters.load("a", from(2));
        } catch (const io_error&) {
            failed = true;
        }
    });
    closed.wait_until_somebody_is_there();
    adapters.load("b", from(3));  // fits beside the packing in progress, since a is about to leave
    CHECK(adapters.status().bytes_packed == 300);
    CHECK(entry_of(adapters, "a").state == availability::ready);
    closed.open();
    administrator.join();
    CHECK(failed);
    CHECK(adapters.status().bytes_packed == 100);
    CHECK(number_of(adapters.wait_for("a")) == 1);
}

TEST_CASE("registry: callbacks may call the registry") {
    workshop shop;
    registry adapters({.memory_budget = 200}, shop.packer());
    adapters.load("a", from(1));
    int calls = 0;
    adapters.load(
        "b",
        [&] {
            adapters.load("c", from(3));
            return numbered(2);
        },
        [&](std::size_t, std::size_t) {
            ++calls;
            CHECK(adapters.status().bytes_packing == 100);
            CHECK(adapters.names() == std::vector<std::string>{"a", "c"});
            adapters.unload("a");
        });
    CHECK(calls == 1);
    CHECK(adapters.names() == std::vector<std::string>{"b", "c"});
}

TEST_CASE("registry: what a reader drops last is destroyed on another thread") {
    workshop shop;
    std::mutex guard;
    std::vector<std::thread::id> destroyed_on;
    shop.on_destruction = [&] {
        const std::lock_guard lock(guard);
        destroyed_on.push_back(std::this_thread::get_id());
    };
    {
        registry adapters(shop.packer());
        adapters.load("a", from(1));
        for (float i = 2; i < 20; ++i) {
            const handle old = adapters.find("a");
            adapters.load("a", from(i));
        }
        const handle last = adapters.find("a");
        adapters.unload("a");
    }
    REQUIRE(destroyed_on.size() == 19);
    for (const auto& where : destroyed_on) {
        CHECK(where != std::this_thread::get_id());
    }
}

TEST_CASE("registry: a handle outlives the registry") {
    workshop shop;
    int destroyed = 0;
    shop.on_destruction = [&] { ++destroyed; };
    handle kept;
    std::shared_ptr<const packed_number> shared;
    {
        registry adapters(shop.packer());
        adapters.load("a", from(1));
        adapters.load("b", from(2));
        kept = adapters.find("a");
        shared = kept.share();
    }
    CHECK(destroyed == 1);
    CHECK(number_of(kept) == 1);
    CHECK(kept.name() == "a");
    kept = {};
    CHECK(shared->number == 1);
    shared.reset();
    CHECK(destroyed == 2);
}

TEST_CASE("registry: destruction stops a preparation in progress at its next group") {
    workshop shop;
    std::atomic<std::size_t> reports = 0;
    gate started;
    started.open();
    auto packer = shop.packer();
    packer.pack = [&, pack = packer.pack](const lora::adapter& matrices,
                                          const lora::pack_progress& progress) {
        if (shop.packings >= 2) {
            started.pass();
            for (;;) {  // nothing but the exception ends it
                progress(1, 2);
                ++reports;
            }
        }
        return pack(matrices, progress);
    };
    {
        registry adapters({.memory_budget = 100}, packer);
        adapters.load("a", from(1));
        adapters.load("b", from(2));
        adapters.find("a");
        started.wait_until_somebody_is_there();
    }
    CHECK(shop.packings == 2);
}

struct with_options {
    struct options {
        std::size_t factor = 3;
    };
    with_options(const lora::adapter& a, const options& o, const lora::pack_progress& progress)
        : size(bytes_for(a, o)) {
        progress(1, 1);
    }
    static std::size_t bytes_for(const lora::adapter& a, const options& o) {
        return o.factor * a.sites.size();
    }
    std::size_t bytes() const noexcept { return size; }
    std::size_t size;
};

TEST_CASE("pack_with: packs with the model's constructor, options and forecast") {
    int reports = 0;
    const auto count = [&](std::size_t, std::size_t) { ++reports; };
    serving::registry<with_options> plain(serving::pack_with<with_options>());
    plain.load("a", from(1, 2), count);
    CHECK(plain.find("a").state() == availability::ready);
    CHECK(plain.status().bytes_packed == 6);
    const auto packer = serving::pack_with<with_options>(with_options::options{.factor = 5});
    CHECK(packer.bytes_for(numbered(1, 4)) == 20);
    serving::registry<with_options> chosen(packer);
    chosen.load("a", from(1, 2), count);
    CHECK(chosen.status().bytes_packed == 10);
    CHECK(reports == 2);
}

TEST_CASE("registry: any sequence of calls keeps the budget and every name's newest content") {
    std::mt19937 random(20260607);
    for (int round = 0; round < 20; ++round) {
        workshop shop;
        const std::size_t budget = 300 + 100 * (random() % 5);
        registry adapters({.memory_budget = budget}, shop.packer());
        std::map<std::string, float> content;
        std::uint64_t last_version = 0;
        for (int step = 0; step < 60; ++step) {
            const std::string name(1, static_cast<char>('a' + random() % 6));
            const bool known = content.contains(name);
            switch (random() % 4) {
                case 0: {
                    const auto version =
                        adapters.load(name, from(static_cast<float>(step), 1 + random() % 3));
                    CHECK(version > last_version);
                    last_version = version;
                    content[name] = static_cast<float>(step);
                    break;
                }
                case 1:
                    if (known && random() % 3 == 0) {
                        adapters.unload(name);
                        content.erase(name);
                    }
                    break;
                case 2:
                    CHECK((adapters.find(name).state() == availability::unknown) == !known);
                    break;
                default:
                    if (known) {
                        CHECK(number_of(adapters.wait_for(name)) == content[name]);
                    }
            }
            const auto status = adapters.status();
            CHECK(status.bytes_packed + status.bytes_packing <= budget);
            CHECK(status.entries.size() == content.size());
        }
    }
}

}  // namespace
