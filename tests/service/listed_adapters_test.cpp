// Two servers with one list of adapters: which version each of them serves, and when. What the list is kept
// in has a test of its own.
#include "../../service/fleet/listed_adapters.hpp"

#include <tensafe/core/error.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

#include "peer.hpp"

using namespace tests;
using namespace std::chrono_literals;
using split::listed_adapter;

namespace {

/// The list as a store would keep it, for servers that a test names.
struct kept_list {
    std::mutex mutex;
    std::map<std::string, listed_adapter> adapters;
    std::map<std::string, std::set<std::string>> packed;  // servers, by adapter
    std::map<std::string, std::set<std::string>> failed;
    std::set<std::string> servers;
    std::uint64_t versions = 0;
    bool is_away = false;
    std::optional<listed_adapter> next;  ///< of a name that has one before it
};

class seen_by final : public split::adapter_list {
  public:
    seen_by(kept_list& of, std::string server) : of_(of), server_(std::move(server)) {
        of_.servers.insert(server_);
    }
    void put(const std::string& name, const std::string& directory) override {
        const std::lock_guard lock(of_.mutex);
        of_.adapters[name] = {name, ++of_.versions, directory, false};
        of_.packed[name].clear();
        of_.failed[name].clear();
    }
    bool remove(const std::string& name) override {
        const std::lock_guard lock(of_.mutex);
        return of_.adapters.erase(name) == 1;
    }
    std::vector<listed_adapter> look(const std::vector<split::tried_version>& tried) override {
        const std::lock_guard lock(of_.mutex);
        tensafe::require<tensafe::io_error>(!of_.is_away, {"the store is away"});
        std::vector<listed_adapter> result;
        for (auto& [name, each] : of_.adapters) {
            const auto is_it = [&name = name, &each = each](const split::tried_version& of) {
                return of.name == name && of.version == each.version;
            };
            if (const auto found = std::ranges::find_if(tried, is_it); found != tried.end()) {
                (found->is_packed ? of_.packed : of_.failed)[name].insert(server_);
            }
            each.is_due =
                each.is_due || (!of_.packed[name].empty() &&
                                of_.packed[name].size() + of_.failed[name].size() >= of_.servers.size());
            result.push_back(each);
        }
        if (of_.next) {
            result.push_back(*of_.next);
        }
        std::ranges::sort(result, {}, &listed_adapter::version);
        return result;
    }

  private:
    kept_list& of_;
    const std::string server_;
};

/// A server that looks at the list when the test says so.
struct peer_of_list {
    peer_of_list(kept_list& list, const std::string& name, const std::filesystem::path& root)
        : kept(list),
          id(name),
          list_(list, name),
          looks(std::in_place, *with.of, list_, split::open_adapter_source(root), 0ms) {}

    std::uint64_t served(const std::string& name) {
        const auto found = with.of->adapters().find(name);
        return found ? found->version : 0;
    }
    template <class Condition>
    void look_until(Condition holds) {
        for (int i = 0; i < 5'000 && !holds(); ++i) {
            looks->look();
            std::this_thread::sleep_for(1ms);
        }
        CHECK(holds());
    }
    void look_until_packed(const std::string& name) {
        look_until([&] { return kept.packed[name].contains(id); });
    }
    void look_until_served(const std::string& name, std::uint64_t version) {
        look_until([&] { return served(name) == version; });
    }

    kept_list& kept;
    std::string id;
    server with{{}, [](split::service_options& o) { o.shared = std::make_shared<store_of_one>(); }};
    seen_by list_;
    std::optional<split::listed_adapters> looks;
};

struct two_servers {
    two_servers() {
        for (const char* const name : {"one", "two"}) {
            std::filesystem::copy(std::filesystem::path(TENSAFE_TEST_DATA) / "qwen_rank32", root / name);
        }
    }
    void serve_first_version() {
        a.looks->put("qwen", "one");
        a.look_until_packed("qwen");
        b.look_until_served("qwen", 1);
        a.look_until_served("qwen", 1);
    }

    temporary_directory scratch;
    std::filesystem::path root = scratch.path();
    kept_list kept;
    peer_of_list a{kept, "a", root};
    peer_of_list b{kept, "b", root};
};

}  // namespace

TEST_CASE_FIXTURE(two_servers, "a version is served when all servers have packed it, and by none before") {
    CHECK(a.looks->missing() == "the list of adapters is not read yet");
    a.looks->look();
    CHECK(a.looks->missing().empty());
    a.looks->put("qwen", "one");
    a.look_until_packed("qwen");
    a.looks->look();
    CHECK(a.served("qwen") == 0);
    CHECK(a.looks->missing().empty());  // nobody else has it either
    b.look_until_served("qwen", 1);
    a.look_until_served("qwen", 1);
    // The next version: the old one until then.
    b.looks->put("qwen", "two");
    b.look_until_packed("qwen");
    CHECK(b.served("qwen") == 1);
    a.look_until_served("qwen", 2);
    b.look_until_served("qwen", 2);
    const auto counted = [](peer_of_list& of) { return of.with.of->adapters().find("qwen")->counted_as; };
    CHECK(counted(a) == counted(b));
    CHECK(counted(a).size() == 64);  // whatever it is called, and whoever came first
}

TEST_CASE_FIXTURE(two_servers, "a server that is late says so until it serves what the others serve") {
    a.looks->put("qwen", "one");
    a.look_until_packed("qwen");
    kept.adapters["qwen"].is_due = true;  // its time is over
    a.look_until_served("qwen", 1);
    CHECK(a.looks->missing().empty());
    b.looks->look();
    for (std::string missing = b.looks->missing(); b.served("qwen") == 0; missing = b.looks->missing()) {
        CHECK(missing == "1 of 1 adapters are not served in the version that they should be");
        std::this_thread::sleep_for(1ms);
    }
    CHECK(b.looks->missing().empty());
}

TEST_CASE_FIXTURE(two_servers, "what is taken off the list, or replaced while it waits, is given up") {
    a.looks->put("qwen", "one");
    a.look_until_packed("qwen");
    a.looks->put("qwen", "two");
    a.look_until_packed("qwen");
    b.look_until_served("qwen", 2);
    a.look_until_served("qwen", 2);
    a.looks->put("other", "one");
    a.look_until_packed("other");
    CHECK(b.looks->remove("other"));
    CHECK_FALSE(b.looks->remove("other"));
    a.look_until([&] { return a.with.of->loads().loads().empty(); });  // nor is it a failure
    CHECK(a.served("other") == 0);
    CHECK(a.looks->remove("qwen"));
    CHECK(a.served("qwen") == 0);
    CHECK(b.served("qwen") == 2);
    b.looks->look();
    CHECK(b.served("qwen") == 0);
    CHECK(a.served("kjv") == 1);  // which never was on it
}

TEST_CASE_FIXTURE(two_servers,
                  "while the list cannot be read, what is served stays, and nothing is promised") {
    serve_first_version();
    kept.is_away = true;
    CHECK_THROWS_AS(a.looks->look(), tensafe::io_error);
    CHECK_THROWS_AS(a.looks->put("other", "one"), tensafe::io_error);
    CHECK(a.served("qwen") == 1);
    CHECK(a.looks->missing().empty());
}

TEST_CASE_FIXTURE(two_servers, "a folder that is not there is refused where it is put, and fails elsewhere") {
    CHECK_THROWS_AS(a.looks->put("qwen", "../one"), tensafe::parameter_error);
    CHECK(kept.adapters.empty());
    kept.adapters["bad"] = {"bad", 7, "nowhere", false};
    serve_first_version();
    const auto loads = [&] { return a.with.of->loads().loads(); };
    const auto has_failed = [&] {
        return loads().size() == 1 && loads()[0].at == split::adapter_load::stage::failed;
    };
    a.look_until(has_failed);
    CHECK(loads().at(0).failure.find("which does not exist") != std::string::npos);
    a.looks->look();  // does not try again at once
    CHECK(has_failed());
}

TEST_CASE_FIXTURE(two_servers,
                  "a server that starts serves what was due before a version that cannot be packed") {
    serve_first_version();
    a.looks->put("qwen", "two");
    std::filesystem::remove_all(root / "two");
    const listed_adapter next = std::exchange(kept.adapters["qwen"], {"qwen", 1, "one", true});
    kept.next.emplace(next);
    peer_of_list late{kept, "c", root};
    late.looks->look();
    CHECK(late.looks->missing() == "1 of 1 adapters are not served in the version that they should be");
    late.look_until_served("qwen", 1);
    CHECK(late.looks->missing().empty());
    late.look_until([&] {
        const auto loads = late.with.of->loads().loads();
        return loads.size() == 1 && loads[0].version == 2 &&
               loads[0].at == split::adapter_load::stage::failed;
    });
    CHECK(late.served("qwen") == 1);
}

TEST_CASE_FIXTURE(two_servers, "a version that is packed and waits is kept where the one before is gone") {
    serve_first_version();
    std::filesystem::remove_all(root / "one");
    kept.next.emplace(listed_adapter{"qwen", 2, "two", false});
    peer_of_list late{kept, "c", root};
    const auto has_packed = [&] {
        const auto loads = late.with.of->loads().loads();
        return loads.size() == 1 && loads[0].version == 2 &&
               loads[0].at == split::adapter_load::stage::packed;
    };
    late.look_until(has_packed);
    for (int i = 0; i < 20; ++i) {
        late.looks->look();
        CHECK(has_packed());
    }
    CHECK_FALSE(late.looks->missing().empty());
}

TEST_CASE_FIXTURE(two_servers,
                  "a server that cannot pack a version is not waited for, and says what it lacks") {
    serve_first_version();
    std::filesystem::create_directory(root / "bad");
    std::filesystem::copy(root / "one", root / "bad", std::filesystem::copy_options::recursive);
    a.looks->put("qwen", "bad");
    a.look_until_packed("qwen");
    std::filesystem::remove_all(root / "bad");  // b comes too late
    b.look_until([&] { return !b.with.of->loads().loads().empty(); });
    a.look_until([&] {
        b.looks->look();
        return a.served("qwen") == 2;
    });
    CHECK(a.looks->missing().empty());
    CHECK(b.served("qwen") == 1);
    CHECK(b.looks->missing() == "1 of 1 adapters are not served in the version that they should be");
}

TEST_CASE_FIXTURE(two_servers, "versions that wait until they are due keep no other from being packed") {
    const std::vector<std::string> names{"first", "second", "third", "fourth"};  // of one thread
    for (const std::string& name : names) {
        a.looks->put(name, "one");
    }
    for (const std::string& name : names) {
        a.look_until_packed(name);
    }
    CHECK(a.with.of->adapters().find("first") == nullptr);
    for (const std::string& name : names) {
        b.look_until([&] { return b.served(name) != 0; });
        a.look_until([&] { return a.served(name) == b.served(name); });
    }
}
