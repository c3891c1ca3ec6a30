#include "store.hpp"

#include <tensafe/core/text.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

#if TENSAFE_REDIS
#include "redis_adapters.hpp"
#include "redis_rates.hpp"
#endif

namespace split {

#if TENSAFE_REDIS
namespace {

constexpr std::size_t longest_file = 1'024;

/// Without its end.
std::string_view line_of(const tensafe::memory::secret_buffer<std::byte>& file) {
    const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
    return text.substr(0, text.find_last_not_of("\r\n") + 1);
}

}  // namespace
#endif

opened_store open_store(const store_options& options, [[maybe_unused]] bool rows_expire,
                        [[maybe_unused]] const log& to) {
    tensafe::require<tensafe::parameter_error>(
        options.store.empty() == options.fleet_key.empty() &&
            (!options.store.empty() || options.password_file.empty()),
        {"got --store, --fleet-key or --store-password-file without the "
         "others, expected --store with --fleet-key FILE "
         "(openssl rand -hex 32 > FILE), the same on each server"});
    if (options.store.empty()) {
        return {};
    }
#if TENSAFE_REDIS
    redis_counts_options made;
    made.store = redis_address::parse(options.store);
    if (!options.password_file.empty()) {
        made.store.password = line_of(tensafe::io::read_private_file(options.password_file, longest_file));
    }
    auto key = tensafe::keystore::from_hex<32>(
        line_of(tensafe::io::read_private_file(options.fleet_key, longest_file)),
        tensafe::quote(options.fleet_key.native()));
    const tensafe::memory::wipe_guard guard(key);
    made.key = tensafe::memory::secret_buffer<std::byte>(key.size());
    std::ranges::copy(key, made.key.data());
    made.rows_expire = rows_expire;
    made.to = to;
    const auto counts = std::make_shared<redis_counts>(std::move(made));
    return {counts, redis_rates(counts), std::make_shared<redis_adapters>(counts)};
#else
    throw tensafe::unsupported_error(
        "got --store, expected a build with a Redis client: install hiredis (Debian and Ubuntu: "
        "libhiredis-dev) and build "
        "again");
#endif
}

}  // namespace split
