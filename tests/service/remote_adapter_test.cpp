// What a client of the service says of itself, and what it takes from a server: layouts, B, pins, versions.
#include <latch>

#include "../../service/remote_model.hpp"
#include "scripted_server.hpp"

using namespace tests;
using split::adapter_changed_error;

TEST_CASE("a client says who it is, signs the nonce and the key, and takes what it may hold") {
    scripted_server server;
    auto identity = split::client_identity({});
    const auto public_key = identity.verifying().bytes();
    {
        const auto remote = server.client(server.options(), {}, std::move(identity));
        CHECK(server.hellos.at(0).client == public_key);
        CHECK(server.hellos[0].adapter == "kjv");
        CHECK(server.hellos[0].set == own_set);
        CHECK(server.hellos[0].held);
        CHECK(server.signatures == std::vector<bool>{true});
        CHECK(remote.layout() == server.layout);
        CHECK(remote.version() == 3);
        CHECK(remote.queries_left() == 100);
        const std::array<double, 1> product{3};
        CHECK(remote.client()->deltas(1, product)[0] == std::vector<double>{0, 3, 0});  // B arrived
        CHECK(remote.counted().wire.up > server.rerandomization_keys[0].size());
    }
    CHECK(server.others == std::vector<std::string>{"bye"});
    CHECK(server.open == 0);
}

TEST_CASE("blocks of more than 128 tokens, which are memory here, are not taken unless the client says so") {
    scripted_server server;
    std::string reports;
    auto options = server.options();
    options.report = [&](const std::string& text) { reports += text; };
    const auto bytes = [&](std::size_t tokens_ahead) {
        server.layout.tokens_ahead = tokens_ahead;
        const auto forecast = server.client(options).forecast(0, 1024);
        return forecast.up + forecast.down;
    };
    const std::size_t alone = bytes(0);
    CHECK(bytes(128) < alone);
    CHECK(reports.empty());
    CHECK(bytes(256) == alone);
    CHECK(contains(reports, "the server has blocks of 256 tokens, --tokens-ahead is 128"));
    options.tokens_ahead = 256;
    CHECK(bytes(256) < alone);
}

TEST_CASE("a client that was given its part asks for none, and one that does not fit is refused") {
    scripted_server server;
    const auto remote = server.client(server.options(), small_held(5));
    CHECK(!server.hellos.at(0).held);
    const std::array<double, 1> product{2};
    CHECK(remote.client()->deltas(0, product)[0] == std::vector<double>{0, 5, 0});
    auto wrong = small_held();
    wrong.sites.pop_back();
    check_refusal<tensafe::parameter_error>("second.site", [&] { server.client(server.options(), wrong); });
    CHECK(server.open == 1);
}

TEST_CASE("an adapter whose deltas could overflow floats is refused before a state is encrypted") {
    for (int what = 0; what < 3; ++what) {
        scripted_server server;
        if (what == 0) {
            server.held.sites[1].b.values[2] = 3e38F;
        } else if (what == 1) {
            server.layout.groups[1].sites[0].scale = server.held.sites[1].scale = -1e18;
        } else {
            server.layout.groups[1].row_norm = 0x1p70;
        }
        for (const char* part : {"\"second.site\": got a gain of ", "expected at most 1048576"}) {
            check_refusal<tensafe::parameter_error>(part, [&] { server.client(); });
        }
        CHECK(server.open == 0);
    }
}

TEST_CASE("a client that knows the pin of its adapter refuses any other before it sends a request") {
    const auto publisher = signing_key::generate();
    const auto anybody = signing_key::generate();
    const auto swap_b = [](scripted_server& s) { s.held = small_held(3); };
    const auto swap_layout = [](scripted_server& s) { s.layout.groups[0].row_norm = 2; };
    const auto pin_of = [&](const scripted_server& s) { return s.made_pin(publisher).text(); };
    const struct {
        const char* said;
        std::function<std::string(scripted_server&)> shown;  ///< by a server that does this first
        bool publisher_is_enough = true;                     ///< to tell
    } all[] = {{"got no pin", [](auto&) { return ""; }},
               {"does not fit",
                [&](auto& s) {
                    auto forged = s.made_pin(publisher);
                    forged.commitment[0] ^= std::byte{1};
                    return forged.text();
                }},
               {"got a pin of \"other\"", [&](auto& s) { return s.made_pin(publisher, {}, "other").text(); }},
               {"publisher of the pin: got ", [&](auto& s) { return s.made_pin(anybody).text(); }},
               {"layout that was sent: got ",
                [&](auto& s) {
                    auto old = pin_of(s);
                    return swap_layout(s), old;
                }},
               {"B that was sent: got ",
                [&](auto& s) {
                    auto old = pin_of(s);
                    return swap_b(s), old;
                }},
               {"layout of the pin: got ", [&](auto& s) { return swap_layout(s), pin_of(s); }, false},
               {"B of the pin: got ", [&](auto& s) { return swap_b(s), pin_of(s); }, false},
               {"commitment to A: got ", [&](auto& s) { return s.made_pin(publisher, std::byte{1}).text(); },
                false}};
    for (const auto& each : all) {
        CAPTURE(each.said);
        for (const bool exact : {true, false}) {
            scripted_server server;
            auto options = server.options();
            exact ? void(options.pin = server.made_pin(publisher))
                  : void(options.publisher = publisher.verifying());
            server.pin = each.shown(server);
            if (exact || each.publisher_is_enough) {
                check_refusal<tensafe::signature_error>(each.said, [&] { server.client(options); });
            } else {
                CHECK(server.client(options).pin()->text() == server.pin);
            }
            CHECK(server.open == 0);
            CHECK(server.requests.empty());
        }
    }
    // Of a revision before what is known; of pins alike, with a later one too.
    for (const std::uint64_t shown : {2u, 3u, 4u}) {
        for (const bool exact : {true, false}) {
            scripted_server server;
            auto options = server.options();
            exact ? void(options.pin = server.made_pin(publisher)) : void(options.oldest_revision = 3);
            server.revision = shown;
            server.pin = pin_of(server);
            if (shown < 3) {
                check_refusal<tensafe::signature_error>("revision of the pin: got 2, expected at least 3",
                                                        [&] { server.client(options); });
            } else {
                CHECK(server.client(options).pin()->revision == shown);
            }
            server.pin.clear();
            check_refusal<tensafe::signature_error>("got no pin", [&] { server.client(options); });
        }
    }
    // The right one; to whoever was given B itself, whatever B the server has, if it is the one of the pin.
    scripted_server server;
    auto options = server.options();
    options.pin = server.made_pin(publisher);
    options.publisher = publisher.verifying();
    server.pin = options.pin->text();
    CHECK(server.client(options).pin() == options.pin);
    options.pin->name = "qwen";
    check_refusal<tensafe::signature_error>("got --pin of \"qwen\", expected",
                                            [&] { server.client(options); });
    options.pin = server.made_pin(publisher);
    swap_b(server);
    scripted_server other;
    other.held = small_held(5);
    const std::string both = "B that was given: got " + keystore::hex(other.made_pin(publisher).held) +
                             ", expected " + keystore::hex(options.pin->held);
    for (const bool exact : {true, false}) {
        exact ? void() : options.pin.reset();
        check_refusal<tensafe::signature_error>(both, [&] { server.client(options, small_held(5)); });
        CHECK(server.open == 0);
    }
    auto given = server.client(options, small_held(2));
    server.has_session = false;
    ++server.version;  // a restart: the pin is the same
    given.reconnect();
    swap_layout(server);
    check_refusal<tensafe::signature_error>("layout that was sent",
                                            [&] { server.client(options, small_held(2)); });
}

TEST_CASE("a pin that was shown must be shown again in a fresh session, asked for or not") {
    const auto publisher = signing_key::generate();
    for (const bool drops : {true, false}) {
        scripted_server server;
        server.pin = server.made_pin(publisher).text();
        auto remote = server.client();
        server.has_session = false;
        remote.reconnect();
        server.has_session = false;
        server.pin = drops ? "" : server.made_pin(publisher, std::byte{1}).text();
        check_refusal<adapter_changed_error>("pin", [&] { remote.reconnect(); });
        CHECK(server.open == 0);
        server.pin = "{}";
        check_refusal<tensafe::format_error>("the server's pin: missing key \"format\"",
                                             [&] { server.client(); });
        server.pin = R"({"format": "tensafe-adapter-pin", "version": 1})";  // of a server before revisions
        check_refusal<tensafe::unsupported_error>(
            "the server's pin: not supported: version 1 of the format, only 2", [&] { server.client(); });
    }
}

TEST_CASE("another layout or B after a reconnection is an error, and so is a session of another version") {
    for (int what = 0; what < 4; ++what) {
        scripted_server server;
        auto remote = what == 0 ? server.client(server.options(), small_held()) : server.client();
        server.has_session = what == 3;
        if (what == 0 || what == 3) {
            ++server.version;
        } else if (what == 1) {
            server.layout.groups[0].row_norm = 2;
        } else {
            server.held = small_held(3);
        }
        check_refusal<adapter_changed_error>("kjv", [&] { remote.reconnect(); });
        CHECK(server.open == 0);
    }
}

TEST_CASE("the same adapter in a fresh session goes on whatever its version, as after a restart") {
    scripted_server server;
    auto remote = server.client();
    server.has_session = false;
    server.version = 1;  // not 3 any more
    remote.reconnect();
    CHECK(remote.version() == 1);
    server.has_session = true;
    remote.reconnect();  // a session's own version is the later one
    CHECK(remote.counted().resumed == 1);
}

TEST_CASE("an identity is made once for a file, and is the same afterwards") {
    const temporary_directory scratch;
    const auto of = [&](const std::string& file) {
        return split::client_identity(scratch.path() / file).verifying();
    };
    const auto first = of("identity.pem");
    CHECK(of("identity.pem") == first);
    CHECK(!(split::client_identity({}).verifying() == first));
    check_refusal<tensafe::io_error>("cannot look for the key of this client: ",
                                     [&] { of(std::string(300, 'x')); });

    // Of several starts at once the first makes it, and the others find it there.
    constexpr std::size_t starts = 8;
    std::array<std::string, starts> got;
    std::latch all(starts);
    on_threads(starts, [&](std::size_t i) {
        all.arrive_and_wait();
        got[i] = of("shared.pem").hex();
    });
    CHECK(std::count(got.begin(), got.end(), of("shared.pem").hex()) == starts);
}
