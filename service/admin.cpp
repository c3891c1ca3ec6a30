#include "admin.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/json.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/serving/meter_json.hpp>

#include <nlohmann/json.hpp>
#include <openssl/crypto.h>

#include <algorithm>
#include <exception>
#include <span>
#include <system_error>
#include <utility>

#include "base64.hpp"
#include "client_list.hpp"
#include "fleet/listed_adapters.hpp"

namespace split {

namespace {

using json = nlohmann::ordered_json;
using net::http_response;

constexpr std::size_t token_digits = 64;
constexpr std::size_t most_waiting = 16;
const std::string clients = "/admin/clients/";
const std::string adapters = "/admin/adapters/";

http_response json_response(unsigned status, const json& body) {
    return {status, body.dump(2, ' ', false, json::error_handler_t::replace) + "\n", "application/json"};
}

http_response problem(unsigned status, const std::string& what) {
    return json_response(status, {{"error", what}});
}

std::string digest_of(std::string_view text) {
    return tensafe::keystore::hex(tensafe::keystore::sha256::of(std::as_bytes(std::span(text))));
}

std::string read_or_make_token(const std::filesystem::path& path) {
    if (!std::filesystem::exists(std::filesystem::symlink_status(path))) {
        tensafe::random::seed fresh = tensafe::random::fresh_seed();
        const std::string text = tensafe::keystore::hex(std::as_bytes(std::span(fresh.bytes))) + "\n";
        tensafe::memory::wipe(fresh);
        tensafe::io::create_private_file(path, std::as_bytes(std::span<const char>(text)));
    }
    const auto bytes = tensafe::io::read_private_file(path, token_digits + 1);
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!text.empty() && text.back() == '\n') {
        text.pop_back();
    }
    static_cast<void>(
        tensafe::keystore::from_hex<token_digits / 2>(text, tensafe::quote(path.string()) + ": token"));
    return text;
}

/// The name of an adapter or the key of a client that follows `prefix`, with no further slash in it but as
/// %2F.
std::string rest_of(const std::string& target, std::string_view prefix) {
    const std::string rest = target.starts_with(prefix) ? target.substr(prefix.size()) : std::string();
    const std::string name = rest.find_first_of("/?#") == rest.npos ? percent_decoded(rest).value_or("") : "";
    return is_adapter_name(name) ? name : std::string();
}

}  // namespace

admin::admin(service& of, const std::filesystem::path& state, std::shared_ptr<const adapter_source> from,
             bool token_stays_secret, std::function<void()> drain)
    : of_(of),
      from_(std::move(from)),
      token_stays_secret_(token_stays_secret),
      drain_(std::move(drain)),
      token_digest_(digest_of(read_or_make_token(state / "admin_token"))),
      metrics_digest_(digest_of(read_or_make_token(state / "metrics_token"))) {}

bool admin::is_allowed(const net::http_request& request) const {
    constexpr std::string_view scheme = "Bearer ";
    const std::string_view shown = request.authorization;
    // Digests have one length, and what a comparison of them tells is nothing of the token.
    const auto is = [&](const std::string& digest) {
        return CRYPTO_memcmp(digest_of(shown.substr(scheme.size())).data(), digest.data(), digest.size()) ==
               0;
    };
    return shown.starts_with(scheme) &&
           (is(token_digest_) || (request.target == "/metrics" && is(metrics_digest_)));
}

http_response admin::answer(const net::http_request& request) {
    const bool is_metrics = request.target == "/metrics";
    if ((is_metrics || request.target == "/healthz") && request.method != "GET" && request.method != "HEAD") {
        return problem(405, "expected GET");
    }
    if (request.target == "/healthz") {
        const std::string missing = of_.missing();
        return of_.leaving()      ? http_response{503, "draining\n"}
               : !missing.empty() ? http_response{503, "loading: " + missing + "\n"}
                                  : http_response{200, "ok\n"};
    }
    if (!is_metrics && request.target.compare(0, 7, "/admin/") != 0) {
        return problem(404, "there is /healthz, /metrics, /v1/split and /admin/");
    }
    if (!token_stays_secret_) {
        return problem(
            403, "the token would go in the clear: expected a server with TLS, or at a loopback address");
    }
    if (!is_allowed(request)) {
        if (of_.take_handshake(request.address).count() > 0) {
            return problem(429, "too many attempts of this address");
        }
        of_.to_log().line(log_level::warning, "admin_refused", {{"address", request.address}},
                          request.address);
        return problem(
            401,
            "expected the header Authorization: Bearer, with the token of the file admin_token, or "
            "for /metrics of metrics_token");
    }
    if (is_metrics) {
        return {200, of_.metrics_text(), "text/plain; version=0.0.4; charset=utf-8"};
    }
    if (request.body_follows && (request.method == "PUT" || request.method == "POST") &&
        !rest_of(request.target, adapters).empty()) {
        return {100, {}};  // what follows is wanted
    }
    try {
        return administer(request);
    } catch (const tensafe::serving::unavailable_error& e) {
        return problem(503, e.what());
    } catch (const tensafe::error& e) {
        return problem(400, e.what());
    }
}

http_response admin::administer(const net::http_request& request) {
    const std::string name = rest_of(request.target, adapters);
    const std::string client = rest_of(request.target, clients);
    const bool is_get = request.method == "GET";
    // Not the target: whoever mistypes may have put a key or the token into it.
    const std::string_view route = is_get && request.target == "/admin/adapters" ? "adapters"
                                   : is_get && request.target == "/admin/usage"  ? "usage"
                                   : request.target == "/admin/drain"            ? "drain"
                                   : !name.empty()                               ? "adapters/NAME"
                                   : !client.empty()                             ? "clients/KEY"
                                                                                 : "none";
    of_.to_log().line(log_level::info, "admin",
                      {{"method", request.method}, {"route", route}, {"address", request.address}});
    if (route == "adapters") {
        return list();
    }
    if (route == "usage") {
        return {200, tensafe::serving::meter_json(of_.used().snapshot(), 2) + "\n", "application/json"};
    }
    if (route == "drain") {
        if (request.method != "PUT") {
            return problem(405, "expected PUT");
        }
        if (!drained_.exchange(true)) {  // a second signal would cut what is under way
            drain_();
        }
        return json_response(202, {{"state", "draining"}});
    }
    if (!name.empty()) {
        if (request.method == "PUT") {
            return begin_load(name, request.body);
        }
        if (request.method == "POST") {
            return give_back(name, request);
        }
        return request.method == "DELETE" ? remove(name) : problem(405, "expected PUT, POST or DELETE");
    }
    if (!client.empty()) {
        if (request.method != "DELETE") {
            return problem(405, "expected DELETE");
        }
        static_cast<void>(tensafe::keystore::from_hex<32>(client, "client"));
        return json_response(200, {{"client", client}, {"sessions", of_.forget(client)}});
    }
    return problem(404, "there is adapters, adapters/NAME, clients/KEY, drain and usage");
}

http_response admin::list() const {
    // Before the adapters: what is loaded meanwhile stands in one of both.
    json loading = json::array();
    for (const adapter_load& each : of_.loads().loads()) {
        loading.push_back(
            {{"name", each.name}, {"state", to_string(each.at)}, {"done", each.done}, {"total", each.total}});
        if (!each.failure.empty()) {
            loading.back()["error"] = each.failure;
        }
    }
    json adapters_told = json::array();
    auto sessions = of_.sessions().count_by_version();
    for (const auto& each : of_.adapters().served()) {
        const auto used = of_.used_share(each->name);
        adapters_told.push_back({{"name", each->name},
                                 {"version", each->version},
                                 {"state", "ready"},
                                 {"bytes", each->bytes},
                                 {"used", used ? json(*used) : json()},
                                 {"sessions", sessions[{each->name, each->version}]}});
        sessions.erase({each->name, each->version});
    }
    for (const auto& [version, count] : sessions) {  // replaced or removed, and in memory still
        adapters_told.push_back({{"name", version.first},
                                 {"version", version.second},
                                 {"state", "retired"},
                                 {"sessions", count}});
    }
    return json_response(200, {{"state", of_.leaving() ? "draining" : "serving"},
                               {"limits", of_.limits_text()},
                               {"adapters", adapters_told},
                               {"loading", loading}});
}

http_response admin::begin_load(const std::string& name, const std::string& body) {
    const auto asked = tensafe::io::parse_strict_json(body, "body", 8);
    const auto* const member = asked.items.size() == 1 ? asked.find("directory") : nullptr;
    if (member == nullptr || !member->is_string()) {
        return problem(400, "expected {\"directory\": \"...\"}");
    }
    if (of_.leaving()) {
        return problem(503, "this server stops");
    }
    const std::string& directory = member->text;
    if (of_.listed() != nullptr) {
        of_.listed()->put(name, directory);
        return json_response(202, {{"name", name}, {"state", "waiting"}});
    }
    from_->check(directory);  // said at once
    const auto read = [&service = of_, name, from = from_, directory] {
        return service.read_adapter(name, *from, directory);
    };
    switch (of_.loads().begin({name, read}, most_waiting)) {
        case adapter_loader::outcome::waiting:
            return problem(409, tensafe::quote(name) + " is waiting already");
        case adapter_loader::outcome::begun:
            return problem(409, tensafe::quote(name) + " is packing already");
        case adapter_loader::outcome::full:
            return problem(429, "too many adapters wait to be loaded");
        default:
            return json_response(202, {{"name", name}, {"state", "waiting"}});
    }
}

/// Answers of each input that crashes counted and nobody got, in one row. With 0 it only says what counts.
http_response admin::give_back(const std::string& name, const net::http_request& request) {
    const auto asked = tensafe::io::parse_strict_json(request.body, "body", 8);
    asked.check_members(2, "body");
    const std::uint64_t answers = asked.at("answers", "body").checked_count("answers");
    const std::string whose = asked.at("of", "body").checked_string("of");
    const auto model = of_.adapters().find(name);
    if (!model) {
        return problem(404, "no adapter has the name " + tensafe::quote(name));
    }
    constexpr std::array<std::string_view, 3> scopes{"client=", "tenant=", "all"};
    const auto kind = std::ranges::find_if(scopes, [&](auto each) { return whose.starts_with(each); });
    const std::string who = kind == scopes.end() ? "" : whose.substr(kind->size());
    const auto row = static_cast<std::size_t>(kind - scopes.begin());
    if (who.empty() != (row == 2)) {
        return problem(400, "of: got " + tensafe::quote(whose) + ", expected client=KEY, tenant=NAME or all");
    }
    if (row == 0) {
        static_cast<void>(tensafe::keystore::from_hex<32>(who, "of: client"));
    }
    const auto account = of_.counts().account_of(who, who, model->counted_as);
    std::uint64_t most = 0;
    std::vector<std::uint64_t> bits;
    for (std::size_t group = 0; group < model->groups.size(); ++group) {
        const std::uint64_t one = model->groups[group].request;
        most = std::max(most, of_.counts().used(account, group, false)[row] / one);
        bits.push_back(answers * one);
    }
    tensafe::require<tensafe::parameter_error>(
        answers <= most, {"answers: got ", answers, ", expected at most the ", most, " that count"});
    if (answers > 0) {
        static_cast<void>(of_.counts().give_back(account[row], std::move(bits)));
        of_.to_log().line(log_level::warning, "answers_given_back",
                          {{"adapter", name},
                           {"of", row == 0 ? std::string_view(whose).substr(0, 15) : std::string_view(whose)},
                           {"answers", answers},
                           {"address", request.address}});
    }
    return json_response(
        200, {{"adapter", name}, {"of", whose}, {"given_back", answers}, {"counted", most - answers}});
}

http_response admin::remove(const std::string& name) {
    const auto remove_listed = [&] {
        return of_.listed()->remove(name) ? adapter_loader::outcome::done : adapter_loader::outcome::unknown;
    };
    switch (of_.listed() != nullptr ? remove_listed() : of_.loads().remove(name)) {
        case adapter_loader::outcome::begun:
            return problem(409, tensafe::quote(name) + " is packing: remove it when that is done");
        case adapter_loader::outcome::unknown:
            return problem(404, "no adapter has the name " + tensafe::quote(name));
        default:
            of_.to_log().line(log_level::info, "adapter_removed", {{"adapter", name}});
            return json_response(200, {{"name", name}, {"state", "removed"}});
    }
}

}  // namespace split
