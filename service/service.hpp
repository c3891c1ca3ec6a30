#pragma once

#include <tensafe/keystore/ed25519.hpp>
#include <tensafe/lora/adapter/adapter.hpp>
#include <tensafe/lora/model/model_layout.hpp>
#include <tensafe/serving/file_store.hpp>
#include <tensafe/serving/meter.hpp>
#include <tensafe/serving/shared_counts.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "adapter_loader.hpp"
#include "adapter_source.hpp"
#include "client_list.hpp"
#include "limits.hpp"
#include "log.hpp"
#include "metrics.hpp"
#include "model_store.hpp"
#include "net/connection.hpp"
#include "session_table.hpp"

namespace split {

using tensafe::serving::query_counts;

struct service_options {
    limits allowed;
    clock_function now = std::chrono::steady_clock::now;
    /// A folder of this server alone: usage counts and their key.
    std::filesystem::path state;
    /// What it counts in together with other servers. Null: it counts alone.
    std::shared_ptr<tensafe::serving::shared_counts> shared;
    shared_buckets rates;  ///< that it has together with them; null: its own alone
    /// Who may open sessions. Nothing: anybody.
    std::optional<client_list> clients;
    /// The clients of an address are one tenant: of pages, whose keys are new with each visit.
    bool addresses_are_tenants = false;
    pin_files pins;  ///< of adapters, which welcome shows
    /// Of whom one must have signed an adapter, under its name; none: whoever writes there chooses.
    std::vector<tensafe::keystore::verifying_key> signers;
    /// Of marks, by which what a client holds names its tenant; with a list of clients, and without pins,
    /// which say that all hold the same. Null: they do.
    marking_key marks;
    log to;
    std::size_t packing_threads = 1;  ///< threads that load adapters
};

class listed_adapters;

/// What all connections of a server share: the adapters, the sessions, the limits and the counters. Has no
/// socket, and cannot hold a secret key or a hidden state: no type here can.
///
/// Thread-safe. Must outlive its connections.
class service {
  public:
    /// @throws as query_counts
    explicit service(service_options options);
    service(const service&) = delete;
    service& operator=(const service&) = delete;

    /// One side of a connection that just began; never null. Its calls come one at a time.
    /// @param from  by whose address handshakes are limited
    std::unique_ptr<net::websocket_handler> connect(const net::caller& from,
                                                    std::weak_ptr<net::connection_control> control);

    /// Takes one of the connections of this address: as many in a time as handshakes, and as many again.
    bool take_connection(const std::string& address);
    /// A connection of this address was closed, as it came or for another one. It is counted and logged.
    void connection_refused(const std::string& address);
    /// A page of another origin, which is text of a stranger, wanted a session.
    void origin_refused(const std::string& origin, const std::string& address);

    /// Who takes turns, and prepares blocks: where anybody comes and makes keys, the address.
    const std::string& payer(const std::string& client, const std::string& address) const noexcept {
        return has_list_ ? client : address;
    }
    /// Whether a payer may prepare a block of so many bytes beyond those that it used; then that is taken.
    bool take_block(const std::string& payer, std::size_t bytes);

    /// From now on /healthz says that this server drains, so that a balancer sends newcomers elsewhere. Who
    /// comes all the same is served.
    void leave() noexcept { leaving_ = true; }
    bool leaving() const noexcept { return leaving_ || draining(); }
    /// From now on nothing begins: hello and resume are refused.
    void drain() noexcept { draining_.request_stop(); }
    bool draining() const noexcept { return draining_.stop_requested(); }

    /// To be called every second or so: sessions that waited too long are dropped, those of clients that are
    /// on the list no more or with another tenant or share, and names whose rates count nothing any more.
    /// Rates are shared.
    void expire_sessions();
    /// Who may open sessions from now on. Not for a service without a list, nor nothing for one with it.
    void relist(std::optional<client_list> clients);
    /// The tenant of a client that comes from this limited_address; nothing: it may not come.
    std::optional<client_tenant> tenant_of(std::string_view client, const std::string& address) const;
    /// The rows that a session's requests count in: with a share of its own they do not use up the adapter's.
    query_counts::account account_of(const session& of, const served_model& model) const;
    /// Takes one of the handshakes of this address.
    /// @return as rate_limiter::take
    std::chrono::milliseconds take_handshake(const std::string& address);
    /// Drops a client's sessions and its name; what it used of its query limits stays, and its name in the
    /// rate limit until that is full again.
    /// @param ended  sessions of it that are over already, for the log
    /// @return how many there were
    std::size_t forget(std::string_view client, std::size_t ended = 0);

    /// The limits that all servers of a fleet should have alike, and who may come, by a hash: for people.
    std::string limits_text() const;
    /// The largest used-up part of an input's limit over all clients of this adapter; nothing: it has none.
    std::optional<double> used_share(std::string_view adapter) const;

    /// When the certificate expires that newcomers are shown, in seconds since 1970: for metrics.
    void set_certificate_until(std::int64_t when) noexcept { counters_.certificate_until = when; }
    /// The adapters are those of a list from now on; null: not any more. Not while connections come and go.
    void use_list(listed_adapters* of_several) noexcept { listed_ = of_several; }
    listed_adapters* listed() const noexcept { return listed_; }
    /// What this server should serve and does not yet, for people: nobody should be sent here. Empty:
    /// nothing.
    std::string missing() const;

    /// The page for Prometheus.
    std::string metrics_text() const;

    /// Reads an adapter, unless this server drains before, and logs what is left out of it unless it is
    /// known.
    /// @throws as adapter_source::read
    tensafe::lora::adapter read_adapter(std::string_view name, const adapter_source& from,
                                        const std::string& directory, bool is_known = false) const;

    model_store& adapters() noexcept { return adapters_; }
    adapter_loader& loads() noexcept { return loads_; }
    query_counts& counts() noexcept { return counts_; }
    tensafe::serving::meter& used() noexcept { return used_; }
    const log& to_log() const noexcept { return options_.to; }
    bool addresses_are_tenants() const noexcept { return options_.addresses_are_tenants; }
    const session_table& sessions() const noexcept { return sessions_; }

  private:
    friend class session_protocol;

    service_options options_;
    const bool has_list_ = options_.clients.has_value();  ///< of clients, whatever it is replaced with
    mutable std::mutex list_mutex_;                       ///< of options_.clients
    model_store adapters_;
    session_table sessions_;
    query_counts counts_;
    rate_limiter requests_;
    rate_limiter work_;
    rate_limiter handshakes_;
    rate_limiter connections_;
    rate_limiter blocks_;    ///< bytes of tokens that were prepared and not answered
    rate_limiter repeated_;  ///< bytes, by address
    tensafe::serving::meter used_;
    metrics counters_;
    time_point trims_at_{};
    std::atomic<bool> leaving_{false};
    std::stop_source draining_;
    std::atomic<std::uint64_t> connections_made_{0};
    std::atomic<std::size_t> pooled_{0};  ///< as of the last look, and what was made and taken since
    std::atomic<std::size_t> busy_{0};    ///< requests being answered
    listed_adapters* listed_ = nullptr;
    adapter_loader loads_;  ///< goes first: it uses the rest
};

}  // namespace split
