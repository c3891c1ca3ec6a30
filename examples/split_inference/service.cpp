#include "service.hpp"

#include <utility>

#include "conversation.hpp"

namespace split {

service::service(service_options options)
    : options_(std::move(options)),
      adapters_(options_.cache,
                [this](const std::string& what) {
                    options_.to.line(log_level::warning, "cache_problem", {{"what", what}});
                }),
      sessions_(options_.allowed),
      counts_(options_.state),
      requests_(options_.allowed.requests_per_second, options_.allowed.requests_per_second),
      handshakes_(options_.allowed.handshakes_per_second, options_.allowed.handshakes_at_once) {}

std::unique_ptr<net::websocket_handler> service::converse(const std::string& address,
                                                          std::shared_ptr<net::connection_control> control) {
    return std::make_unique<conversation>(*this, address, std::move(control), ++connections_made_);
}

void service::expire_sessions() {
    const std::size_t expired = sessions_.expire(options_.now());
    if (expired > 0) {
        options_.to.line(log_level::info, "sessions_expired", {{"count", std::uint64_t{expired}}});
    }
    zeros_ahead_ = sessions_.zeros_stored();
}

std::size_t service::forget(std::string_view client, std::uint64_t but_for) {
    const std::size_t sessions = sessions_.forget(client, but_for);
    static_cast<void>(used_.forget_client(client));
    requests_.forget(client);
    options_.to.line(log_level::info, "client_forgotten",
                     {{"client", prefix_of(client)}, {"sessions", std::uint64_t{sessions}}});
    return sessions;
}

std::string service::metrics_text() const {
    return counters_.text(used_.snapshot(), sessions_.size(), sessions_.zeros_stored(), draining_);
}

}  // namespace split
