#include "session_table.hpp"

#include <tensafe/keystore/hex.hpp>
#include <tensafe/random/entropy.hpp>

#include <openssl/crypto.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "model_shelf.hpp"

namespace split {

namespace {

template <std::size_t Bytes>
std::array<std::byte, Bytes> random_bytes() {
    std::array<std::uint8_t, Bytes> drawn{};
    tensafe::random::os_entropy(drawn);
    std::array<std::byte, Bytes> result{};
    std::transform(drawn.begin(), drawn.end(), result.begin(), [](std::uint8_t x) { return std::byte{x}; });
    return result;
}

}  // namespace

bool session_table::is_over(const entry& e, time_point now) const noexcept {
    return e.connection == 0 && now - e.lost >= limits_.session_life;
}

session_table::entries::iterator session_table::oldest_lost_of(std::string_view client, bool anybody) {
    auto oldest = entries_.end();
    for (auto each = entries_.begin(); each != entries_.end(); ++each) {
        if (each->second.connection == 0 && (anybody || each->second.of->client == client) &&
            (oldest == entries_.end() || each->second.lost < oldest->second.lost)) {
            oldest = each;
        }
    }
    return oldest;
}

std::optional<session_table::opened> session_table::open(session made, std::uint64_t connection,
                                                         control holder, time_point now) {
    const auto id = random_bytes<16>();
    made.id = tensafe::keystore::hex(id);
    const auto of = std::make_shared<const session>(std::move(made));
    entry added{of, random_bytes<32>(), 1, connection, std::move(holder), now};
    const opened result{of, added.token, 1};
    std::shared_ptr<const session> dropped;  // given back outside the lock
    const std::lock_guard lock(mutex_);
    const auto of_client =
        static_cast<std::size_t>(std::count_if(entries_.begin(), entries_.end(), [&](const auto& each) {
            return each.second.of->client == of->client;
        }));
    if (of_client >= limits_.sessions_of_client || entries_.size() >= limits_.sessions) {
        const auto oldest = oldest_lost_of(of->client, of_client < limits_.sessions_of_client);
        if (oldest == entries_.end()) {
            return std::nullopt;
        }
        dropped = oldest->second.of;
        entries_.erase(oldest);
    }
    entries_.emplace(of->id, std::move(added));
    return result;
}

std::optional<session_table::opened> session_table::resume(const session_id& id, const resume_token& token,
                                                           std::uint64_t connection, control holder,
                                                           time_point now) {
    const resume_token fresh = random_bytes<32>();
    control before;
    opened result;
    {
        const std::lock_guard lock(mutex_);
        const auto found = entries_.find(tensafe::keystore::hex(id));
        if (found == entries_.end() || is_over(found->second, now) ||
            CRYPTO_memcmp(found->second.token.data(), token.data(), token.size()) != 0) {
            return std::nullopt;
        }
        entry& e = found->second;
        e.token = fresh;
        e.connection = connection;
        before = std::exchange(e.holder, std::move(holder));
        result = {e.of, fresh, e.next_number};
    }
    if (before) {
        before->end(net::close_normal, "the session goes on elsewhere");
    }
    return result;
}

session_table::number_state session_table::state_of(const session& of, std::uint64_t connection,
                                                    std::uint64_t number) const {
    const auto found = entries_.find(of.id);
    if (found == entries_.end() || found->second.connection != connection) {
        return number_state::not_held;
    }
    // The largest number would leave none for later.
    return number >= found->second.next_number && number != std::numeric_limits<std::uint64_t>::max()
               ? number_state::fresh
               : number_state::replayed;
}

bool session_table::holds(const session& of, std::uint64_t connection) const {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(of.id);
    return found != entries_.end() && found->second.connection == connection;
}

session_table::number_state session_table::look(const session& of, std::uint64_t connection,
                                                std::uint64_t number) const {
    const std::lock_guard lock(mutex_);
    return state_of(of, connection, number);
}

session_table::number_state session_table::accept(const session& of, std::uint64_t connection,
                                                  std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const number_state state = state_of(of, connection, number);
    if (state == number_state::fresh) {
        entries_.find(of.id)->second.next_number = number + 1;
    }
    return state;
}

void session_table::lose(const session& of, std::uint64_t connection, time_point now) {
    control dropped;
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(of.id);
    if (found != entries_.end() && found->second.connection == connection) {
        found->second.connection = 0;
        found->second.lost = now;
        dropped = std::exchange(found->second.holder, nullptr);
    }
}

void session_table::end(const session& of, std::uint64_t connection) {
    entry dropped;
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(of.id);
    if (found != entries_.end() && found->second.connection == connection) {
        dropped = std::move(found->second);
        entries_.erase(found);
    }
}

std::size_t session_table::forget(std::string_view client, std::uint64_t but_for) {
    std::vector<entry> dropped;
    {
        const std::lock_guard lock(mutex_);
        for (auto each = entries_.begin(); each != entries_.end();) {
            const auto next = std::next(each);
            if (each->second.of->client == client) {
                dropped.push_back(std::move(each->second));
                entries_.erase(each);
            }
            each = next;
        }
    }
    for (const entry& e : dropped) {
        if (e.holder && e.connection != but_for) {
            e.holder->end(net::close_normal, "this client was forgotten");
        }
    }
    return dropped.size();
}

std::size_t session_table::expire(time_point now) {
    std::vector<entry> dropped;
    {
        const std::lock_guard lock(mutex_);
        for (auto each = entries_.begin(); each != entries_.end();) {
            const auto next = std::next(each);
            if (is_over(each->second, now)) {
                dropped.push_back(std::move(each->second));
                entries_.erase(each);
            }
            each = next;
        }
    }
    return dropped.size();
}

std::size_t session_table::size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
}

std::map<std::pair<std::string, std::uint64_t>, std::size_t> session_table::count_by_version() const {
    std::map<std::pair<std::string, std::uint64_t>, std::size_t> result;
    const std::lock_guard lock(mutex_);
    for (const auto& [id, e] : entries_) {
        const served_model& model = e.of->work->model();
        ++result[{model.name(), model.version()}];
    }
    return result;
}

std::size_t session_table::zeros_stored() const {
    std::vector<std::shared_ptr<const session>> all;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [id, e] : entries_) {
            all.push_back(e.of);
        }
    }
    std::size_t sum = 0;
    for (const auto& each : all) {
        sum += each->work ? each->work->zeros_stored() : 0;
    }
    return sum;
}

}  // namespace split
