#include "store.hpp"

#include <tensafe/core/text.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

#if TENSAFE_REDIS
#include "redis_adapters.hpp"
#endif

namespace split {

namespace {

using tensafe::require;

/// A line of a private file.
tensafe::memory::secret_buffer<std::byte> line_of(const std::filesystem::path& file) {
    constexpr std::size_t longest = 1'024;
    auto read = tensafe::io::read_private_file(file, longest);
    std::size_t size = read.size();
    while (size > 0 &&
           (read.data()[size - 1] == std::byte{'\n'} || read.data()[size - 1] == std::byte{'\r'})) {
        --size;
    }
    tensafe::memory::secret_buffer<std::byte> line(size);
    std::copy_n(read.data(), size, line.data());
    return line;
}

std::string_view text_of(const tensafe::memory::secret_buffer<std::byte>& line) {
    return {reinterpret_cast<const char*>(line.data()), line.size()};
}

}  // namespace

opened_store open_store(const store_options& options, [[maybe_unused]] bool rows_expire,
                        [[maybe_unused]] const log& to) {
    require<tensafe::parameter_error>(options.store.empty() == options.fleet_key.empty() &&
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
        made.store.password = text_of(line_of(options.password_file));
    }
    const auto digits = line_of(options.fleet_key);
    auto key = tensafe::keystore::from_hex<32>(text_of(digits), tensafe::quote(options.fleet_key.native()));
    const tensafe::memory::wipe_guard guard(key);
    made.key = tensafe::memory::secret_buffer<std::byte>(key.size());
    std::ranges::copy(key, made.key.data());
    made.rows_expire = rows_expire;
    made.to = to;
    const auto counts = std::make_shared<redis_counts>(std::move(made));
    return {counts, std::make_shared<redis_adapters>(counts)};
#else
    throw tensafe::unsupported_error(
        "got --store, expected a build with a Redis client: install hiredis (Debian and Ubuntu: "
        "libhiredis-dev) and build "
        "again");
#endif
}

}  // namespace split
