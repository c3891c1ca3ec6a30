#include "session_table.hpp"

#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/entropy.hpp>

#include <algorithm>
#include <mutex>
#include <span>
#include <tuple>

namespace split {

bool session_table::is_over(const session& s, time_point now) const noexcept {
    return (s.connection_ == 0 && now - s.lost_ >= limits_.session_life) ||
           now - s.used_ >= limits_.session_idle || (s.retired_ && now - *s.retired_ >= limits_.retired_life);
}

void session_table::hang_up(const session& s, std::uint16_t code, const std::string& reason) {
    if (const auto connection = s.control_.lock()) {
        connection->end(code, reason);
    }
}

/// A session that is held goes only if its address then still has as many as the newcomer's.
session_table::place session_table::who_makes_room(const session& newcomer, bool has_all, time_point now) {
    std::map<std::string_view, std::size_t> crowds;
    for (const auto& [id, s] : sessions_) {
        ++crowds[s->address];
    }
    const std::size_t mine = crowds[newcomer.address];
    auto found = sessions_.end();
    std::tuple<std::size_t, bool, time_point::duration> most{};
    for (auto each = sessions_.begin(); each != sessions_.end(); ++each) {
        const session& s = *each->second;
        const bool is_lost = s.connection_ == 0;
        const std::size_t crowd = has_all ? mine : crowds[s.address];
        const std::tuple rank(crowd, is_lost, now - (is_lost ? s.lost_ : s.used_));
        // Under the table's lock no session that is idle begins to be answered.
        const bool may = is_lost
                             ? crowd >= mine && (!has_all || s.client == newcomer.client)
                             : crowd > mine + 1 && std::unique_lock(s.evaluator->answering, std::try_to_lock);
        if (may && (found == sessions_.end() || rank > most)) {
            found = each;
            most = rank;
        }
    }
    return found;
}

std::shared_ptr<const session> session_table::open(session made, std::uint64_t connection, control holder,
                                                   time_point now) {
    const auto added = std::make_shared<session>(std::move(made));
    const tensafe::random::seed drawn = tensafe::random::fresh_nonce();
    session_id id{};
    std::copy_n(std::as_bytes(std::span(drawn.bytes)).begin(), id.size(), id.begin());
    added->id = tensafe::keystore::hex(id);
    added->connection_ = connection;
    added->control_ = std::move(holder);
    added->lost_ = now;
    added->used_ = now;
    pointer dropped;  // given back outside the lock
    std::unique_lock lock(mutex_);
    const auto is_its = [&](const auto& each) { return each.second->client == added->client; };
    const auto most = static_cast<std::ptrdiff_t>(limits_.sessions_of_client);
    const bool has_all = std::ranges::count_if(sessions_, is_its) >= most;
    if (has_all || sessions_.size() >= limits_.sessions) {
        const auto leaves = who_makes_room(*added, has_all, now);
        if (leaves == sessions_.end()) {
            return nullptr;
        }
        dropped = leaves->second;
        sessions_.erase(leaves);
    }
    sessions_.emplace(added->id, added);
    lock.unlock();
    if (dropped) {
        hang_up(*dropped, net::close_try_later, "idle, and others need the place: come again");
    }
    return added;
}

std::shared_ptr<const session> session_table::resume(std::string_view id, std::string_view client,
                                                     std::uint64_t connection, control holder,
                                                     time_point now) {
    std::unique_lock lock(mutex_);
    const auto found = sessions_.find(id);
    if (found == sessions_.end() || is_over(*found->second, now) || found->second->client != client) {
        return nullptr;
    }
    const pointer s = found->second;
    s->connection_ = connection;
    s->used_ = now;
    const auto before = std::exchange(s->control_, std::move(holder)).lock();
    lock.unlock();
    if (before) {
        before->end(net::close_normal, "the session goes on elsewhere");
    }
    return s;
}

session_table::pointer session_table::held(const session& of, std::uint64_t connection) const {
    const auto found = sessions_.find(of.id);
    return found != sessions_.end() && found->second->connection_ == connection ? found->second : nullptr;
}

bool session_table::use(const session& of, std::uint64_t connection, time_point now) {
    const std::lock_guard lock(mutex_);
    const pointer s = held(of, connection);
    if (s) {
        s->used_ = now;
    }
    return s != nullptr;
}

bool session_table::has(const session& of) const {
    const std::lock_guard lock(mutex_);
    return sessions_.contains(of.id);
}

void session_table::lose(const session& of, std::uint64_t connection, time_point now) {
    const std::lock_guard lock(mutex_);
    if (const pointer s = held(of, connection)) {
        s->connection_ = 0;
        s->lost_ = now;
        s->control_.reset();
    }
}

bool session_table::end(const session& of, std::uint64_t connection) {
    const std::lock_guard lock(mutex_);
    return held(of, connection) != nullptr && sessions_.erase(of.id) == 1;
}

template <class Condition>
std::vector<session_table::pointer> session_table::take_out(Condition condition) {
    std::vector<pointer> taken;
    const std::lock_guard lock(mutex_);
    std::erase_if(sessions_, [&](auto& each) {
        const bool is_taken = condition(*each.second);
        if (is_taken) {
            taken.push_back(std::move(each.second));
        }
        return is_taken;
    });
    return taken;
}

std::size_t session_table::end_all(const std::function<bool(const session&)>& condition,
                                   const std::string& reason) {
    const auto ended = take_out(condition);
    for (const pointer& s : ended) {
        hang_up(*s, net::close_normal, reason);
    }
    return ended.size();
}

std::size_t session_table::expire(time_point now, const model_store& current) {
    const auto over = take_out([&](session& s) {
        const served_model& its = s.evaluator->model();
        if (!s.retired_ && current.find(its.name).get() != &its) {
            s.retired_ = now;
        }
        return is_over(s, now);
    });
    for (const pointer& s : over) {
        hang_up(*s, net::close_normal,
                s->retired_ ? "the adapter was replaced or removed" : "no request came for too long");
    }
    return over.size();
}

std::size_t session_table::size() const {
    const std::lock_guard lock(mutex_);
    return sessions_.size();
}

std::vector<session_table::pointer> session_table::all() const {
    std::vector<pointer> result;
    const std::lock_guard lock(mutex_);
    for (const auto& [id, s] : sessions_) {
        result.push_back(s);
    }
    return result;
}

std::map<std::pair<std::string, std::uint64_t>, std::size_t> session_table::count_by_version() const {
    std::map<std::pair<std::string, std::uint64_t>, std::size_t> result;
    for (const pointer& s : all()) {
        const served_model& model = s->evaluator->model();
        ++result[{model.name, model.version}];
    }
    return result;
}

std::size_t session_table::pool_size() const {
    std::size_t sum = 0;
    for (const pointer& s : all()) {
        sum += s->evaluator->pool_size();
    }
    return sum;
}

std::size_t session_table::block_bytes(std::string_view address) const {
    std::size_t sum = 0;
    const std::lock_guard lock(mutex_);
    for (const auto& [id, s] : sessions_) {
        sum += address.empty() || s->address == address ? s->evaluator->held_bytes() : 0;
    }
    return sum;
}

bool session_table::make_block_room(std::string_view address, std::size_t most) const {
    std::size_t held = block_bytes(address);
    if (held < most) {
        return true;
    }
    std::vector<pointer> connected;
    std::multimap<time_point, pointer> lost;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [id, s] : sessions_) {
            if (s->evaluator->held_bytes() == 0 || (!address.empty() && s->address != address)) {
                continue;
            }
            s->connection_ == 0 ? void(lost.emplace(s->lost_, s)) : connected.push_back(s);
        }
    }
    const auto give_up = [&](session_evaluator& of, void (session_evaluator::*what)() noexcept) {
        if (held >= most) {
            const std::size_t before = of.held_bytes();
            (of.*what)();
            held -= std::min(held, before - std::min(before, of.held_bytes()));
        }
    };
    for (const pointer& each : connected) {  // most of these replies have arrived
        give_up(*each->evaluator, &session_evaluator::drop_replies);
    }
    for (const auto& [when, each] : lost) {
        give_up(*each->evaluator, &session_evaluator::drop_blocks);
    }
    return held < most;
}

bool session_table::has_block_room(std::string_view address) const {
    return block_bytes(address) < limits_.block_bytes_of_address() && block_bytes() < limits_.block_bytes;
}

bool session_table::make_block_room(std::string_view address) const {
    return make_block_room(address, limits_.block_bytes_of_address()) &&
           make_block_room({}, limits_.block_bytes);
}

}  // namespace split
