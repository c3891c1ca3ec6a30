#include "redis_rates.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace split {

namespace {

/// KEYS: buckets. ARGV: what one refills by in a second, then what was taken from each.
constexpr const char* paying = R"lua(
local result, rate = {}, tonumber(ARGV[1])
for k = 1, #KEYS do
  local lacked, at = (redis.call('GET', KEYS[k]) or ''):match('^(%S+) (%d+)$')
  lacked, at = tonumber(lacked) or 0, tonumber(at) or now
  if not (lacked >= 0 and lacked < 1e15) then lacked = 0 end
  lacked = math.max(0, lacked - rate * math.max(0, now - at) / 1000)
  local lacks = math.max(0, lacked + tonumber(ARGV[k + 1]))
  result[k] = string.format('%.9g', lacks)
  local life = math.min(math.ceil(lacks / rate * 1000) + 1, 86400000)
  redis.call('SET', KEYS[k], result[k] .. ' ' .. text(now), 'PX', text(life))
end
return result
)lua";

}  // namespace

shared_buckets redis_rates(std::shared_ptr<redis_counts> store) {
    return [store = std::move(store)](std::string_view limit, double per_second,
                                      std::span<const std::pair<std::string, double>> taken) {
        std::vector<std::string> keys;
        std::vector<std::string> values{std::to_string(per_second)};
        for (const auto& [name, amount] : taken) {
            const std::string whose = std::string(limit).append(1, '\n').append(name);
            const auto hash = tensafe::keystore::hmac_sha256(store->key(), whose);
            keys.push_back("r:" + tensafe::keystore::hex(hash).substr(0, 32));
            values.push_back(std::to_string(amount));
        }
        std::vector<double> lacks;
        for (const std::string& each : store->ask(paying, keys, values)) {
            lacks.push_back(std::strtod(each.c_str(), nullptr));
        }
        tensafe::require<tensafe::format_error>(
            lacks.size() == taken.size() &&
                std::ranges::all_of(lacks, [](double x) { return x >= 0 && x < 1e18; }),
            {"the buckets in the store are damaged"});
        return lacks;
    };
}

}  // namespace split
