#include "service.hpp"

#include <tensafe/core/portable.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/io/file.hpp>
#include <tensafe/keystore/mark_key.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/memory/retained_blocks.hpp>

#include <algorithm>
#include <span>
#include <utility>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "fleet/listed_adapters.hpp"
#include "session_protocol.hpp"

namespace split {

namespace {

/// Twice what an address may hold, so that it can begin again, and in 20 minutes as much again.
double unused_bytes(const limits& of) {
    return std::max(2 * static_cast<double>(of.block_bytes_of_address()), 1e6);
}

}  // namespace

service::service(service_options options)
    : options_(std::move(options)),
      adapters_(options_.allowed, options_.pins, options_.shared != nullptr, options_.marks),
      sessions_(options_.allowed),
      // Without a list of clients anybody makes keys: made-up ones must not take the room of others.
      counts_(options_.state,
              options_.clients ? query_counts::when_full::refuse : query_counts::when_full::evict,
              options_.shared.get()),
      requests_(options_.allowed.requests_per_second, options_.allowed.requests_per_second),
      work_(options_.allowed.work_per_second, options_.allowed.work_per_second),
      handshakes_(options_.allowed.handshakes_per_second, options_.allowed.handshakes_at_once),
      connections_(2 * options_.allowed.handshakes_per_second, 2 * options_.allowed.handshakes_at_once),
      blocks_(unused_bytes(options_.allowed) / 1200, unused_bytes(options_.allowed)),
      repeated_(static_cast<double>(options_.allowed.repeated_bytes) / 60,
                static_cast<double>(options_.allowed.repeated_bytes)),
      loads_(adapters_, options_.to, options_.packing_threads) {
    tensafe::io::remove_partial_files(
        options_.state, {"admin_token", "metrics_token", "certificate.pem", "certificate_key.pem.new"});
}

std::unique_ptr<net::websocket_handler> service::connect(const net::caller& from,
                                                         std::weak_ptr<net::connection_control> control) {
    const std::uint64_t number = ++connections_made_;
    options_.to.line(log_level::info, "connected",
                     {{"connection", number},
                      {"address", from.address},
                      {"unique_id", from.unique_id},
                      {"traceparent", from.traceparent}},
                     from.address);
    return std::make_unique<session_protocol>(*this, from, std::move(control), number);
}

bool service::take_connection(const std::string& address) {
    return connections_.take(limited_address(address), options_.now()).count() == 0;
}

bool service::take_block(const std::string& payer, std::size_t bytes) {
    const bool may = blocks_.take(payer, options_.now()).count() == 0;
    blocks_.pay(payer, may ? static_cast<double>(bytes) : 0, options_.now());
    return may;
}

void service::connection_refused(const std::string& address) {
    ++counters_.connections_refused;
    options_.to.line(log_level::warning, "connection_refused", {{"address", address}}, address);
}

void service::expire_sessions() {
    const std::size_t expired = sessions_.expire(options_.now(), adapters_);
    if (expired > 0) {
        options_.to.line(log_level::info, "sessions_expired", {{"count", std::uint64_t{expired}}});
    }
    // Each time: one may have said hello while the list was replaced.
    const std::size_t unlisted =
        sessions_.end_all([&](const session& s) { return tenant_of(s.client, s.address) != s.tenant; },
                          "the list of clients was changed");
    if (unlisted > 0) {
        options_.to.line(log_level::info, "sessions_unlisted", {{"count", std::uint64_t{unlisted}}});
    }
    pooled_ = sessions_.pool_size();
    const std::array<std::pair<const char*, rate_limiter*>, 6> rates{{{"requests", &requests_},
                                                                      {"work", &work_},
                                                                      {"handshakes", &handshakes_},
                                                                      {"connections", &connections_},
                                                                      {"blocks", &blocks_},
                                                                      {"repeated", &repeated_}}};
    for (const auto& [limit, each] : rates) {
        try {
            if (options_.rates) {
                each->share(options_.rates, limit, options_.now());
            }
        } catch (const tensafe::error&) {
            // The store is away, which it logs itself: until it is back this server has rates of its own.
        }
        each->sweep(options_.now());
    }
#ifdef __GLIBC__
    if (options_.now() >= trims_at_) {  // what a crowd took in small pieces; a millisecond
        trims_at_ = options_.now() + std::chrono::seconds(5);
        using kept = tensafe::memory::retained_blocks;
        kept::shared().limit(kept::most_bytes);  // gives all back
        ::malloc_trim(0);
    }
#endif
}

void service::origin_refused(const std::string& origin, const std::string& address) {
    ++counters_.connections_refused;
    options_.to.line(log_level::warning, "origin_refused",
                     {{"origin", std::string_view(origin).substr(0, 200)}, {"address", address}}, address);
}

std::optional<client_tenant> service::tenant_of(std::string_view client, const std::string& address) const {
    if (options_.addresses_are_tenants) {
        return client_tenant{"address " + address};  // a space, which no tenant's name has
    }
    const std::lock_guard lock(list_mutex_);
    if (!options_.clients) {
        return client_tenant();
    }
    const auto known = options_.clients->find(client);
    return known == options_.clients->end() ? std::nullopt : std::optional(known->second);
}

query_counts::account service::account_of(const session& of, const served_model& model) const {
    auto rows = counts_.account_of(of.client, of.tenant.name, model.counted_as);
    if (of.tenant.share) {
        rows[2] = rows[1];
    }
    return rows;
}

void service::relist(std::optional<client_list> clients) {
    const std::lock_guard lock(list_mutex_);
    options_.clients = std::move(clients);
}

std::string service::limits_text() const {
    std::string text;
    for (std::size_t i = 0; i < share_options.size(); ++i) {
        text.append(share_options[i]).append(" " + text_of_share(options_.allowed.shares[i])).append(", ");
    }
    if (options_.shared) {  // who has another key counts elsewhere
        const auto fleet = tensafe::keystore::hmac_sha256(options_.shared->key(), "tensafe fleet");
        text.append("--fleet-key with the hash ")
            .append(tensafe::keystore::hex(fleet).substr(0, 16))
            .append(", ");
    }
    for (const auto& signer : options_.signers) {
        text.append("--signer ").append(signer.hex().substr(0, 16)).append(", ");
    }
    if (options_.marks) {
        const std::string commitment = tensafe::keystore::hex(options_.marks->commitment());
        text.append("--mark-key ").append(commitment.substr(0, 16)).append(", ");
        text.append(options_.allowed.mark_bytes > 0 ? "--mark-memory, " : "");
    }
    const std::lock_guard lock(list_mutex_);
    if (!options_.clients) {
        return text + "--anybody";
    }
    tensafe::keystore::sha256 hash;
    for (const auto& [key, tenant] : *options_.clients) {
        const std::string share = tenant.share ? " " + text_of_share(*tenant.share) : "";
        const std::string line = key + " " + tenant.name + share + "\n";
        hash.update(std::as_bytes(std::span(line)));
    }
    return text + "--clients with the hash " + tensafe::keystore::hex(hash.finish()).substr(0, 16);
}

std::optional<double> service::used_share(std::string_view adapter) const {
    constexpr auto of_adapter = static_cast<std::size_t>(scope::adapter);
    const auto model = adapters_.find(adapter);
    const query_counts::account rows = counts_.account_of({}, {}, model ? model->counted_as : "");
    std::optional<double> most;
    for (std::size_t group = 0; model && group < model->groups.size(); ++group) {
        if (const auto limit = model->groups[group].limits[of_adapter]) {
            const auto used = static_cast<double>(counts_.used(rows, group)[of_adapter]);
            most = std::max(most.value_or(0), used / static_cast<double>(*limit));
        }
    }
    return most;
}

std::chrono::milliseconds service::take_handshake(const std::string& address) {
    return handshakes_.take(limited_address(address), options_.now());
}

std::size_t service::forget(std::string_view client, std::size_t ended) {
    const std::size_t sessions =
        ended +
        sessions_.end_all([&](const session& s) { return s.client == client; }, "this client was forgotten");
    static_cast<void>(used_.forget_client(client));
    options_.to.line(log_level::info, "client_forgotten",
                     {{"client", prefix_of(client)}, {"sessions", std::uint64_t{sessions}}});
    return sessions;
}

tensafe::lora::adapter service::read_adapter(std::string_view name, const adapter_source& from,
                                             const std::string& directory, bool is_known) const {
    const tensafe::keystore::signature_policy policy{.trusted = options_.signers, .name = std::string(name)};
    auto read = from.read(directory, options_.signers.empty() ? nullptr : &policy, draining_.get_token());
    for (const std::string& note : read.notes) {  // whose names are quoted and cut
        if (!is_known) {
            options_.to.line(log_level::info, "adapter_note", {{"adapter", name}, {"what", note}});
        }
    }
    return read;
}

std::string service::missing() const {
    const auto [done, all, failure] = loads_.at_start();
    return done < all           ? tensafe::text_of({done, " of ", all, " adapters are served"})
           : listed_ != nullptr ? listed_->missing()
                                : std::string();
}

std::string service::metrics_text() const {
    service_figures now{sessions_.size(), sessions_.pool_size(), sessions_.block_bytes(), !missing().empty(),
                        leaving(),        options_.to.lost()};
    now.marked = adapters_.marked();
    for (const auto& each : adapters_.served()) {
        now.adapters.push_back({each->name, each->version, used_share(each->name)});
    }
    std::string text = counters_.text(used_.snapshot(), now);
    if (options_.shared) {
        text +=
            tensafe::text_of({"# HELP tensafe_store_up 1 while the store of several servers can be asked.\n"
                              "# TYPE tensafe_store_up gauge\ntensafe_store_up ",
                              options_.shared->is_up() ? 1 : 0, "\n"});
    }
    return text;
}

}  // namespace split
