#include "redis_adapters.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "../client_list.hpp"

namespace split {

namespace {

/// Around what a call does. KEYS: servers, adapters, versions. ARGV: the time until a version is due, this
/// server, then the call's. Of each name there is a text: its version, when it came, its directory, or none
/// if it was removed, which is remembered for 30 days; whether it is due, or who tried it, 1 of who packed
/// it, and the version before that was due.
constexpr const char* before = R"lua(
local function stored(name)
  local value = redis.call('HGET', KEYS[2], name)
  return value and cjson.decode(value)
end
local function store(name, entry) redis.call('HSET', KEYS[2], name, cjson.encode(entry)) end
local function change(name, directory)
  local had = stored(name)
  if not had and redis.call('HLEN', KEYS[2]) >= 4096 then
    return redis.error_reply('the list of adapters has 4096 names, those removed in 30 days included')
  end
  local version = redis.call('INCR', KEYS[3])
  if had and had.version >= version then
    version = had.version + 1
    redis.call('SET', KEYS[3], version)
  end
  local before
  if had and had.directory and directory then
    before = had.due and {version = had.version, directory = had.directory} or had.before
  end
  store(name, {version = version, at = now, directory = directory, before = before})
end
)lua";
constexpr const char* after = R"lua(
local live, is_known = {}, false
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local boot, till = server(all[i + 1])
  if till > now then live[#live + 1] = all[i] end
  is_known = is_known or all[i] == ARGV[2]
end
local result = {}
all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  local name, entry = all[i], cjson.decode(all[i + 1])
  if not entry.directory and now - entry.at > 30 * 86400000 then
    redis.call('HDEL', KEYS[2], name)
    entry = nil
  end
  if entry and entry.directory and not entry.due then
    entry.due = is_known  -- else the store has just lost all servers
    local is_packed = false
    for _, done in pairs(entry.tried or {}) do is_packed = is_packed or done == 1 end
    for _, each in ipairs(live) do entry.due = entry.due and (entry.tried or {})[each] end
    entry.due = is_packed and (entry.due or now - entry.at >= tonumber(ARGV[1])) and true
    if entry.due then
      entry.tried, entry.before = nil, nil
      store(name, entry)
    end
  end
  if entry then
    result[#result + 1] = name
    result[#result + 1] = text(entry.version)
    result[#result + 1] = not entry.directory and 'gone' or entry.due and 'due' or 'waiting'
    result[#result + 1] = entry.directory or ''
    result[#result + 1] = cjson.encode(entry)
    local before = entry.before or {}
    result[#result + 1] = before.version and text(before.version) or '0'
    result[#result + 1] = before.directory or ''
  end
end
return result
)lua";

/// ARGV: name, directory.
constexpr const char* putting = "local full = change(ARGV[3], ARGV[4]) if full then return full end";
/// ARGV: name.
constexpr const char* removing = "change(ARGV[3])";
/// ARGV: names, versions, and whether they are packed.
constexpr const char* noting = R"lua(
for i = 3, #ARGV, 3 do
  local entry = stored(ARGV[i])
  if entry and entry.directory and not entry.due and text(entry.version) == ARGV[i + 1] then
    entry.tried = entry.tried or {}
    entry.tried[ARGV[2]] = tonumber(ARGV[i + 2])
    store(ARGV[i], entry)
  end
end
)lua";
/// ARGV: names and their texts, as heard from a store that had more.
constexpr const char* telling = R"lua(
for i = 3, #ARGV, 2 do
  local had, heard = stored(ARGV[i]), cjson.decode(ARGV[i + 1])
  if not had or had.version < heard.version then
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
    if tonumber(redis.call('GET', KEYS[3]) or '0') < heard.version then redis.call('SET', KEYS[3], heard.version) end
  end
end
)lua";

}  // namespace

std::vector<redis_adapters::change> redis_adapters::run(std::string_view own,
                                                        const std::vector<std::string>& values) {
    std::vector<std::string> all{std::to_string(time_.count()), store_->server()};
    all.insert(all.end(), values.begin(), values.end());
    const std::vector<std::string> said =
        store_->ask(std::string(before).append(own).append(after), {"servers", "adapters", "versions"}, all);
    constexpr std::size_t texts = 7;  // of a name
    constexpr std::size_t most_texts =
        texts * 65'536;  // what servers tell it again comes on top of 4,096 names
    const auto check = [](bool holds) {
        tensafe::require<tensafe::format_error>(holds, {"the list of adapters in the store is damaged"});
    };
    check(said.size() % texts == 0 && said.size() <= most_texts);
    std::vector<change> result;
    for (std::size_t i = 0; i < said.size(); i += texts) {
        const auto version = tensafe::number_of<std::uint64_t>(said[i + 1]);
        const auto earlier = tensafe::number_of<std::uint64_t>(said[i + 5]);
        check(is_adapter_name(said[i]) && version && earlier);
        result.push_back({{said[i], *version, said[i + 3], said[i + 2] == "due"},
                          said[i + 2] == "gone",
                          said[i + 4],
                          {said[i], *earlier, said[i + 6], true}});
    }
    std::ranges::sort(result, {}, [](const change& each) { return each.is.version; });
    return result;
}

void redis_adapters::hear(const std::vector<std::string>& tried) {
    std::vector<change> now = run(noting, tried);
    std::vector<std::string> lost;
    for (const change& each : last_) {
        const auto found =
            std::ranges::find(now, each.is.name, [](const change& known) { return known.is.name; });
        if (found == now.end() || found->is.version < each.is.version) {
            lost.insert(lost.end(), {each.is.name, each.text});
        }
    }
    last_ = lost.empty() ? std::move(now) : run(telling, lost);
}

void redis_adapters::put(const std::string& name, const std::string& directory) {
    const std::lock_guard lock(mutex_);
    hear({});
    last_ = run(putting, {name, directory});
}

bool redis_adapters::remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    hear({});
    const auto known = std::ranges::find(last_, name, [](const change& each) { return each.is.name; });
    if (known == last_.end() || known->is_gone) {
        return false;
    }
    last_ = run(removing, {name});
    return true;
}

std::vector<listed_adapter> redis_adapters::look(const std::vector<tried_version>& tried) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> values;
    for (const tried_version& each : tried) {
        values.insert(values.end(), {each.name, std::to_string(each.version), each.is_packed ? "1" : "0"});
    }
    hear(values);
    std::vector<listed_adapter> result;
    for (const change& each : last_) {
        if (each.before.version != 0) {
            result.push_back(each.before);
        }
        if (!each.is_gone) {
            result.push_back(each.is);
        }
    }
    return result;
}

}  // namespace split
