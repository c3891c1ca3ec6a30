// The server of split inference: adapters for clients that send encrypted hidden states.
// docs/service.md

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/core/version.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/keystore/adapter_pin.hpp>
#include <tensafe/keystore/mark_key.hpp>
#include <tensafe/lora/packing/budget.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "../admin.hpp"
#include "../client_list.hpp"
#include "../fleet/store.hpp"
#include "../net/http_server.hpp"
#include "../number_option.hpp"
#include "../params.hpp"
#include "../service.hpp"
#include "../static_files.hpp"
#include "../tls_certificate.hpp"

namespace {

using namespace std::chrono_literals;
using tensafe::in_quotes;
using tensafe::io_error;
using tensafe::parameter_error;
using tensafe::require;
using tensafe::text_of;

/// The most that any client may be trusted with.
constexpr std::size_t most_tokens_ahead = tensafe::lora::most_targets<split::params, split::protection>;

struct arguments {
    std::string listen = "127.0.0.1:8443";
    std::vector<std::string> adapters;
    std::string adapter_root;
    std::vector<std::string> hosts;
    std::string clients;
    bool anybody = false;
    std::vector<std::string> pins;
    std::string mark_key;
    bool insecure_plaintext = false;
    std::vector<std::string> proxies;
    std::string web;
    std::vector<std::string> origins;
    bool has_limits_for_pages = false;
    std::size_t drain_delay_seconds = 0;
    std::size_t drain_seconds = 10;
    split::store_options store;
    split::service_options service;
    split::net::http_server_options net;
};

void add_seconds(CLI::App& app, const char* name, std::chrono::milliseconds& time, const char* what) {
    const auto set = [&time](double seconds) {
        time = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
    };
    app.add_option_function<double>(name, set, what)
        ->check(split::number_in(0.01, 86'400.0))
        ->default_str(tensafe::shortest_text(std::chrono::duration<double>(time).count()));
}

void add_share(CLI::App& app, const char* name, split::share_limit& share) {
    const auto set = [name, &share](const std::string& text) {
        const auto read = split::share_of(text);
        if (!read) {
            throw CLI::ValidationError(name, "got " + tensafe::quote(text) + ", " + split::expected_share);
        }
        share = *read;
    };
    app.add_option_function<std::string>(name, set,
                                         "of the bits of each input's A that replies may tell, or none")
        ->default_str(split::text_of_share(share));
}

constexpr const char* description =
    "Serves LoRA adapters to clients that send encrypted hidden states: WebSocket over TLS at /v1/split, "
    "/healthz, /metrics and /admin/ over HTTPS (tensafe-admin).";

constexpr const char* footer =
    "Files:\n"
    "  STATE/certificate.pem, certificate_key.pem  made at the first start; clients trust the first "
    "(--trust)\n"
    "  STATE/admin_token, metrics_token            what /admin/ and /metrics ask for\n"
    "  STATE/usage, usage_key                      counts of query limits: back up both together\n"
    "  STATE/usage, server_id                      with --store: never on two servers\n"
    "Signals:\n"
    "  SIGTERM and SIGINT end it, after --drain-delay-seconds and what is under way, --drain-seconds at "
    "most; a second one at once.\n"
    "  SIGHUP reads the file of --config again: clients and their file, certificate and key, host and "
    "origin.\n"
    "Exit status:\n"
    "  0 after a signal, 1 after an error, more than 100 for wrong options.\n"
    "Log:\n"
    "  JSON lines on standard error.\n"
    "Example:\n"
    "  tensafe-server --adapter qwen=DIRECTORY --clients clients.txt --listen 0.0.0.0:8443 --host "
    "example.org";

/// The file of --config. A limit that is misspelled, or stands there twice, would be none, or another one.
class option_file final : public CLI::ConfigTOML {
  public:
    explicit option_file(const CLI::App& of) : of_(of) {}
    std::vector<CLI::ConfigItem> from_config(std::istream& from) const override {
        auto read = CLI::ConfigTOML::from_config(from);
        std::set<std::string> keys;
        for (const CLI::ConfigItem& each : read) {
            const std::string key = each.fullname();
            const bool is_option = of_.get_option_no_throw("--" + key) != nullptr;
            if (!is_option || !keys.insert(key).second) {
                throw CLI::ConfigError(
                    "--config: got the key " + tensafe::quote(key) +
                    (is_option ? " twice, expected each once" : ", expected names of options, without --"));
            }
        }
        return read;
    }

  private:
    const CLI::App& of_;
};

void add_options(CLI::App& app, arguments& a) {
    app.config_formatter(std::make_shared<option_file>(app));
    app.set_config("--config", "",
                   "TOML file of these options by their names without --; the command line wins");
    app.option_defaults()->group("What is served, and to whom");
    app.add_option("--listen", a.listen, "address:port, also localhost; port 0 is any")
        ->capture_default_str();
    app.add_option("--state", a.service.state, "folder of certificate, admin token, usage counts")
        ->capture_default_str();
    app.add_option("--adapter", a.adapters, "NAME=DIRECTORY, a PEFT adapter to serve; may be repeated");
    app.add_option(
        "--adapter-root", a.adapter_root,
        "folder below which the admin endpoint loads adapters, or s3://BUCKET/PREFIX of object "
        "storage, which the environment tells as usual (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...)");
    app.add_option("--host", a.hosts,
                   "a further name or address of this server, which its certificate is for");
    app.add_option("--clients", a.clients,
                   "file of public keys that may come, one a line, after spaces its tenant and, with "
                   "--mark-key, the share of this tenant; or:");
    app.add_flag("--anybody", a.anybody, "any key may come");
    app.add_option_function<std::vector<std::string>>(
        "--signer",
        [&a](const std::vector<std::string>& keys) {
            for (const std::string& each : keys) {
                a.service.signers.push_back(
                    tensafe::keystore::verifying_key::from_hex(each, "got --signer: public key"));
            }
        },
        "public key of who signs adapters: those of others are refused; may be repeated");
    app.add_option(
        "--pin", a.pins,
        "NAME=FILE, a pin by the adapter's owner (sign_adapter pin): clients are shown it, and no "
        "other adapter is loaded under the name. With --mark-key NAME=FOLDER, which has TENANT.pin "
        "for each tenant; may be repeated");
    app.add_option("--mark-key", a.mark_key,
                   "file of 64 hexadecimal digits (openssl rand -hex 32), the owner's secret: each tenant of "
                   "--clients is sent a B of its own, by which copies name it");
    app.option_defaults()->group("Limits");
    for (std::size_t i = 0; i < a.service.allowed.shares.size(); ++i) {
        add_share(app, split::share_options[i], a.service.allowed.shares[i]);
    }
    split::limits& of = a.service.allowed;
    constexpr std::size_t million = 1'000'000;
    split::add_number(app, "--rate", of.requests_per_second, 0.001, 1e9, "requests per second of one client");
    split::add_number(app, "--work-rate", of.work_per_second, 0.001, 1e9,
                      "milliseconds of computing per second of one client, or none")
        ->transform([](const std::string& text) { return text == "none" ? "1e9" : text; });
    split::add_number(app, "--handshake-rate", of.handshakes_per_second, 0.001, 1e9,
                      "handshakes per second of one address");
    split::add_number(app, "--sessions", of.sessions, 1, million, "sessions in all");
    split::add_number(app, "--sessions-per-client", of.sessions_of_client, 1, million,
                      "sessions of one client");
    split::add_number(app, "--connections", a.net.connections, 1, million, "connections in all");
    split::add_number(app, "--connections-per-address", a.net.connections_of_address, 1, million,
                      "connections of one address");
    app.add_option(
        "--proxy", a.proxies,
        "address of a TCP proxy, or a network as 10.0.0.0/8, whose connections begin with a header of "
        "the PROXY protocol; may be repeated");
    split::add_number(app, "--largest-message", of.largest_message, 65'536, std::size_t{1} << 30,
                      "bytes of a message that is read");
    split::add_number(
        app, "--tokens-ahead", of.tokens_ahead, 1, most_tokens_ahead,
        "of a block: what does not depend on them is computed and sent before; 1: none. More in a block "
        "would tell clients that cheat the secrets of its replies");
    app.add_flag(
        "--column-scales", of.column_scales,
        "show clients the norms of A's columns as powers of two, so that huge entries of hidden states "
        "that A hardly reads cost no precision; pins need it too");
    app.add_option_function<std::size_t>(
           "--block-memory", [&of](std::size_t mib) { of.block_bytes = mib << 20; },
           "MiB for blocks and kept replies, a sixteenth of it for one address; 0: no blocks are made")
        ->check(split::number_in(std::size_t{0}, million))
        ->default_str("256");
    app.add_option_function<std::size_t>(
           "--mark-memory", [&of](std::size_t mib) { of.mark_bytes = mib << 20; },
           "MiB for the A of each tenant, with marks of its own, beside those of B (--mark-key); packed "
           "again "
           "if there is too little")
        ->check(split::number_in(std::size_t{1}, million));
    split::add_number(app, "--zeros-ahead", of.pool_of_session, 0, million,
                      "encryptions of zero made ahead, for each kind of request of one session");
    app.option_defaults()->group("Several servers");
    app.add_option(
        "--store", a.store.store,
        "Redis in which servers count together: redis://[USER@]HOST:PORT[/DATABASE], rediss:// for TLS, "
        "sentinel://HOST:PORT,HOST:PORT/MASTER");
    app.add_option("--store-password-file", a.store.password_file,
                   "its password, for its owner alone to read");
    app.add_option(
        "--fleet-key", a.store.fleet_key,
        "file of 64 hexadecimal digits (openssl rand -hex 32), the same on all servers: what is counted "
        "there has no names without it");
    app.option_defaults()->group("Threads and times");
    split::add_number(app, "--threads", a.net.threads, 1, 256,
                      "that answer requests, and as many that pack adapters");
    split::add_number(app, "--drain-delay-seconds", a.drain_delay_seconds, 0, 86'400,
                      "after SIGTERM in which all are served, while /healthz sends a balancer elsewhere");
    split::add_number(app, "--drain-seconds", a.drain_seconds, 0, 86'400,
                      "for clients to leave after SIGTERM and that delay");
    add_seconds(app, "--handshake-seconds", a.net.handshake_time,
                "for TLS, a whole HTTP request, from a WebSocket to its session, a close");
    add_seconds(app, "--idle-seconds", a.net.idle_time, "of silence, pings included");
    add_seconds(app, "--frame-seconds", a.net.frame_time, "for a frame that was begun to be there whole");
    add_seconds(app, "--write-seconds", a.net.write_time,
                "for a frame, or each MB of a longer one, to be taken");
    add_seconds(app, "--session-seconds", a.service.allowed.session_life,
                "of a session after its connection is lost");
    add_seconds(app, "--session-idle-seconds", a.service.allowed.session_idle,
                "of a session without a request, pings or not");
    add_seconds(app, "--retired-seconds", a.service.allowed.retired_life,
                "of sessions after their version of an adapter was replaced or unloaded");
    app.option_defaults()->group("Pages");
    app.add_option("--web", a.web, "folder of a page to serve; clients of an address are one tenant then");
    app.add_option(
        "--origin", a.origins,
        "whose pages may come, as https://example.org; may be repeated. Default: with --web and no "
        "TLS this server's own");
    app.add_flag("--insecure-plaintext", a.insecure_plaintext, "no TLS: for measurements on one machine");
    split::refuse_nothing(app);
}

void read_listen(arguments& a) {
    const std::size_t colon = std::min(a.listen.rfind(':'), a.listen.size());
    std::string address = a.listen.substr(0, colon);
    if (address.starts_with('[') && address.ends_with(']')) {
        address = address.substr(1, address.size() - 2);
    }
    a.net.address = address == "localhost" ? "127.0.0.1" : address;
    const auto port = tensafe::number_of<std::uint16_t>(
        std::string_view(a.listen).substr(std::min(colon + 1, a.listen.size())));
    a.net.port = port.value_or(0);
    const std::string plain = a.net.address.substr(0, a.net.address.find('%'));  // without the interface
    require<parameter_error>(
        split::is_address(plain) && port,
        {"got --listen ", in_quotes(a.listen),
         ", expected ADDRESS:PORT, an address of this machine, as 0.0.0.0 or [::], or localhost, and a port "
         "from 0 to 65535"});
}

/// SIGTERM, SIGINT and SIGHUP wait to be taken: no thread of this program is interrupted by them. Whoever
/// read the log may go, and a limit on file sizes is a full disk: SIGPIPE and SIGXFSZ are ignored, so that
/// the write fails, with EPIPE or EFBIG.
/// @return those that end it
sigset_t block_signals() {
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
    sigset_t waited_for;
    sigemptyset(&waited_for);
    sigaddset(&waited_for, SIGTERM);
    sigaddset(&waited_for, SIGINT);
    const sigset_t ending = waited_for;
    sigaddset(&waited_for, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &waited_for, nullptr);
    return ending;
}

/// @return which one came; 0: none
int signal_within(const sigset_t& signals, std::chrono::milliseconds time) {
    const timespec wait{static_cast<std::time_t>(time.count() / 1000), (time.count() % 1000) * 1'000'000};
    return std::max(sigtimedwait(&signals, nullptr, &wait), 0);
}

void serve(split::service& service, split::net::http_server& server, const sigset_t& signals,
           std::chrono::seconds drain_delay, std::chrono::seconds drain_time,
           const std::function<void()>& reload) {
    sigset_t waited_for = signals;
    sigaddset(&waited_for, SIGHUP);
    bool is_ready = false;
    std::string failed;
    for (int came = 0; failed.empty() && (came == 0 || came == SIGHUP);
         came = signal_within(waited_for, is_ready ? 1s : 50ms)) {
        if (came == SIGHUP) {
            reload();
        }
        service.expire_sessions();
        if (!is_ready) {
            failed = service.loads().at_start().failure;  // others were answered: their counts are saved
            is_ready = service.missing().empty();
            if (is_ready) {
                const std::size_t count = service.adapters().served().size();
                std::printf("serving %zu of %zu adapters\n", count, count);
                static_cast<void>(std::fflush(stdout));
                service.to_log().line(split::log_level::info, "ready", {{"adapters", std::uint64_t{count}}});
            }
        }
    }
    service.to_log().line(split::log_level::info, "draining");
    service.leave();
    const auto begins = std::chrono::steady_clock::now() + (is_ready ? drain_delay : 0s);
    bool is_cut = false;
    while (!is_cut && std::chrono::steady_clock::now() < begins) {
        is_cut = signal_within(signals, 50ms) != 0;
        service.expire_sessions();
    }
    service.drain();
    server.drain();
    const auto end = std::chrono::steady_clock::now() + drain_time;
    while (!is_cut && !server.wait_until_drained(50ms) && std::chrono::steady_clock::now() < end) {
        is_cut = signal_within(signals, 0ms) != 0;
    }
    server.stop();
    try {
        service.counts().save();
    } catch (const tensafe::error& e) {
        service.to_log().line(split::log_level::error, "usage_not_saved", {{"what", e.what()}});
    }
    service.to_log().line(split::log_level::info, "stopped");
    require<tensafe::error>(failed.empty(), {failed});
}

/// @throws parameter_error for a limit of one, if it is given, above that of all
template <class Number>
void check_part(const CLI::App& app, const char* of_one, Number one, const char* of_all, Number all) {
    require<parameter_error>(app.count(of_one) == 0 || one <= all,
                             {"got ", of_one, " ", one, ", expected at most ", of_all, ", ", all});
}

/// The sum of what the limits allow, beside adapters.
void log_memory(const split::log& to, const arguments& a) {
    const split::limits& of = a.service.allowed;
    constexpr std::size_t limb = split::params::degree * sizeof(std::uint64_t);
    constexpr std::size_t zero = 2 * limb;
    constexpr std::size_t session =
        2 * limb + 2 * (4 * limb + 4 * zero);  // keys and zeros: session_table.hpp
    const std::uint64_t sessions = of.sessions * session >> 20;
    const std::uint64_t zeros = std::min(of.pooled, of.sessions * of.pool_of_session * 2) * zero >> 20;
    const std::uint64_t blocks = of.block_bytes >> 20;
    const std::uint64_t marked = of.mark_bytes >> 20;
    const std::uint64_t connections = a.net.connections * (a.net.header_bytes + a.net.body_bytes) >> 20;
    to.line(split::log_level::info, "memory_limit_mib",
            {{"sessions", sessions},
             {"zeros_ahead", zeros},
             {"blocks", blocks},
             {"marked", marked},
             {"connections", connections},
             {"all", sessions + zeros + blocks + marked + connections}});
}

/// A folder that is made is for this user alone. One that was there keeps its owner and mode, and must be.
void prepare_state(const std::filesystem::path& folder) {
    const std::string option = text_of({"--state ", in_quotes(folder.native()), ": "});
    std::error_code failure;
    const std::filesystem::path own = folder.has_filename() ? folder : folder.parent_path();  // of "own/"
    if (own.has_parent_path()) {
        std::filesystem::create_directories(own.parent_path(), failure);
    }
    if (!failure && ::mkdir(own.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
        failure.assign(errno, std::generic_category());
    }
    require<io_error>(!failure, {option, "cannot make the folder: ", failure.message(),
                                 ", expected one that is there or can be made"});
    struct ::stat status {};
    if (::stat(folder.c_str(), &status) != 0) {
        tensafe::io::throw_io_error(folder, "read the owner", errno);
    }
    require<io_error>(
        status.st_uid == ::geteuid(),
        {option, "belongs to user ", status.st_uid, ", expected a folder of this server's user, ",
         ::geteuid(), ": start it as the owner, or give it a folder of its own"});
    require<io_error>(
        (status.st_mode & (S_IRWXG | S_IRWXO)) == 0,
        {option, "others than its owner have access, expected a folder of this server alone (chmod 700)"});
}

/// Names, as the admin endpoint takes them, with their folders or files.
std::map<std::string, std::filesystem::path> read_named(const char* option, const char* what,
                                                        const std::vector<std::string>& given) {
    std::map<std::string, std::filesystem::path> result;
    for (const std::string& each : given) {
        const std::size_t equals = std::min(each.find('='), each.size());
        const std::string name = each.substr(0, equals);
        const std::string path = each.substr(std::min(equals + 1, each.size()));
        require<parameter_error>(split::is_adapter_name(name) && !path.empty(),
                                 {"got ", option, " ", in_quotes(each), ", expected NAME=", what,
                                  ", the name of up to 128 bytes of UTF-8, without \"..\""});
        require<parameter_error>(result.emplace(name, path).second,
                                 {"got ", option, " ", in_quotes(name), " again, expected each name once"});
    }
    return result;
}

/// @param has_marks  as for read_client_list
/// @return who may come, for people
std::string read_clients(arguments& a, bool has_marks) {
    require<parameter_error>(
        a.clients.empty() == a.anybody,
        {a.anybody ? "got both --clients and" : "got neither --clients nor",
         " --anybody, expected one: --clients FILE, the public keys that may come, or --anybody"});
    if (a.anybody) {
        return "anybody";
    }
    a.service.clients = split::read_client_list(a.clients, has_marks);
    return "listed clients (" + std::to_string(a.service.clients->size()) + ")";
}

/// What pages need, before anything is made.
void check_pages(arguments& a, bool is_loopback) {
    for (const std::string& each : a.origins) {
        require<parameter_error>(
            split::is_origin(each),
            {"got --origin ", in_quotes(each),
             ", expected what browsers send: https://HOST or https://HOST:PORT, in small letters, without a "
             "path and without port 443; http for localhost alone"});
    }
    if (a.web.empty() && a.origins.empty()) {
        return;
    }
    a.service.addresses_are_tenants = true;
    a.net.has_pages = true;
    require<parameter_error>(
        a.anybody && a.has_limits_for_pages,
        {"got --web or --origin, expected with them --anybody, --tenant-share and --adapter-share: the key "
         "of a page is new with each visit, so that a client's own limit protects nothing. The tenant's "
         "limit is then that of an address, and the adapter's that of all together"});
    require<parameter_error>(!a.insecure_plaintext || is_loopback,
                             {"got --insecure-plaintext with pages, expected --listen at a loopback address: "
                              "whoever is on the way could change the page"});
    require<parameter_error>(
        !a.origins.empty() || a.insecure_plaintext,
        {"got --web without --origin, expected the address that people type, as https://example.org"});
}

std::optional<split::static_files> prepare_pages(const arguments& a) {
    if (a.web.empty()) {
        return std::nullopt;
    }
    const auto page = std::filesystem::weakly_canonical(a.web);
    const auto state = std::filesystem::weakly_canonical(a.service.state);
    const auto holds = [](const std::filesystem::path& outer, const std::filesystem::path& inner) {
        return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
    };
    require<parameter_error>(
        !holds(page, state) && !holds(state, page),
        {"got --web ", in_quotes(a.web), " and --state ", in_quotes(a.service.state.native()),
         ", expected two folders: everybody could read the server's keys"});
    return split::static_files(page);
}

int run(arguments& a, const std::function<arguments(const split::log&)>& read_again) {
    const sigset_t signals = block_signals();
    require<parameter_error>(
        !a.adapters.empty() || !a.adapter_root.empty(),
        {"got neither --adapter nor --adapter-root, expected --adapter NAME=DIRECTORY to serve, or "
         "--adapter-root DIRECTORY to load adapters from later"});
    const auto adapters = read_named("--adapter", "DIRECTORY", a.adapters);
    if (!a.mark_key.empty()) {
        require<parameter_error>(!a.clients.empty(),
                                 {"got --mark-key without --clients, expected both: a mark "
                                  "names one of their tenants"});
        using tensafe::keystore::mark_key;
        a.service.marks = std::make_shared<const mark_key>(mark_key::read(a.mark_key));
    }
    require<parameter_error>(
        a.service.allowed.mark_bytes == 0 || a.service.marks != nullptr,
        {"got --mark-memory without --mark-key, expected both: marks come from the key"});
    for (const auto& [name, file] : read_named("--pin", "FILE", a.pins)) {
        require<parameter_error>(adapters.contains(name) || !a.adapter_root.empty(),
                                 {"got --pin ", in_quotes(name), ", expected the name of an --adapter"});
        if (a.service.marks) {
            require<parameter_error>(
                a.service.allowed.mark_bytes > 0,
                {"got --pin and --mark-key without --mark-memory, expected all three: pins "
                 "of tenants say that each has an A of its own"});
            require<tensafe::io_error>(std::filesystem::is_directory(file),
                                       {in_quotes(file.native()),
                                        ": is no folder, expected one with the pin of each "
                                        "tenant, since there is --mark-key"});
        } else {
            static_cast<void>(tensafe::keystore::adapter_pin::read(file));  // said before anything is made
        }
        a.service.pins.emplace(name, file);
    }
    read_listen(a);
    for (const std::string& each : a.proxies) {
        const auto range = split::net::range_of(each);
        require<parameter_error>(range.has_value(), {"got --proxy ", in_quotes(each),
                                                     ", expected an address, or a network as 10.0.0.0/8"});
        a.net.proxies.push_back(*range);
    }
    const std::string who = read_clients(a, a.service.marks != nullptr);
    const auto root = split::open_adapter_source(a.adapter_root);
    boost::system::error_code none;  // an address that is none fails below
    const auto address = boost::asio::ip::make_address(a.net.address, none);
    check_pages(a, address.is_loopback());
    const std::optional<split::static_files> page = prepare_pages(a);
    a.service.to = split::log::to_descriptor(STDERR_FILENO);
    const split::opened_store store = split::open_store(a.store, a.anybody, a.service.to);
    require<parameter_error>(!store.adapters || (adapters.empty() && !a.adapter_root.empty()),
                             {"got --store with --adapter, or without --adapter-root, expected "
                              "--adapter-root: what several servers "
                              "serve is on a list in the store, see tensafe-admin load"});
    a.service.shared = store.counts;
    a.service.rates = store.rates;
    prepare_state(a.service.state);

    if (a.insecure_plaintext) {
        std::fprintf(stderr,
                     "tensafe-server: --insecure-plaintext: no TLS. Whoever is on the way sees and "
                     "changes what is sent\n");
    } else {
        const auto alone = tensafe::serving::lock_folder(a.service.state);
        a.net.secure = split::prepare_certificate(a.service.state, a.hosts);
    }
    for (std::size_t i = 0; i < split::share_options.size(); ++i) {
        const std::optional<double>& share = a.service.allowed.shares[i];
        const char* const event = share.value_or(0) > 1
                                      ? "share_above_all_of_it"  // 25 may be meant as percent
                                  : !share && i > 0 && a.service.addresses_are_tenants ? "no_limit_for_pages"
                                                                                       : nullptr;
        if (event != nullptr) {
            a.service.to.line(split::log_level::warning, event, {{"option", split::share_options[i]}});
        }
    }
    a.service.packing_threads = a.net.threads;
    split::service service(a.service);
    if (a.service.marks) {
        const std::string commitment = tensafe::keystore::hex(a.service.marks->commitment());
        service.to_log().line(split::log_level::info, "mark_key", {{"commitment", commitment}});
    }
    service.set_certificate_until(a.net.secure ? a.net.secure->not_after : 0);
    log_memory(service.to_log(), a);
    std::optional<split::listed_adapters> listed;
    if (store.adapters) {
        listed.emplace(service, *store.adapters, root);
    }
    split::admin admin(service, a.service.state, root, !a.insecure_plaintext || address.is_loopback(),
                       [] { static_cast<void>(::kill(::getpid(), SIGTERM)); });
    const auto answer = [&](const split::net::http_request& request) {
        if (page && (request.method == "GET" || request.method == "HEAD")) {
            if (auto file = page->find(request.target); file.status == 200) {
                return file;
            }
        }
        return admin.answer(request);
    };
    split::net::http_server server(a.net, {answer, std::bind_front(&split::service::connect, &service),
                                           std::bind_front(&split::service::connection_refused, &service),
                                           std::bind_front(&split::service::origin_refused, &service),
                                           std::bind_front(&split::service::take_connection, &service)});
    const auto allow_origins = [&](std::vector<std::string> origins) {
        if (page && origins.empty()) {  // without TLS: a browser gets here from this machine alone
            const std::string port = server.port() == 80 ? "" : ":" + std::to_string(server.port());
            origins = {"http://localhost" + port,
                       "http://" + (address.is_v6() ? "[" + a.net.address + "]" : a.net.address) + port};
        }
        server.allow_origins(std::move(origins));
    };
    allow_origins(a.origins);
    for (const auto& [name, folder] : adapters) {
        const auto read = [&service, of = name, from = folder, reads = std::make_shared<int>(0)] {
            return service.read_adapter(of, *split::any_folder(), from, (*reads)++ > 0);
        };
        service.loads().begin({name, read, true});
    }
    server.run();
    std::printf(
        "listening on %s://%s%s%s:%u%s, for %s\n", a.net.secure ? "wss" : "ws", address.is_v6() ? "[" : "",
        a.net.address.c_str(), address.is_v6() ? "]" : "", static_cast<unsigned>(server.port()),
        a.net.secure ? (", certificate SHA-256 " + a.net.secure->fingerprint).c_str() : "", who.c_str());
    static_cast<void>(std::fflush(stdout));
    service.to_log().line(
        split::log_level::info, "listening",
        {{"address", a.net.address}, {"port", std::uint64_t{server.port()}}, {"for", std::string_view(who)}});
    const auto reload = [&] {  // what may fail comes first: then all is as it was
        try {
            arguments fresh = read_again(service.to_log());
            const std::string now = read_clients(fresh, a.service.marks != nullptr);
            check_pages(fresh, address.is_loopback());
            require<parameter_error>(fresh.anybody == a.anybody && fresh.service.addresses_are_tenants ==
                                                                       a.service.addresses_are_tenants,
                                     {"got --anybody, or the first or no --origin, after a start with the "
                                      "other, expected a restart"});
            if (a.net.secure) {
                const auto files = split::prepare_certificate(a.service.state, fresh.hosts);
                server.use_certificate(files);
                a.net.secure = files;
                service.set_certificate_until(files.not_after);
            }
            allow_origins(fresh.origins);
            service.relist(std::move(fresh.service.clients));
            const bool is_closed = !fresh.anybody && now.ends_with("(0)");  // a list may be half written
            service.to_log().line(is_closed ? split::log_level::warning : split::log_level::info, "reloaded",
                                  {{"for", std::string_view(now)},
                                   {"origins", std::uint64_t{fresh.origins.size()}},
                                   {"certificate", a.net.secure ? a.net.secure->fingerprint : ""}});
        } catch (const std::exception& e) {
            service.to_log().line(split::log_level::error, "not_reloaded", {{"what", e.what()}});
        }
    };
    serve(service, server, signals, std::chrono::seconds(a.drain_delay_seconds),
          std::chrono::seconds(a.drain_seconds), reload);
    return 0;
}

/// Reads the command line and the file of --config.  @throws CLI::ParseError
void read_options(CLI::App& app, arguments& a, int argc, char** argv) {
    a.service.state = "tensafe_server_state";
    app.footer(footer);
    app.set_version_flag("--version", "tensafe-server " + tensafe::version().text());
    add_options(app, a);
    app.parse(argc, argv);
    a.has_limits_for_pages = app.count("--tenant-share") > 0 && app.count("--adapter-share") > 0;
}

}  // namespace

int main(int argc, char** argv) {
    arguments a;
    CLI::App app(description, "tensafe-server");
    const auto read_again = [&](const split::log& to) {
        arguments fresh;
        CLI::App again(description, "tensafe-server");
        read_options(again, fresh, argc, argv);
        for (const CLI::Option* const each : app.get_options()) {
            const std::string name = each->get_name();
            if (name != "--clients" && name != "--origin" && name != "--host" &&
                each->results() != again.get_option(name)->results()) {
                to.line(split::log_level::warning, "needs_restart", {{"option", name}});
            }
        }
        return fresh;
    };
    try {
        read_options(app, a, argc, argv);
        const split::limits& of = a.service.allowed;
        check_part(app, "--sessions-per-client", of.sessions_of_client, "--sessions", of.sessions);
        check_part(app, "--connections-per-address", a.net.connections_of_address, "--connections",
                   a.net.connections);
        for (std::size_t i = 1; i < of.shares.size(); ++i) {
            if (of.shares[i] && app.count(split::share_options[i]) > 0) {
                check_part(app, split::share_options[i - 1], of.shares[i - 1].value_or(0),
                           split::share_options[i], *of.shares[i]);
            }
        }
        return run(a, read_again);
    } catch (const CLI::ParseError& e) {
        return app.exit(e);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tensafe-server: %s\n", e.what());
        return 1;
    }
}
