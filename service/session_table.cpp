#include "session_table.hpp"

#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/entropy.hpp>

#include <algorithm>
#include <span>

#include "model_store.hpp"

namespace split {

bool session_table::is_over(const session& s, time_point now) const noexcept {
    return s.connection_ == 0 && now - s.lost_ >= limits_.session_life;
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
    pointer dropped;  // given back outside the lock
    const std::lock_guard lock(mutex_);
    const auto is_its = [&](const auto& each) { return each.second->client == added->client; };
    const auto most = static_cast<std::ptrdiff_t>(limits_.sessions_of_client);
    const bool has_all = std::ranges::count_if(sessions_, is_its) >= most;
    if (has_all || sessions_.size() >= limits_.sessions) {
        auto oldest = sessions_.end();
        for (auto each = sessions_.begin(); each != sessions_.end(); ++each) {
            const session& s = *each->second;
            if (s.connection_ == 0 && (!has_all || is_its(*each)) &&
                (oldest == sessions_.end() || s.lost_ < oldest->second->lost_)) {
                oldest = each;
            }
        }
        if (oldest == sessions_.end()) {
            return nullptr;
        }
        dropped = oldest->second;
        sessions_.erase(oldest);
    }
    sessions_.emplace(added->id, added);
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

bool session_table::is_held(const session& of, std::uint64_t connection) const {
    const std::lock_guard lock(mutex_);
    return held(of, connection) != nullptr;
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
        if (const auto connection = s->control_.lock()) {
            connection->end(net::close_normal, reason);
        }
    }
    return ended.size();
}

std::size_t session_table::expire(time_point now) {
    return take_out([&](const session& s) { return is_over(s, now); }).size();
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
    return block_bytes(address) < block_bytes_of_address() && block_bytes() < limits_.block_bytes;
}

bool session_table::make_block_room(std::string_view address) const {
    return make_block_room(address, block_bytes_of_address()) && make_block_room({}, limits_.block_bytes);
}

}  // namespace split
