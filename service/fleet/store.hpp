#pragma once

#include <tensafe/serving/shared_counts.hpp>

#include <filesystem>
#include <memory>
#include <string>

#include "../limits.hpp"
#include "../log.hpp"
#include "listed_adapters.hpp"

namespace split {

/// Where several servers count together, and have the list of their adapters.
struct store_options {
    std::string store;                    ///< as redis_address::parse reads; empty: this server counts alone
    std::filesystem::path password_file;  ///< empty: there is none
    std::filesystem::path fleet_key;      ///< of 64 hexadecimal digits
};

/// All null: this server is alone.
struct opened_store {
    std::shared_ptr<tensafe::serving::shared_counts> counts;
    shared_buckets rates;
    std::shared_ptr<adapter_list> adapters;  ///< this and rates may be asked once a service uses the counts
};

/// Reads the files, and connects to nothing yet.
/// @param rows_expire  as of redis_counts_options
/// @throws parameter_error for options that are none, or one without the other; unsupported_error if this
///         build has no Redis client; as tensafe::io::read_private_file
opened_store open_store(const store_options& options, bool rows_expire, const log& to);

}  // namespace split
