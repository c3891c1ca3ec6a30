// What is asked of the split inference server over HTTP, without a socket.

#include "../../service/admin.hpp"

#include <tensafe/io/peft.hpp>

#include <latch>
#include <limits>
#include <mutex>

#include "../../service/service.hpp"
#include "../io/file_builder.hpp"

namespace {

using namespace std::chrono_literals;

/// A server's state and adapter root, with the adapter `kjv` in the latter.
struct administered {
    explicit administered(bool with_root = true, bool token_stays_secret = true) {
        std::filesystem::create_directories(state);
        std::filesystem::create_directories(root);
        std::filesystem::copy(std::filesystem::path(TENSAFE_TEST_DATA) / "qwen_rank32", root / "kjv");
        split::service_options options;
        options.allowed.handshakes_per_second = 0.001;
        options.allowed.handshakes_at_once = 3;
        options.state = state;
        options.to = split::log(
            [this](std::string_view line) {
                const std::lock_guard lock(mutex);
                lines.emplace_back(line);
            },
            std::chrono::system_clock::now,
            [this] {
                const std::lock_guard lock(mutex);
                return now += 1s;
            });
        of.emplace(std::move(options));
        admin.emplace(*of, state, split::open_adapter_source(with_root ? root : ""), token_stays_secret,
                      [this] { ++drains; });
        std::ifstream(state / "admin_token") >> token;
    }

    split::net::http_response ask(const std::string& method, const std::string& target,
                                  const std::string& body = {}) {
        return admin->answer({method, target, "Bearer " + token, body, "10.0.0.1"});
    }
    split::net::http_response load(const std::string& name, const std::string& directory) {
        return ask("PUT", "/admin/adapters/" + name, "{\"directory\": \"" + directory + "\"}");
    }
    std::size_t lines_of(const std::string& event) {
        const std::lock_guard lock(mutex);
        std::size_t found = 0;
        for (const std::string& line : lines) {
            if (line.find("\"event\":\"" + event + "\"") != line.npos) {
                ++found;
            }
        }
        return found;
    }

    tests::temporary_directory scratch;
    std::filesystem::path folder = scratch.path();
    std::filesystem::path state = folder / "state";
    std::filesystem::path root = folder / "root";
    std::string token;
    int drains = 0;
    std::mutex mutex;
    std::vector<std::string> lines;
    split::time_point now;
    std::optional<split::service> of;
    std::optional<split::admin> admin;
};

bool contains(const split::net::http_response& answer, const std::string& text) {
    return answer.body.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE_FIXTURE(administered,
                  "administration and metrics are for the token of the file alone, health is for anybody") {
    CHECK(token.size() == 64);
    CHECK(ask("GET", "/admin/adapters").status == 200);
    CHECK(ask("GET", "/admin/usage").status == 200);
    CHECK(contains(ask("GET", "/metrics"), "tensafe_split_connections 0"));
    for (const char* const target : {"/admin/adapters", "/metrics"}) {
        for (const std::string& bad : {std::string(), "Bearer " + std::string(64, '0'), token}) {
            const auto answer = admin->answer({"GET", target, bad, {}, std::string("10.0.0.2") + target});
            CHECK(answer.status == 401);
            CHECK_FALSE(contains(answer, token));
            CHECK_FALSE(contains(answer, "tensafe_split"));
        }
    }
    const auto announce = [&](const std::string& method, const std::string& target, const std::string& with) {
        return admin->answer({method, target, "Bearer " + with, {}, "10.0.0.3", true}).status;
    };
    CHECK(announce("PUT", "/admin/adapters/kjv", token) == 100);
    CHECK(announce("PUT", "/admin/adapters/kjv", token + "0") == 401);
    CHECK(announce("PUT", "/admin/nothing", token) == 404);
    CHECK(announce("POST", "/admin/adapters/kjv", token) == 100);
    CHECK(announce("DELETE", "/admin/usage", token) == 404);
    CHECK(announce("PUT", "/nothing", token) == 404);
    CHECK(admin->answer({"GET", "/healthz", {}, {}, "10.0.0.2"}).status == 200);
    CHECK(ask("PUT", "/healthz").status == 405);
    CHECK(ask("PUT", "/metrics").status == 405);
    CHECK(ask("GET", "/other").status == 404);
    CHECK(ask("GET", "/admin/other").status == 404);
    std::latch may_go_on(1);
    of->loads().begin({"late",
                       [&] {
                           may_go_on.wait();
                           return tensafe::io::load_peft(root / "kjv");
                       },
                       true});
    CHECK(ask("GET", "/healthz").status == 503);
    CHECK(contains(ask("GET", "/healthz"), "loading: 0 of 1 adapters are served"));
    may_go_on.count_down();
    of->loads().wait();
    CHECK(ask("GET", "/healthz").status == 200);
    of->leave();
    CHECK(ask("GET", "/healthz").status == 503);
    CHECK(contains(ask("GET", "/healthz"), "draining"));
    CHECK(contains(ask("GET", "/metrics"), "draining 1\n"));
}

TEST_CASE_FIXTURE(administered, "a token of its own opens the metrics and nothing else") {
    std::string of_metrics;
    std::ifstream(state / "metrics_token") >> of_metrics;
    CHECK(of_metrics.size() == 64);
    CHECK(of_metrics != token);
    CHECK(std::filesystem::status(state / "metrics_token").permissions() == std::filesystem::perms(0600));
    const auto status = [&](const std::string& method, const std::string& target, const std::string& with) {
        return admin->answer({method, target, "Bearer " + with, {}, "10.0.0.2" + target}).status;
    };
    CHECK(status("GET", "/metrics", of_metrics) == 200);
    CHECK(status("GET", "/metrics", token) == 200);
    for (const char* const target : {"/admin/adapters", "/admin/usage", "/admin/drain", "/admin/metrics"}) {
        CHECK(status("GET", target, of_metrics) == 401);
    }
    CHECK(status("PUT", "/admin/drain", of_metrics) == 401);
    CHECK(drains == 0);
}

TEST_CASE_FIXTURE(administered,
                  "answers that crashes counted are given back, at most what counts, by who may") {
    CHECK(load("kjv", "kjv").status == 202);
    of->loads().wait();
    const auto model = of->adapters().find("kjv");
    REQUIRE(model);
    const std::string client(64, 'a');
    const std::uint64_t bits = model->groups.front().request;
    const auto account = of->counts().account_of(client, "acme", model->counted_as);
    for (int i = 0; i < 5; ++i) {
        static_cast<void>(of->counts().add(account, 0, bits, model->groups.front().limits));
    }
    const auto give = [&](const std::string& whose, const std::string& answers) {
        return ask("POST", "/admin/adapters/kjv",
                   "{\"of\": \"" + whose + "\", \"answers\": " + answers + "}");
    };
    CHECK(contains(give("client=" + client, "0"), "\"counted\": 5"));
    CHECK(lines_of("answers_given_back") == 0);
    CHECK(contains(give("client=" + client, "2"), "\"counted\": 3"));
    CHECK(of->counts().used(account, 0) == std::array{3 * bits, 5 * bits, 5 * bits});
    CHECK(contains(give("tenant=acme", "5"), "\"counted\": 0"));
    CHECK(contains(give("all", "1"), "\"counted\": 4"));
    CHECK(of->counts().used(account, 0) == std::array{3 * bits, std::uint64_t{0}, 4 * bits});
    CHECK(lines_of("answers_given_back") == 3);
    for (const auto& [field, value] :
         {std::pair("adapter", "kjv"), {"of", "client=aaaaaaaa"}, {"address", "10.0.0.1"}}) {
        CHECK(std::ranges::any_of(lines, [&, field = field, value = value](const std::string& line) {
            return line.find("answers_given_back") != line.npos &&
                   line.find(std::string("\"") + field + "\":\"" + value + "\"") != line.npos;
        }));
    }
    for (const auto& [whose, answers] :
         std::initializer_list<std::pair<std::string, std::string>>{{"client=" + client, "4"},
                                                                    {"all", "18446744073709551615"},
                                                                    {"client=", "1"},
                                                                    {"tenant", "1"},
                                                                    {"all=", "1"},
                                                                    {"all", "-1"},
                                                                    {"all", "1.5"},
                                                                    {"all", "\"1\""}}) {
        CHECK(give(whose, answers).status == 400);
    }
    CHECK(ask("POST", "/admin/adapters/kjv", "{\"answers\": 1}").status == 400);
    CHECK(contains(ask("POST", "/admin/adapters/other", R"({"of": "all", "answers": 1})"),
                   "no adapter has the name"));
    CHECK(of->counts().used(account, 0)[2] == 4 * bits);
    CHECK(admin->answer({"POST", "/admin/adapters/kjv", "Bearer " + token, {}, "10.0.0.1", true}).status ==
          100);
    CHECK(admin->answer({"POST", "/admin/adapters/kjv", {}, {}, "10.0.0.1", true}).status == 401);
}

TEST_CASE_FIXTURE(
    administered,
    "attempts without the token are limited, and those beyond the limit leave no line in the log") {
    for (int i = 0; i < 10; ++i) {
        CHECK(admin->answer({"GET", "/admin/usage", {}, {}, "10.0.0.2"}).status == (i < 3 ? 401 : 429));
    }
    CHECK(lines_of("admin_refused") == 3);
    CHECK(admin->answer({"GET", "/admin/usage", {}, {}, "10.0.0.3"}).status == 401);
    CHECK(admin->answer({"GET", "/admin/usage", "Bearer " + token, {}, "10.0.0.2"}).status == 200);
}

TEST_CASE("where the token would go in the clear it is not taken") {
    administered a(true, false);
    CHECK(a.ask("GET", "/admin/adapters").status == 403);
    CHECK(a.ask("GET", "/metrics").status == 403);
    CHECK(a.ask("GET", "/healthz").status == 200);
}

TEST_CASE_FIXTURE(administered, "the log has the names of admin routes, not what somebody put into a path") {
    for (const std::string& target :
         {"/admin/adapters/" + token, "/admin/clients/" + token, "/admin/clients/" + token + "/",
          "/admin//clients/" + token, "/admin/usage?" + token, "/admin/" + token}) {
        static_cast<void>(ask("DELETE", target));
    }
    CHECK(lines_of("admin") == 6);
    for (const std::string& line : lines) {
        CAPTURE(line);
        CHECK(line.find(token.substr(0, 16)) == line.npos);
    }
}

TEST_CASE_FIXTURE(administered, "a drain begins once, by PUT, for who has the token") {
    CHECK(ask("GET", "/admin/drain").status == 405);
    CHECK(admin->answer({"PUT", "/admin/drain", "Bearer " + std::string(64, '0'), {}, "10.0.0.2"}).status ==
          401);
    CHECK(drains == 0);
    CHECK(ask("PUT", "/admin/drain").status == 202);
    CHECK(ask("PUT", "/admin/drain").status == 202);
    CHECK(drains == 1);
}

TEST_CASE("what a process left of the server's files that died while it wrote is removed") {
    const tests::temporary_directory folder;
    for (const char* const name : {"admin_token.partial-1", "certificate.pem.partial-2",
                                   "certificate_key.pem.new.partial-aB3xYz", "notes.partial-1"}) {
        folder.put(name, "x");
    }
    split::service_options options;
    options.state = folder.path();
    const split::service one(std::move(options));
    CHECK(tests::entries(folder.path()) == 3);  // usage, usage_key and what is somebody's
}

TEST_CASE_FIXTURE(administered, "an adapter is loaded, replaced and removed") {
    CHECK(load("kjv", "kjv").status == 202);
    of->loads().wait();
    CHECK(contains(ask("GET", "/admin/adapters"), "\"name\": \"kjv\""));
    const auto first = of->adapters().find("kjv");
    REQUIRE(first);
    CHECK(load("kjv", "kjv").status == 202);
    of->loads().wait();
    CHECK(of->adapters().find("kjv")->version > first->version);
    CHECK(lines_of("adapter_loaded") == 2);
    CHECK(ask("DELETE", "/admin/adapters/kjv").status == 200);
    CHECK_FALSE(of->adapters().find("kjv"));
    CHECK(ask("DELETE", "/admin/adapters/kjv").status == 404);
    CHECK(lines_of("adapter_removed") == 1);
    CHECK(ask("GET", "/admin/adapters/kjv").status == 405);
    for (const std::string name : {"a/b", "a%2f..%2fb", "..%2f", "%2fa", "a%2f", "%0a", "%ff", "%2", "%zz",
                                   "a%3db", "%", "a?force", "a#b"}) {
        CAPTURE(name);
        CHECK(ask("PUT", "/admin/adapters/" + name, R"({"directory":"kjv"})").status == 404);
    }
    const auto named = [&](const std::string& encoded, const std::string& name) {
        CAPTURE(name);
        CHECK(ask("PUT", "/admin/adapters/" + encoded, R"({"directory":"kjv"})").status == 202);
        of->loads().wait();
        CHECK(of->adapters().find(name));
        CHECK(contains(ask("GET", "/admin/adapters"), "\"name\": \"" + name + "\""));
        CHECK(ask("DELETE", "/admin/adapters/" + encoded).status == 200);
    };
    named("org%2Fadapter@v2", "org/adapter@v2");
    named("gpt-oss:120b", "gpt-oss:120b");
    named("%E6%B3%95%E5%BE%8B", "\u6cd5\u5f8b");
}

TEST_CASE_FIXTURE(administered, "an adapter that nothing can be packed from is refused") {
    const tensafe::lora::adapter good = tensafe::io::load_peft(root / "kjv");
    const auto refuses = [&](auto spoil) {
        tensafe::lora::adapter bad = good;
        spoil(bad);
        CHECK_THROWS_AS(of->adapters().pack("kjv", [&] { return bad; }), tensafe::error);
    };
    refuses([](auto& bad) { bad.sites.clear(); });
    refuses([](auto& bad) { bad.sites[0].a.values[5] = std::numeric_limits<float>::quiet_NaN(); });
    refuses([](auto& bad) { bad.sites[0].b.values[5] = std::numeric_limits<float>::infinity(); });
    refuses([](auto& bad) { bad.sites[0].a.values.pop_back(); });
    refuses([](auto& bad) { bad.sites[0].a = {}; });
    refuses([](auto& bad) { bad.sites.push_back(bad.sites[0]); });
    CHECK_FALSE(of->adapters().find("kjv"));
}

TEST_CASE_FIXTURE(
    administered,
    "a short line of the log has what is left out of an adapter's files, however long its name") {
    std::vector<double> values(128);  // a limit is a share of their entropy
    std::iota(values.begin(), values.end(), 1.0);
    tensafe::io::safetensors_writer writer;
    writer.add("base_model.model.q.lora_A.weight", tensafe::io::dtype::f32, {2, 64}, values);
    writer.add("base_model.model.q.lora_B.weight", tensafe::io::dtype::f32, {64, 2}, values);
    writer.add("base_model.model." + std::string(10'000, '"') + ".lm_head.weight", tensafe::io::dtype::f32,
               {128}, values);
    std::filesystem::create_directories(root / "tied");
    writer.write(root / "tied" / "adapter_model.safetensors");
    std::ofstream(root / "tied" / "adapter_config.json") << R"({"peft_type":"LORA","r":2,"lora_alpha":2})";
    CHECK(load("tied", "tied").status == 202);
    CHECK(load("kjv", "kjv").status == 202);
    of->loads().wait();
    CHECK(of->adapters().find("tied"));
    CHECK(lines_of("adapter_loaded") == 2);
    CHECK(lines_of("adapter_note") == 1);
    const auto note = std::ranges::find_if(lines, [](const auto& line) {
        return line.find("\"adapter_note\",\"adapter\":\"tied\"") != line.npos;
    });
    REQUIRE(note != lines.end());
    CHECK(note->find("left out as a copy of the base model's own") != note->npos);
    CHECK(note->size() < 2000);
}

namespace {

/// From which nothing comes.
struct silent_source final : split::adapter_source {
    void check(const std::string&) const override {}
    tensafe::lora::adapter read(const std::string&, const tensafe::keystore::signature_policy*,
                                const std::stop_token& stop) const override {
        while (!stop.stop_requested()) {
            std::this_thread::sleep_for(1ms);
        }
        throw tensafe::cancelled_error("stopped");
    }
};

}  // namespace

TEST_CASE_FIXTURE(administered, "a server that stops waits for no adapter") {
    admin.emplace(*of, state, std::make_shared<silent_source>());
    CHECK(load("kjv", "kjv").status == 202);
    CHECK(of->loads().loads().size() == 1);
    of->drain();
    of->loads().wait();
    CHECK(of->loads().loads().empty());  // nor is it a failure
}

TEST_CASE_FIXTURE(administered, "adapters come from folders below the root and from nowhere else") {
    std::filesystem::copy(root / "kjv", folder / "root_of_another");
    std::filesystem::create_directory_symlink(folder / "root_of_another", root / "link");
    for (const std::string& bad :
         {std::string("../root_of_another"), std::string("kjv/../../root_of_another"),
          (folder / "root_of_another").string(), std::string("link"), std::string("nothing"),
          std::string("link/.."), std::string(".."), std::string("kjv/adapter_config.json"),
          std::string("/")}) {
        CAPTURE(bad);
        const auto answer = load("kjv", bad);
        CHECK(answer.status == 400);
        CHECK(contains(answer, "expected a folder below the adapter root"));
        CHECK(contains(answer, root.filename().string()));
        CHECK(contains(answer, "does not exist") == (bad == "nothing"));
    }
    CHECK_FALSE(contains(load("kjv", "../nothing"), "does not exist"));
    administered none(false);
    CHECK(none.load("kjv", "kjv").status == 400);
}

TEST_CASE_FIXTURE(administered, "a body that is not the one that is needed is refused") {
    for (const char* const bad :
         {"", "{", "[]", "{}", "{\"directory\": 1}", "{\"directory\": \"kjv\", \"x\": 1}", "\xff",
          "{\"directory\": \"kjv\", \"directory\": \"kjv\"}", "\xef\xbb\xbf{\"directory\": \"kjv\"}"}) {
        CAPTURE(bad);
        CHECK(ask("PUT", "/admin/adapters/kjv", bad).status == 400);
    }
    CHECK(ask("DELETE", "/admin/clients/00").status == 400);
    CHECK(contains(ask("DELETE", "/admin/clients/" + std::string(64, '0')), "\"sessions\": 0"));
}

TEST_CASE_FIXTURE(administered, "what waits is named once, can be taken back, and is not endless") {
    // While the first one is packed the others wait.
    std::string last;
    unsigned status = 202;
    for (int i = 0; i < 1000 && status == 202; ++i) {
        const std::string name = "adapter" + std::to_string(i);
        status = load(name, "kjv").status;
        last = status == 202 ? name : last;
    }
    CHECK(status == 429);
    // The last of those that wait: sixteen are packed before it.
    CHECK(load(last, "kjv").status == 409);
    CHECK(ask("DELETE", "/admin/adapters/" + last).status == 200);
    of->loads().wait();
    CHECK_FALSE(of->adapters().find(last));
    CHECK(of->adapters().find("adapter0"));
}

TEST_CASE_FIXTURE(administered, "a folder that became a link out of the root while it waited is not loaded") {
    std::filesystem::copy(root / "kjv", root / "late");
    std::filesystem::copy(root / "kjv", folder / "outside");
    CHECK(load("first", "kjv").status == 202);
    CHECK(load("second", "kjv").status == 202);
    CHECK(load("late", "late").status == 202);
    std::filesystem::remove_all(root / "late");
    std::filesystem::create_directory_symlink(folder / "outside", root / "late");
    of->loads().wait();
    CHECK_FALSE(of->adapters().find("late"));
    const auto told = ask("GET", "/admin/adapters");
    CHECK(contains(told, "\"state\": \"failed\""));
    CHECK(contains(told, "expected a folder below the adapter root"));
    CHECK(ask("DELETE", "/admin/adapters/late").status == 200);
    CHECK_FALSE(contains(ask("GET", "/admin/adapters"), "failed"));
}
