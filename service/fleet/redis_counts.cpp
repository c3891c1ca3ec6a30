#include "redis_counts.hpp"

#include <tensafe/core/text.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/random/entropy.hpp>

#include <algorithm>
#include <hiredis/hiredis.h>

namespace split {

namespace {

using namespace std::chrono_literals;
using tensafe::serving::unavailable_error;

/// Before each script. A server is its boot, until when it counts as running, and its history.
constexpr const char* common = R"lua(
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number) return string.format('%.0f', number) end
local function server(value)
  local boot, till, history = value:match('^(%S+) (%d+) (.*)$')
  return boot, tonumber(till), history
end
-- Another one after each start, each time that this became a master, and when its first replica comes.
local function data_id()
  return redis.call('INFO', 'replication'):match('master_replid:(%w+)')
end
)lua";

/// KEYS: servers, history, beats. ARGV: id, boot, a fresh nonce, the history that we told our entries to, the
/// one before, lease in ms, our last beat, then other servers that ran in that one. A lease of more than a
/// minute is of a clock that went back, and a beat that is not later of a machine that was set back.
constexpr const char* renewing = R"lua(
local id, boot, told, before, lease = ARGV[1], ARGV[2], ARGV[4], ARGV[5], tonumber(ARGV[6])
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local other, till, history = server(all[i + 1])
  if till > now + math.max(lease, 60000) then
    redis.call('HSET', KEYS[1], all[i], other .. ' ' .. text(now + lease) .. ' ' .. history)
  end
end
local mine = redis.call('HGET', KEYS[1], id)
if mine then
  local other, till = server(mine)
  if other ~= boot and till > now then return {'taken', text(till)} end
end
local history, beat = redis.call('GET', KEYS[2]), redis.call('INCR', KEYS[3])
if not history or history:match('^%S+') ~= data_id() or beat <= tonumber(ARGV[7]) then
  history = data_id() .. ' ' .. ARGV[3] .. ' ' .. text(now)
  redis.call('SET', KEYS[2], history)
end
local ends = text(now + lease)
if history ~= before then
  for i = 8, #ARGV, 2 do
    local known = redis.call('HGET', KEYS[1], ARGV[i])
    local other, till
    if known then other, till = server(known) end
    if not till or till <= now then
      redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1] .. ' ' .. ends .. ' -')
    end
  end
end
redis.call('HSET', KEYS[1], id, boot .. ' ' .. ends .. ' ' .. told)
local result = {'renewed', history, text(beat)}
all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local other, till = server(all[i + 1])
  if till <= now then
    redis.call('HDEL', KEYS[1], all[i])
  elseif all[i] ~= id then
    result[#result + 1] = all[i]
    result[#result + 1] = other
  end
end
return result
)lua";

/// KEYS: servers, history, rows. ARGV: id, boot, the history that we told our entries to, its least age in
/// ms; of each row: journaled, asked, least, wanted, limit, seconds to live or 0.
constexpr const char* reserving = R"lua(
local id, told = ARGV[1], ARGV[3]
if redis.call('GET', KEYS[2]) ~= told or told:match('^%S+') ~= data_id() then return {'again'} end
if math.abs(now - tonumber(told:match('%d+$'))) < tonumber(ARGV[4]) then return {'wait'} end
local all, live, is_there = redis.call('HGETALL', KEYS[1]), 0, false
for i = 1, #all, 2 do
  local boot, till, history = server(all[i + 1])
  if till > now then
    if history ~= told then return {'wait'} end
    live = live + 1
    is_there = is_there or (all[i] == id and boot == ARGV[2])
  end
end
if not is_there then return {'again'} end
local result = {'granted'}
for k = 3, #KEYS do
  local at = 6 * (k - 3) + 4
  local journaled, asked, least = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local wanted, limit, life = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  local had, others = 0, 0
  local numbers = redis.call('HGETALL', KEYS[k])
  for i = 1, #numbers, 2 do
    if not numbers[i + 1]:match('^%d+$') then return redis.error_reply('a number in the store is damaged') end
    if numbers[i] == id then had = tonumber(numbers[i + 1]) else others = others + tonumber(numbers[i + 1]) end
  end
  local lost = 0
  if had > asked then lost = had - journaled end
  local mine = math.max(had, journaled)
  if others + least + lost <= limit then
    local part = math.floor(math.max(limit - others - mine, 0) / (2 * live))
    mine = math.max(mine, least + lost, math.min(wanted + lost, mine + part))
  end
  if mine > had then redis.call('HSET', KEYS[k], id, text(mine)) end
  if life > 0 then redis.call('EXPIRE', KEYS[k], life) end
  for _, number in ipairs({mine, others, lost}) do result[#result + 1] = text(number) end
end
return result
)lua";

/// KEYS: rows. ARGV: id, then of each journaled, the most that may be lowered to it, seconds to live or 0.
/// Returns how many were raised.
constexpr const char* telling = R"lua(
local raised = 0
for k = 1, #KEYS do
  local journaled, life = tonumber(ARGV[3 * k - 1]), tonumber(ARGV[3 * k + 1])
  local had = tonumber(redis.call('HGET', KEYS[k], ARGV[1]) or '0')
  if had < journaled or had <= tonumber(ARGV[3 * k]) then
    redis.call('HSET', KEYS[k], ARGV[1], text(journaled))
    if life > 0 then redis.call('EXPIRE', KEYS[k], life) end
  end
  if had < journaled then raised = raised + 1 end
end
return {'told', text(raised)}
)lua";

/// Of what a script returned.
std::string text_at(const redis_reply& of, std::size_t i) {
    tensafe::require<redis_error>(i < of->elements && of->element[i]->str != nullptr,
                                  {"the store answers otherwise than its script"});
    return {of->element[i]->str, of->element[i]->len};
}

std::uint64_t number_at(const redis_reply& of, std::size_t i) {
    const auto value = tensafe::number_of<std::uint64_t>(text_at(of, i));
    tensafe::require<redis_error>(value.has_value(), {"the store has no number there"});
    return *value;
}

std::string drawn() {
    const tensafe::random::seed nonce = tensafe::random::fresh_nonce();
    return tensafe::keystore::hex(std::as_bytes(std::span(nonce.bytes)).first(16));
}

}  // namespace

redis_counts::redis_counts(redis_counts_options options) : options_(std::move(options)) {
    tensafe::keystore::sha256 hash;
    constexpr std::string_view title = "tensafe fleet 1\n";
    hash.update(std::as_bytes(std::span(title)));
    hash.update(key());
    prefix_ = "tensafe:" + tensafe::keystore::hex(hash.finish()).substr(0, 16) + ":";
}

void redis_counts::begin(const std::string& server, entries_after entries) {
    id_ = server;
    entries_ = std::move(entries);
    boot_ = drawn();
    renew();
    // A server that died with this name is over when its lease is; one that runs renews it.
    for (const std::string first = taken_until_; !taken_until_.empty(); renew()) {
        tensafe::require<tensafe::parameter_error>(
            taken_until_ == first, {"another server that runs has this one's name in the store (", id_,
                                    "): its --state is a copy. Give each server its own folder; remove "
                                    "server_id and usage from a copy"});
        std::this_thread::sleep_for(options_.renewal / 2);
    }
    thread_ = std::jthread([this](const std::stop_token& stop) { attend(stop); });
}

void redis_counts::end() noexcept {
    thread_ = {};
    const std::lock_guard lock(call_);
    try {
        if (is_up_.exchange(false)) {
            connection_->command({"HDEL", prefix_ + "servers", id_});
        }
    } catch (const std::exception&) {
        // Its lease ends.
    }
    connection_.reset();
}

void redis_counts::attend(const std::stop_token& stop) {
    std::unique_lock lock(wait_);
    while (!stop.stop_requested()) {
        wake_.wait_for(lock, stop, options_.renewal, [&] { return std::exchange(is_woken_, false); });
        if (!stop.stop_requested()) {
            lock.unlock();
            renew();
            lock.lock();
        }
    }
}

void redis_counts::renew() {
    try {
        for (bool is_told = false; !is_told;) {
            std::unique_lock lock(call_);
            taken_until_.clear();
            if (!connection_) {
                connection_.emplace(options_.store, options_.step_limit);
            }
            const std::string history = renew_lease();
            is_told = history == history_;
            if (!is_told) {
                is_up_ = false;
                history_.clear();
                lock.unlock();
                replay();  // waits for reservations under way
                lock.lock();
                history_ = last_history_ = history;
            } else if (!is_up_.exchange(true)) {
                problem_.clear();
                options_.to.line(log_level::info, "store_up", {{"servers", std::uint64_t{servers_}}});
            }
        }
    } catch (const std::exception& e) {
        const std::lock_guard lock(call_);
        lost(e.what());
    }
}

/// @return the history of the store
std::string redis_counts::renew_lease() {
    std::vector<std::string> values{id_,
                                    boot_,
                                    drawn(),
                                    history_.empty() ? "-" : history_,
                                    last_history_,
                                    std::to_string(options_.lease.count()),
                                    std::to_string(beat_)};
    values.insert(values.end(), others_.begin(), others_.end());
    const redis_reply said =
        call(renewing, {prefix_ + "servers", prefix_ + "history", prefix_ + "beats"}, values);
    const bool is_taken = text_at(said, 0) == "taken";
    taken_until_ = is_taken ? text_at(said, 1) : taken_until_;
    tensafe::require<redis_error>(!is_taken, {"a server with this one's name, ", id_,
                                              ", has a lease, which is waited for: 10 s after a crash"});
    others_.clear();
    beat_ = number_at(said, 2);
    for (std::size_t i = 3; i < said->elements; ++i) {
        others_.push_back(text_at(said, i));
    }
    servers_ = others_.size() / 2 + 1;
    return text_at(said, 1);
}

void redis_counts::replay() {
    std::uint64_t raised = 0;
    auto renewed = std::chrono::steady_clock::now();
    for (std::vector<entry> some = entries_({}); !some.empty(); some = entries_(some.back().row)) {
        const std::lock_guard lock(call_);
        raised += tell(some, false);
        if (const auto now = std::chrono::steady_clock::now(); now - renewed >= options_.renewal) {
            renewed = now;
            static_cast<void>(renew_lease());  // so that the others wait to the end
        }
    }
    if (raised > 0) {
        options_.to.line(log_level::warning, "store_behind", {{"numbers", raised}});
    }
}

/// @return how many numbers the store had less of
std::uint64_t redis_counts::tell(std::span<const entry> entries, bool lowers) {
    std::vector<std::string> keys;
    std::vector<std::string> values{id_};
    for (const entry& each : entries) {
        keys.push_back(key_of(each));
        values.push_back(std::to_string(each.journaled));
        values.push_back(std::to_string(lowers ? each.asked : 0));
        values.push_back(life_of(each));
    }
    return number_at(call(telling, keys, values), 1);
}

std::vector<redis_counts::grant> redis_counts::reserve(std::span<const claim> claims) {
    const auto refuse_unless = [&](bool holds, std::chrono::milliseconds later) {
        if (!holds) {
            throw unavailable_error("the store of counts cannot be asked now", later);
        }
    };
    refuse_unless(is_up_, options_.renewal);
    std::vector<std::string> keys{prefix_ + "servers", prefix_ + "history"};
    std::vector<std::string> rows;
    for (const claim& each : claims) {
        keys.push_back(key_of(each.of));
        for (const std::uint64_t number :
             {each.of.journaled, each.of.asked, each.least, each.wanted, each.limit}) {
            rows.push_back(std::to_string(number));
        }
        rows.push_back(life_of(each.of));
    }
    const std::lock_guard lock(call_);
    refuse_unless(is_up_, options_.renewal);  // not any more: it was waited for
    std::vector<grant> result;
    try {
        std::vector<std::string> values{id_, boot_, history_, std::to_string(options_.settling.count())};
        values.insert(values.end(), rows.begin(), rows.end());
        const redis_reply said = call(reserving, keys, values);
        const std::string what = text_at(said, 0);
        tensafe::require<redis_error>(what != "again", {"the store has another history than it had"});
        refuse_unless(what == "granted", options_.renewal / 4);
        for (std::size_t i = 0; i < claims.size(); ++i) {
            result.push_back(
                {number_at(said, 3 * i + 1), number_at(said, 3 * i + 2), number_at(said, 3 * i + 3)});
        }
    } catch (const redis_error& e) {
        lost(e.what(), true);
        refuse_unless(false, options_.renewal / 4);
    }
    return result;
}

void redis_counts::lower(std::span<const entry> entries) {
    const std::lock_guard lock(call_);
    try {
        tensafe::require<redis_error>(is_up_, {"the store is away"});
        for (constexpr std::size_t some = 1'000; !entries.empty();) {
            const std::size_t count = std::min(some, entries.size());
            static_cast<void>(tell(entries.first(count), true));
            entries = entries.subspan(count);
        }
    } catch (const redis_error& e) {
        lost(e.what(), true);
        throw unavailable_error("the store of counts has the old numbers of this server still",
                                options_.renewal);
    }
}

std::vector<std::string> redis_counts::ask(const std::string& script, const std::vector<std::string>& keys,
                                           const std::vector<std::string>& values) {
    std::vector<std::string> whole;
    for (const std::string& each : keys) {
        whole.push_back(prefix_ + each);
    }
    try {
        tensafe::require<redis_error>(is_up_, {"the store is away"});
        const std::lock_guard lock(call_);
        tensafe::require<redis_error>(is_up_, {"the store is away"});
        const redis_reply said = call(script, whole, values);
        std::vector<std::string> texts;
        for (std::size_t i = 0; i < said->elements; ++i) {
            texts.push_back(text_at(said, i));
        }
        return texts;
    } catch (const redis_refusal& e) {
        throw unavailable_error(tensafe::text_of({"the store refuses: ", e.what()}), options_.renewal);
    } catch (const redis_error& e) {
        if (is_up_) {
            lost(e.what(), true);
        }
        throw unavailable_error("the store cannot be asked now", options_.renewal);
    }
}

redis_reply redis_counts::call(std::string_view script, const std::vector<std::string>& keys,
                               const std::vector<std::string>& values) {
    tensafe::require<redis_error>(connection_.has_value(), {"there is no connection to the store"});
    std::vector<std::string> words{"EVAL", std::string(common).append(script), std::to_string(keys.size())};
    words.insert(words.end(), keys.begin(), keys.end());
    words.insert(words.end(), values.begin(), values.end());
    return connection_->command(words);
}

std::string redis_counts::key_of(const entry& of) const {
    return prefix_ + "c:" + of.row + ":" + std::to_string(of.group);
}

/// In seconds; 0 is for ever. Where anybody may come, a client is a key that costs nothing.
std::string redis_counts::life_of(const entry& of) const {
    constexpr std::chrono::seconds of_client = std::chrono::hours(24);
    constexpr std::chrono::seconds of_tenant = std::chrono::hours(30 * 24);
    const bool lasts = !options_.rows_expire || of.row.starts_with('a');
    return std::to_string(lasts ? 0 : (of.row.starts_with('c') ? of_client : of_tenant).count());
}

/// Logged once for each reason.
/// @param wakes  the thread, which tries at once
void redis_counts::lost(const char* why, bool wakes) {
    connection_.reset();
    is_up_ = false;
    if (std::exchange(problem_, why) != why) {
        options_.to.line(log_level::warning, "store_unavailable", {{"what", problem_}});
    }
    const std::lock_guard lock(wait_);
    is_woken_ = wakes;
    wake_.notify_one();
}

}  // namespace split
