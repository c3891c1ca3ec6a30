#include "redis.hpp"

#include <tensafe/core/text.hpp>

#include <algorithm>
#include <hiredis/hiredis.h>
#include <sys/time.h>
#if TENSAFE_REDIS_TLS
#include <openssl/ssl.h>

#include <hiredis/hiredis_ssl.h>
#endif

namespace split {

namespace {

using tensafe::in_quotes;
using tensafe::number_of;
using tensafe::require;

/// The text before a separator, which is taken off with it; all, if there is none.
std::string_view take_until(std::string_view& text, char separator) {
    const std::size_t end = std::min(text.find(separator), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return part;
}

std::string_view reply_text(const redisReply& of) {
    return of.str == nullptr ? std::string_view() : std::string_view(of.str, of.len);
}

}  // namespace

redis_address redis_address::parse(std::string_view text) {
    const auto check = [](bool holds) {  // the text may have a password
        require<tensafe::parameter_error>(
            holds, {"--store: expected redis://[USER@]HOST:PORT[/DATABASE], rediss:// for TLS, or "
                    "sentinel://[USER@]HOST:PORT,HOST:PORT/MASTER[/DATABASE]; the password is in "
                    "--store-password-file"});
    };
    const std::size_t colon = text.find("://");
    check(colon != text.npos);
    const std::string_view scheme = text.substr(0, colon);
    text.remove_prefix(colon + 3);
    redis_address result;
    result.is_secure = scheme == "rediss";
    const bool has_sentinels = scheme == "sentinel";
    check(has_sentinels || result.is_secure || scheme == "redis");
    std::string_view hosts = take_until(text, '/');
    if (const std::size_t at = hosts.find('@'); at != hosts.npos) {
        result.user = hosts.substr(0, at);
        hosts.remove_prefix(at + 1);
        check(!result.user.empty() && result.user.find(':') == std::string::npos);
    }
    if (has_sentinels) {
        result.master = take_until(text, '/');
        check(!result.master.empty());
    }
    if (!text.empty()) {
        const auto database = number_of<int>(text);
        check(database && *database >= 0);
        result.database = *database;
    }
    check(!hosts.ends_with(','));
    do {
        const std::string_view one = take_until(hosts, ',');
        const std::size_t end = one.rfind(':');
        check(end != one.npos);
        std::string_view host = one.substr(0, end);
        const bool has_brackets = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
        host = has_brackets ? host.substr(1, host.size() - 2) : host;
        const auto port = number_of<std::uint16_t>(one.substr(end + 1));
        check(!host.empty() && (has_brackets || host.find(':') == host.npos) && port && *port > 0);
        result.hosts.emplace_back(host, *port);
    } while (!hosts.empty());
    check(has_sentinels || result.hosts.size() == 1);
#if !TENSAFE_REDIS_TLS
    require<tensafe::unsupported_error>(!result.is_secure,
                                        {"--store: got rediss://, expected redis:// or sentinel://: TLS "
                                         "needs a build with hiredis 1.0 or later "
                                         "and its hiredis_ssl"});
#endif
    return result;
}

void redis_deleter::operator()(redisContext* of) const noexcept {
    redisFree(of);
}
void redis_deleter::operator()(redisReply* of) const noexcept {
    freeReplyObject(of);
}

redis_connection::redis_connection(const redis_address& to, std::chrono::milliseconds limit) {
    if (to.master.empty()) {
        open(to.hosts.front().first, to.hosts.front().second, to.is_secure, limit);
    } else {
        find_master(to, limit);
    }
    if (!to.password.empty()) {
        std::vector<std::string> login{"AUTH", to.user, to.password};
        if (to.user.empty()) {
            login.erase(login.begin() + 1);
        }
        command(login);
    }
    if (to.database != 0) {
        command({"SELECT", std::to_string(to.database)});
    }
    const auto role = command({"ROLE"});
    require<redis_error>(role->elements > 0 && reply_text(*role->element[0]) == "master",
                         {"the store is a replica, expected its master"});
    const auto info = command({"INFO"});
    std::string_view policy = reply_text(*info);
    policy.remove_prefix(std::min(policy.find("maxmemory_policy:"), policy.size()));
    take_until(policy, ':');
    policy = take_until(policy, '\r');
    require<redis_error>(policy == "noeviction", {"the store has the maxmemory-policy ", in_quotes(policy),
                                                  ", expected noeviction: it would forget counts"});
}

void redis_connection::open(const std::string& host, std::uint16_t port, [[maybe_unused]] bool is_secure,
                            std::chrono::milliseconds limit) {
    const timeval time{limit.count() / 1000, limit.count() % 1000 * 1000};
    context_.reset(redisConnectWithTimeout(host.c_str(), port, time));
    require<redis_error>(
        context_ && context_->err == 0 && redisSetTimeout(context_.get(), time) == REDIS_OK,
        {"cannot connect to ", in_quotes(host), ":", port, ": ", context_ ? context_->errstr : "no memory"});
#if TENSAFE_REDIS_TLS
    if (is_secure) {  // hiredis itself does not look whose certificate it is
        const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> how(SSL_CTX_new(TLS_client_method()),
                                                                    SSL_CTX_free);
        std::unique_ptr<SSL, decltype(&SSL_free)> tls(how ? SSL_new(how.get()) : nullptr, SSL_free);
        require<redis_error>(tls && SSL_CTX_set_default_verify_paths(how.get()) == 1 &&
                                 SSL_set1_host(tls.get(), host.c_str()) == 1 &&
                                 SSL_set_tlsext_host_name(tls.get(), host.c_str()) == 1,
                             {"cannot prepare TLS for the store"});
        SSL_set_verify(tls.get(), SSL_VERIFY_PEER, nullptr);
        require<redis_error>(redisInitiateSSL(context_.get(), tls.get()) == REDIS_OK,
                             {"cannot speak TLS with ", in_quotes(host), ":", port, ": ", context_->errstr});
        static_cast<void>(tls.release());  // it is the connection's now
    }
#endif
}

/// The first sentinel that answers is believed: who it names must say itself that it is one.
void redis_connection::find_master(const redis_address& to, std::chrono::milliseconds limit) {
    std::string problem;
    for (const auto& [host, port] : to.hosts) {
        try {
            open(host, port, false, limit);
            const auto said = command({"SENTINEL", "get-master-addr-by-name", to.master});
            require<redis_error>(said->elements == 2, {"sentinel ", in_quotes(host), ":", port,
                                                       " knows no master ", in_quotes(to.master)});
            const auto at = number_of<std::uint16_t>(reply_text(*said->element[1]));
            return open(std::string(reply_text(*said->element[0])), at.value_or(0), false, limit);
        } catch (const redis_error& e) {
            problem = e.what();
        }
    }
    throw redis_error(problem);
}

redis_reply redis_connection::command(const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> lengths;
    for (const std::string& each : words) {
        texts.push_back(each.data());
        lengths.push_back(each.size());
    }
    redis_reply said(static_cast<redisReply*>(
        redisCommandArgv(context_.get(), static_cast<int>(words.size()), texts.data(), lengths.data())));
    require<redis_error>(said != nullptr, {words.front(), ": no reply of the store: ", context_->errstr});
    require<redis_refusal>(said->type != REDIS_REPLY_ERROR,
                           {words.front(), ": the store refuses: ", in_quotes(reply_text(*said))});
    return said;
}

}  // namespace split
