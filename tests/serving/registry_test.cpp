// The registry of adapters: long, for each promise about versions, budgets and threads is a test by itself.
#include <tensafe/serving/meter.hpp>

#include "registry_fixture.hpp"

using namespace tests;
using namespace registry_fixture;

namespace {

/// A registry without a budget, and what packs for it.
struct shelf : workshop {
    registry adapters{loader()};
};

serving::registry_entry entry_of(const registry& adapters, const std::string& name) {
    for (const auto& entry : adapters.status().entries) {
        if (entry.name == name) {
            return entry;
        }
    }
    FAIL("no entry " << name);
    return {};
}

/// Uses one adapter strictly after all uses before.
void use(registry& adapters, const std::string& name) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::nanoseconds(2);
    while (std::chrono::steady_clock::now() <= limit) {
    }
    adapters.find(name);
}

/// The handle's number, if its parts belong together.
float number_of(const handle& found) {
    REQUIRE(found);
    CHECK(found.matrices().sites.front().a.values.front() == found.model().number);
    return found.model().number;
}

TEST_CASE_FIXTURE(shelf, "a loaded adapter is found, with everything of its version") {
    CHECK(adapters.names().empty());
    const auto version = adapters.load("legal", from(7, 3));
    const handle found = adapters.find("legal");
    REQUIRE(found);
    CHECK(found.version() == version);
    CHECK(found.name() == "legal");
    CHECK(number_of(found) == 7);
    CHECK(found.matrices().sites.size() == 3);
    CHECK(found.share().get() == &found.model());
    const auto entry = entry_of(adapters, "legal");
    CHECK(entry.bytes == 300);
    CHECK(entry.handles == 1);
    CHECK(adapters.status().bytes_packed == 300);
}

TEST_CASE_FIXTURE(shelf, "names are sorted, and each finds its own adapter") {
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

TEST_CASE_FIXTURE(shelf, "a replaced or unloaded version stays whole for who holds it") {
    adapters.load("legal", from(1));
    const handle old = adapters.find("legal");
    adapters.load("legal", from(2));
    CHECK(number_of(old) == 1);
    const handle replaced = adapters.find("legal");
    CHECK(number_of(replaced) == 2);
    adapters.unload("legal");
    CHECK_FALSE(adapters.find("legal"));
    CHECK(number_of(replaced) == 2);
    CHECK(number_of(old) == 1);
    CHECK(adapters.names().empty());
}

TEST_CASE_FIXTURE(shelf, "bytes of forms that only handles own are reported apart, until these are dropped") {
    adapters.load("legal", from(1, 5));
    handle old = adapters.find("legal");
    std::shared_ptr<const packed_number> shared = old.share();
    CHECK(entry_of(adapters, "legal").handles == 2);
    adapters.load("legal", from(2, 2));
    CHECK(adapters.status().bytes_retained == 500);
    CHECK(adapters.status().bytes_packed == 200);
    CHECK(entry_of(adapters, "legal").handles == 0);
    old = {};
    CHECK(adapters.status().bytes_retained == 500);
    shared.reset();
    CHECK(adapters.status().bytes_retained == 0);
}

TEST_CASE_FIXTURE(shelf, "an unknown name is an empty handle, or an error that lists the names") {
    CHECK(contains(refusal<tensafe::error>([&] { adapters.at("x"); }), "none is loaded"));
    adapters.load("legal", from(1));
    adapters.load("medical", from(2));
    const handle none = adapters.find("lega");
    CHECK_FALSE(none);
    CHECK(none.version() == 0);
    CHECK_THROWS_AS(none.model(), parameter_error);
    CHECK_THROWS_AS(none.matrices(), parameter_error);
    CHECK_THROWS_AS(none.name(), parameter_error);
    CHECK_THROWS_AS(none.share(), parameter_error);
    const std::array<std::function<void()>, 2> refused{[&] { adapters.at("lega"); },
                                                       [&] { adapters.unload("lega"); }};
    for (const auto& call : refused) {
        CHECK_THROWS_AS(call(), parameter_error);
        CHECK(refusal<tensafe::error>(call) ==
              "registry: no adapter \"lega\", expected one of: \"legal\" \"medical\"");
    }
    CHECK(adapters.names().size() == 2);
}

TEST_CASE_FIXTURE(shelf, "a message about a hostile name is short and printable") {
    for (int i = 0; i < 50; ++i) {
        adapters.load("adapter " + std::to_string(i), from(1));
    }
    const std::string text =
        refusal<tensafe::error>([&] { adapters.at("\x1b[31m\n" + std::string(100000, 'x')); });
    CHECK(text.size() < 1000);
    CHECK(text.find('\n') == std::string::npos);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(contains(text, "30 more"));
}

TEST_CASE_FIXTURE(shelf, "names are those that a meter counts under their own name") {
    CHECK(registry::longest_name == serving::meter_limits{}.longest_name);
    for (const std::string& bad :
         {std::string(), std::string(129, 'x'), std::string("a\nb"), std::string("a\0b", 3),
          std::string("\x7f"), std::string("a\xc2\x9b"), std::string("\xff")}) {
        CHECK_THROWS_AS(adapters.load(bad, from(1)), parameter_error);
    }
    CHECK(refusal<tensafe::error>([&] { adapters.load("a\xc2\x9b", from(1)); }) ==
          "registry::load: got the name \"a\\u009b\" of 3 bytes, expected 1 to 128 bytes of UTF-8 without "
          "control characters");
    CHECK(packings == 0);
    for (const std::string& good : {std::string(128, 'x'), std::string("r\xc3\xa9sum\xc3\xa9 v2")}) {
        adapters.load(good, from(1));
        CHECK(adapters.find(good));
    }
}

TEST_CASE_FIXTURE(workshop, "a load that fails leaves the old version serving and everything as it was") {
    registry adapters({.memory_budget = 300}, loader());
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
    CHECK(packings == 1);

    before = [](float) { throw std::bad_alloc(); };
    CHECK_THROWS_AS(adapters.load("legal", from(2)), std::bad_alloc);
    before = [](float) {};
    const auto cancel = [](std::size_t, std::size_t) { throw std::runtime_error("cancelled"); };
    CHECK_THROWS_AS(adapters.load("legal", from(2), cancel), std::runtime_error);
    CHECK_THROWS_AS(adapters.load("new", from(2), cancel), std::runtime_error);

    CHECK(number_of(adapters.find("legal")) == 1);
    CHECK(adapters.find("legal").version() == version);
    CHECK(adapters.names() == std::vector<std::string>{"legal"});
    CHECK(adapters.status().bytes_packed == 100);
    CHECK(adapters.load("legal", from(3)) == version + 1);
}

TEST_CASE_FIXTURE(workshop,
                  "a loader that lacks a function, makes nothing or more than the budget is refused") {
    const auto whole = loader();
    CHECK_THROWS_AS(registry({whole.pack, {}}), parameter_error);
    CHECK_THROWS_AS(registry({{}, whole.bytes_for}), parameter_error);
    registry nothing({[](const auto&, const auto&) { return nullptr; }, whole.bytes_for});
    CHECK(contains(refusal<tensafe::error>([&] { nothing.load("legal", from(1)); }), "made nothing"));
    CHECK(nothing.names().empty());
    bytes_a_site = 1000;  // forecast: 100
    registry wrong({.memory_budget = 500}, loader());
    CHECK_THROWS_AS(wrong.load("legal", from(1)), parameter_error);
    CHECK(wrong.names().empty());
}

TEST_CASE_FIXTURE(workshop,
                  "an adapter larger than the whole budget is refused before packing, with both numbers") {
    registry adapters({.memory_budget = 399}, loader());
    adapters.load("small", from(1, 3));
    const std::string text = refusal<tensafe::error>([&] { adapters.load("large", from(2, 4)); });
    CHECK(contains(text, "400"));
    CHECK(contains(text, "399"));
    CHECK(packings == 1);
    CHECK(adapters.find("small"));
}

TEST_CASE_FIXTURE(workshop,
                  "the least recently used packed forms are evicted, and no more of them than needed") {
    registry adapters({.memory_budget = 300}, loader());
    for (const char* name : {"a", "b", "c"}) {
        adapters.load(name, from(1));
    }
    use(adapters, "a");
    adapters.load("d", from(2));
    CHECK(entry_of(adapters, "a").packed);
    CHECK_FALSE(entry_of(adapters, "b").packed);
    CHECK(entry_of(adapters, "c").packed);
    CHECK(adapters.status().bytes_packed == 300);
    use(adapters, "c");
    adapters.load("e", from(3, 2));
    CHECK_FALSE(entry_of(adapters, "a").packed);
    CHECK(entry_of(adapters, "c").packed);
    CHECK_FALSE(entry_of(adapters, "d").packed);
    CHECK(entry_of(adapters, "a").bytes == 100);  // what it would take
    CHECK(adapters.names().size() == 5);
    CHECK(packings == 5);
}

TEST_CASE_FIXTURE(workshop, "a form larger than its forecast evicts others after all") {
    bytes_a_site = 160;  // forecast: 100, which fits beside the first
    registry adapters({.memory_budget = 300}, loader());
    adapters.load("a", from(1));
    adapters.load("b", from(2));
    CHECK(adapters.status().bytes_packed == 160);
    CHECK_FALSE(entry_of(adapters, "a").packed);
    CHECK(entry_of(adapters, "b").packed);
}

TEST_CASE_FIXTURE(workshop, "an evicted form is packed again by the next find, as the same version") {
    registry adapters({.memory_budget = 100}, loader());
    const auto version = adapters.load("a", from(1));
    adapters.load("b", from(2));
    CHECK_FALSE(entry_of(adapters, "a").packed);
    CHECK(entry_of(adapters, "a").bytes == 100);
    const handle again = adapters.find("a");
    CHECK(number_of(again) == 1);
    CHECK(again.version() == version);
    CHECK_FALSE(entry_of(adapters, "b").packed);
    CHECK(packings == 3);
    CHECK(adapters.find("a").version() == version);
    CHECK(packings == 3);  // it is packed
}

TEST_CASE_FIXTURE(workshop, "an evicted form stays whole for who holds it, beside its successor") {
    registry adapters({.memory_budget = 100}, loader());
    adapters.load("a", from(1));
    handle old = adapters.find("a");
    adapters.load("b", from(2));
    CHECK(number_of(old) == 1);
    CHECK(adapters.status().bytes_retained == 100);
    const handle again = adapters.find("a");
    CHECK(again.version() == old.version());
    CHECK(&again.model() != &old.model());
    old = {};
    CHECK(adapters.status().bytes_retained == 0);
}

TEST_CASE_FIXTURE(workshop, "a form that cannot be packed again says why, and the next find tries again") {
    registry adapters({.memory_budget = 100}, loader());
    const auto version = adapters.load("a", from(1));
    adapters.load("b", from(2));
    before = [](float) { throw io_error("no memory"); };
    CHECK_THROWS_AS(adapters.find("a"), io_error);
    CHECK_THROWS_AS(adapters.at("a"), io_error);
    CHECK(adapters.names() == std::vector<std::string>{"a", "b"});
    before = [](float) {};
    CHECK(number_of(adapters.find("a")) == 1);
    CHECK(adapters.find("a").version() == version);
}

TEST_CASE_FIXTURE(workshop, "readers go on while a replacement is being packed, and see the old version") {
    registry adapters({.memory_budget = 100}, loader());
    adapters.load("a", from(1));
    gate closed;
    before = [&](float) { closed.pass(); };
    std::thread administrator([&] { adapters.load("a", from(2)); });
    REQUIRE(closed.wait_until_somebody_is_there());
    CHECK(number_of(adapters.find("a")) == 1);  // although both do not fit the budget
    CHECK(adapters.status().bytes_packed == 100);
    CHECK(adapters.names().size() == 1);
    closed.open();
    administrator.join();
    CHECK(number_of(adapters.find("a")) == 2);
}

TEST_CASE_FIXTURE(workshop, "threads that find one evicted adapter share one packing") {
    registry adapters({.memory_budget = 100}, loader());
    adapters.load("a", from(1));
    adapters.load("b", from(2));
    gate closed;
    before = [&](float) { closed.pass(); };
    std::vector<float> got(6);
    bool arrived = false;
    on_threads(got.size() + 1, [&](std::size_t t) {
        if (t < got.size()) {
            got[t] = adapters.at("a").share()->number;
        } else {
            arrived = closed.wait_until_somebody_is_there();
            closed.open();
        }
    });
    CHECK(arrived);
    CHECK(got == std::vector<float>(6, 1));
    CHECK(packings == 3);
}

TEST_CASE_FIXTURE(workshop, "with room for one, threads that find different adapters all get theirs") {
    registry adapters({.memory_budget = 100}, loader());
    const std::vector<std::string> names{"a", "b", "c", "d"};
    for (std::size_t i = 0; i < names.size(); ++i) {
        adapters.load(names[i], from(static_cast<float>(i)));
    }
    std::vector<int> wrong(names.size());
    on_threads(names.size(), [&](std::size_t t) {
        for (int i = 0; i < 50; ++i) {
            wrong[t] += adapters.at(names[t]).share()->number != static_cast<float>(t);
        }
    });
    CHECK(wrong == std::vector<int>(names.size(), 0));
    CHECK(adapters.status().bytes_packed <= 100);
}

TEST_CASE_FIXTURE(shelf, "of two loads of one name the one that finishes last stays") {
    gate closed;
    before = [&](float number) {
        if (number == 1) {
            closed.pass();
        }
    };
    std::uint64_t first = 0;
    std::thread slow([&] { first = adapters.load("a", from(1)); });
    REQUIRE(closed.wait_until_somebody_is_there());
    const std::uint64_t second = adapters.load("a", from(2));  // without a budget they pack side by side
    CHECK(number_of(adapters.find("a")) == 2);
    closed.open();
    slow.join();
    CHECK(first > second);
    CHECK(number_of(adapters.find("a")) == 1);
    CHECK(adapters.find("a").version() == first);
}

TEST_CASE_FIXTURE(workshop, "a version that is replaced while it is packed again does not come back") {
    registry adapters({.memory_budget = 200}, loader());
    const auto version = adapters.load("a", from(1));
    adapters.load("b", from(2, 2));
    before = [&](float number) {
        if (number == 1) {
            adapters.load("a", from(3));
        }
    };
    const handle found = adapters.find("a");
    CHECK(number_of(found) == 1);  // what was asked for
    CHECK(found.version() == version);
    CHECK(number_of(adapters.find("a")) == 3);
    CHECK(adapters.status().bytes_packed <= 200);
}

TEST_CASE_FIXTURE(workshop, "loads at once of more than the budget stay within it") {
    registry adapters({.memory_budget = 250}, loader());
    std::atomic<bool> exceeded = false;
    // What is packed beside the form in progress, of 200 bytes.
    before = [&](float) { exceeded = exceeded || adapters.status().bytes_packed > 50; };
    on_threads(4, [&](std::size_t t) {
        for (int i = 0; i < 40; ++i) {
            adapters.load("adapter " + std::to_string(t) + "." + std::to_string(i), from(1, 2));
        }
    });
    CHECK_FALSE(exceeded);
    CHECK(adapters.names().size() == 160);
    CHECK(adapters.status().bytes_packed == 200);
}

TEST_CASE_FIXTURE(workshop, "callbacks may call the registry") {
    registry adapters({.memory_budget = 200}, loader());
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
            CHECK(adapters.names() == std::vector<std::string>{"a", "c"});
            // Another thread, which may hold a lock that this callback waits for: it does not wait.
            std::thread([&] { adapters.unload("a"); }).join();
        });
    CHECK(calls == 1);
    CHECK(adapters.names() == std::vector<std::string>{"b", "c"});
}

TEST_CASE_FIXTURE(workshop, "a handle outlives the registry") {
    int destroyed = 0;
    on_destruction = [&] { ++destroyed; };
    handle kept;
    std::shared_ptr<const packed_number> shared;
    {
        registry adapters(loader());
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

struct with_options {
    struct options {
        std::size_t factor = 3;
    };
    using options_type = options;
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
    CHECK(plain.find("a"));
    CHECK(plain.status().bytes_packed == 6);
    const auto loader = serving::pack_with<with_options>(with_options::options{.factor = 5});
    CHECK(loader.bytes_for(numbered(1, 4)) == 20);
    serving::registry<with_options> chosen(loader);
    chosen.load("a", from(1, 2), count);
    CHECK(chosen.status().bytes_packed == 10);
    CHECK(reports == 2);
}

TEST_CASE("any sequence of calls keeps the budget and every name's newest content") {
    random_numbers random(20260607);
    for (int round = 0; round < 20; ++round) {
        workshop shop;
        const std::size_t budget = 300 + 100 * (random() % 5);
        registry adapters({.memory_budget = budget}, shop.loader());
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
                    CHECK(static_cast<bool>(adapters.find(name)) == known);
                    break;
                default:
                    if (known) {
                        CHECK(number_of(adapters.at(name)) == content[name]);
                    }
            }
            const auto status = adapters.status();
            CHECK(status.bytes_packed <= budget);
            CHECK(status.bytes_retained == 0);
            CHECK(status.entries.size() == content.size());
        }
    }
}

lora::adapter two_sites() {
    lora::adapter result;
    for (const char* name : {"layers.0.q_proj", "layers.0.v_proj"}) {
        lora::adapter_site site;
        site.name = name;
        site.a = lora::matrix(2, 3);
        site.b = lora::matrix(5, 2);
        result.sites.push_back(site);
    }
    return result;
}

template <class Break>
std::string refusal_of(Break break_it) {
    lora::adapter broken = two_sites();
    break_it(broken);
    return refusal<tensafe::error>([&] { serving::check_adapter(broken); });
}

TEST_CASE("check_adapter: sites need names of their own") {
    CHECK_THROWS_AS(serving::check_adapter({}), parameter_error);
    CHECK(contains(refusal_of([](auto& a) { a.sites[1].name.clear(); }), "no name"));
    CHECK(refusal_of([](auto& a) { a.sites[1].name = a.sites[0].name; }) ==
          "adapter: site \"layers.0.q_proj\": the name occurs twice");
}

TEST_CASE("check_adapter: a message about a hostile site name is short and printable") {
    const auto message = refusal_of([](auto& a) {
        a.sites[0].name = "\x1b[31m\nq\xc2\x9b" + std::string(100'000, 'x');
        a.sites[0].scale = NAN;
    });
    CHECK(message.starts_with("adapter: site \"\\u001b[31m\\nq\\u009bxxx"));
    CHECK(message.ends_with("xxx...\": the scale is not a finite number"));
    CHECK(message.size() < 300);
}

TEST_CASE("check_adapter: matrices that are empty, torn or do not fit are refused by name") {
    CHECK(contains(refusal_of([](auto& a) { a.sites[1].a.values.pop_back(); }), "v_proj\": A"));
    CHECK(contains(refusal_of([](auto& a) { a.sites[1].b.rows = 6; }), "v_proj\": B"));
    CHECK(contains(refusal_of([](auto& a) { a.sites[0].a = {}; }), "A 0 x 0"));
    CHECK(contains(refusal_of([](auto& a) { a.sites[0].b = lora::matrix(0, 2); }), "B 0 x 2"));
    CHECK(
        refusal_of([](auto& a) { a.sites[0].b = lora::matrix(5, 3); }) ==
        "adapter: site \"layers.0.q_proj\": got A 2 x 3 and B 5 x 3, expected rank x d_in and d_out x rank");
}

TEST_CASE("check_adapter: values that are no numbers are refused by place") {
    CHECK(contains(refusal_of([](auto& a) { a.sites[1].a.values[4] = HUGE_VALF; }), "A[1][1]"));
    CHECK(contains(refusal_of([](auto& a) { a.sites[1].b.values[9] = -HUGE_VALF; }), "B[4][1]"));
    CHECK(contains(refusal_of([](auto& a) { a.sites[0].b.values[0] = NAN; }), "B[0][0]"));
    CHECK(contains(refusal_of([](auto& a) { a.sites[0].scale = NAN; }), "scale"));
}

}  // namespace
